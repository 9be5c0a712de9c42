//! What a client does when a server restarted or dropped it. Every lock and cache of the old boot
//! is void: the kernel forgets what it was given, files that are open here are made known to the new boot,
//! bytes that were not durable are sent again. Files the new boot does not know answer `Stale`.

use base::{BootEpoch, ByteRange, Fid, FsError, LockHandle, TargetIndex};
use handover::Record;
use rpc::Urgency;
use wire::frame::Bulk;
use wire::mdt::{Access, OpenIntent, SetAttr};
use wire::ost;

use crate::cache::ahead::Sized;
use crate::cache::file::FileState;
use crate::cache::holder::Holder;
use crate::cache::registration::{LostUses, Standing};
use crate::cache::stamps::Mark;
use crate::calls::attributes::changed_here;
use crate::coherence::invalidation::{Invalidation, Leads};
use crate::executor::{AT_ONCE, each_of, spawn};
use crate::recovery::claims::{Claim, Kept};
use crate::recovery::void_inode::void_inode;
use crate::session::client::Client;
use crate::session::gathering::TOGETHER_MAX;
use crate::session::kernel::Forget;
use crate::session::state::State;
use crate::session::stats::bump;
use crate::work::pending_update::PendingUpdate;

/// Why everything is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Void {
    /// The server restarted: this is its boot epoch now.
    Restarted(BootEpoch),
    /// The server gave up on this client: what was unsent may clash with what others did since.
    Evicted,
}

/// What is to be done about all that is void.
struct Voided {
    /// What the kernel is to forget.
    forget: Invalidation,
    /// Files that the MDT is to be told of.
    reopen: Vec<Opened>,
    /// Write leases to be claimed.
    claims: Vec<Claim>,
}

impl Client {
    /// All that `holder` granted is void.
    pub(crate) fn void_all(&self, holder: Holder, why: Void) {
        bump(&self.0.stats.recoveries);
        let mut all = None;
        // One that has given this client up waits for nothing.
        let hold = match (holder, why) {
            (Holder::Mdt, Void::Restarted(_)) => Some(self.0.cluster.mdt.hold_ready()),
            _ => None,
        };
        let voided = {
            let mut state = self.lock();
            if holder == Holder::Mdt {
                // Before answers count again: see `mint`.
                self.0.fids.clear();
            }
            let voided = self.void_files(&mut state, holder, why);
            if holder == Holder::Mdt {
                state.policies.pending_updates.await_all(hold);
                all = state.all_acknowledged();
            }
            voided
        };
        if let Some(all) = all {
            all.report(self);
        }
        let Voided {
            forget,
            reopen,
            claims,
        } = voided;
        let client = self.clone();
        spawn(async move {
            forget.done(&client).await;
            if why == Void::Evicted {
                // What is read from here on is read anew.
                tracing::warn!("{holder:?}: caches dropped after the eviction");
            }
        });
        let client = self.clone();
        spawn(async move {
            let at_once = match why {
                Void::Restarted(_) => TOGETHER_MAX,
                // Each in a frame of its own: see `register`.
                Void::Evicted => AT_ONCE,
            };
            each_of(claims, TOGETHER_MAX, |claim| client.claim(claim)).await;
            each_of(reopen, at_once, |opened| client.reopen(opened)).await;
            // No lock tells others of the unsent bytes now: these do not wait for their age.
            client.start_flushing();
        });
    }

