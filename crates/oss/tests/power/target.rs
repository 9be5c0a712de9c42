//! A target on disks whose power may fail, and a client of it that remembers what it did.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::{BootEpoch, ByteRange, ClientId, Fid, FsError, LockHandle, Tick, Timestamp, Transno};
use layout::ObjectId;
use oss::records::TABLES;
use oss::{Boot, Call, Oss, Output, SyncTicket, SyncWork, Syncer};
use rpc::Departure;
use rpc::window::RECOVERY_WINDOW;
use storage::{Kv, KvOptions, MemDisk, ObjectMemory, ObjectStore, Pace, Result, Survivors};
use wire::handshake::ClientUuid;
use wire::mdt::WriteTicket;
use wire::ost::{AllocateMode, Request, Watermark};

use super::{Bytes, Kept, Power, Records};

/// Numbers of the objects that scripts use.
pub const OBJECTS: [u32; 3] = [1, 2, 3];
const CLIENT: ClientId = ClientId(1);
const WALL: Timestamp = Timestamp {
    secs: 1000,
    nanos: 0,
};
/// A boot in which nobody is waited for.
const ALONE: (BootEpoch, Duration) = (BootEpoch(1), Duration::ZERO);
/// No object of a script is longer.
const LONGEST: usize = 1 << 18;

/// The power is off: no answer came, and none will.
#[derive(Debug)]
pub struct Off;

/// What is done next.
#[derive(Debug, Clone)]
pub enum Step {
    Write {
        object: u32,
        offset: u64,
        data: Vec<u8>,
        epoch: u64,
    },
    Truncate {
        object: u32,
        size: u64,
    },
    Allocate {
        object: u32,
        range: (u64, u64),
        mode: AllocateMode,
    },
    /// Answered when it is durable.
    Destroy {
        object: u32,
        epoch: u64,
    },
    /// Answered when all is durable.
    Sync,
    /// A second passes: what is not durable becomes so.
    Second,
    /// What was left alone is sealed, and records become durable by themselves, as they do in between.
    Settle,
}

impl Step {
    pub fn object(&self) -> Option<u32> {
        match self {
            Step::Write { object, .. }
            | Step::Truncate { object, .. }
            | Step::Allocate { object, .. }
            | Step::Destroy { object, .. } => Some(*object),
            Step::Sync | Step::Second | Step::Settle => None,
        }
    }

    fn request(&self) -> Option<Request> {
        let mtime = Timestamp { secs: 5, nanos: 0 };
        let ticket = |open_epoch| WriteTicket {
            layout_generation: 1,
            open_epoch,
        };
        // Of the epoch that all may have.
        let plain = ticket(u64::from(u32::MAX));
        let under = LockHandle(0);
        Some(match self {
            Step::Write {
                object,
                offset,
                data,
                epoch,
            } => Request::Write {
                object: id(*object),
                offset: *offset,
                bulk: (0, data.len() as u32),
                ticket: ticket(*epoch),
                mtime,
                under,
                boot_epoch: BootEpoch(0),
            },
            Step::Truncate { object, size } => Request::Truncate {
                object: id(*object),
                size: *size,
                ticket: plain,
                mtime,
                under,
                boot_epoch: BootEpoch(0),
            },
            Step::Allocate {
                object,
                range,
                mode,
            } => Request::Allocate {
                object: id(*object),
                range: ByteRange::new(range.0, range.1),
                mode: *mode,
                ticket: plain,
                mtime,
                under,
                boot_epoch: BootEpoch(0),
            },
            Step::Destroy { object, epoch } => Request::Destroy {
                objects: vec![(id(*object), *epoch)],
                watermark: Watermark::default(),
            },
            Step::Sync => Request::Sync,
            Step::Second | Step::Settle => return None,
        })
    }
}

fn id(number: u32) -> ObjectId {
    ObjectId {
        fid: Fid::new(Fid::SEQUENCE_FIRST, number),
        stripe: 0,
    }
}

