//! Servers of one MDT and one OST that record requests. They answer as if all went well, or not at all where
//! a test says so.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::{
    BootEpoch, ByteRange, ClientId, Fid, FsError, LockHandle, Name, SequenceRange, SystemClock,
    TargetIndex, TargetKind, TargetName, Transno, Xid,
};
use dlm::{Bits, Mode};
use layout::ObjectId;
use rpc::{
    Address, Batch, ClientSecret, Connected, Departure, LastCommitted, MemPort, Policy, ReplyBatch,
    ReplyMessage, Responder, ServedTarget, Server, ServerConfig, Service, Unwelcome,
};
use wire::attr::{DirState, Grant, Lease};
use wire::mdt::{OpenHandle, Reply, Request, Space, WriteTicket};
use wire::{Cover, Node, mgs, ost};

use super::attr_at;
use crate::cache::bits::{EXCLUSIVE, FILE_ATTR};
use crate::executor::block_on;
use crate::mount::Mounted;
use crate::mount::config::MountConfig;
use crate::recovery::takeover::TakeoverState;
use crate::session::kernel::{KernelCache, NoKernel};

/// How long a test waits for something.
const PATIENCE: Duration = Duration::from_secs(20);
const OST: TargetIndex = TargetIndex(0);
pub(crate) const SECRET: ClientSecret = ClientSecret([7; 16]);

/// What came from the client, in the order in which it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Heard {
    /// Of the MDT, and whether it had been asked of an earlier boot of it.
    Mdt(Request, bool),
    Ost(ost::Request),
    /// The client is ready for this boot of the MDT.
    Ready,
}

type IsHeld = fn(&Heard) -> bool;

struct State {
    heard: Vec<Heard>,
    /// In so many frames.
    frames: usize,
    /// What is left unanswered.
    is_held: IsHeld,
    /// What is answered as if the file were not there.
    is_stale: IsHeld,
    held: Vec<(ReplyBatch, Responder)>,
    sessions: Vec<(TargetName, Arc<Connected>)>,
    /// The last file, lock or use that got a number.
    number: u64,
    /// Writes are changes that are not durable before they are synced.
    are_writes_changes: bool,
    /// The last file that was made or named, and its name.
    made: Option<(Name, Fid)>,
}

/// What all of them know.
struct Known {
    state: Mutex<State>,
    changed: Condvar,
    ports: [Arc<MemPort>; 3],
}

/// Any of the three.
struct Target {
    name: TargetName,
    known: Arc<Known>,
}

/// The running servers.
pub(crate) struct Servers {
    known: Arc<Known>,
    epoch: u64,
    running: [Option<Server>; 3],
}

const TARGETS: [TargetName; 3] = [
    TargetName::MGS,
    TargetName {
        kind: TargetKind::Mdt,
        index: TargetIndex(0),
    },
    TargetName {
        kind: TargetKind::Ost,
        index: OST,
    },
];

impl Known {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl Servers {
    pub fn start() -> Servers {
        let state = State {
            heard: Vec::new(),
            frames: 0,
            is_held: |_| false,
            is_stale: |_| false,
            held: Vec::new(),
            sessions: Vec::new(),
            number: 0x100_0000,
            are_writes_changes: false,
            made: None,
        };
        let known = Known {
            state: Mutex::new(state),
            changed: Condvar::new(),
            ports: TARGETS.map(|name| MemPort::new(name.to_string())),
        };
        let mut servers = Servers {
            known: Arc::new(known),
            epoch: 0,
            running: [None, None, None],
        };
        servers.stop();
        servers.boot_anew();
        servers
    }

    /// Stops all of them. What they heard is not heard any more.
    pub fn stop(&mut self) {
        self.running = [None, None, None];
        self.known.change(|state| {
            state.heard.clear();
            state.held.clear();
            state.sessions.clear();
        });
    }

    /// All that do not run boot.
    pub fn boot_anew(&mut self) {
        self.epoch += 1;
        for (index, running) in self.running.iter_mut().enumerate() {
            if running.is_none() {
                *running = Some(serve(&self.known, index, self.epoch));
            }
        }
    }

