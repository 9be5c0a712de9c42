//! A metadata server with fake clients around it, in one thread and on a clock of its own.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod mirror;
pub mod planted;
pub mod sets;
pub mod space;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::{
    ClientId, Fid, FsError, LockHandle, Name, Rng, SeededRng, Tick, Timestamp, Transno, Xid,
};
use mds::store::tables;
use mds::{Call, Mds, Output, Rules, fsck};
use rpc::Departure;
use rpc::serving::{Machine, Moment};
use storage::{FaultyDisk, Kv, KvOptions, MemDisk};
use wire::hash::NameHasher;
use wire::mdt::{
    Access, Callback, CallbackReply, Caller, Glimpsed, NewFile, OpenHandle, OpenIntent, Page,
    RenameMode, Reply, Request, SetAttr,
};
use wire::{Attr, Cover, FileKind, Node};

pub type Answer = (Result<Reply, FsError>, Transno);

/// When the target was made.
pub const FORMATTED: Timestamp = Timestamp { secs: 1, nanos: 0 };
pub const ROOT_USER: Caller = Caller { uid: 0, gid: 0 };
pub const READ: Access = Access {
    read: true,
    write: false,
    exec: false,
};
pub const WRITE: Access = Access {
    read: false,
    write: true,
    exec: false,
};
pub const EXEC: Access = Access {
    read: true,
    write: false,
    exec: true,
};

/// How a fake client treats what it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manners {
    /// Answers at once, and gives back what is wanted.
    Prompt,
    /// Says nothing until the test answers for it.
    Silent,
}

/// One fake client.
#[derive(Debug)]
pub struct Client {
    pub id: ClientId,
    pub uuid: [u8; 16],
    pub manners: Manners,
    sequence: Option<u64>,
    next_object: u32,
    next_xid: u64,
    /// What it says of files it holds for itself.
    pub held: HashMap<Fid, Attr>,
    /// What it was asked, all of it.
    pub asked: Vec<Callback>,
}

/// The server, its disk, its clients, its clock.
pub struct World {
    disk: MemDisk,
    /// The disk as the server reaches it, until the power fails.
    pub powered: FaultyDisk,
    pub space: Arc<space::Space>,
    pub kv: Arc<Kv>,
    pub mds: Mds,
    rules: Rules,
    hash_bits: u32,
    pub tick: Tick,
    pub wall: Timestamp,
    pub clients: BTreeMap<u64, Client>,
    /// Questions not answered yet.
    pub questions: VecDeque<(ClientId, u64, Callback)>,
    pub answers: HashMap<u64, Answer>,
    next_tag: u64,
    /// Answers wait for the disk only when the test says so.
    pub auto_flush: bool,
    pub outputs: Vec<Output>,
    /// What each client keeps of what it was told, where a test asks for that.
    pub mirrors: BTreeMap<u64, mirror::Mirror>,
    /// Requests under way, each with when its client's mirror sent it.
    requests: HashMap<u64, (Call, Request, usize)>,
    /// Changes that may not be durable, in their order.
    done: Vec<Done>,
}

/// A change that a client knows of.
#[derive(Debug, Clone)]
pub struct Done {
    pub call: Call,
    pub request: Request,
    pub reply: Reply,
    pub transno: Transno,
}

pub fn name(text: &str) -> Name {
    Name::try_from(text).expect("a valid name")
}

impl World {
    pub fn new() -> World {
        World::with(Rules::default(), 56)
    }

    /// With names that share few hashes.
    pub fn colliding() -> World {
        World::with(Rules::default(), 4)
    }

    pub fn with(rules: Rules, hash_bits: u32) -> World {
        let disk = MemDisk::new();
        Kv::create(disk.clone()).expect("a new disk");
        let space = Arc::<space::Space>::default();
        let powered = FaultyDisk::new(disk.clone());
        let kv = open_kv(&powered, &space);
        mds::format(&kv, 42, FORMATTED).expect("an empty store");
        let mds = open_mds(&kv, &rules, hash_bits, Tick(0));
        World {
            disk,
            powered,
            space,
            kv,
            mds,
            rules,
            hash_bits,
            tick: Tick(1),
            wall: Timestamp {
                secs: 1000,
                nanos: 0,
            },
            clients: BTreeMap::new(),
            questions: VecDeque::new(),
            answers: HashMap::new(),
            next_tag: 0,
            auto_flush: true,
            outputs: Vec::new(),
            mirrors: BTreeMap::new(),
            requests: HashMap::new(),
            done: Vec::new(),
        }
    }