/// What a client remembers of a script.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// The step to do next, or under way.
    next: usize,
    /// Steps before this one were promised to be durable.
    pub told: usize,
    /// Nothing was sent from this one on.
    pub sent: usize,
    /// The last change of each step, once it was answered.
    transnos: BTreeMap<usize, Transno>,
    /// What the target said was durable.
    pub committed: Transno,
    /// The highest number it ever gave.
    pub highest: Transno,
    /// The first number it gave after a restart.
    pub first_resent: Option<Transno>,
}

impl Done {
    /// So many steps were done and durable long ago.
    pub fn after(steps: usize) -> Done {
        Done {
            next: steps,
            told: steps,
            sent: steps,
            ..Done::default()
        }
    }

    /// A target restarts, and has everything up to `committed`: what is beyond is sent again.
    pub fn come_back(&mut self, committed: Transno) {
        let lost = |(_, transno): &(&usize, &Transno)| **transno > committed;
        let lost = self
            .transnos
            .iter()
            .filter(lost)
            .map(|(step, _)| *step)
            .min();
        self.next = self.next.min(lost.unwrap_or(self.next));
        self.first_resent = None;
    }

    fn learn(&mut self, committed: Transno) {
        self.committed = self.committed.max(committed);
        // A step counts once all before it do.
        while self
            .transnos
            .get(&self.told)
            .is_some_and(|transno| *transno <= committed)
        {
            self.told += 1;
        }
    }
}

/// What a target stands on.
#[derive(Debug)]
pub struct Disks {
    pub records: MemDisk,
    pub objects: Kept,
}

impl Disks {
    /// The same, apart.
    pub fn copy(&self) -> Disks {
        let objects = match &self.objects {
            Kept::Memory(memory) => Kept::Memory(copied(memory)),
            Kept::Extents(disk) => Kept::Extents(MemDisk::from_bytes(disk.to_bytes())),
        };
        Disks {
            records: MemDisk::from_bytes(self.records.to_bytes()),
            objects,
        }
    }
}

fn copied(from: &ObjectMemory) -> ObjectMemory {
    let objects = ObjectMemory::new(1 << 30);
    let mut buffer = vec![0; LONGEST];
    for number in OBJECTS {
        let id = stored(number);
        if let Some(stat) = from.stat(id).expect("memory") {
            let count = from.read(id, 0, &mut buffer).expect("memory");
            objects.write(id, 0, &buffer[..count]).expect("room");
            objects.truncate(id, stat.size).expect("room");
        }
    }
    objects.sync_all().expect("memory");
    objects
}

pub fn uuid_of(client: ClientId) -> ClientUuid {
    ClientUuid([client.0 as u8; 16])
}

fn stored(number: u32) -> storage::ObjectId {
    storage::ObjectId::new(id(number).fid, 0)
}

/// One boot of a target.
pub struct Target {
    boot_epoch: BootEpoch,
    pub oss: Oss,
    pub kv: Arc<Kv>,
    pub store: Arc<dyn ObjectStore>,
    sealed: Arc<dyn ObjectStore>,
    bytes: Bytes,
    /// Bytes are removed after the syncs that are due, not before.
    pub removes_late: bool,
    records: Records,
    syncer: Syncer,
    now: Tick,
    replies: BTreeMap<u64, (std::result::Result<(), FsError>, Transno)>,
    syncs: Vec<(SyncTicket, SyncWork)>,
    removals: Vec<Vec<ObjectId>>,
    tags: u64,
}

impl Target {
    pub fn open(disks: &Disks, power: &Power) -> Result<Target> {
        let records = Records::new(disks.records.clone(), power);
        Target::open_on(&records, disks, power)
    }

    /// The boot of this number: clients of the one before are waited for.
    pub fn begin(disks: &Disks, power: &Power, boot_epoch: u64) -> Result<Target> {
        let records = Records::new(disks.records.clone(), power);
        let objects = Bytes::new(&disks.objects, power);
        Target::open_with(&records, objects, (BootEpoch(boot_epoch), RECOVERY_WINDOW))
    }

    /// The same; cuts the power where that fails.
    pub fn open_or_cut(disks: &Disks, power: &Power, survivors: Survivors) -> Option<Target> {
        let records = Records::new(disks.records.clone(), power);
        let store = Bytes::new(&disks.objects, power);
        let opened = Target::open_with(&records, store.clone(), ALONE);
        if opened.is_err() {
            records.power_cut(survivors);
            store.power_cut(survivors);
        }
        opened.ok()
    }