    /// The MDT is killed and boots anew. What it heard before is not heard any more.
    pub fn restart_mdt(&mut self) {
        self.running[1] = None;
        self.known.change(|state| {
            state.heard.clear();
            state.held.clear();
            state
                .sessions
                .retain(|(name, _)| name.kind != TargetKind::Mdt);
        });
        self.boot_anew();
    }

    /// The same of the OST.
    pub fn restart_ost(&mut self) {
        self.stop_ost();
        self.boot_anew();
    }

    /// The OST is killed.
    pub fn stop_ost(&mut self) {
        self.running[2] = None;
        self.known.change(|state| {
            state.heard.clear();
            state.held.clear();
            state
                .sessions
                .retain(|(name, _)| name.kind != TargetKind::Ost);
        });
    }

    /// From now on this is left unanswered.
    pub fn hold(&self, is_held: IsHeld) {
        self.known.lock().is_held = is_held;
    }

    /// From now on this is answered as if the file were not there.
    pub fn forget(&self, is_stale: IsHeld) {
        self.known.lock().is_stale = is_stale;
    }

    /// The name leads to this file.
    pub fn name(&self, name: Name, fid: Fid) {
        self.known.lock().made = Some((name, fid));
    }

    /// From now on the OST may lose what is written.
    pub fn may_lose_writes(&self) {
        self.known.lock().are_writes_changes = true;
    }

    /// All that was left unanswered is answered, and what comes.
    pub fn answer(&self) {
        let mut state = self.known.lock();
        state.is_held = |_| false;
        let held = std::mem::take(&mut state.held);
        drop(state);
        held.into_iter()
            .for_each(|(reply, responder)| responder.reply(reply));
    }

    /// The target gives the client up, and tells it.
    pub fn evict(&self, kind: TargetKind) {
        let mut state = self.known.lock();
        state.heard.clear();
        let sessions = state.sessions.extract_if(.., |(name, _)| name.kind == kind);
        let given_up: Vec<_> = sessions.collect();
        drop(state);
        assert_eq!(given_up.len(), 1, "one session with {kind:?}");
        given_up.iter().for_each(|(_, session)| session.evict());
    }

    /// How many frames came since this was asked last.
    pub fn take_frames(&self) -> usize {
        std::mem::take(&mut self.known.lock().frames)
    }

    /// All that was heard in this boot, or since the eviction.
    pub fn heard(&self) -> Vec<Heard> {
        self.known.lock().heard.clone()
    }

