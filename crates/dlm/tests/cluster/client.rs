//! A client around its cache: what it keeps, what it uses, and what it has asked for.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use base::{ByteRange, ClientId, LockHandle, Rng, SeededRng, Tick};
use dlm::{
    Bits, CacheInput, CacheLimits, CacheOutput, Cover, Keep, Kind, LockCache, Mode, ResourceId,
    Want,
};

use crate::message::{
    ATTRIBUTES, BLOCK, BLOCKS, CHILDREN, DIRECTORIES, FILES, INODES, Reply, Request, ToClient,
    ToServer, directory, file, inode,
};
use crate::server::Server;

type Check = Result<(), String>;

/// A lock in use by a call.
pub struct Pin {
    handle: LockHandle,
    pub used: Want,
}

/// What a call wants to do with a block once it has the lock.
#[derive(Debug, Clone, Copy)]
struct Access {
    file: u64,
    block: u64,
    write: bool,
}

/// One client.
pub struct Client {
    pub id: ClientId,
    pub cache: LockCache,
    attributes: BTreeMap<(u64, Bits), u64>,
    children: BTreeMap<(u64, u64), u64>,
    lists: BTreeMap<u64, u64>,
    /// Blocks, and whether they are not written back.
    blocks: BTreeMap<(u64, u64), (u64, bool)>,
    /// Requests not answered yet.
    pub asked: BTreeMap<u64, Request>,
    accesses: BTreeMap<u64, Access>,
    next_request: u64,
    pub pins: Vec<Pin>,
    /// Locks the cache wants flushed, and withdrawals to be acknowledged.
    outbox: VecDeque<CacheOutput>,
    /// To the server: requests in any order, releases in theirs.
    pub requests: Vec<ToServer>,
    pub releases: VecDeque<ToServer>,
    /// From the server: callbacks in order, replies in any.
    pub callbacks: VecDeque<ToClient>,
    pub replies: Vec<ToClient>,
}

impl Client {
    pub fn new(id: ClientId) -> Client {
        let limits = CacheLimits {
            lru_max: 12,
            age_max: Duration::from_secs(8),
            withdrawn_max: 8,
            ..CacheLimits::default()
        };
        Client {
            id,
            cache: LockCache::new(limits),
            attributes: BTreeMap::new(),
            children: BTreeMap::new(),
            lists: BTreeMap::new(),
            blocks: BTreeMap::new(),
            asked: BTreeMap::new(),
            accesses: BTreeMap::new(),
            next_request: 0,
            pins: Vec::new(),
            outbox: VecDeque::new(),
            requests: Vec::new(),
            releases: VecDeque::new(),
            callbacks: VecDeque::new(),
            replies: Vec::new(),
        }
    }

    fn step(&mut self, now: Tick, input: CacheInput) {
        let mut out = Vec::new();
        self.cache.step(now, input, &mut out);
        for output in out {
            if let CacheOutput::Withdrawn {
                resource,
                key,
                bits,
                ..
            } = output
            {
                self.forget_entry(resource.id, key, bits);
            }
            self.outbox.push_back(output);
        }
        let releases = self.cache.take_releases(usize::MAX);
        self.releases
            .extend(releases.into_iter().map(ToServer::Release));
    }

    fn forget_entry(&mut self, directory: u64, key: u64, bits: Bits) {
        if bits.overlaps(Bits::CHILD) {
            self.children.remove(&(directory, key));
        }
        if bits.overlaps(Bits::LIST) {
            self.lists.remove(&directory);
        }
    }

    /// Sends a request and returns its number.
    fn ask(&mut self, what: Request) -> u64 {
        self.next_request += 1;
        self.asked.insert(self.next_request, what.clone());
        self.requests
            .push(ToServer::Request(self.next_request, what));
        self.next_request
    }