    /// Connects client number `n`.
    pub fn connect(&mut self, n: u64) -> ClientId {
        let id = ClientId(n);
        let known = self.clients.remove(&n);
        self.mds.connect(id, [n as u8; 16]).expect("readable");
        let is_new = known.is_none();
        let client = known.unwrap_or(Client {
            id,
            uuid: [n as u8; 16],
            manners: Manners::Prompt,
            sequence: None,
            next_object: 1,
            next_xid: 1,
            held: HashMap::new(),
            asked: Vec::new(),
        });
        self.clients.insert(n, client);
        if is_new && self.auto_flush && !self.mds.recovery().is_open() {
            // From now on it is known: what follows need not wait for that.
            self.call(id, Request::Sync).expect("nothing is done");
        }
        id
    }

    pub fn client(&mut self, id: ClientId) -> &mut Client {
        self.clients.get_mut(&id.0).expect("connected")
    }

    /// A new FID of the client's sequence.
    pub fn fid(&mut self, client: ClientId) -> Fid {
        if self.client(client).sequence.is_none() {
            let Ok(Reply::Sequences { range, .. }) = self.call(client, Request::AllocSequences)
            else {
                panic!("no sequence");
            };
            self.client(client).sequence = Some(range.first);
        }
        let owner = self.client(client);
        let fid = Fid::new(owner.sequence.expect("just granted"), owner.next_object);
        owner.next_object += 1;
        fid
    }

    /// Forgets the sequence, as an evicted client does.
    pub fn drop_sequence(&mut self, client: ClientId) {
        self.client(client).sequence = None;
    }

    /// Sends a request in a frame of its own; the answer may come later.
    pub fn send(&mut self, client: ClientId, request: Request) -> u64 {
        let owner = self.client(client);
        let xid = Xid(owner.next_xid);
        owner.next_xid += 1;
        let slot = (xid.0 % 8) as u16;
        self.send_in(client, slot, xid, 0, request)
    }

    pub fn send_in(
        &mut self,
        client: ClientId,
        slot: u16,
        xid: Xid,
        index: u16,
        request: Request,
    ) -> u64 {
        self.next_tag += 1;
        let tag = self.next_tag;
        let call = Call {
            client,
            tag,
            slot,
            xid,
            index,
        };
        self.note_request(call, &request);
        let mut out = Vec::new();
        self.mds
            .handle(self.tick, self.wall, call, request, &mut out);
        self.take(out);
        tag
    }

    fn note_request(&mut self, call: Call, request: &Request) {
        let mirror = self.mirrors.get(&call.client.0);
        let asked = mirror.map_or(0, mirror::Mirror::now);
        self.requests
            .insert(call.tag, (call, request.clone(), asked));
    }

    /// Sends a request and answers every question until it is answered.
    pub fn call(&mut self, client: ClientId, request: Request) -> Result<Reply, FsError> {
        let tag = self.send(client, request);
        self.wait(tag).0
    }

    /// The answer to `tag`, which must come once everybody has done what is asked.
    pub fn wait(&mut self, tag: u64) -> Answer {
        for _ in 0..1000 {
            self.answer_questions();
            if let Some(answer) = self.answers.remove(&tag) {
                return answer;
            }
            if !self.go_on() && self.auto_flush {
                self.flush();
            }
        }
        panic!("no answer; questions open: {:?}", self.questions);
    }

    /// The answer to `tag`, if it has come.
    pub fn poll(&mut self, tag: u64) -> Option<Answer> {
        self.answers.remove(&tag)
    }

    /// Lets walks go on by a chunk, where there are any.
    pub fn go_on(&mut self) -> bool {
        let Some(at) = self
            .outputs
            .iter()
            .position(|output| *output == Output::GoOn)
        else {
            return false;
        };
        self.outputs.remove(at);
        let mut out = Vec::new();
        self.mds.go_on(self.tick, self.wall, &mut out);
        self.take(out);
        true
    }

    /// Makes everything durable.
    pub fn flush(&mut self) {
        let ticket = self.kv.flush_once().expect("a sound disk");
        let mut out = Vec::new();
        self.mds.durable(self.tick, self.wall, ticket, &mut out);
        self.take(out);
    }

