//! A served target and two real peers, inside one process: the same frames as over a network.

mod gate;

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::{
    BootEpoch, ByteRange, Clock, Disrupted, Fid, LockHandle, SystemClock, TargetName, Timestamp,
    Transno,
};
use dlm::Mode;
use gate::Gate;
use layout::ObjectId;
use oss::records::{SEALS, TABLES};
use oss::serve::OstServer;
use oss::{Oss, Syncer};
use rpc::window::RECOVERY_WINDOW;
use rpc::{
    Address, Batch, CallbackResponder, ClientHandler, ClientSecret, LastCommitted, MemPort,
    Message, Peer, PeerConfig, Policy, ReplyBatch, ServedTarget, Server, ServerConfig, Way,
};
use storage::{Kv, KvOptions, MemDisk, ObjectMemory, ObjectStore, Pace, SealedObjects};
use wire::mdt::WriteTicket;
use wire::opcode;
use wire::ost::{Callback, CallbackReply, ExtentGrant, ObjectAttr, Reply, Request};

const OST: TargetName = TargetName {
    kind: base::TargetKind::Ost,
    index: base::TargetIndex(0),
};

struct Cluster {
    port: Arc<MemPort>,
    ost: OstServer,
    server: Server,
    clock: Arc<dyn Clock>,
}

impl Cluster {
    fn new() -> Cluster {
        Cluster::over(Arc::new(ObjectMemory::new(1 << 40)))
    }

    fn over(store: Arc<dyn ObjectStore>) -> Cluster {
        Cluster::reached(MemPort::new("ost0"), store)
    }

    fn reached(port: Arc<MemPort>, store: Arc<dyn ObjectStore>) -> Cluster {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let disk = MemDisk::new();
        Kv::create(disk.clone()).expect("memory");
        let kv = Arc::new(Kv::open(disk, &TABLES, KvOptions::new("OST0")).expect("memory"));
        let store = Arc::new(SealedObjects::new(store, kv.clone(), SEALS));
        let boot = oss::Boot {
            epoch: BootEpoch(1),
            now: clock.tick(),
            wall: clock.now(),
            window: RECOVERY_WINDOW,
        };
        let limits = dlm::Limits::default();
        let oss = Oss::open(store.clone(), kv.clone(), limits, boot, Pace::usual()).expect("fresh");
        let last_committed = LastCommitted::new(Transno(0));
        let syncer = Syncer::new(store, kv, Pace::usual());
        let ost = OstServer::start(oss, syncer, last_committed.clone(), clock.clone());
        let ost = ost.expect("threads");
        let target = ServedTarget {
            name: OST,
            key: None,
            server_key: None,
            boot_epoch: BootEpoch(1),
            last_committed,
            service: ost.service(),
        };
        let mut config = ServerConfig::new(vec![Address::Mem(port.clone())]);
        config.clock = clock.clone();
        let server = Server::start(config, vec![target]).expect("a server");
        Cluster {
            port,
            ost,
            server,
            clock,
        }
    }

    fn peer(&self, number: u8, handler: Arc<Holder>) -> Peer {
        let config = PeerConfig {
            target: OST,
            addresses: vec![Address::Mem(self.port.clone())],
            secret: ClientSecret([number; 16]),
            incarnation: 1,
            key: None,
            credential: rpc::Credential::Client,
            insecure: false,
            policy: Policy::Soft {
                timeout: Duration::from_secs(20),
            },
            lanes: 2,
            keeping: rpc::Keeping::Nothing,
            legacy: None,
            clocks: rpc::Clocks::default(),
        };
        Peer::new(config, handler, self.clock.clone()).expect("threads")
    }
}

/// A client's answers to callbacks: it notes them, and says what it is told to say of glimpses.
#[derive(Default)]
struct Holder {
    seen: Mutex<Vec<Callback>>,
    size: Option<u64>,
}

impl ClientHandler for Holder {
    fn callback(&self, message: Message, responder: CallbackResponder) {
        let callback = wire::decode(&message.body).expect("a callback");
        let reply = match callback {
            Callback::Glimpse { .. } => CallbackReply::Glimpse(self.size.map(|size| ObjectAttr {
                size,
                ..ObjectAttr::default()
            })),
            _ => CallbackReply::Done,
        };
        self.seen.lock().expect("not poisoned").push(callback);
        responder.reply(Message {
            opcode: message.opcode,
            body: wire::encode(&reply),
        });
    }

    fn epoch_changed(&self, _old: BootEpoch, _new: BootEpoch) {}
    fn evicted(&self) {}
    fn last_committed(&self, _transno: Transno) {}
}

impl Holder {
    fn wait_for_callback(&self) -> Callback {
        let start = Instant::now();
        loop {
            if let Some(callback) = self.seen.lock().expect("not poisoned").pop() {
                return callback;
            }
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "no callback came"
            );
            std::thread::yield_now();
        }
    }
}

/// What the server sends over it stays under way while it is held.
#[derive(Default)]
struct SlowBack(AtomicBool);

