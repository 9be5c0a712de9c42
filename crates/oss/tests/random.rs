//! Random work by three caching clients on one object, compared with a plain vector of bytes.

mod rig;

#[allow(
    dead_code,
    reason = "`over_extents` has these tests too, and says it for them"
)]
const OVER_EXTENTS: bool = false;

use std::collections::BTreeMap;

use base::{BootEpoch, ByteRange, ClientId, FsError, LockHandle, Rng, SeededRng, Timestamp};
use oss::Answer;
use rig::{PR, PW, Rig, TICKET, attr_of, object, range};
use wire::ost::{AllocateMode, Callback, CallbackReply, ExtentGrant, ObjectAttr, Reply, Request};

const CLIENTS: usize = 3;
/// Offsets are multiples of this, so that grown extents have something to be aligned to.
const UNIT: u64 = 1024;
const UNITS: u64 = 24;
/// Modes, as `dlm::Mode` numbers them, beside those of the rig.
const CR: u8 = 1;
const EX: u8 = 5;

/// Keeps written bytes under its locks and gives them up when asked, as a mount does.
#[derive(Default)]
struct Client {
    locks: Vec<ExtentGrant>,
    /// Bytes written under a lock and not yet at the target.
    dirty: BTreeMap<u64, u8>,
    /// Its last write.
    mtime: Timestamp,
    /// The lock under which it is told of growth, and the longest that it heard of.
    watch: Option<LockHandle>,
    heard: u64,
}

impl Client {
    fn covering(&self, mode: u8, wanted: ByteRange) -> Option<LockHandle> {
        let fits = |l: &&ExtentGrant| (l.mode >= PW || mode == PR) && l.range.contains(wanted);
        self.locks.iter().find(fits).map(|lock| lock.handle)
    }

    /// It holds `handle` in EX: nobody watches what it makes longer under that.
    fn is_alone(&self, handle: LockHandle) -> bool {
        let mut locks = self.locks.iter();
        locks.any(|lock| lock.handle == handle && lock.mode == EX)
    }

    /// The object with this client's own unwritten bytes.
    fn seen(&self) -> Option<ObjectAttr> {
        let (last, _) = self.dirty.last_key_value()?;
        Some(ObjectAttr {
            size: last + 1,
            blocks: 0,
            mtime: self.mtime,
        })
    }

    /// The first run of dirty bytes that a lock covers, no longer dirty.
    fn take_run(&mut self, lock: ExtentGrant) -> Option<(u64, Vec<u8>)> {
        let (&offset, _) = self.dirty.range(lock.range.start..lock.range.end).next()?;
        let mut data = Vec::new();
        while offset + (data.len() as u64) < lock.range.end
            && let Some(byte) = self.dirty.remove(&(offset + data.len() as u64))
        {
            data.push(byte);
        }
        Some((offset, data))
    }
}

struct World {
    rig: Rig,
    rng: SeededRng,
    clients: [Client; CLIENTS],
    truth: Vec<u8>,
    mtime: Timestamp,
    /// Callbacks that went out, by kind: blocking, glimpse.
    called: (u32, u32),
    /// How often somebody was told that the object grew.
    heard: u32,
}

fn id(client: usize) -> ClientId {
    ClientId(client as u64 + 1)
}

impl World {
    fn new(seed: u64) -> World {
        World {
            rig: Rig::new(),
            rng: SeededRng::new(seed),
            clients: Default::default(),
            truth: Vec::new(),
            mtime: Timestamp::default(),
            called: (0, 0),
            heard: 0,
        }
    }

    /// Sends a request and lets everybody answer callbacks, one at a time in random order, until
    /// the reply is there.
    fn done(&mut self, client: usize, request: Request, data: &[u8]) -> Result<Answer, FsError> {
        let tag = self.rig.send(id(client), request, data);
        self.await_reply(tag)
    }

