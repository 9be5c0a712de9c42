//! The locks this client holds: one mirror of each server's table.

use base::limits::EARLY_CALLBACK_MDT_AGE;
use base::{ByteRange, ClientId, Fid, LockHandle, TargetIndex, Tick};
use dlm::{
    Bits, CacheInput, CacheLimits, CacheOutput, Cover, Keep, Lock, LockCache, Mode, Release,
    ResourceId,
};
use wire::attr::Grant;
use wire::ost::ExtentGrant;

use crate::cache::holder::Holder;

/// Inodes and directories, at the MDT.
const SPACE_INODE: u8 = 1;
/// Bytes of objects, at an OST.
const SPACE_OBJECT: u8 = 2;

/// What a write lease covers (docs/locks.md, section 11).
pub(crate) const WRITE_LEASE: Bits = Bits::LOOKUP.union(Bits::LEASE);

/// From here on handles are of locks that this mount gave itself (ADR 19). No server gives such.
const OWN: u64 = 0xffff_fffe << 32;

/// A lock to give back: what it covered goes first.
#[derive(Debug)]
pub(crate) struct Revocation {
    pub holder: Holder,
    pub handle: LockHandle,
    pub fid: Fid,
    pub cover: Cover,
    /// Nothing that is known here goes with it.
    pub is_bare: bool,
}

/// What the process before left is not in order yet: no lock is this one's.
#[derive(Default)]
struct Takeover {
    /// Locks that came meanwhile.
    unkept: Vec<(Holder, LockHandle)>,
    /// Targets that gave up the process before this one, as long as the kernel may write back what was
    /// stored under their locks.
    evictions: Vec<Holder>,
}

/// All locks of this mount.
pub(crate) struct Locks {
    mdt: LockCache,
    osts: Vec<(TargetIndex, LockCache)>,
    /// To be started when the state is let go.
    revocations: Vec<Revocation>,
    /// Moved by the timer; locks are aged by it.
    now: Tick,
    /// None: what the process before left is in order, if there was one.
    takeover: Option<Takeover>,
    /// How many locks this mount gave itself.
    own: u64,
}

fn inode(fid: Fid) -> ResourceId {
    ResourceId {
        space: SPACE_INODE,
        id: fid.0,
    }
}

fn object(fid: Fid) -> ResourceId {
    ResourceId {
        space: SPACE_OBJECT,
        id: fid.0,
    }
}

impl Locks {
    pub fn new(osts: impl IntoIterator<Item = TargetIndex>) -> Locks {
        let of_mdt = CacheLimits {
            early_age: EARLY_CALLBACK_MDT_AGE,
            ..CacheLimits::default()
        };
        let of_ost = |target| (target, LockCache::new(CacheLimits::default()));
        Locks {
            mdt: LockCache::new(of_mdt),
            osts: osts.into_iter().map(of_ost).collect(),
            revocations: Vec::new(),
            now: Tick(0),
            takeover: None,
            own: 0,
        }
    }

    /// A lock in EX of this mount's own, on what no server knows. It stays until [`Locks::born`].
    pub fn bear(&mut self, fid: Fid, bits: Bits) -> LockHandle {
        self.own += 1;
        let handle = LockHandle(OWN + self.own);
        let grant = dlm::Grant {
            handle,
            resource: inode(fid),
            mode: Mode::EX,
            cover: Cover::Bits(bits),
            version: 0,
            withdrawn: Vec::new(),
        };
        let in_use = true;
        self.step(Holder::Mdt, CacheInput::Granted { grant, in_use });
        handle
    }

    /// The MDT knows `fid`, or never will: this mount's own lock on it has ended.
    pub fn born(&mut self, fid: Fid) {
        let own = self.mdt.handles_on(inode(fid));
        for handle in own.filter(|handle| is_own(*handle)).collect::<Vec<_>>() {
            self.mdt.carry_off(handle);
        }
    }

