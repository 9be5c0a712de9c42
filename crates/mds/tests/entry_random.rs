//! Random requests about directories whose holders change them without a word. Every answer is that of a
//! plain map in which the changes of all holders are made.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{ClientId, Fid, FsError, LockHandle, Rng, SeededRng};
use dlm::Mode;
use mds::locks::WRITE_LEASE;
use support::*;
use wire::FileKind;
use wire::mdt::{Callback, RenameMode, Reply, Request, SetAttr};

const DIRS: u64 = 3;
const NAMES: u64 = 4;
const STEPS: usize = 1500;
const SEEDS: u64 = 4;
/// Longer than a directory that was fought over gives no write lease.
const PAUSE: Duration = Duration::from_secs(31);
/// The mode of what is made.
const FIRST_MODE: u16 = 0o755;

type Slot = (usize, u8);

/// What is asked, of directories by number.
#[derive(Debug, Clone)]
enum Op {
    Lookup(Slot),
    List(usize),
    Stat(Fid),
    Create(Slot, Fid),
    Unlink(Slot),
    Link(Fid, Slot),
    Rename(Slot, Slot),
    Chmod(Fid, u16),
}

/// What an answer shows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Found(Option<Fid>),
    Names(BTreeMap<u8, Fid>),
    Attr { mode: u16, nlink: u32 },
    Done,
}

/// Names and modes.
#[derive(Debug, Clone, Default)]
struct Model {
    names: BTreeMap<Slot, Fid>,
    modes: BTreeMap<Fid, u16>,
}

impl Model {
    fn links(&self, fid: Fid) -> u32 {
        self.names.values().filter(|other| **other == fid).count() as u32
    }

    fn remove(&mut self, slot: Slot) {
        if let Some(fid) = self.names.remove(&slot)
            && self.links(fid) == 0
        {
            self.modes.remove(&fid);
        }
    }

    fn apply(&mut self, op: &Op) -> Result<Seen, FsError> {
        let known = |model: &Model, fid: &Fid| match model.modes.contains_key(fid) {
            true => Ok(()),
            false => Err(FsError::Stale),
        };
        match op {
            Op::Lookup(slot) => return Ok(Seen::Found(self.names.get(slot).copied())),
            Op::List(dir) => {
                let names = self.names.iter().filter(|(slot, _)| slot.0 == *dir);
                let names = names.map(|(slot, fid)| (slot.1, *fid)).collect();
                return Ok(Seen::Names(names));
            }
            Op::Stat(fid) => {
                let mode = *self.modes.get(fid).ok_or(FsError::Stale)?;
                let nlink = self.links(*fid);
                return Ok(Seen::Attr { mode, nlink });
            }
            Op::Create(slot, fid) => {
                if self.names.contains_key(slot) {
                    return Err(FsError::Exists);
                }
                self.names.insert(*slot, *fid);
                self.modes.insert(*fid, FIRST_MODE);
            }
            Op::Unlink(slot) => {
                self.names.get(slot).ok_or(FsError::NotFound)?;
                self.remove(*slot);
            }
            Op::Link(fid, slot) => {
                known(self, fid)?;
                if self.names.contains_key(slot) {
                    return Err(FsError::Exists);
                }
                self.names.insert(*slot, *fid);
            }
            Op::Rename(from, to) => {
                let fid = *self.names.get(from).ok_or(FsError::NotFound)?;
                if self.names.get(to) != Some(&fid) {
                    self.remove(*to);
                    self.names.remove(from);
                    self.names.insert(*to, fid);
                }
            }
            Op::Chmod(fid, mode) => {
                known(self, fid)?;
                self.modes.insert(*fid, *mode);
            }
        }
        Ok(Seen::Done)
    }
}

/// A write lease, and what its holder has changed under it.
struct Lease {
    holder: ClientId,
    handle: LockHandle,
    without: BTreeSet<Fid>,
    changes: Vec<Op>,
}