    /// Starts something at random, checking what can be answered from the cache.
    pub fn act(&mut self, server: &mut Server, rng: &mut SeededRng) -> Check {
        let (id, key) = (rng.below(DIRECTORIES), rng.below(CHILDREN));
        match rng.below(20) {
            0..5 => self.stat(server, rng.below(INODES), pick(rng, &ATTRIBUTES), rng)?,
            5 => {
                self.ask(Request::SetAttr(rng.below(INODES), pick(rng, &ATTRIBUTES)));
            }
            6..9 => self.use_child(server, id, key)?,
            9 => self.use_list(server, id)?,
            10 => {
                let lease = self.lease(server.now, id);
                self.ask(Request::SetChild(id, key, lease));
            }
            11 => {
                self.ask(Request::Create(id, key));
            }
            12..17 => {
                let (file, block) = (rng.below(FILES), rng.below(BLOCKS));
                let write = rng.below(2) == 0;
                self.access(server, Access { file, block, write }, rng)?;
            }
            17 => {
                self.ask(Request::Glimpse(rng.below(FILES)));
            }
            18 => self.lock_inode(rng),
            _ => self.change_mind(server.now, rng),
        }
        Ok(())
    }

    fn lease(&mut self, now: Tick, id: u64) -> Option<LockHandle> {
        self.cache
            .lookup(now, directory(id), Mode::PR, Cover::Bits(Bits::CHILD))
    }

    fn busy(&self, matches: impl Fn(&Request) -> bool) -> bool {
        self.asked.values().any(matches)
    }

    fn stat(&mut self, server: &mut Server, id: u64, bits: Bits, rng: &mut SeededRng) -> Check {
        let held = self
            .cache
            .lookup(server.now, inode(id), Mode::PR, Cover::Bits(bits));
        let kept = self.attributes.get(&(id, bits)).copied();
        let changing = self.busy(|asked| matches!(asked, Request::SetAttr(of, _) if *of == id));
        if let (Some(_), Some(kept)) = (held, kept) {
            let truth = server.attributes.get(&(id, bits)).copied().unwrap_or(0);
            server.tally.hits += 1;
            return same(&format!("{bits} of inode {id}"), kept, truth, changing);
        }
        let waits = rng.below(3) == 0;
        self.ask(if waits {
            Request::GetAttrLocked(id, bits)
        } else {
            Request::GetAttr(id)
        });
        Ok(())
    }

    fn use_child(&mut self, server: &mut Server, id: u64, key: u64) -> Check {
        let covered = self.cache.covers_entry(directory(id), key, Bits::CHILD);
        let changing =
            self.busy(|asked| matches!(asked, Request::SetChild(d, k, _) if (*d, *k) == (id, key)));
        match self.children.get(&(id, key)).filter(|_| covered) {
            Some(kept) => {
                server.tally.child_hits += 1;
                same(
                    &format!("child {key} of {id}"),
                    *kept,
                    server.child(id, key),
                    changing,
                )
            }
            None => {
                let lease = self.lease(server.now, id);
                self.ask(match lease {
                    Some(lease) => Request::LookupChild(id, key, Some(lease)),
                    None => Request::ReadDir(id, None),
                });
                Ok(())
            }
        }
    }

    fn use_list(&mut self, server: &mut Server, id: u64) -> Check {
        let part = Cover::Bits(Bits::LIST);
        let lease = self.cache.lookup(server.now, directory(id), Mode::PR, part);
        let changing = self.busy(|asked| matches!(asked, Request::Create(d, _) if *d == id));
        match (lease, self.lists.get(&id)) {
            (Some(_), Some(kept)) => {
                let truth = server.lists.get(&id).copied().unwrap_or(0);
                server.tally.list_hits += 1;
                same(&format!("list of {id}"), *kept, truth, changing)
            }
            (lease, _) => {
                self.ask(Request::ReadDir(id, lease));
                Ok(())
            }
        }
    }

