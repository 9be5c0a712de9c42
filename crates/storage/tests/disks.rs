//! Disks: the checked one's layout and blocks, and that the faulty one fails as it says.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::io::ErrorKind;

use base::{ByteRange, Rng, SeededRng};
use storage::{CheckedDisk, Disk, FaultyDisk, FileDisk, MemDisk, StorageError, Survivors};

const BLOCK: u64 = 4096;

fn block(fill: u8) -> Vec<u8> {
    vec![fill; BLOCK as usize]
}

fn read(disk: &dyn Disk, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    disk.read(offset, &mut bytes).unwrap();
    bytes
}

/// CRC-32C, bit by bit: what docs/disk.md says, without the library under test.
fn crc32c_by_hand(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

#[test]
fn the_layout_is_the_documented_one() {
    let below = MemDisk::new();
    let disk = CheckedDisk::create(below.clone()).unwrap();
    disk.set_len(1026 * BLOCK).unwrap();
    disk.write(0, b"the head").unwrap();
    disk.write(BLOCK, &block(1)).unwrap();
    disk.write(1025 * BLOCK, &block(2)).unwrap();
    disk.sync().unwrap();
    let bytes = below.to_bytes();
    let at = |block: usize| &bytes[block * 4096..][..4096];
    assert_eq!(
        bytes.len(),
        (1030 + 2) * 4096,
        "ends with logical block 1025"
    );
    assert_eq!(at(5 + 1), block(1), "logical block 1");
    assert_eq!(at(1030 + 1), block(2), "logical block 1025");
    let sum = |number: u64, block: Vec<u8>| {
        let covered = [number.to_le_bytes().to_vec(), block].concat();
        crc32c_by_hand(&covered).to_le_bytes()
    };
    assert_eq!(at(4)[4..8], sum(1, block(1)));
    assert_eq!(at(4)[8..], [0; 4096 - 8], "never written");
    assert_eq!(at(1029)[4..8], sum(1025, block(2)));
    assert_eq!(at(0), [0; 4096], "the first sync is odd: pair B");
    assert_eq!(at(2), at(3));
    let head = at(2);
    assert_eq!(&head[..16], b"GLINTCHK\x01\0\0\0\0\0\0\0");
    assert_eq!(head[16..24], 1_u64.to_le_bytes());
    assert_eq!(&head[64..72], b"the head");
    assert_eq!(head[4092..], crc32c_by_hand(&head[..4092]).to_le_bytes());
    disk.write(0, b"the next").unwrap();
    disk.sync().unwrap();
    assert_eq!(
        &below.to_bytes()[64..72],
        b"the next",
        "the second sync is even: pair A"
    );
}

#[test]
fn a_checked_disk_agrees_with_a_vector_through_resizing_and_reopening() {
    let below = MemDisk::new();
    let mut disk = CheckedDisk::create(below.clone()).unwrap();
    let mut model = block(0);
    let mut written = vec![true];
    disk.set_len(BLOCK).unwrap();
    let mut rng = SeededRng::new(3);
    for _ in 0..400 {
        let blocks = model.len() as u64 / BLOCK;
        match rng.below(8) {
            0 => {
                // Around the edge between two groups, mostly.
                let blocks = 1 + [rng.below(2000), 1000 + rng.below(50)][rng.below(2) as usize];
                disk.set_len(blocks * BLOCK).unwrap();
                model.resize((blocks * BLOCK) as usize, 0);
                written.resize(blocks as usize, false);
            }
            1 => {
                disk.sync().unwrap();
                disk = CheckedDisk::open(below.clone()).unwrap();
            }
            2 => {
                let fill = [rng.next_u64() as u8; 300];
                disk.write(20, &fill).unwrap();
                model[20..320].copy_from_slice(&fill);
            }
            _ if blocks > 1 => {
                let first = 1 + rng.below(blocks - 1);
                let count = 1 + rng.below((blocks - first).min(40));
                let data = vec![rng.next_u64() as u8; (count * BLOCK) as usize];
                disk.write(first * BLOCK, &data).unwrap();
                let at = (first * BLOCK) as usize;
                model[at..at + data.len()].copy_from_slice(&data);
                written[first as usize..][..count as usize].fill(true);
            }
            _ => {}
        }
        assert_eq!(disk.len().unwrap(), model.len() as u64);
        let mut found = block(0);
        for (at, expected) in model.chunks(BLOCK as usize).enumerate().skip(1) {
            match disk.read(at as u64 * BLOCK, &mut found) {
                Ok(()) => assert!(written[at] && found == expected, "block {at}"),
                Err(error) => assert!(!written[at] && error.damage().is_some(), "{error}"),
            }
        }
        assert_eq!(read(&disk, 0, 320), model[..320]);
    }
}

#[test]
fn what_is_not_whole_blocks_of_the_disk_is_refused() {
    let disk = CheckedDisk::create(MemDisk::new()).unwrap();
    disk.set_len(2 * BLOCK).unwrap();
    let mut buffer = block(0);
    let errors = [
        disk.write(BLOCK + 1, &block(1)).unwrap_err(),
        disk.write(BLOCK, &[1; 100]).unwrap_err(),
        disk.write(100, &block(1)).unwrap_err(),
        disk.write(u64::MAX - 4095, &block(1)).unwrap_err(),
        disk.read(4000, &mut buffer).unwrap_err(),
        disk.set_len(100).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, StorageError::Refused { .. }), "{error}");
    }
    let beyond = disk.read(2 * BLOCK, &mut buffer).unwrap_err();
    assert!(beyond.to_string().contains("block 2"), "{beyond}");
    assert!(beyond.damage().is_some(), "a file that was cut: {beyond}");
}

