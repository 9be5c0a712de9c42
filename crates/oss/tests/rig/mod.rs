//! A target with nobody around it: requests go in by hand, what comes out is kept for the test.

#![allow(dead_code, reason = "each test file uses a part of the rig")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{BootEpoch, ByteRange, ClientId, Fid, FsError, LockHandle, Tick, Timestamp, Transno};
use dlm::Mode;
use layout::ObjectId;
use oss::records::{EXTENTS, SEALS, TABLES};
use oss::{Answer, Boot, Call, Oss, Output, SyncTicket, SyncWork, Syncer};
use rpc::window::RECOVERY_WINDOW;
use rpc::{ClientUuid, Departure};
use storage::extents::{ExtentDisk, ExtentObjects, Geometry, Options, StoreId};
use storage::{
    FaultyDisk, Kv, KvOptions, MemDisk, ObjectMemory, ObjectStore, Pace, SealedObjects, Survivors,
};
use wire::mdt::WriteTicket;
use wire::ost::{AllocateMode, Callback, CallbackReply, ExtentGrant, ObjectAttr, Reply, Request};

pub const A: ClientId = ClientId(1);
pub const B: ClientId = ClientId(2);
pub const C: ClientId = ClientId(3);
pub const PR: u8 = Mode::PR as u8;
pub const PW: u8 = Mode::PW as u8;
pub const TICKET: WriteTicket = WriteTicket {
    layout_generation: 1,
    open_epoch: 7,
};

pub fn object(number: u32) -> ObjectId {
    ObjectId {
        fid: Fid::new(Fid::SEQUENCE_FIRST, number),
        stripe: 0,
    }
}

/// The uuid of a client.
pub fn uuid_of(client: ClientId) -> ClientUuid {
    ClientUuid([client.0 as u8; 16])
}

pub fn range(start: u64, end: u64) -> ByteRange {
    ByteRange::new(start, end)
}