    /// All that the server granted is void. Of the MDT's locks those stay that this mount gave itself.
    pub fn void(&mut self, holder: Holder) {
        let all = self.held(holder, ClientId(0)).into_iter();
        let own: Vec<Lock> = all.filter(|lock| is_own(lock.handle)).collect();
        self.step(holder, CacheInput::NewEpoch);
        for lock in own {
            let grant = dlm::Grant {
                handle: lock.handle,
                resource: lock.resource,
                mode: lock.mode,
                cover: lock.cover,
                version: 0,
                withdrawn: Vec::new(),
            };
            let in_use = true;
            self.step(holder, CacheInput::Granted { grant, in_use });
        }
    }

    /// The names in `dir` may be changed here: its write lease is held, and not wanted back.
    pub fn may_change_names(&self, dir: Fid) -> bool {
        let held = self.mdt.held_bits(inode(dir), Mode::EX);
        held.contains(WRITE_LEASE)
    }

    /// The server's lock on `dir` in EX, be it wanted back or not.
    pub fn write_lease(&self, dir: Fid) -> Option<LockHandle> {
        let mut held = self.mdt.handles_on(inode(dir));
        held.find(|handle| !is_own(*handle) && self.mdt.mode_of(*handle) == Some(Mode::EX))
    }

    /// The time by which locks are aged.
    pub fn now(&self) -> Tick {
        self.now
    }

    /// The locks whose giving back is to be started.
    pub fn take_revocations(&mut self) -> Vec<Revocation> {
        std::mem::take(&mut self.revocations)
    }

    /// How many those are.
    pub fn revocation_count(&self) -> usize {
        self.revocations.len()
    }

    /// There is this OST too.
    pub fn add_ost(&mut self, target: TargetIndex) {
        if self.cache(Holder::Ost(target)).is_none() {
            let cache = LockCache::new(CacheLimits::default());
            self.osts.push((target, cache));
        }
    }

    fn cache(&mut self, holder: Holder) -> Option<&mut LockCache> {
        match holder {
            Holder::Mdt => Some(&mut self.mdt),
            Holder::Ost(target) => self
                .osts
                .iter_mut()
                .find(|(t, _)| *t == target)
                .map(|(_, cache)| cache),
        }
    }

    /// One event for a mirror; what it wants given back is queued.
    pub fn step(&mut self, holder: Holder, input: CacheInput) {
        let now = self.now;
        let mut outputs = Vec::new();
        let Some(cache) = self.cache(holder) else {
            return;
        };
        cache.step(now, input, &mut outputs);
        for output in outputs {
            if let CacheOutput::Drop {
                handle,
                resource,
                cover,
                keep,
                ..
            } = output
            {
                let fid = Fid(resource.id);
                let mode = self.mode_of(holder, handle);
                // What only watches covers nothing, and PW covers all that EX does.
                let is_bare = mode == Some(Mode::CR) || keep == Keep::Mode(Mode::PW);
                self.revocations.push(Revocation {
                    holder,
                    handle,
                    fid,
                    cover,
                    is_bare,
                });
            }
        }
    }

    /// What the process before left is to be put in order.
    pub fn begin_takeover(&mut self) {
        self.takeover = Some(Takeover::default());
    }

    /// What the process before left, if there was one, is in order: locks that are granted are this
    /// process's.
    pub fn is_settled(&self) -> bool {
        self.takeover.is_none()
    }

    /// The servers were told that what the process before left is in order, and have dropped its locks.
    pub fn settle(&mut self) {
        let unkept = self.takeover.take().map(|takeover| takeover.unkept);
        for (holder, handle) in unkept.into_iter().flatten() {
            self.refuse(holder, handle);
        }
    }

    /// A target has given this client up: if that was the process before, what the kernel still has of
    /// its locks is to be forgotten.
    pub fn evicted(&mut self, holder: Holder) {
        if let Some(takeover) = &mut self.takeover {
            takeover.evictions.push(holder);
        }
    }

