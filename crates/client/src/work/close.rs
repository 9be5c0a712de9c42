//! Closing at the MDT: after the last writer, when the bytes are durable, many in one message.

use std::time::Duration;

use base::{ByteRange, Fid, FsError, LockHandle};
use dlm::Bits;
use handover::Record;
use rpc::Urgency;
use wire::mdt::{OpenHandle, OpenIntent, Reply, Request, SetAttr, SizeUpdate};

use crate::cache::file::FileState;
use crate::cache::stamps::Mark;
use crate::calls::attributes::changed_here;
use crate::calls::open::READING;
use crate::calls::read::Pin;
use crate::executor::{AT_ONCE, Oneshot, each_of, spawn};
use crate::session::client::Client;
use crate::session::kernel::Forget;
use crate::session::state::State;
use crate::work::pending_update::PendingUpdate;
use crate::work::reading::Wished;

/// A Close to send.
pub(super) struct Closing {
    pub fid: Fid,
    mark: Mark,
    pub handle: OpenHandle,
    pub change: SetAttr,
    pub under: LockHandle,
    /// Readers stay, of whom the MDT knows by the writers' open alone: it is told of them first.
    pub readers_stay: bool,
    /// What the kernel must forget first, as nothing will cover it.
    forget: Vec<Forget>,
    /// Of the change, until it is told.
    remembered: Option<Record>,
    pending_updates: Option<PendingUpdate>,
}

impl Closing {
    fn requests(&self) -> impl Iterator<Item = Request> {
        let open = Request::Open {
            fid: self.fid,
            dir: Fid::NONE,
            access: READING,
            intent: OpenIntent::Reopen,
        };
        let close = Request::Close {
            fid: self.fid,
            dir: self.mark.dir,
            handle: self.handle,
            change: self.change.clone(),
            under: self.under,
        };
        let open = self.readers_stay.then_some(open);
        open.into_iter().chain([close])
    }
}

impl Client {
    /// Tells the MDT of files whose last writer is gone and whose bytes are durable.
    pub(crate) fn close_ready(&self) {
        let batch_max = self.0.params.batch_max() as usize;
        loop {
            for (fid, under) in self.take_pages_to_forget() {
                let client = self.clone();
                spawn(async move { client.close_after_forgetting(fid, under).await });
            }
            for batch in self.take_sizes_to_learn() {
                let client = self.clone();
                spawn(async move {
                    client.learn_sizes(batch).await;
                    client.close_ready();
                });
            }
            let batch = self.take_closing(batch_max);
            if batch.is_empty() {
                return;
            }
            let client = self.clone();
            spawn(async move { client.close_batch(batch).await });
        }
    }

    /// Closes what can be closed, and waits for it.
    pub(crate) async fn close_all(&self) {
        loop {
            for (fid, under) in self.take_pages_to_forget() {
                self.close_after_forgetting(fid, under).await;
            }
            for batch in self.take_sizes_to_learn() {
                self.learn_sizes(batch).await;
            }
            let batch = self.take_closing(self.0.params.batch_max() as usize);
            if batch.is_empty() {
                return;
            }
            self.close_batch(batch).await;
        }
    }

    /// A file that nobody writes any more, and that the timer has begun to close, or to learn the
    /// size of before. Resolves when it has got further.
    pub(crate) fn close_under_way(&self) -> Option<Oneshot<()>> {
        let mut state = self.lock();
        Vec::from_iter(state.cache.fids())
            .into_iter()
            .find_map(|fid| {
                let file = state.cache.file_known(fid)?;
                let is_unused = !file.opens.is_written() && file.registration.has_writers();
                let is_revoked = is_unused && (file.locks.is_used() || file.locks.is_revoking());
                (file.registration.is_closing() || is_revoked).then(|| file.waiters.wait())
            })
    }

    /// Files to close whose size only the OST knows, since others have read them. One who tells it
    /// with the Close makes it exact at the MDT, and later walks cheaper; a lock that keeps writers
    /// out is tried for once, which disturbs nobody.
    fn take_sizes_to_learn(&self) -> Vec<Wished> {
        let mut state = self.lock();
        let batch_max = self.0.params.batch_max() as usize;
        let mut fids = to_look_at(&mut state);
        fids.retain(|fid| is_due(&state, *fid) && !knows_what_to_report(&state, *fid));
        fids.truncate(batch_max);
        for fid in &fids {
            state.cache.file(*fid).registration.ask_size();
        }
        self.wish_for_sizes(&mut state, &fids)
    }

