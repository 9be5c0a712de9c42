//! The store against an oracle, beside itself, and after errors.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use base::{Rng, SeededRng};
use storage::{
    Batch, Disk, FaultyDisk, KeyRange, Kv, KvOptions, MemDisk, Pace, StorageError, TableId, Ticket,
};

const NAMES: TableId = TableId(3);
const FILES: TableId = TableId(7);
const TABLES: &[(TableId, &str)] = &[(NAMES, "names"), (FILES, "files")];

type Rows = Vec<(Vec<u8>, Vec<u8>)>;
type Oracle = BTreeMap<(TableId, Vec<u8>), Vec<u8>>;

fn rows(kv: &Kv, table: TableId, range: &KeyRange) -> Rows {
    let mut rows = Vec::new();
    kv.scan(table, range, |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    rows
}

fn oracle_rows(oracle: &Oracle, table: TableId, range: &KeyRange) -> Rows {
    let inside = oracle
        .iter()
        .filter(|((t, key), _)| *t == table && range.contains(key));
    inside
        .map(|((_, key), v)| (key.clone(), v.clone()))
        .collect()
}

fn put(table: TableId, key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(table, key, value);
    batch
}

fn random_key(rng: &mut dyn Rng) -> Vec<u8> {
    let len = rng.below(3) + 1;
    (0..len).map(|_| b'a' + rng.below(4) as u8).collect()
}

fn random_range(rng: &mut dyn Rng) -> KeyRange {
    let (a, b) = (random_key(rng), random_key(rng));
    match rng.below(4) {
        0 => KeyRange::prefix(&a),
        1 => KeyRange::from(a),
        2 => KeyRange::all(),
        _ => KeyRange::new(a.clone().min(b.clone()), a.max(b)),
    }
}

fn random_batch(rng: &mut dyn Rng, oracle: &mut Oracle) -> Batch {
    let mut batch = Batch::new();
    for _ in 0..rng.below(5) {
        let table = if rng.below(2) == 0 { NAMES } else { FILES };
        match rng.below(8) {
            0 => {
                let range = random_range(rng);
                oracle.retain(|(t, key), _| *t != table || !range.contains(key));
                batch.delete_range(table, range);
            }
            1 | 2 => {
                let key = random_key(rng);
                oracle.remove(&(table, key.clone()));
                batch.delete(table, key);
            }
            _ => {
                let (key, value) = (random_key(rng), rng.next_u64().to_le_bytes().to_vec());
                oracle.insert((table, key.clone()), value.clone());
                batch.put(table, key, value);
            }
        }
    }
    batch
}

#[test]
fn agrees_with_a_map_through_flushes_and_reopening() {
    for seed in 0..60 {
        let mut rng = SeededRng::new(seed);
        let disk = MemDisk::new();
        Kv::create(disk.clone()).unwrap();
        let open = || Kv::open(disk.clone(), TABLES, KvOptions::new("MDT0").manual()).unwrap();
        let mut kv = open();
        let mut oracle = Oracle::new();
        for _ in 0..60 {
            match rng.below(12) {
                0 => drop(kv.flush_once().unwrap()),
                1 if rng.below(4) == 0 => {
                    kv.close().unwrap();
                    kv = open();
                }
                _ => drop(kv.commit(random_batch(&mut rng, &mut oracle)).unwrap()),
            }
            let range = random_range(&mut rng);
            for table in [NAMES, FILES] {
                assert_eq!(
                    rows(&kv, table, &range),
                    oracle_rows(&oracle, table, &range)
                );
                let key = random_key(&mut rng);
                let expected = oracle.get(&(table, key.clone())).cloned();
                assert_eq!(kv.get(table, &key).unwrap(), expected, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_long_scan_crosses_its_runs_without_losing_or_doubling_rows() {
    let kv = Kv::scratch(TABLES).unwrap();
    let key = |n: u32| n.to_be_bytes().to_vec();
    let mut expected = BTreeMap::new();
    for round in 0..3_u32 {
        for n in (round..30_000).step_by(3) {
            let value = (n + round).to_le_bytes().to_vec();
            expected.insert(key(n), value.clone());
            kv.commit(put(NAMES, &key(n), &value)).unwrap();
        }
        let cut = KeyRange::new(key(round * 100), key(round * 100 + 50));
        expected.retain(|key, _| !cut.contains(key));
        let mut batch = Batch::new();
        batch.delete_range(NAMES, cut);
        kv.commit(batch).unwrap();
        if round < 2 {
            kv.flush_once().unwrap();
        }
    }
    let expected: Rows = expected.into_iter().collect();
    assert_eq!(rows(&kv, NAMES, &KeyRange::all()), expected);
}

#[test]
fn a_scan_stops_where_told_and_may_call_the_store() {
    let kv = Kv::scratch(TABLES).unwrap();
    for n in 0..100_u8 {
        kv.commit(put(NAMES, &[n], &[n])).unwrap();
    }
    let mut seen = 0;
    kv.scan(NAMES, &KeyRange::from([10]), |key, _| {
        seen += 1;
        kv.commit(put(FILES, key, b"seen")).unwrap();
        assert_eq!(kv.get(FILES, key).unwrap().as_deref(), Some(&b"seen"[..]));
        if seen == 5 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
    .unwrap();
    assert_eq!(rows(&kv, FILES, &KeyRange::all()).len(), 5);
    assert!(rows(&kv, FILES, &KeyRange::new("x", "b")).is_empty());
}

#[test]
fn tickets_grow_and_durable_follows_flushes() {
    let kv = Kv::scratch(TABLES).unwrap();
    let (told, news) = mpsc::channel();
    kv.on_durable(move |ticket| told.send(ticket.clone().unwrap()).unwrap());
    assert_eq!(kv.commit(put(NAMES, b"a", b"1")).unwrap(), Ticket(1));
    assert_eq!(kv.commit(put(NAMES, b"b", b"1")).unwrap(), Ticket(2));
    assert_eq!(
        kv.commit(Batch::new()).unwrap(),
        Ticket(2),
        "an empty batch"
    );
    assert_eq!(kv.durable(), Ticket(0));
    assert_eq!(kv.flush_once().unwrap(), Ticket(2));
    assert_eq!(kv.flush_once().unwrap(), Ticket(2), "nothing to do");
    assert_eq!(kv.durable(), Ticket(2));
    assert_eq!(news.try_iter().collect::<Vec<_>>(), [Ticket(2)]);
    assert!(kv.wait_durable(Ticket(3)).is_err(), "never committed");
    assert_eq!(kv.stats().flushes, 1);
    assert_eq!(kv.stats().overlay_bytes, 0);
}

/// Waits for the news that `ticket` is durable; older news may still be under way.
fn await_news(news: &mpsc::Receiver<Ticket>, ticket: Ticket) {
    while news.recv().unwrap() < ticket {}
}

#[test]
fn the_thread_commits_for_a_waiter_at_once_and_by_itself_after_the_interval() {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    let mut options = KvOptions::new("MDT0");
    options.pace = Pace::every(Duration::from_secs(3600));
    let kv = Kv::open(disk.clone(), TABLES, options.clone()).unwrap();
    let ticket = kv.commit(put(NAMES, b"a", b"1")).unwrap();
    kv.wait_durable(ticket).unwrap();
    assert!(kv.durable() >= ticket);
    let (told, news) = mpsc::channel();
    kv.on_durable(move |ticket| told.send(ticket.clone().unwrap()).unwrap());
    let ticket = kv.commit(put(NAMES, b"b", b"1")).unwrap();
    kv.sync_soon(ticket);
    await_news(&news, ticket);
    drop(kv);
    options.pace = Pace::every(Duration::from_millis(1));
    let kv = Kv::open(disk, TABLES, options).unwrap();
    let (told, news) = mpsc::channel();
    kv.on_durable(move |ticket| told.send(ticket.clone().unwrap()).unwrap());
    let ticket = kv.commit(put(NAMES, b"c", b"1")).unwrap();
    // Nobody asked.
    await_news(&news, ticket);
}

#[test]
fn much_that_waits_is_committed_long_before_the_interval_is_over() {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    let mut options = KvOptions::new("MDT0");
    options.pace = Pace::every(Duration::from_secs(3600));
    options.pace.set_bytes(8192).unwrap();
    let pace = options.pace.clone();
    let kv = Kv::open(disk, TABLES, options).unwrap();
    let (told, news) = mpsc::channel();
    kv.on_durable(move |ticket| told.send(ticket.clone().unwrap()).unwrap());
    let becomes_durable = |ticket| {
        let patience = Duration::from_secs(20);
        while news.recv_timeout(patience).expect("committed by itself") < ticket {}
    };
    let put_one = |n: u8| kv.commit(put(NAMES, &[n], &[7; 1000])).unwrap();
    for n in 0..7 {
        put_one(n);
    }
    assert_eq!(kv.durable(), Ticket(0), "it is not much yet");
    becomes_durable(put_one(7));
    let taken = pace.taken();
    assert_eq!((taken.commits, kv.stats().flushes), (1, 1));
    assert!(taken.bytes > 8192, "{taken:?}");
    assert!(taken.longest > Duration::ZERO && taken.percentile(50) > Duration::ZERO);
    // What waits already is much by a bound that is set meanwhile.
    for n in 8..12 {
        put_one(n);
    }
    let last = put_one(12);
    assert_eq!(kv.durable(), Ticket(8));
    pace.set_bytes(4096).unwrap();
    becomes_durable(last);
    assert_eq!(pace.taken().commits, 2);
}

#[test]
fn a_full_overlay_holds_back_and_drains() {
    for manual in [false, true] {
        let disk = MemDisk::new();
        Kv::create(disk.clone()).unwrap();
        let mut options = KvOptions::new("MDT0");
        options.overlay_bytes_max = 100_000;
        if manual {
            options = options.manual();
        }
        let kv = Kv::open(disk, TABLES, options).unwrap();
        for n in 0..2_000_u32 {
            kv.commit(put(NAMES, &n.to_be_bytes(), &[7; 1000])).unwrap();
            assert!(kv.stats().overlay_bytes <= 102_000);
        }
        assert_eq!(rows(&kv, NAMES, &KeyRange::all()).len(), 2_000);
    }
}

#[test]
fn a_callback_may_commit_past_the_bound_and_may_not_wait() {
    for manual in [false, true] {
        let disk = MemDisk::new();
        Kv::create(disk.clone()).unwrap();
        let mut options = KvOptions::new("MDT0");
        options.overlay_bytes_max = 1_000;
        if manual {
            options = options.manual();
        }
        let kv = Arc::new(Kv::open(disk, TABLES, options).unwrap());
        let weak = Arc::downgrade(&kv);
        let (told, news) = mpsc::channel();
        kv.on_durable(move |ticket| {
            let kv = weak.upgrade().unwrap();
            if *ticket.as_ref().unwrap() == Ticket(1) {
                for n in 0..10 {
                    kv.commit(put(FILES, &[n], &[0; 500])).unwrap();
                }
                let last = kv.committed();
                assert!(kv.wait_durable(last).is_err());
            }
            told.send(()).unwrap();
        });
        let first = kv.commit(put(NAMES, b"a", b"1")).unwrap();
        kv.wait_durable(first).unwrap();
        news.recv().unwrap();
        kv.wait_durable(kv.committed()).unwrap();
        assert_eq!(rows(&kv, FILES, &KeyRange::all()).len(), 10);
        // The callback under way may hold the store still; its end is the end of this test.
        while Arc::strong_count(&kv) > 1 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn readers_see_whole_batches_in_order_while_flushes_run() {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    let mut options = KvOptions::new("MDT0");
    options.pace = Pace::every(Duration::from_micros(1));
    let kv = Kv::open(disk, TABLES, options).unwrap();
    let keys: Vec<[u8; 2]> = (0..20_u16).map(u16::to_be_bytes).collect();
    let done = AtomicBool::new(false);
    let low = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=3_000_u64 {
                let mut batch = Batch::new();
                if round % 3 == 0 {
                    batch.delete_range(NAMES, KeyRange::all());
                }
                for key in &keys {
                    batch.put(NAMES, *key, round.to_le_bytes());
                }
                kv.commit(batch).unwrap();
                low.store(round, Ordering::SeqCst);
            }
            done.store(true, Ordering::SeqCst);
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let before = low.load(Ordering::SeqCst);
                    if before == 0 {
                        continue;
                    }
                    // Twenty rows are one run of a scan: one moment's state.
                    let rows = rows(&kv, NAMES, &KeyRange::all());
                    assert_eq!(rows.len(), keys.len());
                    let round = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
                    let first = round(&rows[0].1);
                    assert!(rows.iter().all(|(_, value)| round(value) == first));
                    assert!(first >= before);
                    let value = kv.get(NAMES, &keys[7]).unwrap().unwrap();
                    assert!(round(&value) >= first);
                }
            });
        }
    });
}

#[test]
fn an_error_stops_the_store_and_names_target_and_cause() {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    let faulty = FaultyDisk::new(disk);
    let kv = Kv::open(faulty.clone(), TABLES, KvOptions::new("MDT3").manual()).unwrap();
    kv.commit(put(NAMES, b"a", b"1")).unwrap();
    kv.flush_once().unwrap();
    let (told, news) = mpsc::channel();
    kv.on_durable(move |ticket| told.send(ticket.clone()).unwrap());
    let ticket = kv.commit(put(NAMES, b"b", b"1")).unwrap();
    faulty.refuse_change(faulty.changes() + 1, ErrorKind::StorageFull);
    let error = kv.flush_once().unwrap_err();
    assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
    assert!(matches!(
        news.recv().unwrap(),
        Err(StorageError::NoSpace { .. })
    ));
    let errors = [
        kv.get(NAMES, b"a").unwrap_err(),
        kv.commit(put(NAMES, b"c", b"1")).unwrap_err(),
        kv.wait_durable(ticket).unwrap_err(),
        kv.flush_once().unwrap_err(),
        kv.scan(NAMES, &KeyRange::all(), |_, _| ControlFlow::Continue(()))
            .unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(text.contains("MDT3") && text.contains("no space"), "{text}");
    }
    assert_eq!(kv.durable(), Ticket(1));
}

#[test]
fn a_waiter_is_told_when_the_disk_fails() {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    let faulty = FaultyDisk::new(disk);
    let kv = Kv::open(faulty.clone(), TABLES, KvOptions::new("MDT0")).unwrap();
    faulty.cut_after(faulty.changes() + 2);
    let mut last = Ok(());
    for n in 0..100_u8 {
        last = kv
            .commit(put(NAMES, &[n], b"1"))
            .and_then(|ticket| kv.wait_durable(ticket));
        if last.is_err() {
            break;
        }
    }
    assert!(last.unwrap_err().to_string().contains("power is off"));
}

#[test]
fn what_is_not_offered_is_refused_and_stops_nothing() {
    let kv = Kv::scratch(TABLES).unwrap();
    let refused = [
        kv.commit(put(TableId(0), b"a", b"1")).unwrap_err(),
        kv.commit(put(NAMES, &[0; 1025], b"1")).unwrap_err(),
        kv.commit(put(NAMES, b"a", &[0; (1 << 20) + 1]))
            .unwrap_err(),
        kv.get(TableId(9), b"a").unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, StorageError::Refused { .. }), "{error}");
    }
    let mut batch = put(NAMES, b"a", b"1");
    batch.put(TableId(0), *b"b", *b"2");
    kv.commit(batch).unwrap_err();
    assert_eq!(kv.get(NAMES, b"a").unwrap(), None, "refused whole");
    kv.commit(put(NAMES, &[0; 1024], &[0; 1 << 20])).unwrap();
    kv.flush_once().unwrap();
}

#[test]
fn what_is_no_store_is_an_error() {
    let options = || KvOptions::new("MDT0").manual();
    let noise: Vec<u8> = {
        let mut rng = SeededRng::new(1);
        (0..100_000).map(|_| rng.next_u64() as u8).collect()
    };
    for bytes in [vec![], vec![0; 20_000], noise] {
        let error = Kv::open(MemDisk::from_bytes(bytes), TABLES, options()).unwrap_err();
        assert!(error.damage().is_some(), "{error}");
    }
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    for len in [4 * 4096, 6 * 4096, disk.len().unwrap() / 2] {
        let cut = MemDisk::from_bytes(disk.to_bytes());
        cut.set_len(len).unwrap();
        let error = Kv::open(cut, TABLES, options()).unwrap_err();
        assert!(error.damage().is_some(), "cut to {len}: {error}");
    }
}

#[test]
fn dropping_is_a_crash_and_closing_is_not() {
    let disk = MemDisk::new();
    Kv::create(disk.clone()).unwrap();
    let open = || Kv::open(disk.clone(), TABLES, KvOptions::new("MDT0")).unwrap();
    let kv = open();
    let ticket = kv.commit(put(NAMES, b"durable", b"1")).unwrap();
    kv.wait_durable(ticket).unwrap();
    drop(kv);
    let kv = open();
    kv.commit(put(NAMES, b"closed", b"1")).unwrap();
    kv.close().unwrap();
    let kv = open();
    let keys: Vec<_> = rows(&kv, NAMES, &KeyRange::all())
        .into_iter()
        .map(|(k, _)| k)
        .collect();
    assert_eq!(keys, [&b"closed"[..], b"durable"]);
    // The handle may be the last one and live on another thread than the committer's.
    drop(Arc::new(kv));
}
