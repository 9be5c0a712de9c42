//! Full disks: what is set aside for records, and what is done with it.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::{SeededRng, TargetName, Timestamp};
use storage::{
    Batch, FaultyDisk, FormatRequest, Kv, KvOptions, MemDisk, Room, SpaceStat, TableId, TargetDir,
};

const TABLE: TableId = TableId(0);
const TABLES: &[(TableId, &str)] = &[(TABLE, "records")];
const MIB: u64 = 1 << 20;

/// Makes room so often.
#[derive(Debug)]
struct Refills(AtomicU32);

impl Room for Refills {
    fn space(&self) -> storage::Result<SpaceStat> {
        Ok(SpaceStat {
            total: 64 * MIB,
            available: 3 * MIB,
            ..SpaceStat::default()
        })
    }

    fn make(&self, attempt: u32) -> bool {
        assert_eq!(attempt, 0, "one refusal, one attempt");
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    fn restock(&self) {}
}

fn put(key: u32, bytes: usize) -> Batch {
    let mut batch = Batch::new();
    batch.put(TABLE, key.to_be_bytes(), vec![7; bytes]);
    batch
}

/// Whichever write of a flush finds no space, the flush is done in the end.
#[test]
fn a_flush_goes_on_where_room_is_made() {
    for refused in 1.. {
        let disk = MemDisk::new();
        Kv::create(disk.clone()).unwrap();
        let faulty = FaultyDisk::new(disk.clone());
        let room = Arc::new(Refills(AtomicU32::new(1)));
        let options = KvOptions {
            room: Some(room.clone()),
            ..KvOptions::new("MDT3").manual()
        };
        let kv = Kv::open(faulty.clone(), TABLES, options).unwrap();
        let before = faulty.changes();
        faulty.refuse_change(before + refused, ErrorKind::StorageFull);
        let ticket = kv.commit(put(1, 100_000)).unwrap();
        let flushed = kv.flush_once();
        let all = faulty.changes() < before + refused;
        match flushed {
            Ok(durable) => assert_eq!(durable, ticket),
            // A sync is not made again: nobody knows what it lost.
            Err(_) => assert_eq!(room.0.load(Ordering::Relaxed), 1),
        }
        drop(kv);
        let kv = Kv::open(disk, TABLES, KvOptions::new("MDT3").manual()).unwrap();
        let found = kv.contains(TABLE, &1_u32.to_be_bytes()).unwrap();
        assert!(found || room.0.load(Ordering::Relaxed) == 1);
        if all {
            assert!(refused > 4, "a flush is some writes");
            return;
        }
    }
}

#[test]
fn what_is_not_on_the_disk_yet_takes_of_its_space() {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    let options = KvOptions {
        room: Some(Arc::new(Refills(AtomicU32::new(0)))),
        ..KvOptions::new("MDT3").manual()
    };
    let kv = Kv::open(disk, TABLES, options).unwrap();
    assert_eq!(kv.space_left().unwrap(), Some(MIB));
    kv.commit(put(1, 300_000)).unwrap();
    assert!(kv.space_left().unwrap().unwrap() < MIB / 2);
    kv.commit(put(2, 300_000)).unwrap();
    assert_eq!(kv.space_left().unwrap(), Some(0));
    assert_eq!(kv.stats().flushes, 0);
    // Nearly full: changes are flushed in small parts.
    kv.commit(put(3, 1000)).unwrap();
    assert_eq!(kv.stats().flushes, 1);
    assert!(kv.stats().overlay_bytes < 2000);
    kv.flush_once().unwrap();
    assert_eq!(kv.space_left().unwrap(), Some(MIB));
    assert_eq!(Kv::scratch(TABLES).unwrap().space_left().unwrap(), None);
}

#[test]
fn a_target_sets_space_aside_and_takes_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let request = FormatRequest {
        fs_name: "demo".parse().unwrap(),
        fs_uuid: None,
        key: None,
        server_key: None,
        targets: vec![TargetName::MGS],
        created: Timestamp::default(),
        bytes: Default::default(),
    };
    TargetDir::format(
        dir.path(),
        &request,
        &mut |_, _| Ok(()),
        &mut SeededRng::new(1),
    )
    .unwrap();
    let reserve = dir.path().join("mgs/reserve");
    let len = || std::fs::metadata(&reserve).map_or(0, |metadata| metadata.len());
    assert_eq!(len(), MIB);
    std::fs::remove_file(&reserve).unwrap();
    let open = TargetDir::open(dir.path()).unwrap();
    let kv = open.targets()[0]
        .kv(TABLES, KvOptions::new("MGS").manual())
        .unwrap();
    assert_eq!(len(), MIB);
    assert!(kv.space_left().unwrap().is_some());
}