    pub fn open_on(records: &Records, disks: &Disks, power: &Power) -> Result<Target> {
        Target::open_with(records, Bytes::new(&disks.objects, power), ALONE)
    }

    fn open_with(
        records: &Records,
        bytes: Bytes,
        (epoch, window): (BootEpoch, Duration),
    ) -> Result<Target> {
        let options = KvOptions::new("OST0").manual();
        let kv = Arc::new(Kv::open(records.clone(), &TABLES, options)?);
        let (store, sealed) = bytes.open(&kv)?;
        let boot = Boot {
            epoch,
            now: Tick(1_000_000_000),
            wall: Timestamp::default(),
            window,
        };
        Ok(Target {
            boot_epoch: epoch,
            oss: Oss::open(
                sealed.clone(),
                kv.clone(),
                dlm::Limits::default(),
                boot,
                Pace::usual(),
            )?,
            syncer: Syncer::new(sealed.clone(), kv.clone(), Pace::usual()),
            kv,
            store,
            sealed,
            bytes,
            removes_late: false,
            records: records.clone(),
            now: Tick(1_000_000_000),
            replies: BTreeMap::new(),
            syncs: Vec::new(),
            removals: Vec::new(),
            tags: 0,
        })
    }

    /// What a restart finds from now on.
    pub fn power_cut(self, survivors: Survivors) {
        self.records.power_cut(survivors);
        self.bytes.power_cut(survivors);
    }

    /// Does the rest of `script`.
    pub fn go_on(&mut self, done: &mut Done, script: &[Step]) -> std::result::Result<(), Off> {
        while let Some(step) = script.get(done.next) {
            done.sent = done.sent.max(done.next + 1);
            let removed_later = script[done.next..].iter().any(|later| {
                matches!(later, Step::Destroy { .. }) && later.object() == step.object()
            });
            let result = self.step(step);
            done.learn(self.oss.committed());
            match result? {
                // A write that comes after the removal it came before: there is nothing to write.
                (Err(FsError::Stale), _) if removed_later => {
                    done.transnos.insert(done.next, Transno(0));
                }
                (Err(error), _) => panic!("{step:?}: {error}"),
                (Ok(()), transno) => {
                    done.transnos.insert(done.next, transno);
                    done.highest = done.highest.max(transno);
                    if transno > Transno(0) {
                        done.first_resent.get_or_insert(transno);
                    }
                }
            }
            if matches!(step, Step::Sync | Step::Destroy { .. }) {
                done.told = done.told.max(done.next + 1);
            }
            done.learn(self.oss.committed());
            done.next += 1;
        }
        Ok(())
    }

    /// The object's bytes as clients see them.
    pub fn contents(&mut self, number: u32) -> Option<Vec<u8>> {
        let id = stored(number);
        let stat = self.store.stat(id).expect("on")?;
        let bytes = self.sealed.read_shared(id, 0, stat.size as usize);
        Some(bytes.expect("sound").to_vec())
    }

    /// The target does not do this.
    pub fn is_refused(&mut self, step: &Step) -> bool {
        let answer = self.step(step).expect("the power stays on");
        answer.0 == Err(FsError::Stale)
    }

    fn step(
        &mut self,
        step: &Step,
    ) -> std::result::Result<(std::result::Result<(), FsError>, Transno), Off> {
        let Some(request) = step.request() else {
            if matches!(step, Step::Second) {
                self.pass(Duration::from_secs(1));
                self.work()?;
            }
            self.settle().map_err(|_| Off)?;
            return Ok((Ok(()), Transno(0)));
        };
        let bulk: &[u8] = match step {
            Step::Write { data, .. } => data,
            _ => &[],
        };
        let tag = self.send(CLIENT, request, bulk)?;
        self.work()?;
        match self.replies.remove(&tag) {
            // A later open waits for the old bytes to go.
            Some((Err(FsError::TryAgain | FsError::Io), _)) | None => Err(Off),
            Some(answer) => Ok(answer),
        }
    }