    pub fn advance(&mut self, by: Duration) {
        self.tick = self.tick.after(by);
        self.wall.secs += by.as_secs() as i64;
        let mut out = Vec::new();
        self.mds.tick(self.tick, self.wall, &mut out);
        self.take(out);
    }

    /// The OSTs of the file system, from now on.
    pub fn set_osts(&mut self, osts: &[base::TargetIndex]) {
        let mut out = Vec::new();
        self.mds
            .set_osts(self.tick, self.wall, osts.to_vec(), &mut out);
        self.take(out);
    }

    /// The target gives up on `client`.
    pub fn evict(&mut self, client: ClientId) {
        self.end_session(client, Departure::GivenUp);
    }

    /// Another process goes on for `client`.
    pub fn succeed(&mut self, client: ClientId) {
        let mut out = Vec::new();
        self.mds.succeeded(self.tick, self.wall, client, &mut out);
        self.take(out);
    }

    /// That process has said what it goes on with.
    pub fn end_succession(&mut self, client: ClientId) {
        let mut out = Vec::new();
        let (now, wall) = (self.tick, self.wall);
        Machine::ready(&mut self.mds, Moment { now, wall }, client, &mut out);
        self.take(out);
    }

    /// `client` leaves.
    pub fn goodbye(&mut self, client: ClientId) {
        self.end_session(client, Departure::Goodbye);
    }