    /// The targets that gave up the process before this one.
    pub fn take_inherited_evictions(&mut self) -> Vec<Holder> {
        let takeover = self.takeover.as_mut();
        takeover.map_or_else(Vec::new, |takeover| std::mem::take(&mut takeover.evictions))
    }

    /// A lock came with a reply of the MDT. False: it is being called back already, use the reply once.
    pub fn take_grant(&mut self, grant: &Grant) -> bool {
        if !self.is_settled() {
            self.refuse(Holder::Mdt, grant.handle);
            return false;
        }
        self.granted(grant)
    }

    /// The write lease of a directory came. It does not cover the children in `outside`.
    pub fn take_write_lease(&mut self, grant: &Grant, outside: &[Fid]) -> bool {
        if !self.is_settled() {
            self.refuse(Holder::Mdt, grant.handle);
            return false;
        }
        let withdrawn = outside.iter().map(|child| (child.0, Bits::CHILD));
        self.granted_without(grant, withdrawn.collect())
    }

    /// A lock came that nobody may count on. Where this process is not settled it may be one that the
    /// process before had, under which its changes are yet to be told: it is given back later. The
    /// server takes back all that it gave before it hears that this process is settled, but none that
    /// it gave since.
    pub fn refuse(&mut self, holder: Holder, handle: LockHandle) {
        match &mut self.takeover {
            Some(takeover) => takeover.unkept.push((holder, handle)),
            None => self.step(holder, CacheInput::Refused { handle }),
        }
    }

    fn granted(&mut self, grant: &Grant) -> bool {
        self.granted_without(grant, Vec::new())
    }

    fn granted_without(&mut self, grant: &Grant, withdrawn: Vec<(u64, Bits)>) -> bool {
        let Some(mode) = Mode::from_index(grant.mode) else {
            return false;
        };
        let cover = Cover::Bits(Bits(grant.bits));
        let (handle, resource) = (grant.handle, inode(grant.fid));
        let version = grant.version;
        let grant = dlm::Grant {
            handle,
            resource,
            mode,
            cover,
            version,
            withdrawn,
        };
        self.step(
            Holder::Mdt,
            CacheInput::Granted {
                grant,
                in_use: false,
            },
        );
        self.mdt.held_bits(resource, mode).contains(cover.bits())
    }

    /// The mode in which a lock is held; `None`: it is not.
    pub fn mode_of(&mut self, holder: Holder, handle: LockHandle) -> Option<Mode> {
        self.cache(holder)?.mode_of(handle)
    }

    /// Gives up a lock that nobody here has a use for, known or not.
    pub fn give_up_or_refuse(&mut self, holder: Holder, handle: LockHandle) {
        match self.mode_of(holder, handle) {
            Some(_) => self.step(holder, CacheInput::GiveUp { handle }),
            None => self.step(holder, CacheInput::Refused { handle }),
        }
    }

    /// A lock came with a reply of an OST.
    pub fn extent_granted(&mut self, target: TargetIndex, grant: &ExtentGrant) {
        self.take_extent(target, grant, false);
    }

    /// The same, and it stays until [`Locks::unused`].
    pub fn extent_used(&mut self, target: TargetIndex, grant: &ExtentGrant) {
        self.take_extent(target, grant, true);
    }

    fn take_extent(&mut self, target: TargetIndex, grant: &ExtentGrant, in_use: bool) {
        let Some(mode) = Mode::from_index(grant.mode) else {
            return;
        };
        let grant = dlm::Grant {
            handle: grant.handle,
            resource: object(grant.object.fid),
            mode,
            cover: Cover::Range(grant.range),
            version: 0,
            withdrawn: Vec::new(),
        };
        self.step(Holder::Ost(target), CacheInput::Granted { grant, in_use });
    }

    /// A lock on `fid` at the MDT with all of `bits` is held and not wanted back.
    pub fn holds(&self, fid: Fid, bits: Bits) -> bool {
        self.mdt.held_bits(inode(fid), Mode::PR).contains(bits)
    }