    fn access(&mut self, server: &mut Server, access: Access, rng: &mut SeededRng) -> Check {
        let mode = if access.write { Mode::PW } else { Mode::PR };
        let range = ByteRange::new(access.block * BLOCK, (access.block + 1) * BLOCK);
        let cover = Cover::Range(range);
        match self
            .cache
            .acquire(server.now, file(access.file), mode, cover)
        {
            Some(handle) => self.touch_block(server, access, handle),
            None => {
                // Sometimes for more than is needed.
                let end = range.end + rng.below(3) * BLOCK;
                let kind = Kind::Extent {
                    range: ByteRange::new(range.start, end),
                };
                let request = self.ask(Request::Lock(file(access.file), mode, kind));
                self.accesses.insert(request, access);
                Ok(())
            }
        }
    }

    /// Reads or writes the block under the lock, which stays in use for a while.
    fn touch_block(&mut self, server: &mut Server, access: Access, handle: LockHandle) -> Check {
        let place = (access.file, access.block);
        let mode = if access.write { Mode::PW } else { Mode::PR };
        let range = ByteRange::new(access.block * BLOCK, (access.block + 1) * BLOCK);
        let used = Want::range(file(access.file), mode, range);
        self.pins.push(Pin { handle, used });
        let latest = server.latest.get(&place).copied().unwrap_or(0);
        if access.write {
            server.tally.written += 1;
            self.blocks.insert(place, (latest + 1, true));
            server.latest.insert(place, latest + 1);
            server.writers.insert(place, self.id);
            return Ok(());
        }
        let stored = server.stored.get(&place).copied().unwrap_or(0);
        let (kept, _) = *self.blocks.entry(place).or_insert((stored, false));
        server.tally.read += 1;
        same(&format!("block {place:?}"), kept, latest, false)
    }

    fn lock_inode(&mut self, rng: &mut SeededRng) {
        let mode = pick(rng, &[Mode::CR, Mode::CW, Mode::PR, Mode::PW, Mode::EX]);
        let bits = pick(
            rng,
            &[
                Bits::LOOKUP,
                Bits::UPDATE,
                Bits::PERM,
                Bits::UPDATE | Bits::PERM,
            ],
        );
        let kind = Kind::Inode {
            bits,
            try_bits: Bits::XATTR | Bits::LOOKUP,
        };
        self.ask(Request::Lock(inode(rng.below(INODES)), mode, kind));
    }

    /// Abandons a request, or gives up a lock.
    fn change_mind(&mut self, now: Tick, rng: &mut SeededRng) {
        let locks = self
            .asked
            .iter()
            .filter(|(_, what)| matches!(what, Request::Lock(..)));
        let sent = |request: &&u64| {
            !self.requests.iter().any(
                |waiting| matches!(waiting, ToServer::Request(number, _) if number == *request),
            )
        };
        let waiting: Vec<u64> = locks
            .map(|(request, _)| request)
            .filter(sent)
            .copied()
            .collect();
        if rng.below(4) == 0 && !waiting.is_empty() {
            let request = pick(rng, &waiting);
            self.asked.remove(&request);
            self.accesses.remove(&request);
            self.requests.push(ToServer::Abandon(request));
        }
        let resource = inode(rng.below(INODES));
        let part = Cover::Bits(pick(rng, &ATTRIBUTES));
        if rng.below(2) == 0 {
            for handle in self.cache.take_conflicting(resource, Mode::PW, part) {
                ATTRIBUTES.iter().for_each(|bits| {
                    self.attributes.remove(&(resource.id, *bits));
                });
                self.releases
                    .push_back(ToServer::Release(dlm::Release::Cancel(handle)));
            }
        } else if let Some(handle) = self.cache.lookup(now, resource, Mode::PR, part) {
            self.step(now, CacheInput::GiveUp { handle });
        }
    }