    /// Waits until as much has come of `what`.
    pub fn wait_for(&self, count: usize, what: impl Fn(&Heard) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut state = self.known.lock();
        while state.heard.iter().filter(|heard| what(heard)).count() < count {
            assert!(Instant::now() < end, "waited in vain: {:?}", state.heard);
            let waited = self.known.changed.wait_timeout(state, PATIENCE / 100);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Joins them, and has heard of the OST how much may be unsent. Until then a write is answered when the
    /// OST has the bytes.
    pub fn mount(&self, takeover: Option<Arc<TakeoverState>>) -> Mounted {
        let mount = self.mount_unmet(takeover);
        let client = mount.client().clone();
        block_on(async move { client.ask_unsent_max(OST).await });
        mount
    }

    /// Joins them. Whether the OST was met yet is open.
    pub fn mount_unmet(&self, takeover: Option<Arc<TakeoverState>>) -> Mounted {
        self.mount_under(Arc::new(NoKernel), takeover)
    }

    /// The same, with that kernel above.
    pub fn mount_under(
        &self,
        kernel: Arc<dyn KernelCache>,
        takeover: Option<Arc<TakeoverState>>,
    ) -> Mounted {
        let known = self.known.clone();
        let reach = move |text: &str| {
            let named = |port: &&Arc<MemPort>| port.name() == text;
            known.ports.iter().find(named).cloned().map(Address::Mem)
        };
        let config = MountConfig {
            addresses: vec![Address::Mem(self.known.ports[0].clone())],
            reach: Arc::new(reach),
            secret: SECRET,
            key: None,
            insecure: false,
            policy: Policy::Hard,
            patience: Arc::new(|_| true),
            takeover,
            clocks: rpc::Clocks::default(),
        };
        let clock = Arc::new(SystemClock::default());
        Mounted::join(&config, kernel, clock).expect("they are there")
    }
}

fn serve(known: &Arc<Known>, index: usize, epoch: u64) -> Server {
    let name = TARGETS[index];
    let target = Target {
        name,
        known: known.clone(),
    };
    let served = ServedTarget {
        name,
        key: None,
        server_key: None,
        boot_epoch: BootEpoch(epoch),
        last_committed: Arc::<LastCommitted>::default(),
        service: Arc::new(target),
    };
    let listen = vec![Address::Mem(known.ports[index].clone())];
    Server::start(ServerConfig::new(listen), vec![served]).expect("nobody else listens there")
}

impl Service for Target {
    fn connected(&self, session: Arc<Connected>) -> Result<(), Unwelcome> {
        let begun = (self.name, session);
        self.known.change(|state| state.sessions.push(begun));
        Ok(())
    }

    fn request(
        &self,
        _: &Arc<Connected>,
        _: Xid,
        resent: bool,
        batch: Batch,
        responder: Responder,
    ) {
        let mut state = self.known.lock();
        state.frames += 1;
        let (mut replies, mut is_held) = (Vec::new(), false);
        let mut transno = Transno(0);
        for message in &batch.messages {
            let mut result = Ok(());
            let body = match self.name.kind {
                TargetKind::Mgs => wire::encode(&mgs::Reply::Config(config())),
                TargetKind::Mdt => {
                    let request = wire::decode(&message.body).expect("the client's own");
                    let reply = state.answer_of_mdt(&request);
                    let heard = Heard::Mdt(request, resent);
                    if (state.is_stale)(&heard) {
                        result = Err(FsError::Stale);
                    }
                    is_held |= state.hear(heard);
                    wire::encode(&reply)
                }
                TargetKind::Ost => {
                    let request = wire::decode(&message.body).expect("the client's own");
                    let reply = state.answer_of_ost(&request);
                    let is_write = matches!(request, ost::Request::Write { .. });
                    if is_write && state.are_writes_changes {
                        transno = Transno(state.next());
                    }
                    is_held |= state.hear(Heard::Ost(request));
                    wire::encode(&reply)
                }
            };
            let status = wire::status_of(result);
            replies.push(ReplyMessage { status, body });
        }
        let reply = ReplyBatch {
            replies,
            transno,
            ..ReplyBatch::default()
        };
        let unheld = match is_held {
            true => {
                state.held.push((reply, responder));
                None
            }
            false => Some((reply, responder)),
        };
        drop(state);
        self.known.changed.notify_all();
        if let Some((reply, responder)) = unheld {
            responder.reply(reply);
        }
    }

    fn disconnected(&self, _: ClientId) {}

    fn succeeded(&self, session: Arc<Connected>) {
        let begun = (self.name, session);
        self.known.change(|state| state.sessions.push(begun));
    }

    fn ready(&self, _: &Arc<Connected>) {
        if self.name.kind == TargetKind::Mdt {
            self.known.change(|state| state.heard.push(Heard::Ready));
        }
    }

    fn expired(&self, _: ClientId, _: Departure) {}
}

fn config() -> mgs::Config {
    let info = |name: TargetName| mgs::TargetInfo {
        name,
        uuid: [1; 16],
        addresses: vec![name.to_string()],
    };
    mgs::Config {
        fsname: "test".to_owned(),
        uuid: [2; 16],
        generation: 1,
        targets: TARGETS[1..].iter().copied().map(info).collect(),
    }
}

impl State {
    /// Whether it is left unanswered.
    fn hear(&mut self, heard: Heard) -> bool {
        let is_held = (self.is_held)(&heard);
        self.heard.push(heard);
        is_held
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn grant(&mut self, fid: Fid, mode: Mode, bits: Bits) -> Grant {
        Grant {
            handle: LockHandle(self.next()),
            fid,
            mode: mode.index() as u8,
            bits: bits.0,
            version: 1,
        }
    }

    fn extent(&mut self, object: ObjectId, mode: Mode, range: ByteRange) -> ost::ExtentGrant {
        ost::ExtentGrant {
            handle: LockHandle(self.next()),
            object,
            mode: mode.index() as u8,
            range,
        }
    }

    /// A new file is its maker's alone, and the attributes of one that is executed are locked. No lock covers
    /// anything else. The last file keeps its name when it moves.
    fn answer_of_mdt(&mut self, request: &Request) -> Reply {
        let node = |fid, cover| Node {
            fid,
            attr: attr_at(OST),
            cover,
        };
        match request {
            Request::AllocSequences => Reply::Sequences {
                range: SequenceRange {
                    first: self.next(),
                    count: 1,
                },
                name_key: 7,
            },
            Request::Create {
                dir, name, file, ..
            } => {
                self.made = Some((name.clone(), file.fid));
                let grant = self.grant(file.fid, Mode::EX, EXCLUSIVE);
                Reply::Created {
                    node: node(file.fid, Cover::Own(grant)),
                    cookie: self.next(),
                    dir: uncovered(*dir),
                    handle: OpenHandle(self.next()),
                    ticket: WriteTicket::default(),
                }
            }
            Request::Open { fid, access, .. } => {
                let cover = match access.exec {
                    true => Cover::Own(self.grant(*fid, Mode::PR, FILE_ATTR)),
                    false => Cover::None,
                };
                Reply::Opened {
                    node: node(*fid, cover),
                    handle: OpenHandle(self.next()),
                    ticket: WriteTicket::default(),
                }
            }
            Request::Lookup { name, .. } => {
                let found = self.made.as_ref().filter(|(made, _)| made == name);
                Reply::Lookup {
                    lease: Lease::None,
                    node: found.map(|(_, fid)| node(*fid, Cover::None)),
                }
            }
            Request::Rename {
                source_dir,
                target_dir,
                ..
            } => Reply::Renamed {
                source_dir: uncovered(*source_dir),
                target_dir: uncovered(*target_dir),
                node: node(
                    self.made.as_ref().map_or(Fid::NONE, |(_, fid)| *fid),
                    Cover::None,
                ),
                cookie: self.next(),
                replaced: None,
                replaced_cookie: 0,
                whiteout: None,
            },
            Request::GetAttr { fid, .. }
            | Request::SetAttr { fid, .. }
            | Request::Close { fid, .. } => Reply::Node(node(*fid, Cover::None)),
            _ => Reply::Done,
        }
    }

    /// Who watches an object is told of what others do, which is nothing.
    fn answer_of_ost(&mut self, request: &ost::Request) -> ost::Reply {
        let attr = ost::ObjectAttr::default();
        match *request {
            ost::Request::Write { .. } => ost::Reply::Written {
                attr,
                unsent_max: u64::MAX,
            },
            ost::Request::StatFs => ost::Reply::Space(Space {
                unsent_max: u64::MAX,
                ..Space::default()
            }),
            ost::Request::Glimpse { .. } => ost::Reply::Glimpsed { attr },
            ost::Request::Announce { .. } => ost::Reply::Announced { grant: None, attr },
            ost::Request::Watch { object, .. } => {
                let grant = self.extent(object, Mode::CR, ByteRange::ALL);
                ost::Reply::Locked { grant, attr }
            }
            ost::Request::Enqueue {
                object,
                mode,
                range,
                ..
            } => {
                let mode = Mode::from_index(mode).expect("the client's own");
                let grant = self.extent(object, mode, range);
                ost::Reply::Locked { grant, attr }
            }
            _ => ost::Reply::Done,
        }
    }
}

/// A directory whose names no lock covers.
fn uncovered(fid: Fid) -> DirState {
    DirState {
        fid,
        attr: attr_at(OST),
        version: 0,
    }
}

/// Of which file it makes a use known again.
pub(crate) fn told_again(heard: &Heard) -> Option<Fid> {
    match heard {
        Heard::Mdt(Request::Open { fid, intent, .. }, _) => intent.is_reopen().then_some(*fid),
        _ => None,
    }
}