/// What is left of the heads where both copies of one are lost may be the older one, however whole it is.
#[test]
fn an_older_head_is_never_taken_for_the_newest() {
    let below = MemDisk::new();
    let disk = CheckedDisk::create(below.clone()).unwrap();
    for n in 0..6_u8 {
        disk.write(0, &[n]).unwrap();
        disk.sync().unwrap();
    }
    disk.close().unwrap();
    for lost in 0..16_u64 {
        let below = MemDisk::from_bytes(below.to_bytes());
        for slot in (0..4).filter(|slot| lost >> slot & 1 == 1) {
            below.write(slot * BLOCK + 100, &[0xff; 8]).unwrap();
        }
        let is_pair_lost = lost & 0b11 == 0b11 || lost & 0b1100 == 0b1100;
        match CheckedDisk::open(below) {
            Ok(disk) => assert!(!is_pair_lost && read(&disk, 0, 1) == [5], "lost {lost:b}"),
            Err(error) => assert!(
                is_pair_lost && error.damage().is_some(),
                "{lost:b}: {error}"
            ),
        }
    }
}

#[test]
fn another_version_of_the_layout_is_told_from_damage() {
    let below = MemDisk::new();
    CheckedDisk::create(below.clone()).unwrap().sync().unwrap();
    let mut slot = read(&below, 2 * BLOCK, 4096);
    slot[8] = 2;
    let crc = crc32c_by_hand(&slot[..4092]);
    slot[4092..].copy_from_slice(&crc.to_le_bytes());
    below.write(0, &slot).unwrap();
    let error = CheckedDisk::open(below).unwrap_err();
    assert!(matches!(
        error,
        StorageError::ForeignVersion {
            found: 2,
            ours: 1,
            ..
        }
    ));
}

#[test]
fn a_power_cut_undoes_what_was_not_synced() {
    let below = MemDisk::from_bytes(block(0));
    let disk = FaultyDisk::new(below.clone());
    disk.write(0, b"synced").unwrap();
    disk.sync().unwrap();
    disk.write(0, b"lost").unwrap();
    disk.write(5000, b"lost").unwrap();
    disk.set_len(10).unwrap();
    disk.set_len(20_000).unwrap();
    assert_eq!(read(&disk, 0, 6), b"losted");
    disk.power_cut(Survivors::Nothing).unwrap();
    assert_eq!(&below.to_bytes()[..6], b"synced");
    assert_eq!(below.len().unwrap(), 4096);
    assert!(disk.read(0, &mut [0]).is_err() && disk.write(0, &[0]).is_err());
}

