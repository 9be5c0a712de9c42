//! The MDT is told of files that were made here: parents before children, many in a message (ADR 19).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::{Fid, FsError, LockHandle, Name, Timestamp};
use dlm::Bits;
use rpc::Urgency;
use wire::mdt::{Reply, SetAttr};
use wire::update::{Change, LeasedDir, Told, UpdateNote};

use crate::cache::births::{Birth, Wish};
use crate::cache::cached_attr::Covered;
use crate::cache::listed::Listed;
use crate::cache::local_changes::NameChange;
use crate::cache::registration::WriteOpen;
use crate::calls::attributes::changed_here;
use crate::coherence::invalidation::Invalidation;
use crate::executor::{Oneshot, spawn};
use crate::session::client::Client;
use crate::session::kernel::Forget;
use crate::session::state::State;
use crate::work::sets::{Set, add_dates, sets_of};

/// New files and changes of known ones in one message.
const FRAME_BIRTHS_MAX: usize = 2048;

/// What the server said of one file.
#[derive(Default)]
struct Notes(Vec<Told>);

impl Client {
    /// The MDT knows what the request is about.
    pub(crate) async fn report_births_first(&self, fids: &[Fid]) {
        if self.lock().births.is_empty() {
            return;
        }
        for fid in fids {
            self.report_births_of(*fid).await;
        }
    }

    /// The MDT knows the file, the directories above it, and what was made in it.
    pub(crate) async fn report_births_of(&self, fid: Fid) {
        self.report_births(Wish::Of(fid)).await;
    }

    /// The MDT knows all files that have been made here.
    pub(crate) async fn report_all_births(&self) {
        let newest = self.lock().births.newest();
        self.report_births(Wish::Until(newest)).await;
    }

    /// Tells all, without waiting for it, unless somebody does.
    pub(crate) fn start_reporting_births(&self) {
        let newest = self.lock().births.newest();
        self.start_reporting(Wish::Until(newest));
    }

    /// Tells what has been here for long enough.
    pub(crate) fn report_aged_births(&self) {
        let age = Duration::from_millis(self.0.params.writeback_age_ms());
        if let Some(then) = self.0.clock.tick().before(age) {
            self.start_reporting(Wish::MadeBy(then));
        }
    }

    fn start_reporting(&self, wish: Wish) {
        let is_needless = {
            let state = self.lock();
            state.birth_reporter.will_report(wish) || state.births.have_no(wish)
        };
        if !is_needless {
            let client = self.clone();
            spawn(async move { client.report_births(wish).await });
        }
    }

    /// The MDT knows what is wished for, or never will.
    pub(crate) async fn report_births(&self, wish: Wish) {
        loop {
            let wait = {
                let mut state = self.lock();
                if state.births.have_no(wish) {
                    return;
                }
                state.birth_reporter.begin(wish)
            };
            match wait {
                Some(wait) => drop(wait.await),
                None => {
                    let bytes = self.report_some_births().await;
                    self.lock().birth_reporter.end();
                    if let Some(bytes) = bytes {
                        bytes.await;
                    }
                }
            }
        }
    }

    /// Sends one message of births, and takes what is answered. Where there is nothing to send yet, what it
    /// returns resolves when bytes are durable.
    async fn report_some_births(&self) -> Option<Oneshot<()>> {
        loop {
            let claims = self.lock().birth_reporter.wait_for_claims();
            match claims {
                Some(claims) => drop(claims.await),
                None => break,
            }
        }
        let (sets, lost, bytes) = {
            let mut state = self.lock();
            let wishes = state.birth_reporter.take_wishes();
            let sending = state.births.send(&wishes, FRAME_BIRTHS_MAX);
            let bytes = self.settle_moves(&mut state, &sending.undurable);
            let (mut sets, lost) = sets_of(&mut state, sending);
            add_dates(&state, &wishes, &mut sets);
            (sets, lost, bytes)
        };
        self.cannot_be(lost, FsError::Io);
        if sets.is_empty() {
            return bytes;
        }
        let changes = sets.iter().map(|set| set.changes.len() as u64).sum();
        let counter = &self.0.stats.update_changes;
        counter.fetch_add(changes, Ordering::Relaxed);
        let requests = sets.iter().map(Set::request).collect();
        let shared = &self.0;
        let sent = shared
            .cluster
            .mdt_batch(&shared.stats, requests, Urgency::Urgent);
        let mut replies = match sent.await {
            Ok(replies) => replies.into_iter(),
            Err(error) => vec![Err(error); sets.len()].into_iter(),
        };
        let mut is_put_off = false;
        for set in sets {
            let mut reply = replies.next().unwrap_or(Err(FsError::Io));
            if is_put_off && !matches!(reply, Ok(Reply::Updated { .. })) {
                // It may need what was put off.
                reply = Err(FsError::TryAgain);
            }
            is_put_off |= is_deferred(&reply);
            self.told(set, reply);
        }
        if is_put_off {
            let moment = self.lock().servers.wait_a_moment();
            moment.await;
        }
        None
    }