    /// Does one thing the cache asked for.
    pub fn work(&mut self, server: &mut Server, rng: &mut SeededRng) {
        if self.outbox.is_empty() {
            return;
        }
        let place = rng.below(self.outbox.len() as u64) as usize;
        server.note(|| format!("{} does {:?}", self.id, self.outbox[place]));
        match self.outbox.remove(place) {
            Some(CacheOutput::Drop {
                handle,
                resource,
                cover,
                keep,
                ..
            }) => {
                self.flush(server, resource, cover, keep);
                self.step(server.now, CacheInput::Dropped { handle });
            }
            Some(CacheOutput::Withdrawn {
                handle, version, ..
            }) => {
                self.step(server.now, CacheInput::Withdrawn { handle, version });
            }
            Some(CacheOutput::DropAll) | None => {}
        }
    }

    fn flush(&mut self, server: &mut Server, resource: ResourceId, cover: Cover, keep: Keep) {
        match (resource.space, cover) {
            (b'r', Cover::Bits(bits)) => {
                self.attributes
                    .retain(|(id, bit), _| *id != resource.id || !bits.overlaps(*bit));
            }
            (b'd', Cover::Bits(bits)) => {
                if bits.overlaps(Bits::CHILD) {
                    self.children.retain(|(id, _), _| *id != resource.id);
                }
                if bits.overlaps(Bits::LIST) {
                    self.lists.remove(&resource.id);
                }
            }
            (_, Cover::Range(range)) => {
                let inside = |place: &(u64, u64)| {
                    let start = place.1 * BLOCK;
                    place.0 == resource.id && range.overlaps(ByteRange::new(start, start + BLOCK))
                };
                for (place, (value, dirty)) in
                    self.blocks.iter_mut().filter(|(place, _)| inside(place))
                {
                    if std::mem::take(dirty) {
                        server.stored.insert(*place, *value);
                    }
                }
                if keep == Keep::Nothing {
                    self.blocks.retain(|place, _| !inside(place));
                }
            }
            _ => {}
        }
    }

    /// Ends one call that uses a lock.
    pub fn release(&mut self, now: Tick, rng: &mut SeededRng) {
        if !self.pins.is_empty() {
            let pin = self
                .pins
                .swap_remove(rng.below(self.pins.len() as u64) as usize);
            self.step(now, CacheInput::Release { handle: pin.handle });
        }
    }

    pub fn tick(&mut self, now: Tick) {
        self.step(now, CacheInput::Tick);
    }

    /// A message from the server.
    pub fn hear(&mut self, server: &mut Server, message: ToClient) -> Check {
        let now = server.now;
        server.note(|| format!("{} <- {message:?}", self.id));
        match message {
            ToClient::Callback(callback) => self.step(now, callback),
            ToClient::Glimpse(handle, resource) => {
                let own = self.blocks.iter().filter(|((id, _), _)| *id == resource.id);
                let value = own.map(|(_, (value, _))| *value).max().unwrap_or(0);
                self.requests.push(ToServer::Values(handle, value));
            }
            ToClient::Granted(request, grant) => {
                let (handle, resource, mode, cover) =
                    (grant.handle, grant.resource, grant.mode, grant.cover);
                let in_use = self.asked.remove(&request).is_some();
                self.step(now, CacheInput::Granted { grant, in_use });
                if !in_use {
                    return Ok(());
                }
                match self.accesses.remove(&request) {
                    Some(access) => self.touch_block(server, access, handle)?,
                    None => self.pins.push(Pin {
                        handle,
                        used: Want::Lock {
                            resource,
                            mode,
                            cover,
                        },
                    }),
                }
            }
            ToClient::Reply(request, version, reply) => {
                self.asked.remove(&request);
                self.accesses.remove(&request);
                self.learn(now, version, reply);
            }
        }
        Ok(())
    }