    /// Asks for something; the number under which the answer comes.
    fn send(
        &mut self,
        client: ClientId,
        request: Request,
        bulk: &[u8],
    ) -> std::result::Result<u64, Off> {
        let foreseen = self.syncer.foresee(std::slice::from_ref(&request));
        foreseen.map_err(|_| Off)?;
        self.tags += 1;
        let (mut out, tag) = (Vec::new(), self.tags);
        let call = Call {
            client,
            tag,
            request,
            bulk,
        };
        self.oss.handle(self.now, WALL, call, &mut out);
        self.take(out)?;
        Ok(tag)
    }

    /// A session of `client` begins.
    pub fn connect(&mut self, client: ClientId) {
        self.oss.connected(client, uuid_of(client), false);
    }

    /// `client` says that it has written all it had. It is answered when that is durable.
    pub fn join(&mut self, client: ClientId) -> std::result::Result<(), Off> {
        let request = Request::Join {
            boot_epoch: self.boot_epoch,
        };
        let tag = self.send(client, request, &[])?;
        self.work()?;
        match self.replies.remove(&tag) {
            Some((Ok(()), _)) => Ok(()),
            _ => Err(Off),
        }
    }

    /// The session of `client` ends.
    pub fn leave(&mut self, client: ClientId, how: Departure) -> std::result::Result<(), Off> {
        let mut out = Vec::new();
        self.oss
            .end_session(self.now, WALL, (client, how), &mut out);
        self.take(out)
    }

    /// Whom it waits for.
    pub fn awaited(&self) -> Vec<ClientUuid> {
        self.oss.recovery(self.now).awaited
    }

    /// `client` wants all of an object to read; the number under which the answer comes.
    pub fn enqueue(&mut self, client: ClientId) -> u64 {
        let request = Request::Enqueue {
            object: id(1),
            mode: dlm::Mode::PR as u8,
            range: ByteRange::ALL,
        };
        self.send(client, request, &[]).expect("the power stays on")
    }

    /// That was answered.
    pub fn is_answered(&self, tag: u64) -> bool {
        self.replies.contains_key(&tag)
    }

    /// What was left alone since the look before is sealed.
    pub fn settle(&self) -> Result<()> {
        self.syncer.settle()?;
        self.syncer.settle()?;
        self.kv.wait_durable(self.kv.committed())
    }

    pub fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        let mut out = Vec::new();
        self.oss.tick(self.now, WALL, &mut out);
        // A target that stops answers nothing, which is seen then.
        let _ = self.take(out);
    }

    fn take(&mut self, out: Vec<Output>) -> std::result::Result<(), Off> {
        for output in out {
            match output {
                Output::Reply {
                    tag,
                    result,
                    transno,
                    ..
                } => {
                    self.replies.insert(tag, (result.map(drop), transno));
                }
                // One who is here and did not say in time that it has written all.
                Output::Evict { .. } => {}
                Output::SyncWanted { ticket, work } => self.syncs.push((ticket, work)),
                Output::RemoveWanted { objects } => self.removals.push(objects),
                Output::Stop { .. } => return Err(Off),
                other => panic!("nobody asked for {other:?}"),
            }
        }
        Ok(())
    }

    /// What is done beside the core, in one of the orders it may be done in.
    pub fn work(&mut self) -> std::result::Result<(), Off> {
        while !(self.syncs.is_empty() && self.removals.is_empty()) {
            if self.removes_late {
                self.sync()?;
                self.remove()?;
            } else {
                self.remove()?;
                self.sync()?;
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> std::result::Result<(), Off> {
        for (ticket, work) in std::mem::take(&mut self.syncs) {
            self.syncer.run(&work).map_err(|_| Off)?;
            let mut out = Vec::new();
            self.oss.synced(self.now, ticket, &mut out);
            self.take(out)?;
        }
        Ok(())
    }

    fn remove(&mut self) -> std::result::Result<(), Off> {
        for objects in std::mem::take(&mut self.removals) {
            let (result, mut out) = (self.syncer.remove(&objects), Vec::new());
            self.oss.removed(self.now, &objects, result, &mut out);
            self.take(out)?;
        }
        Ok(())
    }
}