    fn told(&self, set: Set, reply: Result<Reply, FsError>) {
        match reply {
            deferred if is_deferred(&deferred) => set.send_again(&mut self.lock()),
            Ok(Reply::Updated {
                transno, at, notes, ..
            }) => {
                self.are_dated(&set, (transno.0, at));
                let mut by_change = notes_by_change(notes);
                for (place, fid) in set.born() {
                    let notes = by_change.remove(&(place as u16)).unwrap_or_default();
                    self.is_born(fid, (transno.0, at), notes);
                }
                self.place_links(&set, &by_change);
                self.edits_are_done(&set, (transno.0, at));
            }
            Ok(Reply::UpdateRefused { change, error }) => {
                let change = usize::from(change);
                let wrong = set.files.get(change).copied();
                if set.born().next().is_none() {
                    self.cannot_be_dated(&set, error);
                }
                for (_, fid) in set.born() {
                    match wrong == Some(fid) {
                        true => self.cannot_be_born(fid, error),
                        false => self.lock().births.send_again(fid),
                    }
                }
                for (place, number) in &set.edits {
                    match *place == change {
                        true => self.edit_is_lost(*number, error),
                        false => self.lock().births.edits_mut().send_again(*number),
                    }
                }
            }
            Err(FsError::Stale) if is_overtaken(&self.lock(), &set.dirs) => {
                set.send_again(&mut self.lock());
            }
            Err(FsError::Stale) if self.was_emptied_before(&set) => self.was_done_before(&set),
            Ok(_) => self.is_lost(&set, FsError::Io),
            Err(error) => self.is_lost(&set, error),
        }
    }

    fn is_lost(&self, set: &Set, error: FsError) {
        self.cannot_be(set.all_born(), error);
        for (_, number) in &set.edits {
            self.edit_is_lost(*number, error);
        }
        self.cannot_be_dated(set, error);
    }

    /// The MDT knows when names of the set's directories changed last.
    fn are_dated(&self, set: &Set, (version, at): (u64, Timestamp)) {
        let mut state = self.lock();
        for (dir, until) in &set.dates {
            state.end_date(*dir, *until);
        }
        if set.born().next().is_none() && !set.dates.is_empty() {
            for leased in &set.dirs {
                state.cache.inode(leased.dir).attrs.born(version, at);
            }
        }
    }

    /// The MDT does not take the times of directories: they are gone, or others change them.
    fn cannot_be_dated(&self, set: &Set, error: FsError) {
        let mut state = self.lock();
        for (dir, until) in &set.dates {
            if state.births.dated(*dir).is_some() {
                tracing::warn!(%dir, "the MDT did not take when its names changed: {error}");
            }
            state.end_date(*dir, *until);
        }
    }

    /// Takes the places that the MDT has given further names.
    fn place_links(&self, set: &Set, notes: &HashMap<u16, Notes>) {
        for (place, notes) in notes {
            let at = usize::from(*place);
            let (Some(change), Some(fid)) = (set.changes.get(at), set.files.get(at)) else {
                continue;
            };
            let Change::Link { dir, name, .. } = change else {
                continue;
            };
            let dir = set.dirs[usize::from(*dir)].dir;
            for told in &notes.0 {
                if let Told::Cookie(cookie) = told {
                    place_at(&mut self.lock(), (dir, name), *fid, *cookie);
                }
            }
        }
    }