    fn end_session(&mut self, client: ClientId, how: Departure) {
        let mut out = Vec::new();
        let (tick, wall) = (self.tick, self.wall);
        self.mds.end_session(tick, wall, (client, how), &mut out);
        self.questions.retain(|(whom, ..)| *whom != client);
        self.take(out);
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
                    if let Some((call, request, asked)) = self.requests.remove(&tag) {
                        if let Some(mirror) = self.mirrors.get_mut(&call.client.0) {
                            mirror.answered(asked, &request, &result);
                        }
                        self.note_done(call, request, &result, transno);
                    }
                    assert!(
                        self.answers.insert(tag, (result, transno)).is_none(),
                        "twice"
                    );
                }
                Output::Callback {
                    client,
                    id,
                    callback,
                } => {
                    if let Some(owner) = self.clients.get_mut(&client.0) {
                        owner.asked.push(callback.clone());
                    }
                    self.questions.push_back((client, id, callback));
                }
                Output::Halt(cause) => panic!("the target stopped: {cause:?}"),
                other => self.outputs.push(other),
            }
        }
    }

    /// Answers what prompt clients are asked.
    pub fn answer_questions(&mut self) {
        let mut silent = VecDeque::new();
        while let Some((client, id, callback)) = self.questions.pop_front() {
            if self.client(client).manners == Manners::Silent {
                silent.push_back((client, id, callback));
            } else {
                self.answer(client, id, callback);
            }
        }
        self.questions = silent;
    }

    /// Answers one question as a good client does.
    pub fn answer(&mut self, client: ClientId, id: u64, callback: Callback) {
        let mut cancel = None;
        if let Some(mirror) = self.mirrors.get_mut(&client.0) {
            mirror.asked(&callback);
        }
        let reply = match callback {
            Callback::Glimpse { fid, .. } => {
                let attr = self.client(client).held.get(&fid).cloned();
                CallbackReply::Glimpse(attr.map(|attr| Glimpsed { attr }))
            }
            Callback::Blocking { handle, .. } => {
                cancel = Some(handle);
                CallbackReply::Done
            }
            _ => CallbackReply::Done,
        };
        let mut out = Vec::new();
        self.mds
            .callback_reply(self.tick, self.wall, client, id, reply, &mut out);
        self.take(out);
        if let Some(handle) = cancel {
            let tag = self.send(
                client,
                Request::Cancel {
                    handles: vec![handle],
                },
            );
            assert_eq!(self.poll(tag).map(|answer| answer.0), Some(Ok(Reply::Done)));
        }
    }

    /// Answers a question picked at random.
    pub fn answer_one(&mut self, rng: &mut SeededRng) {
        let at = rng.below(self.questions.len() as u64) as usize;
        if let Some((client, id, callback)) = self.questions.remove(at) {
            self.answer(client, id, callback);
        }
    }

    /// What fsck finds; a sound target has nothing.
    pub fn check(&self) {
        let hasher = NameHasher::narrow(42, self.hash_bits);
        let issues = fsck::check(self.mds.store(), hasher).expect("readable");
        assert!(issues.is_empty(), "{}", issues[0]);
    }

    fn note_done(
        &mut self,
        call: Call,
        request: Request,
        result: &Result<Reply, FsError>,
        transno: Transno,
    ) {
        if let (Ok(reply), 1..) = (result, transno.0) {
            let reply = reply.clone();
            self.done.push(Done {
                call,
                request,
                reply,
                transno,
            });
        }
    }

    /// The server dies, and what was not durable with it; it starts again on the same disk, and its
    /// clients have forgotten what they did.
    pub fn crash(&mut self) {
        self.crash_awaiting();
        let clients: Vec<ClientId> = self.clients.values().map(|client| client.id).collect();
        clients.into_iter().for_each(|client| self.ready(client));
    }

    /// A client has said all that it knows to be lost.
    pub fn ready(&mut self, client: ClientId) {
        let mut out = Vec::new();
        self.mds.ready_again(self.tick, self.wall, client, &mut out);
        self.take(out);
    }

    /// What a crash took of what clients had done, in its order.
    pub fn lost(&mut self) -> Vec<Done> {
        let committed = self.mds.last_committed();
        let mut lost = std::mem::take(&mut self.done);
        lost.retain(|done| done.transno > committed);
        lost.sort_by_key(|done| done.transno);
        lost
    }

    /// A client does again what was lost.
    pub fn replay(&mut self, done: &Done) -> Answer {
        let answer = self.try_replay(done);
        answer.expect("a replay waits for nobody")
    }

    /// The same; none: it is not answered.
    pub fn try_replay(&mut self, done: &Done) -> Option<Answer> {
        self.next_tag += 1;
        let call = Call {
            tag: self.next_tag,
            ..done.call
        };
        self.note_request(call, &done.request);
        let (request, reply) = (done.request.clone(), done.reply.clone());
        let mut out = Vec::new();
        self.mds
            .replay(self.tick, self.wall, call, (request, reply), &mut out);
        self.take(out);
        self.poll(call.tag)
    }

    /// The server dies and its clients do again what was lost, each in its order, in any order of
    /// the clients. Now and then the server dies over it.
    pub fn crash_and_replay(&mut self, rng: &mut SeededRng) {
        self.crash_awaiting();
        let mut left: VecDeque<Done> = self.lost().into();
        while !left.is_empty() {
            let first = left[rng.below(left.len() as u64) as usize].call.client;
            let at = left.iter().position(|done| done.call.client == first);
            let Some(done) = at.and_then(|at| left.remove(at)) else {
                break;
            };
            let (result, _) = self.replay(&done);
            assert!(result.is_ok(), "{done:?}: {result:?}");
            match rng.below(16) {
                0 => {
                    self.crash_awaiting();
                    let again = self.lost();
                    again
                        .into_iter()
                        .rev()
                        .for_each(|done| left.push_front(done));
                }
                1 => self.flush(),
                _ => {}
            }
        }
        // An answer to a replay says what the boot before granted, which is void.
        self.mirrors.values_mut().for_each(mirror::Mirror::clear);
        let clients: Vec<ClientId> = self.clients.values().map(|client| client.id).collect();
        clients.into_iter().for_each(|client| self.ready(client));
        assert!(!self.mds.recovery().is_open());
    }

    /// The server dies, starts again, and waits for its clients.
    pub fn crash_awaiting(&mut self) {
        self.tick = self.tick.after(Duration::from_secs(1));
        self.wall.secs += 1;
        let scratch = open_scratch();
        self.mds = open_mds(&scratch, &self.rules, self.hash_bits, self.tick);
        self.kv = scratch;
        self.powered = FaultyDisk::new(self.disk.clone());
        self.kv = open_kv(&self.powered, &self.space);
        self.mds = open_mds(&self.kv, &self.rules, self.hash_bits, self.tick);
        self.questions.clear();
        self.answers.clear();
        self.requests.clear();
        self.mirrors.values_mut().for_each(mirror::Mirror::clear);
        let clients: Vec<u64> = self.clients.keys().copied().collect();
        clients.into_iter().for_each(|client| {
            self.connect(client);
        });
    }
}