impl Way for SlowBack {
    fn connect(&self) -> io::Result<()> {
        Ok(())
    }

    fn arrival(&self, to_server: bool, _bytes: usize) -> Instant {
        let held = !to_server && self.0.load(Ordering::SeqCst);
        Instant::now() + Duration::from_secs(if held { 3600 } else { 0 })
    }
}

fn object() -> ObjectId {
    ObjectId {
        fid: Fid::new(Fid::SEQUENCE_FIRST, 1),
        stripe: 0,
    }
}

fn batch(requests: &[Request], bulk: &[u8]) -> Batch {
    let message = |request| Message {
        opcode: opcode::OST,
        body: wire::encode(request),
    };
    Batch {
        messages: requests.iter().map(message).collect(),
        bulk: bulk.to_vec().into(),
    }
}

fn write(offset: u64, bulk: (u32, u32), under: LockHandle) -> Request {
    let mtime = Timestamp { secs: 5, nanos: 0 };
    let ticket = WriteTicket {
        layout_generation: 1,
        open_epoch: 1,
    };
    Request::Write {
        object: object(),
        offset,
        bulk,
        ticket,
        mtime,
        under,
        boot_epoch: BootEpoch(0),
    }
}

fn read(offset: u64, len: u32, under: LockHandle) -> Request {
    Request::Read {
        object: object(),
        offset,
        len,
        lock_mode: 0,
        under,
    }
}

fn reply(replies: &ReplyBatch, place: usize) -> Reply {
    let message = &replies.replies[place];
    assert_eq!(message.status, 0, "{replies:?}");
    wire::decode(&message.body).expect("a reply")
}

fn locked(result: Result<ReplyBatch, Disrupted>) -> ExtentGrant {
    match reply(&result.expect("answered"), 0) {
        Reply::Locked { grant, .. } => grant,
        other => panic!("{other:?}"),
    }
}

fn enqueue(mode: Mode) -> Batch {
    let mode = mode as u8;
    batch(
        &[Request::Enqueue {
            object: object(),
            mode,
            range: ByteRange::new(0, 100),
        }],
        &[],
    )
}

#[test]
fn many_requests_in_a_frame_and_data_in_its_bulk_region() {
    let cluster = Cluster::new();
    let peer = cluster.peer(1, Arc::default());
    let requests = [
        write(0, (0, 3), LockHandle(0)),
        write(3, (3, 5), LockHandle(0)),
        Request::Sync,
    ];
    let replies = peer
        .call(batch(&requests, b"onethree"))
        .wait()
        .expect("answered");
    assert!(matches!(reply(&replies, 1), Reply::Written { attr, .. } if attr.size == 8));
    assert_eq!(
        (reply(&replies, 2), replies.transno),
        (Reply::Done, Transno(2))
    );
    assert_eq!(
        peer.last_committed(),
        Transno(2),
        "known with the answer to the sync"
    );
    let reads = [read(0, 3, LockHandle(0)), read(3, 99, LockHandle(0))];
    let replies = peer.call_bulk(batch(&reads, &[])).wait().expect("answered");
    assert_eq!(replies.bulk.joined(), b"onethree"[..]);
    assert!(matches!(
        reply(&replies, 1),
        Reply::Read { bulk: (3, 5), .. }
    ));
    let mut strange = batch(&[Request::StatFs, Request::StatFs], &[]);
    strange.messages[0].body.push(0);
    strange.messages[1].opcode = opcode::MDT;
    let replies = peer.call(strange).wait().expect("answered");
    assert!(replies.replies.iter().all(|message| message.status != 0));
    assert!(
        peer.call(Batch::default())
            .wait()
            .expect("answered")
            .replies
            .is_empty()
    );
}

#[test]
fn a_writer_is_called_back_before_a_reader_is_served() {
    let cluster = Cluster::new();
    let holder = Arc::new(Holder {
        size: Some(777),
        ..Holder::default()
    });
    let (a, b) = (
        cluster.peer(1, holder.clone()),
        cluster.peer(2, Arc::default()),
    );
    let lock = locked(a.call(enqueue(Mode::PW)).wait());
    let glimpse = Request::Glimpse {
        object: object(),
        speculative: false,
    };
    let replies = b.call(batch(&[glimpse], &[])).wait().expect("answered");
    assert!(matches!(reply(&replies, 0), Reply::Glimpsed { attr } if attr.size == 777));
    assert!(matches!(
        holder.wait_for_callback(),
        Callback::Glimpse { .. }
    ));
    let waiting = b.call(enqueue(Mode::PR));
    assert!(matches!(
        holder.wait_for_callback(),
        Callback::Blocking { .. }
    ));
    let last = [
        write(0, (0, 4), lock.handle),
        Request::Cancel {
            handles: vec![lock.handle],
        },
    ];
    a.call_urgent(batch(&last, b"last"))
        .wait()
        .expect("answered");
    let lock = locked(waiting.wait());
    let replies = b
        .call(batch(&[read(0, 99, lock.handle)], &[]))
        .wait()
        .expect("answered");
    assert_eq!(replies.bulk.joined(), b"last"[..]);
}