struct Run {
    world: World,
    rng: SeededRng,
    clients: Vec<ClientId>,
    dirs: Vec<Fid>,
    files: Vec<Fid>,
    /// What the target knows.
    stored: Model,
    leases: BTreeMap<usize, Lease>,
    /// The one request that waits: its tag, and what it asks.
    waiting: Option<(u64, ClientId, Op)>,
    /// How often something happened that the run is about.
    waited: usize,
    local: usize,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut world = World::new();
        let clients: Vec<ClientId> = (1..4).map(|n| world.connect(n)).collect();
        let dirs = (0..DIRS).map(|dir| world.mkdir(clients[0], Fid::ROOT, &format!("d{dir}")));
        let dirs = dirs.collect();
        world.flush();
        for client in &clients {
            world.fid(*client);
            world.client(*client).manners = Manners::Silent;
        }
        Run {
            world,
            rng: SeededRng::new(seed),
            clients,
            dirs,
            files: Vec::new(),
            stored: Model::default(),
            leases: BTreeMap::new(),
            waiting: None,
            waited: 0,
            local: 0,
        }
    }

    fn truth(&self) -> Model {
        let mut truth = self.stored.clone();
        for op in self.leases.values().flat_map(|lease| &lease.changes) {
            truth.apply(op).expect("it could be done");
        }
        truth
    }

    fn below(&mut self, bound: u64) -> usize {
        self.rng.below(bound) as usize
    }

    fn client(&mut self) -> ClientId {
        let at = self.below(3);
        self.clients[at]
    }

    fn slot(&mut self) -> Slot {
        (self.below(DIRS), self.below(NAMES) as u8)
    }

    /// What to ask.
    fn choose(&mut self, client: ClientId) -> Op {
        let (slot, other) = (self.slot(), self.slot());
        let at = self.below(self.files.len().max(1) as u64);
        let file = self.files.get(at).copied();
        match (self.below(12), file) {
            (0 | 1, _) => Op::Lookup(slot),
            (2, _) => Op::List(slot.0),
            (3, _) => Op::Unlink(slot),
            (4, _) => Op::Rename(slot, other),
            (5, Some(fid)) => Op::Link(fid, slot),
            (6 | 7, Some(fid)) => Op::Chmod(fid, 0o600 + self.below(64) as u16),
            (8 | 9, Some(fid)) => Op::Stat(fid),
            _ => Op::Create(slot, self.world.fid(client)),
        }
    }

    fn request(&self, op: &Op) -> Request {
        let dir = |slot: &Slot| self.dirs[slot.0];
        let named = |slot: &Slot| name(&slot.1.to_string());
        let caller = ROOT_USER;
        match op {
            Op::Lookup(slot) => Request::Lookup {
                dir: dir(slot),
                name: named(slot),
            },
            Op::List(dir) => Request::ReadDir {
                dir: self.dirs[*dir],
                cookie: 0,
                attrs_max: 64,
                entries_max: 64,
                bytes_max: 1 << 16,
            },
            Op::Stat(fid) => Request::GetAttr {
                fid: *fid,
                dir: Fid::NONE,
            },
            Op::Create(slot, fid) => {
                make_request(*fid, dir(slot), &slot.1.to_string(), FileKind::Regular)
            }
            Op::Unlink(slot) => Request::Unlink {
                dir: dir(slot),
                name: named(slot),
                directory: false,
                caller,
            },
            Op::Link(fid, slot) => Request::Link {
                fid: *fid,
                dir: dir(slot),
                name: named(slot),
            },
            Op::Rename(from, to) => Request::Rename {
                source_dir: dir(from),
                source: named(from),
                target_dir: dir(to),
                target: named(to),
                mode: RenameMode::Replace,
                caller,
                whiteout: None,
            },
            Op::Chmod(fid, mode) => Request::SetAttr {
                fid: *fid,
                dir: Fid::NONE,
                change: SetAttr {
                    mode: Some(*mode),
                    ..SetAttr::default()
                },
                caller,
                under: LockHandle(0),
            },
        }
    }

    fn step(&mut self) {
        match self.below(12) {
            0..4 => self.change_locally(),
            4..6 => self.take_lease(),
            6 if self.below(20) == 0 => self.evict(),
            _ if self.waiting.is_none() => self.ask(),
            _ => {}
        }
        self.answer_one();
        if self.world.questions.is_empty() && self.below(8) == 0 {
            self.world.advance(PAUSE);
        }
        self.world.flush();
        self.hear();
    }

    /// A client that has nothing on the way takes a lease. The others give theirs back now and then.
    fn take_lease(&mut self) {
        let at = self.below(DIRS);
        let client = self.client();
        if self
            .waiting
            .as_ref()
            .is_some_and(|(_, whose, _)| *whose == client)
        {
            return;
        }
        for other in self.clients.clone() {
            let leases = self.leases.values();
            let kept: Vec<LockHandle> = leases.map(|lease| lease.handle).collect();
            let mut handles = self.world.mds.locks().handles(other);
            handles.retain(|handle| !kept.contains(handle));
            self.world
                .call(other, Request::Cancel { handles })
                .expect("cancelled");
        }
        let given = self
            .world
            .mds
            .try_write_lease(None, client, self.dirs[at])
            .expect("readable");
        let Some(grant) = given.filter(|_| !self.leases.contains_key(&at)) else {
            return;
        };
        let lease = Lease {
            holder: client,
            handle: grant.handle,
            without: grant.withdrawn.iter().map(|(key, _)| Fid(*key)).collect(),
            changes: Vec::new(),
        };
        self.leases.insert(at, lease);
    }

    /// A holder makes, removes, renames or changes what its lease covers.
    fn change_locally(&mut self) {
        let dir = self.below(DIRS);
        if !self.leases.contains_key(&dir) {
            return;
        }
        let truth = self.truth();
        let (from, to) = ((dir, self.slot().1), (dir, self.slot().1));
        let lease = &self.leases[&dir];
        let holder = lease.holder;
        let covered = |slot: &Slot| {
            let file = truth.names.get(slot).copied();
            file.filter(|fid| truth.links(*fid) == 1 && !lease.without.contains(fid))
        };
        let (file, target) = (covered(&from), covered(&to));
        let target_is_free = !truth.names.contains_key(&to);
        let op = match (self.below(4), file) {
            (0, Some(_)) => Op::Unlink(from),
            (1, Some(_)) if target_is_free || target.is_some() => Op::Rename(from, to),
            (2, Some(fid)) => Op::Chmod(fid, 0o600 + self.below(64) as u16),
            _ if target_is_free => Op::Create(to, self.world.fid(holder)),
            _ => return,
        };
        let lease = self.leases.get_mut(&dir).expect("it is there");
        lease.changes.push(op);
        self.local += 1;
    }

    fn ask(&mut self) {
        let client = self.client();
        let op = self.choose(client);
        // A holder sees and changes its directories without asking.
        if self.leases.values().any(|lease| lease.holder == client) {
            return;
        }
        let tag = self.world.send(client, self.request(&op));
        self.waiting = Some((tag, client, op));
    }

    /// One question is answered: a holder sends what it has changed before it lets others in.
    fn answer_one(&mut self) {
        let count = self.world.questions.len() as u64;
        if count == 0 || self.below(3) == 0 {
            return;
        }
        let at = self.below(count);
        let (client, id, callback) = self.world.questions.remove(at).expect("counted");
        let lease = match &callback {
            Callback::Blocking { handle, .. } => {
                let mut leases = self.leases.iter();
                leases.find(|(_, lease)| lease.handle == *handle)
            }
            _ => None,
        };
        match lease.map(|(dir, _)| *dir) {
            None => self.world.answer(client, id, callback),
            Some(dir) => self.flush(dir),
        }
    }

    fn flush(&mut self, dir: usize) {
        self.waited += 1;
        let lease = self.leases.remove(&dir).expect("it is there");
        for op in &lease.changes {
            let request = self.request(op);
            let tag = self.world.send(lease.holder, request);
            self.world.flush();
            let answer = self.world.poll(tag).map(|answer| answer.0);
            assert!(matches!(answer, Some(Ok(_))), "{op:?}: {answer:?}");
            self.store(op).expect("it could be done");
        }
        let request = Request::Convert {
            handle: lease.handle,
            mode: Mode::PR.index() as u8,
            bits: WRITE_LEASE.0,
        };
        self.world.call(lease.holder, request).expect("converted");
    }

    /// A holder is given up, and with it what it had not sent.
    fn evict(&mut self) {
        let Some(holder) = self.leases.values().next().map(|lease| lease.holder) else {
            return;
        };
        self.leases.retain(|_, lease| lease.holder != holder);
        self.world.evict(holder);
        self.world.drop_sequence(holder);
        self.world.connect(holder.0);
        self.world.flush();
    }

    /// The answer that was waited for shows what is true now.
    fn hear(&mut self) {
        let Some((tag, client, op)) = self.waiting.take() else {
            return;
        };
        let Some((answer, _)) = self.world.poll(tag) else {
            self.waiting = Some((tag, client, op));
            return;
        };
        let expected = self.truth().apply(&op);
        let seen = answer.map(|reply| match reply {
            Reply::Lookup { node, .. } => Seen::Found(node.map(|node| node.fid)),
            Reply::Page(page) => {
                let entries = page.entries.into_iter();
                let number = |text: &[u8]| text[0] - b'0';
                let names = entries.map(|entry| (number(entry.name.as_bytes()), entry.fid));
                Seen::Names(names.collect())
            }
            Reply::Node(node) if matches!(op, Op::Stat(_)) => Seen::Attr {
                mode: node.attr.mode,
                nlink: node.attr.nlink,
            },
            _ => Seen::Done,
        });
        assert_eq!(seen, expected, "{op:?}");
        // No holder has changed anything that it is about: it does the same to what is stored.
        let _ = self.store(&op);
    }

    fn store(&mut self, op: &Op) -> Result<Seen, FsError> {
        let stored = self.stored.apply(op);
        if let (Op::Create(_, fid), Ok(_)) = (op, &stored) {
            // Others may have seen its id from now on.
            self.files.push(*fid);
        }
        stored
    }
}

#[test]
fn every_answer_shows_what_holders_have_changed() {
    let (mut waited, mut local) = (0, 0);
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.step();
        }
        run.world.check();
        waited += run.waited;
        local += run.local;
    }
    assert!(
        waited > 100 && local > 300,
        "{waited} waits, {local} changes"
    );
}