    /// What is known of files goes, but for those that a restarted MDT does not know.
    fn void_files(&self, state: &mut State, holder: Holder, why: Void) -> Voided {
        let now = self.0.clock.tick();
        let (mut names, mut forget, mut reopen) = (Vec::new(), Invalidation::default(), Vec::new());
        state.cache.withdraw();
        state.locks.void(holder);
        let kept = match (holder, why) {
            (Holder::Mdt, Void::Restarted(_)) => Kept::of(state),
            _ => Kept::none(),
        };
        if why == Void::Evicted {
            state.locks.evicted(holder);
        }
        void_answers(state, holder, why);
        for fid in Vec::from_iter(state.cache.fids()) {
            match holder {
                Holder::Mdt => {
                    if !kept.has(fid) {
                        names.extend(void_inode(state, fid, &mut forget));
                    }
                    // The MDT knew of uses of a file whose changes it does not know.
                    if !state.births.is_unborn(fid) {
                        reopen.extend(self.void_opens(state, fid, why, &mut forget));
                    }
                }
                // One whose OST is not known may be there.
                Holder::Ost(target) if state.cache.ost(fid).is_none_or(|ost| ost == target) => {
                    void_bytes(state, fid, why, now, &mut forget);
                }
                Holder::Ost(_) => {}
            }
        }
        for name in names {
            self.forget_name(state, name, Leads::Perhaps, &mut forget);
        }
        if holder == Holder::Mdt && why == Void::Evicted {
            self.lose_births(state, &mut forget);
        }
        Voided {
            forget,
            reopen,
            claims: self.claims(state, &kept),
        }
    }

    /// A connection to a target stands, in that boot of it.
    pub(crate) fn connected(&self, holder: Holder, epoch: BootEpoch) {
        let mut state = self.lock();
        match holder {
            Holder::Mdt => state.servers.mdt_connected(epoch),
            Holder::Ost(target) => {
                let was_away = state.servers.boot_epoch_of(target) == epoch;
                state.servers.begin_epoch(target, epoch);
                drop(state);
                if was_away {
                    self.watch_again(target);
                }
            }
        }
    }

    /// What covered the size of a file here may have gone with a boot of the OST, or while it was away.
    fn watch_again(&self, target: TargetIndex) {
        let client = self.clone();
        spawn(async move {
            client.watch_on(target).await;
            client.raise_watched();
        });
    }

    /// A boot of an OST begins for this client. Others are kept waiting there until what was here of
    /// earlier boots is written; what the process before wrote is among that once it is in order.
    pub(crate) fn join(&self, holder: Holder, epoch: BootEpoch) {
        let Holder::Ost(target) = holder else {
            return;
        };
        // Asked first, and not waited for: the OST may answer when all have joined.
        self.watch_again(target);
        self.start_asking_unsent_max(target);
        if !self.lock().locks.is_settled() {
            // What is written of the process before waits for this.
            let client = self.clone();
            spawn(async move { client.redo_resizes(target).await });
            return;
        }
        let (client, begun) = (self.clone(), self.0.clock.tick());
        spawn(async move {
            client.redo_resizes(target).await;
            client.write_old_bytes(target, begun).await;
            if let Err(error) = client.settle_old_bytes(target).await {
                return tracing::debug!("{target:?} was not joined: {error}");
            }
            let (shared, requests) = (&client.0, [ost::Request::Join { boot_epoch: epoch }]);
            let (stats, nothing) = (&shared.stats, Bulk::default());
            let told = shared
                .cluster
                .ost_batch(stats, target, &requests, nothing, Urgency::Urgent)
                .await;
            client.raise_watched();
            if let Err(error) = told {
                // It has restarted once more, or has evicted us: that is told, and joined, anew.
                tracing::debug!("{target:?} was not joined: {error}");
            }
        });
    }

    /// The same for all OSTs that were met before this could be.
    pub(crate) fn join_all(&self) {
        for (index, peer) in self.0.cluster.osts() {
            let epoch = peer.epoch();
            if epoch != BootEpoch(0) {
                self.join(Holder::Ost(*index), epoch);
            }
        }
    }

    /// What was written again is under no lock. Before others may have one, it is durable, so that it
    /// need not be sent once more over what they write; and it is dropped here, so that nobody reads
    /// it under a lock that comes later.
    pub(crate) async fn settle_old_bytes(&self, target: TargetIndex) -> Result<(), FsError> {
        let is_there =
            |state: &State, fid: Fid| state.cache.ost(fid).is_none_or(|ost| ost == target);
        let unsettled = {
            let state = self.lock();
            state
                .policies
                .writeback
                .uncommitted()
                .any(|fid| is_there(&state, fid))
        };
        if unsettled {
            // Calls that wait until the OST is joined may have all slots but those for urgent requests.
            self.0.ost_urgent(target, ost::Request::Sync).await?;
        }
        let mut state = self.lock();
        for fid in Vec::from_iter(state.cache.fids()) {
            let uncovered = |file: &FileState| !file.locks.is_exclusive();
            if !is_there(&state, fid) {
                continue;
            }
            if let Some(file) = state.cache.file_known(fid) {
                file.resizes.settled();
                state.note(fid);
            }
            if state
                .cache
                .file_known(fid)
                .is_some_and(|file| uncovered(file))
            {
                state.with_pages(fid, |file| file.pages.let_go(ByteRange::ALL));
            }
        }
        Ok(())
    }