    fn cannot_be(&self, fids: Vec<Fid>, error: FsError) {
        fids.into_iter()
            .for_each(|fid| self.cannot_be_born(fid, error));
    }

    /// The MDT knows the file: its locks cover it now.
    fn is_born(&self, fid: Fid, (version, at): (u64, Timestamp), notes: Notes) {
        let mut state = self.lock();
        let Some(birth) = state.births.end(fid) else {
            return;
        };
        state.journal.end_birth(fid);
        for known in std::iter::once(fid).chain(birth.dirs()) {
            state.cache.inode(known).attrs.born(version, at);
        }
        // Under a lock of its own what was changed since is told as for any file.
        let changed = match notes.has_lock() {
            true => None,
            false => state.changed_on_the_way(fid),
        };
        state.lose_own_locks(fid);
        match birth.links.is_empty() {
            true => cover_by_leases(&mut state, fid, birth.dir),
            false => self.uncover(&mut state, fid, birth.dir),
        }
        for told in notes.0 {
            self.take_told(&mut state, fid, &birth, told);
        }
        if !state.locks.holds(fid, Bits::XATTR) {
            state.cache.inode(fid).forget_xattrs();
        }
        if let Some(file) = state.cache.file_known(fid) {
            if !file.locks.is_exclusive() {
                file.object.sent();
            }
            if file.change.is_any() {
                let now = self.0.clock.tick();
                state.policies.writeback.is_changed(fid, now);
            }
            state.note(fid);
        }
        state.drop_if_idle(fid);
        drop(state);
        if let Some(change) = changed {
            self.tell_change(fid, birth.dir, change);
        }
    }

    /// No lock covers what is known of the file.
    pub(super) fn uncover(&self, state: &mut State, fid: Fid, dir: Fid) {
        state.cache.withdraw();
        state.cache.inode(fid).attrs.cover_lost();
        let mut forget = Invalidation::default();
        forget.forget(Forget::Attributes { fid, dir });
        let client = self.clone();
        spawn(async move { forget.done(&client).await });
    }

    fn take_told(&self, state: &mut State, fid: Fid, birth: &Birth, told: Told) {
        match told {
            // Called back already, it is on its way back.
            Told::Leased(grant) => drop(state.locks.take_grant(&grant)),
            Told::Cookie(cookie) => place_at(state, (birth.dir, &birth.name), fid, cookie),
            Told::Opened {
                handle,
                ticket,
                lock,
            } => {
                let file = state.cache.file(fid);
                let open = WriteOpen { handle, ticket };
                let surplus = file.registration.register_writers(open);
                debug_assert_eq!(surplus, None, "nobody asked for another");
                let is_written = file.opens.is_written();
                if let Some(grant) = lock
                    && state.locks.take_grant(&grant)
                {
                    state.cache.file(fid).locks.grant_exclusive(grant.handle);
                    state.cache.inode(fid).attrs.own_lock_granted();
                }
                if !is_written {
                    state.policies.writeback.closes(fid);
                }
            }
            Told::Ost(_) | Told::Inexact => {}
        }
    }

    /// It was changed while it was on its way.
    fn tell_change(&self, fid: Fid, dir: Fid, change: SetAttr) {
        let client = self.clone();
        spawn(async move {
            let request = changed_here(fid, dir, change, LockHandle(0));
            if let Err(error) = client.change_at_mdt(fid, |_| request).await {
                client.lock().cache.add_write_error(fid, error);
            }
        });
    }

    /// The MDT does not take the file. What is lost is told, and it is gone, with all that was made in it.
    fn cannot_be_born(&self, fid: Fid, error: FsError) {
        let mut state = self.lock();
        let Some(birth) = state.births.get(fid).cloned() else {
            return;
        };
        tracing::error!(
            dir = %birth.dir,
            name = %birth.name,
            "a file that was made here is lost: the MDT did not take it: {error}"
        );
        state.cache.add_write_error(fid, FsError::Io);
        let moved = state.births.edits().move_of(fid);
        let inside: Vec<Fid> = match state.births.are_in(fid) {
            true => state.births.in_directory(fid),
            false => Vec::new(),
        };
        state.unbear(fid, self.0.clock.now());
        drop(state);
        if let Some(moved) = moved {
            self.edit_is_lost(moved, error);
        }
        self.cannot_be(inside, error);
    }
}

