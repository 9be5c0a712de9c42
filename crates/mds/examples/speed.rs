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
}

fn name(n: u32) -> Name {
    Name::new(format!("file{n:07}").into_bytes()).expect("a valid name")
}

fn report(what: &str, count: u32, started: Instant) {
    let each = started.elapsed() / count.max(1);
    println!("{what:24} {count:>9} x {each:>10.2?}");
}

fn main() {
    let count: u32 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(100_000);
    let mut bench = Bench::new();
    let dir = bench.create(Fid::ROOT, 0, FileKind::Directory);
    let started = Instant::now();
    (1..=count).for_each(|n| {
        bench.create(dir, n, FileKind::Regular);
    });
    report("create", count, started);
    let started = Instant::now();
    (1..=count).for_each(|n| {
        bench.call(Request::Lookup { dir, name: name(n) });
    });
    report("lookup", count, started);
    let (started, mut cookie, mut pages, mut seen) = (Instant::now(), 0, 0, 0);
    loop {
        let (attrs_max, entries_max, bytes_max) = (256, 256, 1 << 20);
        let request = Request::ReadDir {
            dir,
            cookie,
            attrs_max,
            entries_max,
            bytes_max,
        };
        let Reply::Page { entries, end, .. } = bench.call(request) else {
            panic!("no page")
        };
        cookie = entries.last().map_or(cookie, |entry| entry.cookie);
        (pages, seen) = (pages + 1, seen + entries.len());
        if end {
            break;
        }
    }
    report("readdir of 256", pages, started);
    assert_eq!(seen, count as usize);
    let started = Instant::now();
    (1..=count).for_each(|n| {
        let (name, caller) = (name(n), Caller::default());
        bench.call(Request::Unlink {
            dir,
            name,
            directory: false,
            caller,
        });
    });
    report("unlink", count, started);
}