    /// Makes the new boot of the MDT know a file that is open here.
    pub(crate) async fn reopen(&self, opened: Opened) {
        let Opened {
            fid,
            read,
            write,
            intent,
            closing,
            change,
            mark,
            is_loss_reported,
            _until_acknowledged,
        } = opened;
        // Closed meanwhile by all, with nothing to send: only what was changed is to be told.
        let is_known = self.lock().cache.file_known(fid).is_some();
        let mut result = Ok(());
        if write && is_known {
            let access = Access {
                read: true,
                write: true,
                exec: false,
            };
            result = self.register(fid, access, intent).await.map(|_| ());
            let mut state = self.lock();
            let file = state.cache.file(fid);
            if intent == OpenIntent::ReopenExclusive && !file.locks.is_exclusive() {
                let (client, range) = (self.clone(), ByteRange::ALL);
                spawn(async move { client.0.forget(Forget::Pages { fid, range }).await });
            }
            if !file.opens.is_written() {
                state.policies.writeback.closes(fid);
            }
        }
        if read && is_known {
            self.register_reader(fid).await;
            self.register_executions(fid).await;
        }
        // Not waited for: its OST may wait for a client that has died, and the MDT for this one meanwhile.
        let client = self.clone();
        spawn(async move {
            client.watch_uncovered(vec![fid]).await;
            client.raise_if_watched(fid).await;
        });
        if result.is_ok() && change != SetAttr::default() {
            result = self.report_old_changes(fid, change, mark).await;
        }
        if closing && result == Err(FsError::Stale) && self.is_unused(fid) {
            // The Close was done, and with it went a file that had no name: nobody misses it.
            tracing::debug!("{fid} went with its last use");
            let mut state = self.lock();
            state.policies.writeback.closes_no_more(fid);
            return state.drop_if_idle(fid);
        }
        if let Err(error) = result {
            tracing::warn!(
                "{fid} was open when the MDT restarted or gave up on this mount, and is lost: {error}"
            );
            let mut state = self.lock();
            state.with_pages(fid, |file| file.lose_open(is_loss_reported));
        }
    }

    /// Nobody has the file open here, and nothing of it is to be written.
    fn is_unused(&self, fid: Fid) -> bool {
        let mut state = self.lock();
        let file = state.cache.file_known(fid);
        file.is_none_or(|file| {
            !file.opens.is_written()
                && !file.opens.is_kept()
                && !file.pages.may_be_lost()
                && file.resizes.is_empty()
        })
    }

    /// Tells what was changed by `mark` under a lock that is void, also while the MDT serves nobody.
    /// After an eviction others may have changed the same: then the file's next `fsync` says so.
    pub(crate) async fn report_old_changes(
        &self,
        fid: Fid,
        change: SetAttr,
        mark: Mark,
    ) -> Result<(), FsError> {
        {
            let mut state = self.lock();
            if !state.servers.may_report(mark) {
                state.cache.add_write_error(fid, FsError::Io);
                return Ok(());
            }
        }
        let (dir, under) = (Fid::NONE, LockHandle::ENDED);
        self.0
            .report_to_mdt(changed_here(fid, dir, change, under))
            .await
    }
}

