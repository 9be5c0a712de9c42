//! How long the core takes for a create, a lookup, a page and a removal in a directory of N files
//! (default 100,000), in memory and without a network: `cargo run --release --example speed [N]`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{ClientId, Fid, Name, Tick, Timestamp, Xid};
use mds::{Call, Mds, Output, Rules};
use storage::{Commit, Kv, KvOptions, MemDisk};
use wire::FileKind;
use wire::mdt::{Caller, NewFile, Reply, Request};

struct Bench {
    mds: Mds,
    kv: Arc<Kv>,
    tag: u64,
    sequence: u64,
}

impl Bench {
    fn new() -> Bench {
        let disk = MemDisk::new();
        Kv::create(disk.clone()).expect("a new disk");
        let mut options = KvOptions::new("MDT0");
        options.commit = Commit::Thread {
            interval: Duration::from_secs(1),
        };
        let kv = Arc::new(Kv::open(disk, &mds::tables(), options).expect("a sound disk"));
        mds::format(&kv, 1, Timestamp::default()).expect("an empty store");
        let mut mds = Mds::open(kv.clone(), Rules::default(), Tick(0)).expect("formatted");
        mds.connect(ClientId(1), [1; 16]);
        let mut bench = Bench {
            mds,
            kv,
            tag: 0,
            sequence: 0,
        };
        let Reply::Sequences(range) = bench.call(Request::AllocSequences) else {
            panic!("no sequence");
        };
        bench.sequence = range.first;
        bench
    }

    fn call(&mut self, request: Request) -> Reply {
        self.tag += 1;
        let (client, tag) = (ClientId(1), self.tag);
        let slot = (tag % 16) as u16;
        let call = Call {
            client,
            tag,
            slot,
            xid: Xid(tag),
            index: 0,
        };
        let (now, wall) = (Tick(tag), Timestamp { secs: 1, nanos: 0 });
        let mut out = Vec::new();
        self.mds.handle(now, wall, call, request, &mut out);
        if out.is_empty() {
            let ticket = self.kv.committed();
            self.kv.wait_durable(ticket).expect("a sound disk");
            self.mds.durable(now, wall, ticket, &mut out);
        }
        match out.into_iter().next() {
            Some(Output::Reply { result, .. }) => result.expect("done"),
            other => panic!("{other:?}"),
        }
    }

    fn create(&mut self, dir: Fid, n: u32, kind: FileKind) -> Fid {
        let fid = Fid::new(self.sequence, n + 1);
        let file = NewFile {
            fid,
            kind,
            mode: 0o644,
            rdev: 0,
            target: Vec::new(),
        };
        let (name, caller) = (name(n), Caller::default());
        self.call(Request::Create {
            dir,
            name,
            file,
            caller,
            open: None,
        });
        fid
    }

    /// Lists `dir` of `count` files; says in how many pages.
    fn list(&mut self, dir: Fid, count: u32) -> u32 {
        let (mut cookie, mut pages, mut seen) = (0, 0, 0);
        loop {
            let (attrs_max, entries_max, bytes_max) = (256, 256, 1 << 20);
            let reply = self.call(Request::ReadDir {
                dir,
                cookie,
                attrs_max,
                entries_max,
                bytes_max,
            });
            let Reply::Page { entries, end, .. } = reply else {
                panic!("no page")
            };
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            (pages, seen) = (pages + 1, seen + entries.len());
            if end {
                assert_eq!(seen, count as usize);
                return pages;
            }
        }
    }
}

/// How often the directory is listed.
const PASSES: u32 = 10;

fn name(n: u32) -> Name {
    Name::new(format!("file{n:07}").into_bytes()).expect("a valid name")
}

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

fn main() {
    let count: u32 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(100_000);
    let mut bench = Bench::new();
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
}