    fn await_reply(&mut self, tag: u64) -> Result<Answer, FsError> {
        loop {
            if let Some(result) = self.rig.reply(tag) {
                return result;
            }
            self.answer_a_callback();
        }
    }

    fn answer_a_callback(&mut self) {
        let count = self.rig.callbacks.len() as u64;
        assert!(count > 0, "somebody waits and nobody was asked");
        let which = self.rng.below(count) as usize;
        let (whose, number, callback) = self.rig.callbacks.remove(which);
        let client = whose.0 as usize - 1;
        match callback {
            Callback::Glimpse { .. } => {
                self.called.1 += 1;
                let seen = self.clients[client].seen();
                self.rig
                    .answer_callback(whose, number, CallbackReply::Glimpse(seen));
            }
            Callback::Blocking { handle, mode, .. } => {
                self.called.0 += 1;
                self.rig.answer_callback(whose, number, CallbackReply::Done);
                match mode {
                    CR => self.give_room_to_watch(client, handle),
                    _ => self.give_back(client, handle),
                }
            }
            Callback::Grown { size, .. } => {
                self.heard += 1;
                let heard = &mut self.clients[client].heard;
                *heard = size.max(*heard);
                self.rig.answer_callback(whose, number, CallbackReply::Done);
            }
            Callback::Shrink { .. } => panic!("so few locks are not too many"),
        }
    }

    /// Who watches is told of growth from now on.
    fn give_room_to_watch(&mut self, client: usize, handle: LockHandle) {
        let locks = &mut self.clients[client].locks;
        if let Some(lock) = locks.iter_mut().find(|lock| lock.handle == handle) {
            lock.mode = PW;
            let convert = Request::Convert { handle, mode: PW };
            self.rig.ask(id(client), convert, &[]).expect("kept in PW");
        }
    }

    /// Writes out what the lock covers, then cancels it. What another lock of the client covers as
    /// well goes out too: that is allowed.
    fn give_back(&mut self, client: usize, handle: LockHandle) {
        let Some(at) = self.clients[client]
            .locks
            .iter()
            .position(|l| l.handle == handle)
        else {
            return;
        };
        let lock = self.clients[client].locks.remove(at);
        self.flush(client, lock);
        self.rig.cancel(id(client), handle);
    }

    fn flush(&mut self, client: usize, lock: ExtentGrant) {
        while lock.mode >= PW
            && let Some((offset, data)) = self.clients[client].take_run(lock)
        {
            let request = Request::Write {
                object: object(1),
                offset,
                bulk: (0, data.len() as u32),
                ticket: TICKET,
                mtime: self.clients[client].mtime,
                under: lock.handle,
                boot_epoch: BootEpoch(0),
            };
            self.rig
                .ask(id(client), request, &data)
                .expect("the lock covers it");
        }
    }

    fn flush_all(&mut self, client: usize) {
        for lock in self.clients[client].locks.clone() {
            self.flush(client, lock);
        }
        assert!(
            self.clients[client].dirty.is_empty(),
            "every dirty byte has its lock"
        );
    }

    fn lock(&mut self, client: usize, mode: u8, wanted: ByteRange) -> LockHandle {
        if let Some(handle) = self.clients[client].covering(mode, wanted) {
            return handle;
        }
        let request = Request::Enqueue {
            object: object(1),
            mode,
            range: wanted,
        };
        let Reply::Locked { grant, .. } = self.done(client, request, &[]).expect("granted").reply
        else {
            panic!("no lock")
        };
        assert!(grant.mode >= mode && grant.range.contains(wanted));
        self.clients[client].locks.push(grant);
        self.assert_locks_are_apart();
        grant.handle
    }

    /// No two clients hold locks that conflict.
    fn assert_locks_are_apart(&self) {
        for (a, one) in self.clients.iter().enumerate() {
            for two in &self.clients[..a] {
                for (x, y) in one
                    .locks
                    .iter()
                    .flat_map(|x| two.locks.iter().map(move |y| (x, y)))
                {
                    assert!((x.mode == PR && y.mode == PR) || !x.range.overlaps(y.range));
                }
            }
        }
    }