#[test]
fn the_write_in_flight_may_arrive_in_part() {
    for torn_bytes in [0, 3, 1000] {
        let below = MemDisk::from_bytes(vec![0; 8]);
        let disk = FaultyDisk::new(below.clone());
        disk.cut_after(1);
        disk.write(0, b"first").unwrap();
        disk.write(0, b"second").unwrap_err();
        disk.sync().unwrap_err();
        disk.power_cut(Survivors::Torn { torn_bytes }).unwrap();
        let expected: &[u8] = match torn_bytes {
            0 => b"first\0\0\0",
            3 => b"secst\0\0\0",
            _ => b"second\0\0",
        };
        assert_eq!(below.to_bytes(), expected);
    }
}

#[test]
fn random_survivors_are_whole_sectors_and_the_seed_decides() {
    let image = |seed| {
        let below = MemDisk::from_bytes(vec![0; 64 * 512]);
        let disk = FaultyDisk::new(below.clone());
        disk.write(0, &vec![7; 64 * 512]).unwrap();
        disk.power_cut(Survivors::Random { seed }).unwrap();
        below.to_bytes()
    };
    let bytes = image(1);
    let survived = bytes.chunks(512).filter(|sector| sector[0] == 7).count();
    assert!((10..54).contains(&survived), "{survived}");
    assert!(
        bytes
            .chunks(512)
            .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
    );
    assert_eq!(bytes, image(1));
    assert_ne!(bytes, image(2));
}

#[test]
fn a_change_is_refused_once_and_a_bit_flips() {
    let disk = FaultyDisk::new(MemDisk::from_bytes(vec![0; 8]));
    disk.refuse_change(2, ErrorKind::StorageFull);
    disk.write(0, b"a").unwrap();
    let error = disk.write(1, b"b").unwrap_err();
    assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
    disk.write(2, b"c").unwrap();
    assert_eq!(disk.changes(), 3);
    disk.flip_bit(2, 1).unwrap();
    assert_eq!(read(&disk, 0, 3), [b'a', 0, b'c' ^ 2]);
}

#[test]
fn a_file_is_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FileDisk::create(dir.path().join("disk")).unwrap();
    disk.write(10, b"abc").unwrap();
    disk.set_len(20).unwrap();
    disk.sync().unwrap();
    assert_eq!(disk.len().unwrap(), 20);
    assert_eq!(read(&disk, 9, 5), b"\0abc\0");
    let written = disk.written(ByteRange::new(5, 12)).unwrap();
    assert_eq!(written, [ByteRange::new(5, 12)], "no hole is so short");
    assert_eq!(disk.written(ByteRange::new(20, 30)).unwrap(), []);
    let error = disk.read(18, &mut [0; 5]).unwrap_err().to_string();
    assert!(error.contains(disk.path().to_str().unwrap()), "{error}");
    let missing = FileDisk::open(dir.path().join("missing")).unwrap_err();
    assert!(missing.to_string().contains("missing"), "{missing}");
    disk.close().unwrap();
    FileDisk::open(disk.path()).unwrap();
}

/// Where its file system knows holes, or says that all is written.
#[test]
fn a_file_knows_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FileDisk::create(dir.path().join("disk")).unwrap();
    let (mib, len) = (1 << 20, 64 << 20);
    disk.set_len(len).unwrap();
    disk.reserve(0, len / 2).unwrap();
    let places = [3 * mib, 20 * mib + BLOCK, 40 * mib];
    for (number, place) in places.into_iter().enumerate() {
        disk.write(place, &block(1)).unwrap();
        for range in [ByteRange::new(0, len), ByteRange::new(2 * mib, 41 * mib)] {
            let written = disk.written(range).unwrap();
            let has = |place| {
                written
                    .iter()
                    .any(|part| part.start <= place && place + BLOCK <= part.end)
            };
            assert!(
                places[..=number].iter().all(|place| has(*place)),
                "{written:?}"
            );
            assert!(
                written.is_sorted_by(|one, next| one.end <= next.start),
                "{written:?}"
            );
            assert!(
                written
                    .iter()
                    .all(|part| part.start >= range.start && part.end <= range.end)
            );
        }
    }
}