    /// What is known of `fid` was of use just now: all its locks stay for longer.
    pub fn used(&mut self, fid: Fid) {
        self.mdt.touch_all(self.now, inode(fid));
    }

    /// Some lock on `fid` at the MDT is held.
    pub fn holds_any(&self, fid: Fid) -> bool {
        self.mdt.is_locked(inode(fid))
    }

    /// An extent lock that allows `mode` on `range` and is not wanted back.
    pub fn extent(&mut self, fid: Fid, mode: Mode, range: ByteRange) -> Option<LockHandle> {
        let (now, cover) = (self.now, Cover::Range(range));
        self.osts
            .iter_mut()
            .find_map(|(_, cache)| cache.lookup(now, object(fid), mode, cover))
    }

    /// The same for what is sent under it: it stays until that is answered ([`Locks::unused`]), also
    /// where another comes that has as much. Else its cancel might overtake what was sent.
    pub fn use_extent(
        &mut self,
        fid: Fid,
        mode: Mode,
        range: ByteRange,
    ) -> Option<(Holder, LockHandle)> {
        let (now, cover) = (self.now, Cover::Range(range));
        self.osts.iter_mut().find_map(|(target, cache)| {
            let handle = cache.acquire(now, object(fid), mode, cover)?;
            Some((Holder::Ost(*target), handle))
        })
    }

    /// What was sent under a lock is answered.
    pub fn unused(&mut self, (holder, handle): (Holder, LockHandle)) {
        self.step(holder, CacheInput::Release { handle });
    }

    /// As [`Locks::extent`], but one that is being given back counts too.
    pub fn extent_even_revoked(
        &self,
        fid: Fid,
        mode: Mode,
        range: ByteRange,
    ) -> Option<LockHandle> {
        let cover = Cover::Range(range);
        self.osts
            .iter()
            .find_map(|(_, cache)| cache.held_extent(object(fid), mode, cover))
    }

    /// The end of file is known here and nobody can move it: a lock reaches there, and it is not
    /// wanted back.
    pub fn holds_to_eof(&self, fid: Fid) -> bool {
        let cover = Cover::Range(EOF);
        self.osts
            .iter()
            .any(|(_, cache)| cache.allows(object(fid), Mode::PR, cover))
    }

    /// The end of file can be moved here, and nobody watches it.
    pub fn holds_alone(&self, fid: Fid) -> bool {
        let cover = Cover::Range(EOF);
        self.osts
            .iter()
            .any(|(_, cache)| cache.allows(object(fid), Mode::EX, cover))
    }

    /// As [`Locks::holds_to_eof`], but a lock that is being given back counts too.
    pub fn reaches_eof(&self, fid: Fid) -> bool {
        self.extent_even_revoked(fid, Mode::PR, EOF).is_some()
    }

    /// Some extent lock of the file is held.
    pub fn has_extents(&self, fid: Fid) -> bool {
        self.osts
            .iter()
            .any(|(_, cache)| cache.is_locked(object(fid)))
    }

    /// The EX lock on an inode goes with the Close that is about to be sent.
    pub fn give_with_close(&mut self, handle: LockHandle) {
        self.mdt.carry_off(handle);
    }

    /// Messages that give locks back.
    pub fn take_releases(&mut self, max: usize) -> Vec<(Holder, Vec<Release>)> {
        let mut all = vec![(Holder::Mdt, self.mdt.take_releases(max))];
        for (target, cache) in &mut self.osts {
            all.push((Holder::Ost(*target), cache.take_releases(max)));
        }
        all.retain(|(_, releases)| !releases.is_empty());
        all
    }

    /// Ages all locks.
    pub fn tick(&mut self, now: Tick) {
        self.now = now;
        self.step(Holder::Mdt, CacheInput::Tick);
        let targets: Vec<_> = self.osts.iter().map(|(target, _)| *target).collect();
        for target in targets {
            self.step(Holder::Ost(target), CacheInput::Tick);
        }
    }