fn open_kv(disk: &FaultyDisk, space: &Arc<space::Space>) -> Arc<Kv> {
    let options = KvOptions {
        room: Some(space.clone()),
        ..KvOptions::new("MDT0").manual()
    };
    Arc::new(Kv::open(disk.clone(), &tables(), options).expect("a sound disk"))
}

/// A store to hold for the moment between two boots: one disk has one store at a time.
fn open_scratch() -> Arc<Kv> {
    let kv = Kv::scratch(&tables()).expect("memory");
    mds::format(&kv, 42, Timestamp::default()).expect("an empty store");
    Arc::new(kv)
}

fn open_mds(kv: &Arc<Kv>, rules: &Rules, hash_bits: u32, now: Tick) -> Mds {
    let hasher = |key| NameHasher::narrow(key, hash_bits);
    Mds::open_with(kv.clone(), rules.clone(), now, hasher).expect("a formatted store")
}

/// Requests, in short.
impl World {
    pub fn create_as(
        &mut self,
        client: ClientId,
        dir: Fid,
        text: &str,
        kind: FileKind,
        mode: u16,
        caller: Caller,
    ) -> Result<Reply, FsError> {
        let (open, fid) = (None, self.fid(client));
        let target = if kind == FileKind::Symlink {
            b"over/there".to_vec()
        } else {
            Vec::new()
        };
        let file = NewFile {
            fid,
            kind,
            mode,
            rdev: 0,
            target,
        };
        self.call(
            client,
            Request::Create {
                dir,
                name: name(text),
                file,
                caller,
                open,
            },
        )
    }

    pub fn make(&mut self, client: ClientId, dir: Fid, text: &str, kind: FileKind) -> Fid {
        let reply = self.create_as(client, dir, text, kind, 0o755, ROOT_USER);
        match reply.expect("created") {
            Reply::Created { node, .. } => node.fid,
            other => panic!("{other:?}"),
        }
    }

    /// A new file, opened.
    pub fn create_open(
        &mut self,
        client: ClientId,
        dir: Fid,
        text: &str,
        access: Access,
    ) -> (Node, OpenHandle) {
        let fid = self.fid(client);
        let request = create_open_request(fid, dir, text, access);
        match self.call(client, request).expect("created") {
            Reply::Created { node, handle, .. } => (node, handle),
            other => panic!("{other:?}"),
        }
    }

    pub fn touch(&mut self, client: ClientId, dir: Fid, text: &str) -> Fid {
        self.make(client, dir, text, FileKind::Regular)
    }

    pub fn mkdir(&mut self, client: ClientId, dir: Fid, text: &str) -> Fid {
        self.make(client, dir, text, FileKind::Directory)
    }

    pub fn open(
        &mut self,
        client: ClientId,
        fid: Fid,
        access: Access,
    ) -> Result<OpenHandle, FsError> {
        let dir = Fid::NONE;
        match self.call(
            client,
            Request::Open {
                fid,
                dir,
                access,
                intent: OpenIntent::First,
            },
        )? {
            Reply::Opened { handle, .. } => Ok(handle),
            other => panic!("{other:?}"),
        }
    }

    pub fn close(
        &mut self,
        client: ClientId,
        fid: Fid,
        handle: OpenHandle,
        change: SetAttr,
    ) -> Result<Node, FsError> {
        let under = LockHandle(0);
        node_of(self.call(
            client,
            Request::Close {
                fid,
                dir: Fid::NONE,
                handle,
                change,
                under,
            },
        ))
    }

    pub fn lookup(&mut self, client: ClientId, dir: Fid, text: &str) -> Option<Node> {
        match self
            .call(
                client,
                Request::Lookup {
                    dir,
                    name: name(text),
                },
            )
            .expect("looked up")
        {
            Reply::Lookup { node, .. } => node,
            other => panic!("{other:?}"),
        }
    }

    pub fn getattr(&mut self, client: ClientId, fid: Fid) -> Result<Node, FsError> {
        node_of(self.call(
            client,
            Request::GetAttr {
                fid,
                dir: Fid::NONE,
            },
        ))
    }

    pub fn setattr(
        &mut self,
        client: ClientId,
        fid: Fid,
        change: SetAttr,
    ) -> Result<Node, FsError> {
        let (dir, caller, under) = (Fid::NONE, ROOT_USER, LockHandle(0));
        node_of(self.call(
            client,
            Request::SetAttr {
                fid,
                dir,
                change,
                caller,
                under,
            },
        ))
    }

