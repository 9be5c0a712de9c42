//! Names. SEMANTICS: op.lookup

use base::{Fid, FsError, Name};
use dlm::Bits;
use wire::mdt::{Reply, Request};

use crate::cache::file::FileState;
use crate::cache::inode::Inode;
use crate::cache::stamps::Mark;
use crate::session::client::{Client, Entry, Stat, unexpected};
use crate::session::stalls;
use crate::session::state::State;
use crate::session::stats::bump;

/// How often a name is looked up that leads to another file each time.
pub(super) const LOOKUP_TRIES: u32 = 16;

/// What the cache says of a name.
pub(crate) enum Cached {
    /// It leads there.
    Leads(Fid),
    /// There is no such name.
    Absent,
    /// Ask.
    Unknown,
}

impl Client {
    /// What `name` leads to. The kernel is counted to hold one more reference of it.
    pub async fn lookup(&self, dir: Fid, name: &Name) -> Result<Entry, FsError> {
        bump(&self.0.stats.lookup);
        stalls::counted(&self.0.stats.walk_stalls, self.resolve(dir, name)).await
    }

    /// Asks again where what the name led to is gone before it was looked at.
    async fn resolve(&self, dir: Fid, name: &Name) -> Result<Entry, FsError> {
        for _ in 1..LOOKUP_TRIES {
            let (fid, named_at) = self.find(dir, name).await?;
            match self.entry(fid, named_at).await {
                Err(FsError::Stale) => {}
                entry => return entry,
            }
        }
        let (fid, named_at) = self.find(dir, name).await?;
        self.entry(fid, named_at).await
    }

    /// What the name leads to, and the stamp when a lease was seen to cover that.
    pub(super) async fn find(&self, dir: Fid, name: &Name) -> Result<(Fid, Option<u64>), FsError> {
        let (cached, stamp) = {
            let state = self.lock();
            (cached(&state, dir, name), state.cache.stamp())
        };
        match cached {
            Cached::Leads(fid) => {
                bump(&self.0.stats.lookup_hit);
                self.lock().locks.used(dir);
                self.statahead_hit(dir, name);
                return Ok((fid, Some(stamp)));
            }
            Cached::Absent => {
                bump(&self.0.stats.lookup_hit);
                self.statahead_absent(dir, name);
                return Err(FsError::NotFound);
            }
            Cached::Unknown => {}
        }
        let fid = match self.statahead_miss(dir, name).await {
            Some(found) => found?,
            None => {
                let found = self.ask_name(dir, name).await;
                self.answered_alone(dir, name, &found);
                let found = found?;
                self.statahead_alone(dir, found);
                found
            }
        };
        let state = self.lock();
        let leads_there = cached_name(&state, dir, name) == Some(fid);
        Ok((fid, leads_there.then(|| state.cache.stamp())))
    }

    async fn ask_name(&self, dir: Fid, name: &Name) -> Result<Fid, FsError> {
        let mark = self.lock().cache.mark(dir);
        let reply = self
            .0
            .mdt(Request::Lookup {
                dir,
                name: name.clone(),
            })
            .await;
        match reply {
            Err(FsError::Stale) if self.outlives_removal(dir) => Err(FsError::NotFound),
            reply => self.take_lookup(mark, name, reply?),
        }
    }

    /// Keeps what a reply to a lookup told.
    pub(crate) fn take_lookup(
        &self,
        mark: Mark,
        name: &Name,
        reply: Reply,
    ) -> Result<Fid, FsError> {
        let Reply::Lookup { lease, node } = reply else {
            return Err(unexpected(&reply));
        };
        let mut state = self.lock();
        let covered = state.take_lease(&lease, Bits::NAMES, mark)
            && !state.cache.may_have_changed(mark, name);
        let Some(node) = node else {
            if covered {
                state
                    .cache
                    .inode(mark.dir)
                    .directory()
                    .learn_absent(name.clone());
            }
            return Err(FsError::NotFound);
        };
        if covered {
            // What covers the children is counted there.
            state.cache.inode(mark.dir).directory();
        }
        state.take_node(&node, mark);
        if covered {
            state
                .cache
                .inode(mark.dir)
                .directory()
                .learn(name, node.fid);
        }
        Ok(node.fid)
    }

    /// The file itself, with one more reference for the kernel.
    pub async fn lookup_self(&self, fid: Fid) -> Result<Entry, FsError> {
        let is_unknown = self.lock().cache.attr_of(fid).is_none();
        if is_unknown {
            self.ask_attributes(fid).await?;
        }
        self.entry(fid, None).await
    }

    /// The directory in which `dir` was seen last, for `..` in listings.
    pub fn parent_hint(&self, dir: Fid) -> Fid {
        let parent = self.lock().cache.known(dir).map_or(Fid::NONE, Inode::dir);
        if parent == Fid::NONE { dir } else { parent }
    }