    /// Begins to be told of growth.
    fn watch(&mut self, client: usize) {
        if self.clients[client].watch.is_some() {
            return;
        }
        let watch = |again| Request::Watch {
            object: object(1),
            writes: false,
            again,
        };
        let watched = match self.done(client, watch(true), &[]) {
            // Another has it in EX, and is asked.
            Err(FsError::TryAgain) => self.done(client, watch(false), &[]),
            watched => watched,
        };
        let Reply::Locked { grant, .. } = watched.expect("watched").reply else {
            panic!("no lock")
        };
        assert_eq!(grant.mode, CR);
        self.clients[client].watch = Some(grant.handle);
        self.clients[client].heard = self.truth.len() as u64;
    }

    fn unwatch(&mut self, client: usize) {
        if let Some(handle) = self.clients[client].watch.take() {
            self.rig.cancel(id(client), handle);
        }
    }

    /// `client` made the object longer, under `lock` or one of the target's own.
    fn grown(&mut self, client: usize, lock: Option<LockHandle>, before: usize) {
        let size = self.truth.len() as u64;
        if size <= before as u64 {
            return;
        }
        let alone = lock.is_some_and(|lock| self.clients[client].is_alone(lock));
        if !alone {
            let announce = Request::Announce {
                object: object(1),
                size,
            };
            let answer = self.done(client, announce, &[]).expect("announced").reply;
            let Reply::Announced { grant, .. } = answer else {
                panic!("{answer:?}")
            };
            self.clients[client].locks.extend(grant);
        }
        for (other, watcher) in self.clients.iter().enumerate() {
            let is_told = watcher.watch.is_none() || watcher.heard >= size;
            assert!(other == client || is_told, "client {other} heard nothing");
        }
    }

    fn span(&mut self) -> ByteRange {
        let start = self.rng.below(UNITS) * UNIT + self.rng.below(3);
        range(start, start + 1 + self.rng.below(3 * UNIT))
    }

    fn tick_time(&mut self) -> Timestamp {
        self.rig.wall.secs += 1;
        self.mtime = self.rig.wall;
        self.mtime
    }

    fn grow_truth(&mut self, len: u64) {
        if self.truth.len() < len as usize {
            self.truth.resize(len as usize, 0);
        }
    }

    fn write(&mut self, client: usize) {
        let place = self.span();
        let under = self.lock(client, PW, place);
        let mtime = self.tick_time();
        let data: Vec<u8> = (0..place.len())
            .map(|_| self.rng.next_u64() as u8)
            .collect();
        let before = self.truth.len();
        self.grow_truth(place.end);
        self.truth[place.start as usize..place.end as usize].copy_from_slice(&data);
        let bytes = (place.start..place.end).zip(data);
        self.clients[client].dirty.extend(bytes);
        self.clients[client].mtime = mtime;
        self.grown(client, Some(under), before);
        if self.rng.below(3) == 0 {
            let locks = &self.clients[client].locks;
            // It may have been wanted back while growth was announced.
            if let Some(lock) = locks.iter().find(|l| l.handle == under).copied() {
                self.flush(client, lock);
            }
        }
    }

