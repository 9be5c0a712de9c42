//! The core of a metadata server without a network, and one client of it.

use std::sync::Arc;

use base::{ClientId, Fid, Name, Tick, Timestamp, Xid};
use mds::{Call, Mds, Output, Rules};
use storage::{Disk, Kv, KvOptions};
use wire::FileKind;
use wire::mdt::{Caller, NewFile, Page, Reply, Request};
use wire::update::{Change, LeasedDir, MadeFile, Times};

/// How often the core hears what has become durable, in calls.
const CALLS_PER_NEWS: u64 = 1000;
/// How often an answer may wait for what is made durable.
const ROUNDS_MAX: usize = 3;

/// A core, one client of it, and what it sends.
pub struct Bench {
    mds: Mds,
    kv: Arc<Kv>,
    tag: u64,
    sequence: u64,
}

impl Bench {
    /// The target in the store on `disk`, which is formatted first if it is new.
    pub fn start(disk: impl Disk + 'static, is_new: bool) -> Bench {
        let options = KvOptions::new("MDT0");
        let kv = Kv::open(disk, &mds::tables(), options).expect("a sound disk");
        let kv = Arc::new(kv);
        if is_new {
            mds::format(&kv, 1, Timestamp::default()).expect("an empty store");
        }
        let mut mds = Mds::open(kv.clone(), Rules::default(), Tick(0)).expect("formatted");
        mds.connect(ClientId(1), [1; 16]).expect("readable");
        mds.ready_again(Tick(0), Timestamp::default(), ClientId(1), &mut Vec::new());
        let mut bench = Bench {
            mds,
            kv,
            tag: 0,
            sequence: 0,
        };
        let Reply::Sequences { range, .. } = bench.call(Request::AllocSequences) else {
            panic!("no sequence");
        };
        bench.sequence = range.first;
        bench
    }

    /// Sends a request and waits for its answer.
    pub fn call(&mut self, request: Request) -> Reply {
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
        if tag.is_multiple_of(CALLS_PER_NEWS) {
            let durable = self.kv.durable();
            self.mds.durable(now, wall, durable, &mut out);
        }
        // A newcomer is served once that is durable, and then waits for its own change.
        for _ in 0..ROUNDS_MAX {
            if out.iter().any(|one| matches!(one, Output::Reply { .. })) {
                break;
            }
            let ticket = self.kv.committed();
            self.kv.wait_durable(ticket).expect("a sound disk");
            self.mds.durable(now, wall, ticket, &mut out);
        }
        let reply = out.into_iter().find_map(|one| match one {
            Output::Reply { result, .. } => Some(result),
            _ => None,
        });
        reply.expect("an answer in memory").expect("done")
    }

    /// Ends the session and makes everything durable.
    #[allow(dead_code, reason = "not every example goes on with its store")]
    pub fn leave(&mut self) {
        let (now, wall) = (Tick(self.tag), Timestamp { secs: 1, nanos: 0 });
        let leaver = (ClientId(1), rpc::Departure::Goodbye);
        self.mds.end_session(now, wall, leaver, &mut Vec::new());
        self.kv.flush_once().expect("a sound disk");
    }

    /// Makes the file number `n` in `dir`.
    pub fn create(&mut self, dir: Fid, n: u32, kind: FileKind) -> Fid {
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

    /// Makes files in `dir`, so many from the number `first` on, in one set under its write lease.
    #[allow(dead_code, reason = "not every example sends sets")]
    pub fn create_set(&mut self, dir: Fid, first: u32, count: u32) {
        let lease = self.mds.try_write_lease(None, ClientId(1), dir);
        let lease = lease.expect("readable").expect("a client alone").handle;
        let changed = Timestamp { secs: 1, nanos: 0 };
        let changes = (first..first + count).map(|n| Change::Make {
            dir: 0,
            name: name(n),
            made: MadeFile {
                file: NewFile {
                    fid: Fid::new(self.sequence, n + 1),
                    kind: FileKind::Regular,
                    mode: 0o644,
                    rdev: 0,
                    target: Vec::new(),
                },
                uid: 0,
                gid: 0,
                times: Times::default(),
                ost: None,
                open: None,
            },
        });
        let changes = changes.collect();
        let dirs = vec![LeasedDir {
            dir,
            lease,
            changed,
        }];
        let reply = self.call(Request::Update { dirs, changes });
        assert!(matches!(reply, Reply::Updated { .. }), "{reply:?}");
    }

    /// The page of `dir` that follows `cookie`, 256 entries of it.
    pub fn page(&mut self, dir: Fid, cookie: u64) -> Reply {
        self.call(Request::ReadDir {
            dir,
            cookie,
            attrs_max: 256,
            entries_max: 256,
            bytes_max: 1 << 20,
        })
    }

    /// Lists `dir` of `count` files; says in how many pages.
    pub fn list(&mut self, dir: Fid, count: u32) -> u32 {
        let (mut cookie, mut pages, mut seen) = (0, 0, 0);
        loop {
            let reply = self.page(dir, cookie);
            let Reply::Page(Page { entries, end, .. }) = reply else {
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

/// What file number `n` is called.
pub fn name(n: u32) -> Name {
    Name::new(format!("file{n:07}")).expect("a valid name")
}