impl Notes {
    /// A lock on the file itself is among them.
    fn has_lock(&self) -> bool {
        let is_lock = |told: &Told| matches!(told, Told::Opened { lock: Some(_), .. });
        self.0.iter().any(is_lock)
    }
}

/// The MDT may take the set later: it has too much to do, or is about to hear of an OST.
fn is_deferred(reply: &Result<Reply, FsError>) -> bool {
    matches!(
        reply,
        Err(FsError::TryAgain)
            | Ok(Reply::UpdateRefused {
                error: FsError::TryAgain,
                ..
            })
    )
}

/// A set of these directories is to be put together anew. The MDT has restarted since, and this mount has
/// claimed another lease; or the set that makes the directory is to be sent again.
fn is_overtaken(state: &State, dirs: &[LeasedDir]) -> bool {
    dirs.iter().any(|leased| {
        let lease = state.locks.write_lease(leased.dir);
        state.births.is_unborn(leased.dir) || lease.is_some_and(|lease| lease != leased.lease)
    })
}

fn notes_by_change(notes: Vec<UpdateNote>) -> HashMap<u16, Notes> {
    let mut by_change: HashMap<u16, Notes> = HashMap::new();
    for UpdateNote { change, told } in notes {
        by_change.entry(change).or_default().0.push(told);
    }
    by_change
}

/// The write lease of its directory covers a file, and its own a directory.
fn cover_by_leases(state: &mut State, fid: Fid, dir: Fid) {
    let child_epoch = state.cache.child_epoch(dir).unwrap_or_default();
    let inode = state.cache.inode(fid);
    let covered = match inode.is_directory() {
        true => Covered::Own,
        false => Covered::Parent { child_epoch },
    };
    if let Some(attr) = inode.attrs.known().cloned() {
        inode.attrs.take_covered(attr, covered);
    }
}

/// The MDT has put the name elsewhere in the list.
fn place_at(state: &mut State, (dir, name): (Fid, &Name), fid: Fid, cookie: u64) {
    let Some(kind) = state.cache.attr_of(fid).map(|attr| attr.kind) else {
        return;
    };
    let named = state.cache.directory_of(dir).and_then(|dir| dir.get(name));
    if named.is_some_and(|named| named.fid != fid) {
        // The file has another name by now.
        return;
    }
    let name = name.clone();
    let entry = Listed { name, fid, kind };
    let moved = NameChange::Made { cookie, entry };
    state.cache.name_changed(dir, moved, true);
    state.cache.inode(dir).directory().in_kernel.spoil();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use base::Tick;
    use dlm::Mode;
    use wire::attr::Grant;

    use super::*;
    use crate::session::locks::{Locks, WRITE_LEASE};

    #[test]
    fn a_set_that_names_an_older_lease_or_an_unborn_directory_is_sent_again() {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        let (dir, new) = (Fid(7), Fid(8));
        let grant = Grant {
            handle: LockHandle(5),
            fid: dir,
            mode: Mode::EX.index() as u8,
            bits: WRITE_LEASE.0,
            version: 1,
        };
        assert!(state.locks.take_write_lease(&grant, &[]));
        let named = |dir, lease| LeasedDir {
            dir,
            lease: LockHandle(lease),
            changed: Timestamp::default(),
        };
        assert!(is_overtaken(&state, &[named(dir, 4)]));
        assert!(!is_overtaken(&state, &[named(dir, 5)]));
        assert!(!is_overtaken(&state, &[named(new, 0)]), "it is lost");
        let name = Name::new(b"d").expect("valid");
        state.births.add(new, Birth::new(dir, name, Tick(1)));
        assert!(is_overtaken(&state, &[named(new, 0)]));
    }

    #[test]
    fn what_the_mdt_may_take_later_is_not_lost() {
        let refused = |error| Ok(Reply::UpdateRefused { change: 3, error });
        assert!(is_deferred(&refused(FsError::TryAgain)));
        assert!(is_deferred(&Err(FsError::TryAgain)));
        assert!(!is_deferred(&refused(FsError::Exists)) && !is_deferred(&Err(FsError::Stale)));
    }
}