    /// Gives up every idle lock.
    pub fn give_up_idle(&mut self) {
        let holders = std::iter::once(Holder::Mdt)
            .chain(self.osts.iter().map(|(target, _)| Holder::Ost(*target)));
        for holder in holders.collect::<Vec<_>>() {
            for handle in self
                .cache(holder)
                .map(|cache| cache.idle_handles())
                .unwrap_or_default()
            {
                self.step(holder, CacheInput::GiveUp { handle });
            }
        }
    }

    /// Gives up every lock on the bytes of `fid`, and `exclusive` on its inode, as if others wanted them.
    pub fn give_up_bytes(&mut self, fid: Fid, exclusive: Option<LockHandle>) {
        let on_target = |(target, cache): &(TargetIndex, LockCache)| {
            let holder = Holder::Ost(*target);
            let handles = cache.handles_on(object(fid));
            handles.map(|handle| (holder, handle)).collect::<Vec<_>>()
        };
        let held: Vec<_> = self.osts.iter().flat_map(on_target).collect();
        let exclusive = exclusive.map(|handle| (Holder::Mdt, handle));
        for (holder, handle) in held.into_iter().chain(exclusive) {
            self.step(holder, CacheInput::GiveUp { handle });
        }
    }

    /// The locks held of a server, which calls this client `client`.
    pub fn held(&self, holder: Holder, client: ClientId) -> Vec<Lock> {
        let mut caches = std::iter::once((Holder::Mdt, &self.mdt)).chain(
            self.osts
                .iter()
                .map(|(target, cache)| (Holder::Ost(*target), cache)),
        );
        let cache = caches.find(|(of, _)| *of == holder);
        cache.map_or_else(Vec::new, |(_, cache)| cache.locks(client).collect())
    }

    /// Messages that give locks back and are not sent.
    pub fn release_count(&self) -> usize {
        let osts = self.osts.iter().map(|(_, cache)| cache.release_count());
        self.mdt.release_count() + osts.sum::<usize>()
    }

    /// Locks held.
    pub fn len(&self) -> usize {
        let extents: usize = self.osts.iter().map(|(_, cache)| cache.lock_count()).sum();
        self.mdt.lock_count() + extents
    }
}

/// This mount gave itself the lock.
pub(crate) fn is_own(handle: LockHandle) -> bool {
    handle.0 > OWN && handle != LockHandle::ENDED
}

/// A byte that is in every lock to the end of file and in no other.
const EOF: ByteRange = ByteRange {
    start: u64::MAX - 1,
    end: u64::MAX,
};

#[cfg(test)]
mod tests {
    use super::*;
    use base::TargetIndex;
    use layout::ObjectId;

    const FILE: Fid = Fid(9);
    const OST: TargetIndex = TargetIndex(0);

    fn grant(handle: u64) -> ExtentGrant {
        ExtentGrant {
            handle: LockHandle(handle),
            object: ObjectId {
                fid: FILE,
                stripe: 0,
            },
            mode: Mode::PW.index() as u8,
            range: ByteRange::ALL,
        }
    }

    fn given_back(locks: &mut Locks) -> Vec<Release> {
        let all = locks.take_releases(10).into_iter();
        all.flat_map(|(_, releases)| releases).collect()
    }

    #[test]
    fn of_two_equal_locks_one_stays_unless_something_is_under_way_under_the_other() {
        let mut locks = Locks::new(vec![OST]);
        locks.extent_granted(OST, &grant(1));
        locks.extent_granted(OST, &grant(2));
        assert_eq!(given_back(&mut locks), [Release::Cancel(LockHandle(1))]);
        let used = locks.use_extent(FILE, Mode::PW, ByteRange::ALL);
        assert_eq!(used, Some((Holder::Ost(OST), LockHandle(2))));
        locks.extent_granted(OST, &grant(3));
        assert!(!given_back(&mut locks).contains(&Release::Cancel(LockHandle(2))));
        locks.unused((Holder::Ost(OST), LockHandle(2)));
        assert!(locks.extent(FILE, Mode::PW, ByteRange::ALL).is_some());
    }
}