    fn read(&mut self, client: usize) {
        let place = self.span();
        let with_lock =
            self.clients[client].covering(PR, place).is_none() && self.rng.below(2) == 0;
        let answer = if with_lock {
            self.cold_read(client, place)
        } else {
            None
        };
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let under = self.lock(client, PR, place);
                let request = read_request(place, 0, under);
                self.rig
                    .ask(id(client), request, &[])
                    .expect("the lock covers it")
            }
        };
        let mut bytes = answer.data.to_vec();
        bytes.resize(place.len() as usize, 0);
        for (offset, byte) in self.clients[client].dirty.range(place.start..place.end) {
            bytes[(offset - place.start) as usize] = *byte;
        }
        let wrong = bytes
            .iter()
            .zip(self.expected(place))
            .position(|(is, must)| *is != must);
        assert_eq!(wrong, None, "client {client} reads {place}");
    }

    /// A read that brings its lock along, where that is free.
    fn cold_read(&mut self, client: usize, place: ByteRange) -> Option<Answer> {
        let request = read_request(place, PR, LockHandle(0));
        let answer = self.rig.ask(id(client), request, &[]).expect("no error");
        let Reply::Read { grant, .. } = answer.reply else {
            panic!("{answer:?}")
        };
        self.clients[client].locks.push(grant?);
        self.assert_locks_are_apart();
        Some(answer)
    }

    fn expected(&self, place: ByteRange) -> Vec<u8> {
        let at = |offset: u64| self.truth.get(offset as usize).copied().unwrap_or(0);
        (place.start..place.end).map(at).collect()
    }

    fn append(&mut self, client: usize) {
        // A mount that appends has written out what it holds itself.
        self.flush_all(client);
        let mtime = self.tick_time();
        let data = vec![self.rng.next_u64() as u8; 1 + self.rng.below(UNIT) as usize];
        let bulk = (0, data.len() as u32);
        let request = Request::Append {
            object: object(1),
            bulk,
            ticket: TICKET,
            mtime,
        };
        let Reply::Appended { offset, .. } =
            self.done(client, request, &data).expect("appended").reply
        else {
            panic!("no offset")
        };
        assert_eq!(offset, self.truth.len() as u64);
        let before = self.truth.len();
        self.truth.extend(data);
        self.grown(client, None, before);
    }

    /// Three appends at once: whole, and in the order in which the offsets say.
    fn appends_together(&mut self) {
        (0..CLIENTS).for_each(|client| self.flush_all(client));
        let mtime = self.tick_time();
        let pieces: Vec<Vec<u8>> = (0..CLIENTS)
            .map(|c| vec![c as u8; 1 + self.rng.below(99) as usize])
            .collect();
        let tags: Vec<u64> = pieces
            .iter()
            .enumerate()
            .map(|(client, data)| {
                let bulk = (0, data.len() as u32);
                let request = Request::Append {
                    object: object(1),
                    bulk,
                    ticket: TICKET,
                    mtime,
                };
                self.rig.send(id(client), request, data)
            })
            .collect();
        for (tag, data) in tags.into_iter().zip(pieces) {
            let Reply::Appended { offset, .. } = self.await_reply(tag).expect("appended").reply
            else {
                panic!("no offset")
            };
            assert_eq!(offset, self.truth.len() as u64, "first come, first served");
            self.truth.extend(data);
        }
    }

    fn truncate(&mut self, client: usize) {
        let size = self.rng.below(UNITS * UNIT);
        self.flush_all(client);
        let held = self.clients[client].covering(PW, ByteRange::ALL);
        let mtime = self.tick_time();
        let under = held.unwrap_or(LockHandle(0));
        let request = Request::Truncate {
            object: object(1),
            size,
            ticket: TICKET,
            mtime,
            under,
            boot_epoch: BootEpoch(0),
        };
        let attr = attr_of(&self.done(client, request, &[]).expect("cut").reply);
        assert_eq!(attr.size, size);
        let before = self.truth.len();
        self.truth.resize(size as usize, 0);
        self.grown(client, held, before);
    }

    fn allocate(&mut self, client: usize) {
        self.flush_all(client);
        let (place, mtime) = (self.span(), self.tick_time());
        let held = self.clients[client].covering(PW, ByteRange::ALL);
        let modes = [
            AllocateMode::Extend,
            AllocateMode::KeepSize,
            AllocateMode::PunchHole,
            AllocateMode::Zero,
            AllocateMode::ZeroKeepSize,
        ];
        let mode = modes[self.rng.below(5) as usize];
        let request = Request::Allocate {
            object: object(1),
            range: place,
            mode,
            ticket: TICKET,
            mtime,
            under: held.unwrap_or(LockHandle(0)),
            boot_epoch: BootEpoch(0),
        };
        self.done(client, request, &[]).expect("allocated");
        let before = self.truth.len();
        if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
            self.grow_truth(place.end);
        }
        self.grown(client, held, before);
        if !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize) {
            let end = (place.end as usize).min(self.truth.len());
            if (place.start as usize) < end {
                self.truth[place.start as usize..end].fill(0);
            }
        }
    }

    fn glimpse(&mut self, client: usize) {
        let request = Request::Glimpse {
            object: object(1),
            speculative: false,
        };
        let attr = attr_of(&self.done(client, request, &[]).expect("glimpsed").reply);
        let own = self.clients[client].seen().unwrap_or_default();
        assert_eq!(attr.size.max(own.size), self.truth.len() as u64);
        assert_eq!(attr.mtime.later(own.mtime), self.mtime);
    }

    fn cancel_some(&mut self, client: usize) {
        let count = self.clients[client].locks.len() as u64;
        if count > 0 {
            let which = self.rng.below(count) as usize;
            let handle = self.clients[client].locks[which].handle;
            self.give_back(client, handle);
        }
    }

    /// Evicted after it wrote everything: its locks are gone, its bytes are not.
    fn evict(&mut self, client: usize) {
        self.flush_all(client);
        self.rig.evict(id(client));
        self.rig
            .callbacks
            .retain(|(whose, ..)| *whose != id(client));
        self.clients[client].locks.clear();
        self.clients[client].watch = None;
    }

    fn restart(mut self) -> World {
        (0..CLIENTS).for_each(|client| self.flush_all(client));
        let tag = self.rig.send(id(0), Request::Sync, &[]);
        self.rig.sync();
        assert!(self.rig.reply(tag).expect("durable").is_ok());
        self.rig.disk.store.power_cut();
        self.clients = Default::default();
        World {
            rig: self.rig.restart(),
            ..self
        }
    }

    fn step(mut self) -> World {
        let client = self.rng.below(CLIENTS as u64) as usize;
        match self.rng.below(100) {
            0..35 => self.write(client),
            35..65 => self.read(client),
            65..72 => self.append(client),
            72..75 => self.appends_together(),
            75..81 => self.truncate(client),
            81..86 => self.allocate(client),
            86..89 => self.watch(client),
            89..91 => self.unwatch(client),
            91..93 => self.glimpse(client),
            93..97 => self.cancel_some(client),
            97 => self.evict(client),
            98 => self.rig.pass(std::time::Duration::from_millis(700)),
            _ => return self.restart(),
        }
        self.rig.sync();
        self
    }
}

fn read_request(place: ByteRange, lock_mode: u8, under: LockHandle) -> Request {
    let (offset, len) = (place.start, place.len() as u32);
    Request::Read {
        object: object(1),
        offset,
        len,
        lock_mode,
        under,
    }
}

#[test]
fn three_caching_clients_agree_with_one_vector() {
    let (mut called, mut heard) = ((0, 0), 0);
    for seed in 0..60 {
        println!("seed {seed}");
        let mut world = World::new(seed);
        for _ in 0..400 {
            world = world.step();
        }
        called = (called.0 + world.called.0, called.1 + world.called.1);
        heard += world.heard;
        assert!(world.rig.stopped.is_empty() && world.rig.evicted.is_empty());
        let findings = oss::fsck::check(&*world.rig.disk.store, &world.rig.kv, &mut |_| {
            oss::fsck::Whose::Unasked
        });
        assert_eq!(findings.expect("readable").findings, []);
    }
    assert!(
        called.0 > 1000 && called.1 > 100 && heard > 100,
        "there was contention: {called:?}, {heard}"
    );
}