    fn take_closing(&self, batch_max: usize) -> Vec<Closing> {
        let mut state = self.lock();
        let mut ready = to_look_at(&mut state);
        ready.retain(|fid| is_due(&state, *fid) && knows_what_to_report(&state, *fid));
        ready.truncate(batch_max);
        ready
            .into_iter()
            .filter_map(|fid| self.prepare(&mut state, fid))
            .collect()
    }

    /// Files to close of which the kernel has pages that were read under the EX lock. Until it has
    /// forgotten them reads go on under that lock: their pages are locked in the kernel, and the
    /// forgetting waits for those.
    fn take_pages_to_forget(&self) -> Vec<(Fid, LockHandle)> {
        let mut state = self.lock();
        to_look_at(&mut state)
            .into_iter()
            .filter_map(|fid| {
                let file = state.cache.file_known(fid)?;
                let ready = is_ready(file) && has_pages(file);
                let under = file.locks.exclusive().filter(|_| ready)?;
                file.locks.begin_revoking();
                Some((fid, under))
            })
            .collect()
    }

    /// Closes a file as soon as the kernel has no pages of it, unless it is in use again.
    async fn close_after_forgetting(&self, fid: Fid, under: LockHandle) {
        self.forget_pages(fid, ByteRange::ALL, under).await;
        let closing = {
            let mut state = self.lock();
            let file = state.cache.file(fid);
            file.locks.end_revoking();
            let ready = is_ready(file);
            let closing = ready.then(|| self.prepare(&mut state, fid)).flatten();
            state.cache.file(fid).waiters.wake_all();
            closing
        };
        if let Some(closing) = closing {
            self.close_batch(vec![closing]).await;
        }
    }

    async fn close_batch(&self, mut batch: Vec<Closing>) {
        for closing in &mut batch {
            for what in std::mem::take(&mut closing.forget) {
                self.0.forget(what).await;
            }
        }
        let batch = self.close_in_sets(batch).await;
        if batch.is_empty() {
            return;
        }
        let requests = batch.iter().flat_map(Closing::requests).collect();
        let shared = &self.0;
        let replies = shared
            .cluster
            .mdt_batch(&shared.stats, requests, Urgency::Urgent)
            .await;
        let mut replies = match replies {
            Ok(replies) => replies.into_iter(),
            Err(error) => vec![Err(error); 2 * batch.len()].into_iter(),
        };
        let mut next = || replies.next().unwrap_or(Err(FsError::Io));
        for closing in batch {
            if closing.readers_stay {
                self.reader_told(closing.fid, closing.mark, next());
            }
            self.closed(closing, next());
        }
    }

    fn reader_told(&self, fid: Fid, asked: Mark, reply: Result<Reply, FsError>) {
        match reply {
            Ok(reply @ Reply::Opened { handle, .. }) => {
                self.0.keep_grant(&reply, asked);
                self.readers_known(fid, handle);
            }
            Ok(_) => tracing::error!("{fid}: the MDT gave an answer of the wrong kind to an open"),
            Err(error) => tracing::warn!("{fid} is open here, but the MDT does not know: {error}"),
        }
    }

    fn closed(&self, closing: Closing, reply: Result<Reply, FsError>) {
        let fid = closing.fid;
        let mut state = self.lock();
        let refused = reply.is_err();
        let file = state.cache.file(fid);
        if !file.registration.end_close(closing.handle) {
            // The MDT has restarted, and this use was told of anew: it is closed once more.
            drop(state);
            if refused {
                self.report_what_was_changed(closing);
            }
            return;
        }
        // An answer may have come that is newer than this one.
        let exclusive = state.lose_exclusive(fid);
        match reply {
            Ok(Reply::Node(node)) => state.take_node(&node, closing.mark),
            Ok(_) => tracing::error!("{fid}: the MDT gave an answer of the wrong kind to a close"),
            Err(error) => {
                match error {
                    // It has restarted.
                    FsError::BadHandle => tracing::debug!("{fid} was open in an earlier boot"),
                    _ => tracing::warn!("{fid}: the MDT did not take the close: {error}"),
                }
                state.cache.inode(fid).attrs.cover_lost();
                // It did not take the lock either.
                if let Some(handle) = exclusive {
                    self.cancel(handle);
                }
            }
        }
        // Nothing covers the bytes any more, unless an extent lock does.
        if exclusive.is_some() {
            state.with_pages(fid, |file| file.pages.discard(ByteRange::ALL));
        }
        state.cache.file(fid).waiters.wake_all();
        state.drop_if_idle(fid);
        drop(state);
        if refused {
            self.report_what_was_changed(closing);
        }
    }