    pub fn link(
        &mut self,
        client: ClientId,
        fid: Fid,
        dir: Fid,
        text: &str,
    ) -> Result<Node, FsError> {
        match self.call(
            client,
            Request::Link {
                fid,
                dir,
                name: name(text),
            },
        )? {
            Reply::Linked { node, .. } => Ok(node),
            other => panic!("{other:?}"),
        }
    }

    pub fn unlink(&mut self, client: ClientId, dir: Fid, text: &str) -> Result<Node, FsError> {
        self.remove_as(client, dir, text, false, ROOT_USER)
    }

    pub fn rmdir(&mut self, client: ClientId, dir: Fid, text: &str) -> Result<Node, FsError> {
        self.remove_as(client, dir, text, true, ROOT_USER)
    }

    pub fn remove_as(
        &mut self,
        client: ClientId,
        dir: Fid,
        text: &str,
        directory: bool,
        caller: Caller,
    ) -> Result<Node, FsError> {
        let request = Request::Unlink {
            dir,
            name: name(text),
            directory,
            caller,
        };
        match self.call(client, request)? {
            Reply::Unlinked { node, .. } => Ok(node),
            other => panic!("{other:?}"),
        }
    }

    pub fn rename(
        &mut self,
        client: ClientId,
        from: (Fid, &str),
        to: (Fid, &str),
        mode: RenameMode,
    ) -> Result<Reply, FsError> {
        self.call(client, rename_request(from, to, mode, ROOT_USER))
    }

    /// All entries of a directory, in pages of `page`.
    pub fn list(&mut self, client: ClientId, dir: Fid, page: u32) -> Vec<wire::mdt::DirEntry> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (entries, end) = self.page(client, dir, cookie, page);
            cookie = entries.last().map_or(cookie, |entry| entry.cookie);
            all.extend(entries);
            if end {
                return all;
            }
        }
    }

    pub fn page(
        &mut self,
        client: ClientId,
        dir: Fid,
        cookie: u64,
        entries_max: u32,
    ) -> (Vec<wire::mdt::DirEntry>, bool) {
        let attrs_max = entries_max;
        let bytes_max = 1 << 20;
        let request = Request::ReadDir {
            dir,
            cookie,
            attrs_max,
            entries_max,
            bytes_max,
        };
        match self.call(client, request).expect("listed") {
            Reply::Page(Page { entries, end, .. }) => (entries, end),
            other => panic!("{other:?}"),
        }
    }

    pub fn names(&mut self, client: ClientId, dir: Fid) -> Vec<String> {
        let mut names: Vec<String> = self
            .list(client, dir, 100)
            .into_iter()
            .map(|entry| entry.name.to_string())
            .collect();
        names.sort();
        names
    }
}

pub fn make_request(fid: Fid, dir: Fid, text: &str, kind: FileKind) -> Request {
    let target = match kind {
        FileKind::Symlink => b"over/there".to_vec(),
        _ => Vec::new(),
    };
    let file = NewFile {
        fid,
        kind,
        mode: 0o755,
        rdev: 0,
        target,
    };
    Request::Create {
        dir,
        name: name(text),
        file,
        caller: ROOT_USER,
        open: None,
    }
}

pub fn create_open_request(fid: Fid, dir: Fid, text: &str, access: Access) -> Request {
    let (kind, target) = (FileKind::Regular, Vec::new());
    let file = NewFile {
        fid,
        kind,
        mode: 0o644,
        rdev: 0,
        target,
    };
    Request::Create {
        dir,
        name: name(text),
        file,
        caller: ROOT_USER,
        open: Some(access),
    }
}

pub fn rename_request(
    (source_dir, source): (Fid, &str),
    (target_dir, target): (Fid, &str),
    mode: RenameMode,
    caller: Caller,
) -> Request {
    let (source, target) = (name(source), name(target));
    Request::Rename {
        source_dir,
        source,
        target_dir,
        target,
        mode,
        caller,
        whiteout: None,
    }
}

pub fn node_of(result: Result<Reply, FsError>) -> Result<Node, FsError> {
    match result? {
        Reply::Node(node) => Ok(node),
        other => panic!("{other:?}"),
    }
}

pub fn is_covered(node: &Node) -> bool {
    node.cover != Cover::None
}
