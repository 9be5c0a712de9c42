//! What allows this client to use cached bytes: the MDT's EX lock on the inode, or an extent lock.

use base::{ByteRange, Fid, FsError, LockHandle, TargetIndex};
use dlm::Mode;
use wire::ost;

use crate::cache::file_locks::Revoking;
use crate::cache::holder::Holder;
use crate::cache::registration::Standing;
use crate::cache::stamps::AskedExtent;
use crate::coherence::glimpse::Glimpsing;
use crate::executor::{Oneshot, spawn};
use crate::session::client::{Client, StateGuard, unexpected};
use crate::session::cluster::object_of;
use crate::session::state::State;

/// What covers a range.
pub(crate) enum Covering {
    /// This lock; zero stands for the MDT's EX lock.
    Lock(LockHandle),
    /// A lock is being given back: look again after this.
    Wait(Oneshot<()>),
    /// Nothing.
    No,
}

/// Who wants to use a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A call that holds no page of the kernel.
    Call,
    /// A read, perhaps into pages of the kernel that are locked meanwhile.
    Read,
    /// Pages of the kernel being written back, locked meanwhile.
    WriteBack,
}

/// The lock that covers `range` of the file for reading or writing; `Stale` where the file is lost. A request
/// that holds pages of the kernel must not wait for a lock on its way back before the kernel has forgotten:
/// that would wait for those pages.
pub(crate) fn covering(
    state: &mut State,
    fid: Fid,
    range: ByteRange,
    mode: Mode,
    by: By,
) -> Result<Covering, FsError> {
    let (from_kernel, writes) = (by != By::Call, by == By::WriteBack);
    let file = state.cache.file(fid);
    match file.registration.standing() {
        Standing::Known => {}
        Standing::InDoubt => return Ok(Covering::Wait(file.waiters.wait())),
        Standing::Gone => return Err(FsError::Stale),
    }
    let forgetting = file.locks.revoking() == Revoking::Forgetting && from_kernel;
    let leaving = file.locks.leaving();
    if file.locks.is_exclusive() && !file.registration.is_closing() {
        return Ok(match file.locks.revoking() {
            Revoking::No => Covering::Lock(LockHandle(0)),
            _ if forgetting => Covering::Lock(LockHandle(0)),
            _ => Covering::Wait(file.waiters.wait()),
        });
    }
    if file.registration.is_closing() {
        return Ok(Covering::Wait(file.waiters.wait()));
    }
    // Whatever its mode, a lock that is being given back keeps what is read under it true until the
    // kernel has forgotten, and then it forgets again. Else a read that wants PW needs it: what is
    // stored into its pages later is not told.
    let held = if forgetting && mode == Mode::PW && !writes {
        Mode::PR
    } else {
        mode
    };
    let beside = state.locks.extent_even_revoked(fid, held, range);
    let beside = beside.filter(|handle| Some(*handle) != leaving);
    if beside.is_some() && leaving.is_some() && by != By::Read {
        // Another lock came while one leaves: what is written under it now would go with that one.
        return Ok(Covering::Wait(state.cache.file(fid).waiters.wait()));
    }
    if from_kernel && let Some(handle) = beside {
        return Ok(Covering::Lock(handle));
    }
    Ok(match state.locks.extent(fid, mode, range) {
        Some(handle) => Covering::Lock(handle),
        None => Covering::No,
    })
}

/// The mode that reads need: while the file can be written through a mapping here, pages the
/// kernel takes are covered by PW.
pub(crate) fn read_mode(state: &mut State, fid: Fid) -> Mode {
    match state.cache.file(fid).opens.is_written() {
        false => Mode::PR,
        true => Mode::PW,
    }
}

impl Client {
    /// The OST that holds the file's bytes.
    pub(crate) fn target_of(&self, fid: Fid) -> Result<TargetIndex, FsError> {
        let state = self.lock();
        let attr = state.cache.attr_of(fid);
        let stripes = attr
            .map(|attr| &attr.layout.stripes)
            .ok_or(FsError::Stale)?;
        stripes.first().copied().ok_or(FsError::Invalid)
    }

    /// Asks for an extent lock, unless somebody has, and waits until there is one to look at. That
    /// one, another, or one that is being given back, which may do for reads.
    pub(crate) async fn enqueue(&self, fid: Fid, mode: Mode, by: By) -> Result<(), FsError> {
        let (wait, first) = {
            let mut state = self.lock();
            // Something may have come since the caller looked, and would wake nobody again.
            match covering(&mut state, fid, ByteRange::ALL, mode, by)? {
                Covering::No => state.cache.file(fid).locks.wait_for_extent(mode),
                _ => return Ok(()),
            }
        };
        if first {
            let client = self.clone();
            spawn(async move {
                let result = client.ask(fid, mode).await;
                client
                    .lock()
                    .cache
                    .file(fid)
                    .locks
                    .extent_answered(mode, result);
            });
        }
        // Forgotten with the file: there is something to look at.
        wait.await.unwrap_or(Ok(()))
    }