pub fn second(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

/// The bytes of objects; they outlive a target. Each test program says which kind it runs with, as
/// `OVER_EXTENTS`.
#[derive(Debug)]
pub enum Kept {
    Memory(ObjectMemory),
    Extents {
        disk: MemDisk,
        /// Those of the target that runs.
        power: FaultyDisk,
        open: Option<Arc<ExtentObjects>>,
    },
}

/// Beyond this, extents are not tried: a disk in memory takes all of it.
const EXTENT_BYTES_MAX: u64 = 16 << 20;
const LOG_BLOCKS: u64 = 64;

impl Kept {
    /// Room for about `bytes`.
    fn new(bytes: u64) -> Kept {
        if !crate::OVER_EXTENTS {
            return Kept::Memory(ObjectMemory::new(bytes));
        }
        let disk = MemDisk::new();
        let blocks = bytes.min(EXTENT_BYTES_MAX) / 4096 + LOG_BLOCKS + 2 + 4 + 2;
        let geometry = Geometry::new(StoreId([7; 16]), blocks * 4096, LOG_BLOCKS);
        ExtentDisk::create(&disk, &geometry.expect("room for data")).expect("memory");
        Kept::Extents {
            power: FaultyDisk::new(disk.clone()),
            disk,
            open: None,
        }
    }

    /// As a target has them, whose records are in `kv`.
    fn open(&mut self, kv: &Arc<Kv>) -> Arc<dyn ObjectStore> {
        match self {
            Kept::Memory(memory) => {
                let memory = Arc::new(memory.clone());
                Arc::new(SealedObjects::new(memory, kv.clone(), SEALS))
            }
            Kept::Extents { disk, power, open } => {
                *power = FaultyDisk::new(disk.clone());
                let disk = Arc::new(power.clone());
                let store = ExtentObjects::open(disk, kv.clone(), EXTENTS, Options::default());
                open.insert(Arc::new(store.expect("a sound disk"))).clone()
            }
        }
    }

    /// Everything not synced is gone.
    pub fn power_cut(&self) {
        match self {
            Kept::Memory(memory) => memory.power_cut(),
            Kept::Extents { power, .. } => power.power_cut(Survivors::Nothing).expect("memory"),
        }
    }
}

impl std::ops::Deref for Kept {
    type Target = dyn ObjectStore;

    fn deref(&self) -> &(dyn ObjectStore + 'static) {
        match self {
            Kept::Memory(memory) => memory,
            Kept::Extents { open, .. } => &**open.as_ref().expect("a target runs"),
        }
    }
}

/// What the disk under a target keeps.
#[derive(Debug)]
pub struct Disk {
    pub store: Kept,
    pub records: MemDisk,
}

pub struct Rig {
    pub oss: Oss,
    pub disk: Disk,
    pub kv: Arc<Kv>,
    pub syncer: Syncer,
    pub boot: Boot,
    pub now: Tick,
    pub wall: Timestamp,
    pub replies: BTreeMap<u64, (Result<Answer, FsError>, Transno)>,
    pub callbacks: Vec<(ClientId, u64, Callback)>,
    pub syncs: Vec<(SyncTicket, SyncWork)>,
    pub removals: Vec<Vec<ObjectId>>,
    /// Removals wait until the test does them.
    pub hold_removals: bool,
    pub evicted: Vec<ClientId>,
    pub stopped: Vec<String>,
    tags: u64,
}

impl Rig {
    pub fn new() -> Rig {
        Rig::with_room(1 << 40)
    }

    /// A target that is full after about that many bytes.
    pub fn with_room(bytes: u64) -> Rig {
        let records = MemDisk::new();
        Kv::create(records.clone()).expect("a fresh disk");
        let disk = Disk {
            store: Kept::new(bytes),
            records,
        };
        let boot = Boot {
            epoch: BootEpoch(1),
            now: Tick(1_000_000_000),
            wall: second(1_000_000),
            window: RECOVERY_WINDOW,
        };
        Rig::open(disk, boot)
    }

    fn open(mut disk: Disk, boot: Boot) -> Rig {
        let options = KvOptions::new("OST0").manual();
        let kv = Arc::new(Kv::open(disk.records.clone(), &TABLES, options).expect("a kv"));
        let limits = dlm::Limits::default();
        let store = disk.store.open(&kv);
        let oss = Oss::open(store.clone(), kv.clone(), limits, boot, Pace::usual());
        Rig {
            oss: oss.expect("a target"),
            syncer: Syncer::new(store, kv.clone(), Pace::usual()),
            disk,
            kv,
            boot,
            now: boot.now,
            wall: boot.wall,
            replies: BTreeMap::new(),
            callbacks: Vec::new(),
            syncs: Vec::new(),
            removals: Vec::new(),
            hold_removals: false,
            evicted: Vec::new(),
            stopped: Vec::new(),
            tags: 0,
        }
    }

    /// The process dies and starts again: what the disks have is what is left.
    pub fn restart(self) -> Rig {
        let boot = Boot {
            epoch: BootEpoch(self.boot.epoch.0 + 1),
            now: self.now,
            wall: self.wall,
            ..self.boot
        };
        let mut disk = self.disk;
        if let Kept::Extents { open, .. } = &mut disk.store {
            *open = None;
        }
        drop((self.oss, self.syncer, self.kv));
        Rig::open(disk, boot)
    }

    /// The machine loses power and starts again: what was synced is what is left.
    pub fn power_cut(self) -> Rig {
        self.disk.store.power_cut();
        self.restart()
    }

    fn take(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Reply {
                    tag,
                    result,
                    transno,
                    ..
                } => {
                    let twice = self.replies.insert(tag, (result, transno));
                    assert!(twice.is_none(), "answered twice");
                }
                Output::Callback {
                    client,
                    id,
                    callback,
                } => {
                    self.callbacks.push((client, id, callback));
                }
                Output::Evict { client } => self.evicted.push(client),
                Output::SyncWanted { ticket, work } => self.syncs.push((ticket, work)),
                Output::RemoveWanted { objects } => self.removals.push(objects),
                Output::ReadWanted { client, tag, work } => {
                    let result = self.syncer.read(&work).map_err(|e| FsError::from(&e));
                    self.oss.read_done(client, &work);
                    let twice = self.replies.insert(tag, (result, Transno(0)));
                    assert!(twice.is_none(), "answered twice");
                }
                Output::ListWanted { tag, work } => {
                    let result = self.syncer.list(work).map_err(|e| FsError::from(&e));
                    let twice = self.replies.insert(tag, (result, Transno(0)));
                    assert!(twice.is_none(), "answered twice");
                }
                Output::Stop { reason } => self.stopped.push(reason),
            }
        }
    }

    /// Removes what is to be removed.
    pub fn remove(&mut self) {
        for objects in std::mem::take(&mut self.removals) {
            let (result, mut out) = (self.syncer.remove(&objects), Vec::new());
            self.oss.removed(self.now, &objects, result, &mut out);
            self.take(out);
        }
    }

    /// Sends a request; its tag.
    pub fn send(&mut self, client: ClientId, request: Request, bulk: &[u8]) -> u64 {
        self.tags += 1;
        let mut out = Vec::new();
        let call = Call {
            client,
            tag: self.tags,
            request,
            bulk,
        };
        self.oss.handle(self.now, self.wall, call, &mut out);
        self.take(out);
        if !self.hold_removals {
            self.remove();
        }
        self.tags
    }

    /// The reply, if it is there.
    pub fn reply(&mut self, tag: u64) -> Option<Result<Answer, FsError>> {
        self.replies.remove(&tag).map(|(result, _)| result)
    }

    /// Sends a request that is answered at once.
    pub fn ask(
        &mut self,
        client: ClientId,
        request: Request,
        bulk: &[u8],
    ) -> Result<Answer, FsError> {
        let tag = self.send(client, request, bulk);
        self.reply(tag).expect("answered at once")
    }

    pub fn answer_callback(&mut self, client: ClientId, id: u64, reply: CallbackReply) {
        let mut out = Vec::new();
        self.oss
            .callback_reply(self.now, client, id, reply, &mut out);
        self.take(out);
    }

    pub fn evict(&mut self, client: ClientId) {
        let mut out = Vec::new();
        let whom = (client, Departure::GivenUp);
        self.oss.end_session(self.now, self.wall, whom, &mut out);
        self.take(out);
    }

    /// `client` leaves.
    pub fn goodbye(&mut self, client: ClientId) {
        let mut out = Vec::new();
        let whom = (client, Departure::Goodbye);
        self.oss.end_session(self.now, self.wall, whom, &mut out);
        self.take(out);
    }

    /// `client` has a session; its uuid is told by its number.
    pub fn connect(&mut self, client: ClientId) {
        self.oss.connected(client, uuid_of(client), false);
    }

    /// Another process goes on for `client`.
    pub fn succeed(&mut self, client: ClientId) {
        let mut out = Vec::new();
        self.oss.succeeded(self.now, client, &mut out);
        self.take(out);
    }

    /// That process is settled.
    pub fn settle(&mut self, client: ClientId) {
        let mut out = Vec::new();
        self.oss.drop_left_behind(self.now, client, &mut out);
        self.take(out);
    }

    /// `client` says that all it had is written.
    pub fn join(&mut self, client: ClientId) -> u64 {
        let boot_epoch = self.boot.epoch;
        self.send(client, Request::Join { boot_epoch }, &[])
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.wall.secs += time.as_secs() as i64;
        let mut out = Vec::new();
        self.oss.tick(self.now, self.wall, &mut out);
        self.take(out);
    }

    /// Runs the syncs that are wanted.
    pub fn sync(&mut self) {
        for (ticket, work) in std::mem::take(&mut self.syncs) {
            self.syncer.run(&work).expect("memory syncs");
            let mut out = Vec::new();
            self.oss.synced(self.now, ticket, &mut out);
            self.take(out);
        }
    }

    pub fn enqueue(&mut self, client: ClientId, mode: u8, range: ByteRange) -> u64 {
        self.send(
            client,
            Request::Enqueue {
                object: object(1),
                mode,
                range,
            },
            &[],
        )
    }

    /// A lock on object 1 that is free.
    pub fn lock(&mut self, client: ClientId, mode: u8, range: ByteRange) -> ExtentGrant {
        let tag = self.enqueue(client, mode, range);
        self.granted(tag).0
    }

    pub fn granted(&mut self, tag: u64) -> (ExtentGrant, ObjectAttr) {
        match self.reply(tag).expect("answered").expect("granted").reply {
            Reply::Locked { grant, attr } => (grant, attr),
            other => panic!("not a lock: {other:?}"),
        }
    }

    pub fn write(
        &mut self,
        client: ClientId,
        under: LockHandle,
        offset: u64,
        data: &[u8],
    ) -> Result<ObjectAttr, FsError> {
        self.write_to(client, object(1), under, offset, data, TICKET)
    }

    pub fn write_to(
        &mut self,
        client: ClientId,
        object: ObjectId,
        under: LockHandle,
        offset: u64,
        data: &[u8],
        ticket: WriteTicket,
    ) -> Result<ObjectAttr, FsError> {
        let bulk = (0, data.len() as u32);
        let request = Request::Write {
            object,
            offset,
            bulk,
            ticket,
            mtime: self.wall,
            under,
            boot_epoch: BootEpoch(0),
        };
        self.ask(client, request, data)
            .map(|answer| attr_of(&answer.reply))
    }

    pub fn read(
        &mut self,
        client: ClientId,
        under: LockHandle,
        offset: u64,
        len: u32,
    ) -> Result<Vec<u8>, FsError> {
        let request = Request::Read {
            object: object(1),
            offset,
            len,
            lock_mode: 0,
            under,
        };
        self.ask(client, request, &[])
            .map(|answer| answer.data.to_vec())
    }

    pub fn append(&mut self, client: ClientId, data: &[u8]) -> u64 {
        let bulk = (0, data.len() as u32);
        let request = Request::Append {
            object: object(1),
            bulk,
            ticket: TICKET,
            mtime: self.wall,
        };
        self.send(client, request, data)
    }

    pub fn truncate(&mut self, client: ClientId, size: u64, under: LockHandle) -> u64 {
        let (ticket, mtime) = (TICKET, self.wall);
        let request = Request::Truncate {
            object: object(1),
            size,
            ticket,
            mtime,
            under,
            boot_epoch: BootEpoch(0),
        };
        self.send(client, request, &[])
    }

    /// What reserves, frees or zeroes a range of the first object.
    pub fn allocation(&self, range: ByteRange, mode: AllocateMode, under: LockHandle) -> Request {
        Request::Allocate {
            object: object(1),
            range,
            mode,
            ticket: TICKET,
            mtime: self.wall,
            under,
            boot_epoch: BootEpoch(0),
        }
    }

    pub fn glimpse(&mut self, client: ClientId, speculative: bool) -> u64 {
        self.send(
            client,
            Request::Glimpse {
                object: object(1),
                speculative,
            },
            &[],
        )
    }

    pub fn cancel(&mut self, client: ClientId, handle: LockHandle) {
        let answer = self.ask(
            client,
            Request::Cancel {
                handles: vec![handle],
            },
            &[],
        );
        assert!(matches!(answer.expect("done").reply, Reply::Done));
    }

    /// The one callback sent since the last look.
    pub fn callback(&mut self) -> (ClientId, u64, Callback) {
        assert_eq!(self.callbacks.len(), 1, "{:?}", self.callbacks);
        self.callbacks.remove(0)
    }
}

/// The attributes in a reply that has them.
pub fn attr_of(reply: &Reply) -> ObjectAttr {
    match reply {
        Reply::Locked { attr, .. }
        | Reply::Read { attr, .. }
        | Reply::Written { attr, .. }
        | Reply::Appended { attr, .. }
        | Reply::Glimpsed { attr } => *attr,
        other => panic!("no attributes: {other:?}"),
    }
}
