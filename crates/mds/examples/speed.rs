//! Times of the core for creates, lookups, pages, removals and sets of changes in a directory of N files.
//! It runs in memory and without a network, and also measures how long a page takes to and from its bytes:
//! `cargo run --release --example speed [N]`; N is 100,000 where it is not said.

mod bare;

use std::hint::black_box;
use std::time::{Duration, Instant};

use base::Fid;
use storage::{Kv, MemDisk};
use wire::FileKind;
use wire::mdt::{Caller, Reply, Request};

use bare::{Bench, name};

/// How often the directory is listed.
const PASSES: u32 = 10;

/// New files in a set of changes.
const CHANGES_A_SET: u32 = 256;

/// How often a page is encoded and decoded.
const RECODED: u32 = 4000;

/// A moment, by the clock and by what this thread has computed: the latter is what counts on a
/// machine that does other things too.
struct Started {
    clock: Instant,
    computed: Duration,
}

impl Started {
    fn now() -> Started {
        let (clock, computed) = (Instant::now(), computed());
        Started { clock, computed }
    }

    fn report(self, what: &str, count: u32) {
        let each = self.clock.elapsed() / count.max(1);
        let computed = (computed() - self.computed) / count.max(1);
        println!("{what:16} {count:>9} x {each:>10.2?}, {computed:>10.2?} of it computing");
    }
}

/// How long this thread has run.
fn computed() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// What a reply costs on both ends of the wire.
fn recode(reply: &Reply) {
    let started = Started::now();
    let mut bytes = Vec::new();
    for _ in 0..RECODED {
        bytes = wire::encode(black_box(reply));
    }
    started.report("  encoded", RECODED);
    let started = Started::now();
    for _ in 0..RECODED {
        let decoded: Reply = wire::decode(black_box(&bytes)).expect("just encoded");
        black_box(&decoded);
    }
    started.report("  decoded", RECODED);
}

fn main() {
    let count: u32 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(100_000);
    let disk = MemDisk::new();
    Kv::create(disk.clone()).expect("a new disk");
    let mut bench = Bench::start(disk, true);
    let dir = bench.create(Fid::ROOT, 0, FileKind::Directory);
    let started = Started::now();
    (1..=count).for_each(|n| {
        bench.create(dir, n, FileKind::Regular);
    });
    started.report("create", count);
    let started = Started::now();
    (1..=count).for_each(|n| {
        bench.call(Request::Lookup { dir, name: name(n) });
    });
    started.report("lookup", count);
    let started = Started::now();
    let pages = (0..PASSES).map(|_| bench.list(dir, count)).sum();
    started.report("readdir of 256", pages);
    recode(&bench.page(dir, 0));
    let started = Started::now();
    (1..=count).for_each(|n| {
        let (name, caller) = (name(n), Caller::default());
        bench.call(Request::Unlink {
            dir,
            name,
            directory: false,
            caller,
        });
    });
    started.report("unlink", count);
    let dir = bench.create(Fid::ROOT, count + 1, FileKind::Directory);
    let sets = count / CHANGES_A_SET;
    let started = Started::now();
    (0..sets).for_each(|set| {
        let first = count + 2 + set * CHANGES_A_SET;
        bench.create_set(dir, first, CHANGES_A_SET);
    });
    started.report("create in a set", sets * CHANGES_A_SET);
}