    /// Keeps what the locks allow to keep.
    fn learn(&mut self, now: Tick, version: u64, reply: Reply) {
        match reply {
            Reply::Attributes(id, values, grant) => {
                if let Some(grant) = grant {
                    self.step(
                        now,
                        CacheInput::Granted {
                            grant,
                            in_use: false,
                        },
                    );
                }
                for (bits, value) in values {
                    self.keep_attribute(id, bits, value, version);
                }
            }
            Reply::Changed(id, bits, value) => {
                self.cache.changed(inode(id), None, bits, version);
                self.attributes.remove(&(id, bits));
                self.keep_attribute(id, bits, value, version);
            }
            Reply::Page(id, children, list, grant, readmitted) => {
                if let Some(grant) = grant {
                    self.step(
                        now,
                        CacheInput::Granted {
                            grant,
                            in_use: false,
                        },
                    );
                }
                self.readmit(now, None, readmitted);
                for (key, value) in children {
                    self.keep_child(id, key, value, version);
                }
                if self.cache.admits(directory(id), None, Bits::LIST, version) {
                    self.lists.insert(id, list);
                }
            }
            Reply::Child(id, key, value, readmitted) => {
                self.readmit(now, Some(key), readmitted);
                self.keep_child(id, key, value, version);
            }
            Reply::ChildChanged(id, key, value, readmitted) => {
                self.cache
                    .changed(directory(id), Some(key), Bits::CHILD, version);
                self.readmit(now, Some(key), readmitted);
                self.children.remove(&(id, key));
                self.keep_child(id, key, value, version);
            }
            Reply::Created(id, list) => {
                self.cache.changed(directory(id), None, Bits::LIST, version);
                self.lists.remove(&id);
                if self.cache.admits(directory(id), None, Bits::LIST, version) {
                    self.lists.insert(id, list);
                }
            }
            Reply::Refused | Reply::Glimpsed => {}
        }
    }

    fn readmit(&mut self, now: Tick, key: Option<u64>, readmitted: Option<dlm::Readmitted>) {
        if let Some(dlm::Readmitted {
            handle,
            bits,
            version,
        }) = readmitted
        {
            self.step(
                now,
                CacheInput::Readmitted {
                    handle,
                    key,
                    bits,
                    version,
                },
            );
        }
    }

    fn keep_attribute(&mut self, id: u64, bits: Bits, value: u64, version: u64) {
        if self.cache.admits(inode(id), None, bits, version) {
            self.attributes.insert((id, bits), value);
        }
    }

    fn keep_child(&mut self, id: u64, key: u64, value: u64, version: u64) {
        if self
            .cache
            .admits(directory(id), Some(key), Bits::CHILD, version)
        {
            self.children.insert((id, key), value);
        }
    }

    /// The server threw this client out: what was not written back is lost.
    pub fn reset(&mut self, server: &mut Server) {
        for (place, _) in self.blocks.iter().filter(|(_, (_, dirty))| *dirty) {
            let stored = server.stored.get(place).copied().unwrap_or(0);
            server.latest.insert(*place, stored);
        }
        let next_request = self.next_request;
        let mut cache = std::mem::take(&mut self.cache);
        cache.step(server.now, CacheInput::NewEpoch, &mut Vec::new());
        *self = Client {
            cache,
            next_request,
            ..Client::new(self.id)
        };
    }

    /// Nothing is asked for, used or left to do.
    pub fn is_quiet(&self) -> bool {
        self.asked.is_empty()
            && self.pins.is_empty()
            && self.outbox.is_empty()
            && self.requests.is_empty()
            && self.releases.is_empty()
            && self.callbacks.is_empty()
            && self.replies.is_empty()
    }
}

pub fn pick<T: Copy>(rng: &mut SeededRng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// What is kept must be the truth, unless we are changing it ourselves.
fn same(what: &str, kept: u64, truth: u64, changing: bool) -> Check {
    match kept == truth || changing {
        true => Ok(()),
        false => Err(format!("{what} is used as {kept}, the truth is {truth}")),
    }
}
