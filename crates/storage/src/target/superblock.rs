//! What a target is: a checksummed record of fixed layout (docs/disk.md, "Superblock").

use std::fmt;
use std::str::FromStr;

use base::{BootEpoch, Rng, TargetIndex, TargetKind, TargetName, Timestamp};

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 512;
/// The version of its layout and of everything else in the target's directory.
pub const SUPERBLOCK_VERSION: u32 = 1;
/// The version while the target's objects move from files to extents, which `glint upgrade` alone goes on with.
pub const UPGRADING_VERSION: u32 = 2;

const MAGIC: &[u8; 8] = b"GLINTFS\n";
const CRC_AT: usize = SUPERBLOCK_BYTES - 4;
const FS_NAME_AT: usize = 80;

/// 128 random bits that name a file system or target for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A new one (version 4, RFC 9562).
    pub fn random(rng: &mut dyn Rng) -> Uuid {
        let bits = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        let mut bytes = bits.to_be_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A file system's name: 1 to 32 of `a-z A-Z 0-9 . _ -`, and neither `.` nor `..`, which
/// `HOST:/NAME` cannot have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FsName(String);

impl FsName {
    /// Its longest length in bytes.
    pub const BYTES_MAX: usize = 32;

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for FsName {
    type Err = String;

    fn from_str(text: &str) -> Result<FsName, String> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_dots = matches!(text, "." | "..");
        if is_dots || text.is_empty() || text.len() > Self::BYTES_MAX || !text.bytes().all(allowed)
        {
            return Err(format!(
                "{text:?} is not a file system name; use 1 to {} of a-z, A-Z, 0-9, '.', '_', '-', but not '.' or '..'",
                Self::BYTES_MAX
            ));
        }
        Ok(FsName(text.to_owned()))
    }
}

/// What a target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// The file system it belongs to, for people.
    pub fs_name: FsName,
    /// The file system it belongs to.
    pub fs_uuid: Uuid,
    /// Its kind and number.
    pub target: TargetName,
    /// This target and no other, however often a number is given anew.
    pub target_uuid: Uuid,
    /// When it was formatted.
    pub created: Timestamp,
    /// How often it has been started; zero before the first start.
    pub boot_epoch: BootEpoch,
    /// Its objects move from files to extents: some are here, some there.
    pub is_upgrading: bool,
}

/// Why bytes are not a superblock of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unreadable {
    Damaged(String),
    ForeignVersion(u32),
}

fn kind_code(kind: TargetKind) -> u8 {
    match kind {
        TargetKind::Mgs => 1,
        TargetKind::Mdt => 2,
        TargetKind::Ost => 3,
    }
}

fn kind_of(code: u8) -> Option<TargetKind> {
    match code {
        1 => Some(TargetKind::Mgs),
        2 => Some(TargetKind::Mdt),
        3 => Some(TargetKind::Ost),
        _ => None,
    }
}