    /// The directory in which `dir` is.
    pub async fn lookup_parent(&self, dir: Fid) -> Result<Entry, FsError> {
        let (known, mark) = {
            let state = self.lock();
            let known = state.cache.known(dir).map_or(Fid::NONE, Inode::dir);
            (known, state.cache.mark(Fid::NONE))
        };
        if dir == Fid::ROOT {
            return self.entry(Fid::ROOT, None).await;
        }
        let fid = match self.0.mdt(Request::LookupParent { dir }).await {
            Ok(Reply::Node(node)) => {
                self.lock().take_node(&node, mark);
                node.fid
            }
            Ok(other) => return Err(unexpected(&other)),
            Err(FsError::TryAgain) if known != Fid::NONE => known,
            Err(error) => return Err(error),
        };
        self.entry(fid, None).await
    }

    /// The answer about `fid`, with one more reference for the kernel. The lease that covered the name at the
    /// stamp `named_at` may have gone since.
    pub(crate) async fn entry(&self, fid: Fid, named_at: Option<u64>) -> Result<Entry, FsError> {
        // Counted first: what nobody refers to may be dropped at any moment.
        self.lock().refer(fid);
        self.referred(fid, named_at).await
    }

    /// The same, the reference being counted.
    pub(crate) async fn referred(&self, fid: Fid, named_at: Option<u64>) -> Result<Entry, FsError> {
        let stat = match self.stat(fid).await {
            Ok(stat) => stat,
            Err(failure) => {
                self.forget(fid, 1);
                return Err(failure);
            }
        };
        Ok(Entry {
            fid,
            attr: stat.attr,
            attr_valid: stat.valid,
            name_valid: named_at.is_some(),
            stamp: named_at.unwrap_or(stat.stamp).min(stat.stamp),
        })
    }

    /// The attributes just told, with the size from the one that knows it.
    pub(crate) async fn stat(&self, fid: Fid) -> Result<Stat, FsError> {
        let stat = self.stat_now(fid).await?;
        if !stat.valid {
            self.raise_before(fid, stat.attr.size).await;
        }
        Ok(stat)
    }

    async fn stat_now(&self, fid: Fid) -> Result<Stat, FsError> {
        self.wait_until(fid, FileState::being_told).await;
        let mut may_wait = true;
        loop {
            let is_unknown = self.lock().cache.attr_of(fid).is_none();
            if is_unknown {
                self.ask_attributes(fid).await?;
            }
            let on_its_way = {
                let mut state = self.lock();
                if let Some(stat) = self.stat_here(&mut state, fid) {
                    return Ok(stat);
                }
                self.size_missed(&mut state, fid).filter(|_| may_wait)
            };
            let Some(on_its_way) = on_its_way else {
                return self.glimpse(fid).await;
            };
            on_its_way.await;
            may_wait = false;
        }
    }

    /// The attributes, where nobody needs to be asked for the size.
    fn stat_here(&self, state: &mut State, fid: Fid) -> Option<Stat> {
        let (valid, stamp) = (state.stat_stays(fid), state.cache.stamp());
        let (attr, valid) = match state.seen(fid) {
            Some(attr) => {
                self.size_used(state, fid);
                (attr, valid)
            }
            None => {
                let lazily = state.cache.known_lazily(fid).filter(|_| self.is_lazy());
                (lazily?, false)
            }
        };
        Some(Stat { attr, valid, stamp })
    }

    pub(crate) fn is_lazy(&self) -> bool {
        self.0.params.lazy_size() != 0
    }
}

/// What `name` leads to, if a lease says so.
pub(crate) fn cached_name(state: &State, dir: Fid, name: &Name) -> Option<Fid> {
    if !state.locks.holds(dir, Bits::NAMES) {
        return None;
    }
    let named = state.cache.directory_of(dir)?.get(name);
    named.map(|named| named.fid)
}

/// What the cache says of `name`.
pub(crate) fn cached(state: &State, dir: Fid, name: &Name) -> Cached {
    if !state.locks.holds(dir, Bits::NAMES) {
        return Cached::Unknown;
    }
    let Some(directory) = state.cache.directory_of(dir) else {
        return Cached::Unknown;
    };
    match directory.get(name) {
        Some(named) if state.attr_valid(named.fid) => Cached::Leads(named.fid),
        Some(_) => Cached::Unknown,
        None => match directory.is_absent(name) && absence_covered(state, dir, name) {
            true => Cached::Absent,
            false => Cached::Unknown,
        },
    }
}

/// A name told to be absent is covered by NAMES; one that is missing from the list, by LIST.
fn absence_covered(state: &State, dir: Fid, name: &Name) -> bool {
    let directory = state.cache.directory_of(dir);
    directory.is_some_and(|d| d.was_told_absent(name)) || state.locks.holds(dir, Bits::LIST)
}