/// What was asked in the old boot.
fn void_answers(state: &mut State, holder: Holder, why: Void) {
    match holder {
        Holder::Mdt => {
            state.idle_executions.lose_all();
            state.void_answers();
        }
        Holder::Ost(target) => state.void_extents(target),
    }
    match (holder, why) {
        (Holder::Mdt, Void::Restarted(epoch)) => state.servers.mdt_restarted(epoch),
        (Holder::Mdt, Void::Evicted) => state.void_changes(),
        (Holder::Ost(target), Void::Restarted(epoch)) => state.servers.begin_epoch(target, epoch),
        (Holder::Ost(_), Void::Evicted) => {}
    }
}

/// A file the new boot of the MDT must be told of.
pub(crate) struct Opened {
    pub fid: Fid,
    /// For reading.
    pub read: bool,
    /// For writing: until then nothing of it is sent, for there is no ticket.
    pub write: bool,
    /// For writing: whether this client held it exclusively. Then the newest bytes may be only here, and
    /// other clients must learn of them.
    pub intent: OpenIntent,
    /// The Close of its last use was on its way, and may have been done.
    pub closing: bool,
    /// What was changed under the lock that is void.
    pub change: SetAttr,
    /// When it was found void.
    pub mark: Mark,
    /// Its callers have already been told of the bytes that it lost.
    pub is_loss_reported: bool,
    /// Of the change, and of all this.
    pub _until_acknowledged: (Option<Record>, Option<PendingUpdate>),
}

impl Client {
    /// Open files of the old boot.
    fn void_opens(
        &self,
        state: &mut State,
        fid: Fid,
        why: Void,
        forget: &mut Invalidation,
    ) -> Option<Opened> {
        let file = state.cache.file_known(fid)?;
        if file.locks.is_exclusive() && why == Void::Evicted {
            forget.lapse(file, fid);
        }
        // Also who has closed it, as long as the MDT was not told: an OST may yet forget the bytes.
        let LostUses {
            had_writers: write,
            was_closing: closing,
        } = file.registration.lose();
        let was_exclusive = file.lose_exclusive().is_some();
        if was_exclusive {
            // Its pages were covered by the lock that is void.
            file.kernel.take_pages();
        }
        let is_loss_reported = why == Void::Evicted
            && state.with_pages(fid, |file| {
                file.lose_pending_updates() | file.lose_unwritten()
            });
        let file = state.cache.file_known(fid)?;
        file.waiters.wake_all();
        let read = file.opens.is_kept();
        let (change, remembered) = file.change.take();
        if !(read || write) {
            return None;
        }
        if why == Void::Evicted {
            file.stands(Standing::InDoubt);
        }
        let intent = match was_exclusive && write && why != Void::Evicted {
            true => OpenIntent::ReopenExclusive,
            false => OpenIntent::Reopen,
        };
        // Before others are served: they may remove its name.
        let pending_updates = PendingUpdate::new(self, state, fid);
        Some(Opened {
            fid,
            read,
            write,
            intent,
            closing,
            change,
            mark: state.cache.mark(fid),
            is_loss_reported,
            _until_acknowledged: (remembered, Some(pending_updates)),
        })
    }
}

/// Bytes under locks of the old boot.
fn void_bytes(state: &mut State, fid: Fid, why: Void, now: base::Tick, forget: &mut Invalidation) {
    let Some(file) = state.cache.file_known(fid) else {
        return;
    };
    let is_evicted = why == Void::Evicted;
    // What the MDT's lock covers stays.
    let stays = is_evicted && file.locks.is_exclusive();
    if is_evicted && !stays {
        forget.lapse(file, fid);
    } else if file.kernel.was_told() {
        forget.forget(Forget::Pages {
            fid,
            range: ByteRange::ALL,
        });
    }
    file.kernel.set_sized(Sized::No);
    if stays {
        file.locks.take_watch();
        return;
    }
    state.with_pages(fid, |file| {
        file.locks.take_watch();
        match why {
            Void::Restarted(_) => {
                file.durability.restarted();
                file.pages.server_restarted(now);
                file.resizes.lose();
            }
            Void::Evicted => {
                file.lose_unwritten();
            }
        }
        file.kernel.take_pages();
        file.waiters.wake_all();
    });
}

#[cfg(test)]
#[path = "void_tests.rs"]
mod tests;