    /// Waits for an extent lock and keeps it. It is always of the whole file, for the kernel reads into
    /// locked pages in ranges of its own choosing. A range that reaches beyond a lock on its way back could
    /// neither be served under that lock nor wait for another.
    async fn ask(&self, fid: Fid, mode: Mode) -> Result<(), FsError> {
        let (target, asked) = (self.target_of(fid)?, self.lock().cache.asks_extent(fid));
        let range = ByteRange::ALL;
        let request = ost::Request::Enqueue {
            object: object_of(fid),
            mode: mode.index() as u8,
            range,
        };
        let answer = self.0.ost(target, request).await?;
        let ost::Reply::Locked { grant, attr } = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        drop(self.keep_extent(fid, (target, &grant), attr, asked).await);
        Ok(())
    }

    /// Keeps a lock that came with `attr`, and returns the state after that. A lock that was asked for in an
    /// earlier boot of the OST is not kept (`None`). Where a write of this mount was answered since the
    /// request, `attr` may be older than that write, and is asked for again (after a restart of the OST there
    /// are writes without a lock).
    pub(crate) async fn keep_extent(
        &self,
        fid: Fid,
        (target, grant): (TargetIndex, &ost::ExtentGrant),
        mut attr: ost::ObjectAttr,
        mut asked: AskedExtent,
    ) -> Option<StateGuard<'_>> {
        loop {
            {
                let mut state = self.lock();
                if !state.is_extent_current(target, asked) {
                    state.locks.refuse(Holder::Ost(target), grant.handle);
                    state.cache.file(fid).locks.look_again();
                    return None;
                }
                let written = state.cache.file(fid).durability.written();
                if written == asked.written {
                    take_extent(&mut state, fid, target, grant, attr);
                    return Some(state);
                }
                asked.written = written;
            }
            match self.glimpse_object(fid, Glimpsing::Alone).await {
                Ok(now) => attr = now,
                Err(error) => {
                    tracing::debug!("{fid}: its size is not known for certain: {error}");
                    asked.written = self.lock().cache.file(fid).durability.written();
                }
            }
        }
    }
}

/// Keeps a lock and what came with it.
pub(crate) fn take_extent(
    state: &mut State,
    fid: Fid,
    target: TargetIndex,
    grant: &ost::ExtentGrant,
    attr: ost::ObjectAttr,
) {
    // Also under a lock that is wanted back: what was changed under it may not be answered yet.
    let knew = state.locks.reaches_eof(fid);
    state.locks.extent_granted(target, grant);
    state.cache.file(fid).locks.look_again();
    if knew {
        return;
    }
    let file = state.cache.file(fid);
    file.object.learn(file.with_unsent(attr));
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::session::locks::Locks;
    use wire::ost::ExtentGrant;

    const FILE: Fid = Fid(7);
    const OST: TargetIndex = TargetIndex(0);

    /// A file with a lock that is called back.
    fn with_one_revoked() -> State {
        let mut state = State::new(Locks::new([OST]), Arc::new(AtomicU64::new(0)));
        granted(&mut state, 1);
        let (mode, cover) = (Mode::PW, dlm::Cover::Range(ByteRange::ALL));
        let called_back = dlm::CacheInput::Blocking {
            handle: LockHandle(1),
            mode,
            cover,
        };
        state.locks.step(Holder::Ost(OST), called_back);
        state
    }

    fn granted(state: &mut State, handle: u64) {
        let grant = ExtentGrant {
            handle: LockHandle(handle),
            object: object_of(FILE),
            mode: Mode::PW.index() as u8,
            range: ByteRange::ALL,
        };
        state.locks.extent_granted(OST, &grant);
    }

    fn cover(state: &mut State, by: By) -> &'static str {
        match covering(state, FILE, ByteRange::ALL, Mode::PW, by) {
            Ok(Covering::Lock(LockHandle(1))) => "the first",
            Ok(Covering::Lock(_)) => "the second",
            Ok(Covering::Wait(_)) => "later",
            Ok(Covering::No) => "none",
            Err(_) => "lost",
        }
    }

    /// The client that waits for the lock may have gone, so that another lock is granted before the first is
    /// given back.
    #[test]
    fn nothing_is_written_under_a_second_lock_while_the_first_leaves_with_the_bytes() {
        let mut state = with_one_revoked();
        state.cache.file(FILE).locks.begin_revoking();
        assert_eq!(cover(&mut state, By::Call), "none");
        granted(&mut state, 2);
        for by in [By::Call, By::Read, By::WriteBack] {
            assert_eq!(
                cover(&mut state, by),
                "the second",
                "{by:?}: it goes out with the rest"
            );
        }
        let file = state.cache.file(FILE);
        file.locks.begin_writing_out(LockHandle(1));
        assert_eq!(cover(&mut state, By::Call), "later");
        assert_eq!(cover(&mut state, By::WriteBack), "later");
        assert_eq!(cover(&mut state, By::Read), "the second");
        let file = state.cache.file(FILE);
        file.locks.end_revoking();
        let dropped = dlm::CacheInput::Dropped {
            handle: LockHandle(1),
        };
        state.locks.step(Holder::Ost(OST), dropped);
        assert_eq!(cover(&mut state, By::Call), "the second");
    }

    #[test]
    fn a_lock_that_leaves_alone_has_another_asked_for() {
        let mut state = with_one_revoked();
        let file = state.cache.file(FILE);
        file.locks.begin_writing_out(LockHandle(1));
        for by in [By::Call, By::Read, By::WriteBack] {
            assert_eq!(cover(&mut state, by), "none", "{by:?}");
        }
    }
}