#[test]
fn a_lock_whose_grant_is_lost_on_the_way_is_granted_once() {
    let way = Arc::<SlowBack>::default();
    let port = MemPort::over("ost0", way.clone());
    let cluster = Cluster::reached(port.clone(), Arc::new(ObjectMemory::new(1 << 40)));
    let holder = Arc::<Holder>::default();
    let (a, b) = (
        cluster.peer(1, holder.clone()),
        cluster.peer(2, Arc::default()),
    );
    let stat = a.call(batch(&[Request::StatFs], &[])).wait();
    stat.expect("connected");
    way.0.store(true, Ordering::SeqCst);
    let asked = a.call(enqueue(Mode::PW));
    let granted = || cluster.ost.look(|ost| ost.all_locks());
    let start = Instant::now();
    while granted().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing granted");
        std::thread::yield_now();
    }
    let first = granted();
    way.0.store(false, Ordering::SeqCst);
    port.cut(|_| 0);
    let lock = locked(asked.wait());
    assert_eq!(granted(), first, "sent again, and not granted again");
    assert_eq!((first.len(), first[0].handle), (1, lock.handle));
    // With it all goes that is in others' way.
    let waiting = b.call(enqueue(Mode::PW));
    assert!(matches!(
        holder.wait_for_callback(),
        Callback::Blocking { handle, .. } if handle == lock.handle
    ));
    let handles = vec![lock.handle];
    a.call_urgent(batch(&[Request::Cancel { handles }], &[]))
        .wait()
        .expect("answered");
    locked(waiting.wait());
    assert_eq!(cluster.ost.look(|ost| ost.audit()), Ok(()));
}

#[test]
fn who_says_goodbye_leaves_no_lock_behind() {
    let cluster = Cluster::new();
    let (a, b) = (
        cluster.peer(1, Arc::default()),
        cluster.peer(2, Arc::default()),
    );
    locked(a.call(enqueue(Mode::PW)).wait());
    let waiting = b.call(enqueue(Mode::PR));
    a.close();
    locked(waiting.wait());
    drop(b);
    cluster.server.stop();
    cluster.ost.stop();
    assert_eq!(cluster.ost.stopped(), None);
}

#[test]
fn a_read_that_waits_for_the_disk_holds_up_nobody() {
    let gate = Arc::new(Gate::default());
    let cluster = Cluster::over(gate.clone());
    let holder = Arc::<Holder>::default();
    let (a, b) = (
        cluster.peer(1, holder.clone()),
        cluster.peer(2, Arc::default()),
    );
    let written = a.call(batch(&[write(0, (0, 4), LockHandle(0))], b"data"));
    written.wait().expect("answered");
    let lock = locked(a.call(enqueue(Mode::PR)).wait());
    // One read more than there are threads for them.
    let reads: Vec<_> = (0..5)
        .map(|_| a.call_bulk(batch(&[read(1, 99, lock.handle)], &[])))
        .collect();
    gate.wait_for_readers(4);

    for peer in [&a, &b] {
        let stat = peer.call(batch(&[Request::StatFs], &[])).wait();
        assert!(matches!(
            reply(&stat.expect("answered"), 0),
            Reply::Space(_)
        ));
    }
    let waiting = b.call(enqueue(Mode::PW));
    assert!(matches!(
        holder.wait_for_callback(),
        Callback::Blocking { .. }
    ));

    gate.open();
    for slow in reads {
        let replies = slow.wait().expect("answered");
        assert!(matches!(
            reply(&replies, 0),
            Reply::Read { bulk: (0, 3), grant: None, attr } if attr.size == 4
        ));
        assert_eq!(replies.bulk.joined(), b"ata"[..]);
    }
    let handles = vec![lock.handle];
    a.call_urgent(batch(&[Request::Cancel { handles }], &[]))
        .wait()
        .expect("answered");
    locked(waiting.wait());
}

#[test]
fn who_goes_while_the_disk_reads_for_it_leaves_nothing_behind() {
    let gate = Arc::new(Gate::default());
    let cluster = Cluster::over(gate.clone());
    let (a, b) = (
        cluster.peer(1, Arc::default()),
        cluster.peer(2, Arc::default()),
    );
    let written = a.call(batch(&[write(0, (0, 4), LockHandle(0))], b"data"));
    written.wait().expect("answered");
    let lock = locked(a.call(enqueue(Mode::PR)).wait());
    let slow = a.call_bulk(batch(&[read(0, 4, lock.handle)], &[]));
    gate.wait_for_readers(1);
    a.close();
    assert!(slow.wait().is_err());
    locked(b.call(enqueue(Mode::PW)).wait());
    gate.open();
    cluster.server.stop();
    cluster.ost.stop();
    assert_eq!(cluster.ost.stopped(), None);
}
