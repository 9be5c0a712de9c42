//! Times of the core for small new objects on a local file system, without a network. The command
//! `small DIR [N [STORE]]` writes N objects of 4 KiB (default 50,000) to DIR, syncing once a second as a
//! served target does, then removes them. STORE: `files`, `sealed` (as served), or `extents`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{BootEpoch, ClientId, Fid, LockHandle, Tick, Timestamp};
use layout::ObjectId;
use oss::records::{EXTENTS, SEALS};
use oss::{Call, Oss, Output, Syncer};
use storage::extents::{self, ExtentObjects, Options, StoreId};
use storage::{FileDisk, Kv, KvOptions, ObjectFiles, ObjectStore, Pace, SealedObjects};
use wire::mdt::WriteTicket;
use wire::ost::{Request, Watermark};

const BYTES: u32 = 4096;
/// As many as a metadata server tells of in one request.
const DESTROYED_AT_ONCE: usize = 256;

struct Bench {
    oss: Oss,
    syncer: Syncer,
    started: Instant,
    syncing: Duration,
}

impl Bench {
    fn new(dir: &Path, kind: &str) -> Bench {
        std::fs::create_dir_all(dir.join("objects")).expect("a directory to write in");
        let database = dir.join("db");
        Kv::create(FileDisk::create(&database).expect("a new file")).expect("a new store");
        let disk = FileDisk::open(&database).expect("the file");
        let kv = Kv::open(disk, &oss::records::TABLES, KvOptions::new("OST0"));
        let kv = Arc::new(kv.expect("a sound disk"));
        let boot = oss::Boot {
            epoch: BootEpoch(1),
            now: Tick(0),
            wall: Timestamp::default(),
            window: Duration::ZERO,
        };
        let store = store(dir, kind, &kv);
        Bench {
            oss: Oss::open(
                store.clone(),
                kv.clone(),
                dlm::Limits::default(),
                boot,
                Pace::usual(),
            )
            .expect("a sound disk"),
            syncer: Syncer::new(store, kv, Pace::usual()),
            started: Instant::now(),
            syncing: Duration::ZERO,
        }
    }

    fn call(&mut self, request: Request, bulk: &[u8]) {
        let now = Tick(self.started.elapsed().as_nanos() as u64);
        let call = Call {
            client: ClientId(1),
            tag: 1,
            request,
            bulk,
        };
        let mut out = Vec::new();
        self.oss.handle(now, Timestamp::default(), call, &mut out);
        while let Some(output) = out.pop() {
            match output {
                Output::Reply { result, .. } => drop(result.expect("done")),
                Output::SyncWanted { ticket, work } => {
                    let before = Instant::now();
                    self.syncer.run(&work).expect("a sound disk");
                    self.syncing += before.elapsed();
                    self.oss.synced(now, ticket, &mut out);
                }
                Output::RemoveWanted { objects } => {
                    let removed = self.syncer.remove(&objects);
                    self.oss.removed(now, &objects, removed, &mut out);
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

fn store(dir: &Path, kind: &str, kv: &Arc<Kv>) -> Arc<dyn ObjectStore> {
    if kind == "extents" {
        let file = dir.join("extents");
        extents::make_file(&file, StoreId([1; 16]), Some(2 << 30)).expect("space");
        let disk = Arc::new(FileDisk::open(&file).expect("the file"));
        let store = ExtentObjects::open(disk, kv.clone(), EXTENTS, Options::default());
        return Arc::new(store.expect("a sound disk"));
    }
    let files = Arc::new(ObjectFiles::open(dir.join("objects")).expect("the directory"));
    match kind {
        "sealed" => Arc::new(SealedObjects::new(files, kv.clone(), SEALS)),
        _ => files,
    }
}

fn object(n: u32) -> ObjectId {
    ObjectId {
        fid: Fid::new(1, n + 1),
        stripe: 0,
    }
}

fn report(what: &str, count: u32, bench: &mut Bench, started: Instant) {
    let syncing = std::mem::take(&mut bench.syncing);
    let each = (started.elapsed() - syncing) / count.max(1);
    println!("{what:8} {count:>9} x {each:>10.2?}, and {syncing:.2?} in syncs");
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(dir) = arguments.get(1) else {
        return eprintln!("usage: small DIR [N [STORE]]");
    };
    let count: u32 = arguments
        .get(2)
        .and_then(|n| n.parse().ok())
        .unwrap_or(50_000);
    let kind = arguments.get(3).map_or("files", String::as_str);
    let mut bench = Bench::new(Path::new(dir), kind);
    let data = vec![7; BYTES as usize];
    let started = Instant::now();
    for n in 0..count {
        let request = Request::Write {
            object: object(n),
            offset: 0,
            bulk: (0, BYTES),
            ticket: WriteTicket {
                layout_generation: 1,
                open_epoch: 1,
            },
            mtime: Timestamp::default(),
            under: LockHandle(0),
            boot_epoch: BootEpoch(0),
        };
        bench.call(request, &data);
    }
    report("write", count, &mut bench, started);
    let started = Instant::now();
    let all: Vec<_> = (0..count).map(|n| (object(n), 2)).collect();
    for objects in all.chunks(DESTROYED_AT_ONCE) {
        let objects = objects.to_vec();
        bench.call(
            Request::Destroy {
                objects,
                watermark: Watermark::default(),
            },
            &[],
        );
    }
    report("destroy", count, &mut bench, started);
}