    /// The MDT knows nothing of a use any more, and so has not heard what came with its Close.
    fn report_what_was_changed(&self, closing: Closing) {
        let change = SetAttr {
            size: None,
            ..closing.change
        };
        let fid = closing.fid;
        if change == SetAttr::default() {
            return;
        }
        let (client, mark) = (self.clone(), closing.mark);
        let until_acknowledged = (closing.remembered, closing.pending_updates);
        spawn(async move {
            let reported = client.report_old_changes(fid, change, mark).await;
            // A file that is gone with its last name and use has no attributes to lose.
            if let Err(error) = reported
                && error != FsError::Stale
            {
                tracing::warn!("{fid}: what was changed before it was closed is lost: {error}");
            }
            drop(until_acknowledged);
        });
    }

    /// Gives back a lock that is in no mirror any more.
    fn cancel(&self, handle: LockHandle) {
        let client = self.clone();
        spawn(async move {
            let (shared, requests) = (
                &client.0,
                vec![Request::Cancel {
                    handles: vec![handle],
                }],
            );
            let sent = shared
                .cluster
                .mdt_batch(&shared.stats, requests, Urgency::Urgent)
                .await;
            if let Err(error) = sent {
                tracing::debug!("a lock could not be given back: {error}");
            }
        });
    }

    /// Tells the MDT what was changed under the EX lock, if anything was, keeping the lock: it does not go
    /// before that is answered. The size alone is no reason to: the OST knows it. `Stale`: the file is
    /// gone.
    pub(crate) async fn report_changes(&self, fid: Fid) -> Result<(), FsError> {
        let (changes, _pin) = {
            let mut state = self.lock();
            // It goes with the word that there is such a file.
            if state.births.is_unborn(fid) {
                return Ok(());
            }
            let file = state.cache.file_known(fid);
            let Some(under) = file.and_then(|file| file.has_changes_to_report()) else {
                return Ok(());
            };
            let changes = self.take_changes(&mut state, fid, under);
            state.cache.file(fid).locks.begin_uses(1);
            (changes, Pin::new(self, fid))
        };
        self.tell(changes).await
    }

    /// Reports attributes that were changed under an EX lock as long ago as bytes may lie unsent.
    pub(crate) fn report_aged(&self) {
        let age = Duration::from_millis(self.0.params.dirty_age_ms());
        let Some(then) = self.0.clock.tick().before(age) else {
            return;
        };
        let fids = self.lock().policies.writeback.take_changed(then);
        if fids.is_empty() {
            return;
        }
        let client = self.clone();
        spawn(async move {
            each_of(fids, AT_ONCE, |fid| client.report_in_background(fid)).await;
        });
    }

    /// An error is told by the file's next `fsync`.
    async fn report_in_background(&self, fid: Fid) {
        if let Err(error) = self.report_changes(fid).await {
            self.lock().cache.add_write_error(fid, error);
        }
    }

    /// Takes what was changed under the EX lock `under`, to be told.
    pub(crate) fn take_changes(&self, state: &mut State, fid: Fid, under: LockHandle) -> Changed {
        let mark = state.cache.mark(fid);
        let dir = state.cache.inode(fid).dir();
        let size = state.size_to_report(fid, false);
        let file = state.cache.file(fid);
        let (change, remembered) = file.change.take();
        Changed {
            fid,
            dir,
            mark,
            under,
            change,
            size,
            _remembered: remembered,
            _pending: PendingUpdate::new(self, state, fid),
        }
    }

    /// Tells it; also where the lock has gone meanwhile, with a restart. What an eviction cut off or took
    /// is lost: the file's next `fsync` says so.
    pub(crate) async fn tell(&self, changes: Changed) -> Result<(), FsError> {
        let (fid, dir, under, mark) = (changes.fid, changes.dir, changes.under, changes.mark);
        let change = SetAttr {
            size: changes.size,
            ..changes.change.clone()
        };
        match self
            .0
            .report_to_mdt(changed_here(fid, dir, change, under))
            .await
        {
            Err(FsError::Stale) if changes.is_any() && !self.holds_exclusive(fid, under) => {
                self.report_old_changes(fid, changes.change.clone(), mark)
                    .await
            }
            Err(error) if changes.is_any() => {
                let mut state = self.lock();
                if state.servers.may_report(mark) {
                    return Err(error);
                }
                state.cache.add_write_error(fid, FsError::Io);
                Ok(())
            }
            result => result,
        }
    }

    fn holds_exclusive(&self, fid: Fid, under: LockHandle) -> bool {
        let mut state = self.lock();
        let file = state.cache.file_known(fid);
        file.is_some_and(|file| file.locks.exclusive() == Some(under))
    }
}

