//! The two sectors of a fence, as bytes (docs/disk.md, "Fence").

use super::process::{HOST_BYTES_MAX, Process};

/// Bytes of a sector, which is written whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;
/// Where the sector is in which a claim stands.
pub(super) const CLAIM_AT: u64 = 0;
/// Where the one is in which its maker shows that it lives: in a page of its own.
pub(super) const BEAT_AT: u64 = 4096;
/// Bytes of the whole.
pub(super) const FENCE_BYTES: u64 = 8192;

const CLAIM_MAGIC: &[u8; 8] = b"GLINTFNC";
const BEAT_MAGIC: &[u8; 8] = b"GLINTBEA";
const VERSION: u32 = 1;
const CRC_AT: usize = SECTOR_BYTES - 4;
const HOST_AT: usize = 80;

/// A sector's bytes.
pub(super) type Sector = [u8; SECTOR_BYTES];

/// Names one claim and no other.
pub(super) type Owner = [u8; 16];

/// Who has a fence, or had it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// It is held. Else: its holder has let it go.
    pub held: bool,
    /// The claim's name.
    pub owner: Owner,
    /// Claims so far.
    pub epoch: u64,
    /// Who made it.
    pub process: Process,
}

/// What a claim's sector holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing was ever claimed.
    Nothing,
    /// A claim.
    Claim(Claim),
    /// What nobody wrote, or a sector caught halfway.
    Unreadable,
    /// Another version of the program wrote it.
    ForeignVersion(u32),
}

impl Claim {
    /// Its sector.
    pub fn encode(&self) -> Sector {
        let host = self.process.host.as_bytes();
        let host = &host[..host.len().min(HOST_BYTES_MAX)];
        let mut sector = begun(CLAIM_MAGIC);
        let mut put = |at: usize, field: &[u8]| sector[at..at + field.len()].copy_from_slice(field);
        put(12, &[u8::from(self.held)]);
        put(16, &self.owner);
        put(32, &self.epoch.to_le_bytes());
        put(40, &self.process.kernel);
        put(56, &self.process.space.to_le_bytes());
        put(64, &self.process.started.to_le_bytes());
        put(72, &self.process.pid.to_le_bytes());
        put(76, &[host.len() as u8]);
        put(HOST_AT, host);
        sealed(sector)
    }

    /// What `sector` says.
    pub fn decode(sector: &Sector) -> Found {
        if sector.iter().all(|byte| *byte == 0) {
            return Found::Nothing;
        }
        let crc = crc32c::crc32c(&sector[..CRC_AT]).to_le_bytes();
        if &sector[..8] != CLAIM_MAGIC || crc != sector[CRC_AT..] {
            return Found::Unreadable;
        }
        let version = u32::from_le_bytes(field(sector, 8));
        if version != VERSION {
            return Found::ForeignVersion(version);
        }
        let host = sector[HOST_AT..CRC_AT].get(..usize::from(sector[76]));
        let host = host.and_then(|host| std::str::from_utf8(host).ok());
        match (sector[12], host) {
            (held @ 0..=1, Some(host)) => Found::Claim(Claim {
                held: held == 1,
                owner: field(sector, 16),
                epoch: u64::from_le_bytes(field(sector, 32)),
                process: Process {
                    kernel: field(sector, 40),
                    space: u64::from_le_bytes(field(sector, 56)),
                    started: u64::from_le_bytes(field(sector, 64)),
                    pid: u32::from_le_bytes(field(sector, 72)),
                    host: host.to_owned(),
                    is_apart: false,
                },
            }),
            _ => Found::Unreadable,
        }
    }
}

/// The sector in which the maker of a claim shows for the `count`th time that it lives.
pub(super) fn beat(owner: &Owner, count: u64) -> Sector {
    let mut sector = begun(BEAT_MAGIC);
    sector[16..32].copy_from_slice(owner);
    sector[32..40].copy_from_slice(&count.to_le_bytes());
    sealed(sector)
}

fn begun(magic: &[u8; 8]) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    sector[..8].copy_from_slice(magic);
    sector[8..12].copy_from_slice(&VERSION.to_le_bytes());
    sector
}

fn sealed(mut sector: Sector) -> Sector {
    let crc = crc32c::crc32c(&sector[..CRC_AT]);
    sector[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    sector
}

fn field<const N: usize>(sector: &Sector, at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&sector[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Claim {
        Claim {
            held: true,
            owner: std::array::from_fn(|i| 0x10 + i as u8),
            epoch: 0x0102,
            process: Process {
                kernel: std::array::from_fn(|i| 0x20 + i as u8),
                space: 0x0304,
                started: 0x0506,
                pid: 0x0708,
                host: "node1".to_owned(),
                is_apart: false,
            },
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_bytes() {
        let sector = sample().encode();
        let expected = [
            "474c494e54464e43",                 // magic
            "01000000",                         // version
            "01000000",                         // held
            "101112131415161718191a1b1c1d1e1f", // owner
            "0201000000000000",                 // epoch
            "202122232425262728292a2b2c2d2e2f", // kernel
            "0403000000000000",                 // name space of process ids
            "0605000000000000",                 // started
            "0807000005000000",                 // process id, length of the name
            "6e6f646531",                       // host
        ]
        .concat();
        assert_eq!(hex(&sector[..85]), expected);
        assert!(sector[85..CRC_AT].iter().all(|&byte| byte == 0));
        assert_eq!(Claim::decode(&sector), Found::Claim(sample()));
        let beat = beat(&sample().owner, 3);
        assert_eq!(hex(&beat[..16]), "474c494e544245410100000000000000");
        assert_eq!((&beat[16..32], beat[32]), (&sample().owner[..], 3));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let sector = sample().encode();
        for bit in 0..sector.len() * 8 {
            let mut sector = sector;
            sector[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Claim::decode(&sector), Found::Unreadable);
        }
    }

    #[test]
    fn nothing_and_another_version_are_told_apart() {
        assert_eq!(Claim::decode(&[0; SECTOR_BYTES]), Found::Nothing);
        let mut sector = sample().encode();
        sector[8] = 9;
        assert_eq!(Claim::decode(&sealed(sector)), Found::ForeignVersion(9));
    }

    #[test]
    fn a_long_name_of_a_host_is_cut() {
        let mut claim = sample();
        claim.process.host = "n".repeat(300);
        let Found::Claim(read) = Claim::decode(&claim.encode()) else {
            panic!("it can be read");
        };
        assert_eq!(read.process.host.len(), HOST_BYTES_MAX);
    }
}