impl Superblock {
    /// Its bytes on disk.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, MAGIC);
        let version = match self.is_upgrading {
            true => UPGRADING_VERSION,
            false => SUPERBLOCK_VERSION,
        };
        put(8, &version.to_le_bytes());
        put(12, &[kind_code(self.target.kind), 0]);
        put(14, &self.target.index.0.to_le_bytes());
        put(16, &self.fs_uuid.0);
        put(32, &self.target_uuid.0);
        put(48, &self.created.secs.to_le_bytes());
        put(56, &self.created.nanos.to_le_bytes());
        put(64, &self.boot_epoch.0.to_le_bytes());
        put(72, &[self.fs_name.0.len() as u8]);
        put(FS_NAME_AT, self.fs_name.0.as_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// What `bytes` say.
    pub(super) fn decode(bytes: &[u8]) -> Result<Superblock, Unreadable> {
        let damaged = |why: &str| Unreadable::Damaged(why.to_owned());
        let Ok(bytes) = <&[u8; SUPERBLOCK_BYTES]>::try_from(bytes) else {
            return Err(damaged("its length is wrong"));
        };
        if &bytes[..8] != MAGIC {
            return Err(damaged("it does not begin as a superblock does"));
        }
        if crc32c::crc32c(&bytes[..CRC_AT]).to_le_bytes() != bytes[CRC_AT..] {
            return Err(damaged("its checksum does not match"));
        }
        // Magic and checksum hold their places in every version.
        let version = u32::from_le_bytes(field(bytes, 8));
        let is_upgrading = match version {
            SUPERBLOCK_VERSION => false,
            UPGRADING_VERSION if bytes[12] == kind_code(TargetKind::Ost) => true,
            _ => return Err(Unreadable::ForeignVersion(version)),
        };
        let kind = kind_of(bytes[12]).ok_or_else(|| damaged("its kind of target is unknown"))?;
        let fs_name = bytes[FS_NAME_AT..CRC_AT].get(..usize::from(bytes[72]));
        let fs_name = fs_name.and_then(|name| std::str::from_utf8(name).ok());
        let fs_name = fs_name.and_then(|name| name.parse().ok());
        Ok(Superblock {
            fs_name: fs_name.ok_or_else(|| damaged("its file system's name is not one"))?,
            fs_uuid: Uuid(field(bytes, 16)),
            target: TargetName {
                kind,
                index: TargetIndex(u16::from_le_bytes(field(bytes, 14))),
            },
            target_uuid: Uuid(field(bytes, 32)),
            created: Timestamp {
                secs: i64::from_le_bytes(field(bytes, 48)),
                nanos: u32::from_le_bytes(field(bytes, 56)),
            },
            boot_epoch: BootEpoch(u64::from_le_bytes(field(bytes, 64))),
            is_upgrading,
        })
    }
}

fn field<const N: usize>(bytes: &[u8; SUPERBLOCK_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            fs_name: "demo".parse().unwrap(),
            fs_uuid: Uuid(std::array::from_fn(|i| 0x10 + i as u8)),
            target: TargetName::ost(0x0203),
            target_uuid: Uuid(std::array::from_fn(|i| 0x20 + i as u8)),
            created: Timestamp {
                secs: 0x0102_0304_0506,
                nanos: 999_999_999,
            },
            boot_epoch: BootEpoch(0x0a0b),
            is_upgrading: false,
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn golden_bytes() {
        let bytes = sample().encode();
        let expected = [
            "474c494e5446530a",                 // magic
            "01000000",                         // version
            "03000302",                         // kind, reserved, index
            "101112131415161718191a1b1c1d1e1f", // file system
            "202122232425262728292a2b2c2d2e2f", // target
            "0605040302010000",                 // created, seconds
            "ffc99a3b00000000",                 // created, nanoseconds
            "0b0a000000000000",                 // boot epoch
            "0400000000000000",                 // length of the name
            "64656d6f",                         // name
        ]
        .concat();
        assert_eq!(hex(&bytes[..84]), expected);
        assert!(bytes[84..CRC_AT].iter().all(|&byte| byte == 0));
        assert_eq!(hex(&bytes[CRC_AT..]), "bd37d80d");
        assert_eq!(Superblock::decode(&bytes), Ok(sample()));
        let upgrading = Superblock {
            is_upgrading: true,
            ..sample()
        };
        let bytes = upgrading.encode();
        assert_eq!(bytes[8..12], [2, 0, 0, 0], "which others refuse");
        assert_eq!(Superblock::decode(&bytes), Ok(upgrading));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample().encode();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(
                Superblock::decode(&bytes),
                Err(Unreadable::Damaged(_))
            ));
        }
    }

    #[test]
    fn another_version_is_told_from_damage() {
        let mut bytes = sample().encode();
        bytes[8] = 9;
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(
            Superblock::decode(&bytes),
            Err(Unreadable::ForeignVersion(9))
        );
        assert!(matches!(
            Superblock::decode(&[]),
            Err(Unreadable::Damaged(_))
        ));
    }

    #[test]
    fn names_are_checked() {
        for bad in ["", "a/b", "a b", "\u{e9}", &"x".repeat(33)] {
            assert!(bad.parse::<FsName>().is_err(), "{bad}");
        }
        assert!("demo-2.x_Y".parse::<FsName>().is_ok());
    }
}