/// What was changed under an EX lock, until it is told.
pub(crate) struct Changed {
    fid: Fid,
    dir: Fid,
    mark: Mark,
    under: LockHandle,
    change: SetAttr,
    size: Option<SizeUpdate>,
    _remembered: Option<Record>,
    _pending: PendingUpdate,
}

impl Changed {
    /// More than the size, which the OST knows.
    fn is_any(&self) -> bool {
        self.change != SetAttr::default()
    }
}

/// Files to close of which all is durable. The others are looked at when it is.
fn to_look_at(state: &mut State) -> Vec<Fid> {
    let (ready, waiting): (Vec<Fid>, Vec<Fid>) = state
        .policies
        .writeback
        .closable()
        .partition(|fid| is_settled(state, *fid));
    for fid in waiting {
        state.policies.writeback.closes_later(fid);
    }
    ready
}

fn is_settled(state: &State, fid: Fid) -> bool {
    let file = state.cache.file_of(fid);
    file.is_some_and(FileState::is_settled)
}

/// It can be closed.
fn is_due(state: &State, fid: Fid) -> bool {
    let file = state.cache.file_of(fid);
    file.is_some_and(|file| is_ready(file) && !has_pages(file))
}

/// Its size is known here, or was asked for in vain.
fn knows_what_to_report(state: &State, fid: Fid) -> bool {
    let file = state.cache.file_of(fid);
    file.is_some_and(|file| file.registration.was_size_asked())
        || state.size_to_report(fid, true).is_some()
}

/// No writer, nothing unsent, nothing at the OST that a power cut would take.
fn is_ready(file: &FileState) -> bool {
    !file.opens.is_written()
        && file.registration.has_writers()
        && !file.registration.is_closing()
        && !file.locks.is_used()
        && file.durability.writing() == 0
        && !file.locks.is_revoking()
        && file.is_settled()
}

/// The kernel may have pages that nothing covers after the Close.
fn has_pages(file: &FileState) -> bool {
    file.locks.is_exclusive() && file.kernel.has_pages()
}

impl Client {
    fn prepare(&self, state: &mut State, fid: Fid) -> Option<Closing> {
        state.policies.writeback.closes_no_more(fid);
        let dir = state.cache.inode(fid).dir();
        // No lease covers a file with several names.
        let has_one_name = state.cache.attr_of(fid).is_some_and(|attr| attr.nlink == 1);
        let leased = has_one_name && state.locks.holds(dir, Bits::CHILD);
        let mark = state.cache.mark(dir);
        let file = state.cache.file_known(fid)?;
        let handle = file.registration.begin_close()?;
        let under = file.locks.exclusive().unwrap_or(LockHandle(0));
        let mut forget = Vec::new();
        // Attributes that the kernel has under the EX lock; of pages it has none.
        if file.locks.is_exclusive() && !leased {
            forget.push(Forget::Attributes { fid, dir });
        }
        let readers_stay = file.opens.is_kept() && !file.registration.has_readers();
        let (change, remembered) = file.change.take();
        let change = SetAttr {
            size: state.size_to_report(fid, true),
            ..change
        };
        if under != LockHandle(0) {
            state.locks.give_with_close(under);
        }
        if !leased && under != LockHandle(0) {
            state.cache.withdraw();
        }
        let acknowledged = under != LockHandle(0);
        let pending_updates = acknowledged.then(|| PendingUpdate::new(self, state, fid));
        Some(Closing {
            fid,
            mark,
            handle,
            change,
            under,
            readers_stay,
            forget,
            remembered,
            pending_updates,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use base::Tick;

    use super::*;
    use crate::session::locks::Locks;

    #[test]
    fn files_that_wait_for_their_ost_are_looked_at_once() {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        for number in 0..10_000 {
            let fid = Fid(number);
            state.with_pages(fid, |file| file.pages.write(0, b"x", Tick(0)));
            state.policies.writeback.closes(fid);
        }
        assert_eq!(to_look_at(&mut state), []);
        let before = state.cache.looked_at();
        assert_eq!(to_look_at(&mut state), []);
        assert_eq!(state.cache.looked_at(), before);
        let discard = |file: &mut FileState| file.pages.discard(ByteRange::ALL);
        state.with_pages(Fid(7), discard);
        assert_eq!(to_look_at(&mut state), [Fid(7)]);
        assert!(state.cache.looked_at() < before + 10);
        assert_eq!(state.policies.writeback.closing().len(), 10_000);
    }
}
