//! What becomes of changes of files that the MDT knows when it has answered (ADR 19).

use std::collections::BTreeSet;

use base::{Fid, FsError, Name, Timestamp};
use dlm::Bits;
use wire::update::Change;

use crate::cache::directory::Named;
use crate::cache::edits::{Bytes, Edit, Move, Removal};
use crate::cache::listed::Listed;
use crate::cache::local_changes::NameChange;
use crate::executor::{Oneshot, spawn};
use crate::session::client::Client;
use crate::session::locks::WRITE_LEASE;
use crate::session::state::State;
use crate::work::sets::Set;

impl Client {
    /// The MDT has made the set's changes of files that it knew. The change has that number, and that time of
    /// its clock.
    pub(super) fn edits_are_done(&self, set: &Set, (version, at): (u64, Timestamp)) {
        if set.edits.is_empty() {
            return;
        }
        let mut state = self.lock();
        for (_, number) in &set.edits {
            is_done(&mut state, *number, (version, at));
        }
        // What has gone may have taken space.
        state.servers.forget_space();
    }

    /// The set has nothing but names that went from directories that go themselves. So these are gone: the
    /// process before has reported that, and not heard the answer.
    pub(super) fn was_emptied_before(&self, set: &Set) -> bool {
        let state = self.lock();
        let edits = state.births.edits();
        let is_of_names = |change: &Change| match change {
            Change::Remove { .. } => true,
            Change::SetAttr { fid, .. } => set.dirs.iter().any(|leased| leased.dir == *fid),
            _ => false,
        };
        !state.locks.is_settled()
            && set.dirs.iter().all(|leased| edits.is_removed(leased.dir))
            && set.changes.iter().all(is_of_names)
    }

    /// Nothing is left to be reported of the set.
    pub(super) fn was_done_before(&self, set: &Set) {
        let mut state = self.lock();
        for (_, number) in &set.edits {
            state.end_edit(*number);
        }
        for (dir, until) in &set.dates {
            state.end_date(*dir, *until);
        }
    }

    /// The MDT does not make the change. That is told, and what it has is seen again.
    pub(super) fn edit_is_lost(&self, number: u64, error: FsError) {
        let mut state = self.lock();
        let with = with(&state, number);
        let lost = with.into_iter().chain([number]);
        let lost: Vec<_> = lost.filter_map(|number| state.end_edit(number)).collect();
        for edit in lost {
            edit.log_loss(error);
            state.cache.add_write_error(edit.about(), FsError::Io);
            match edit {
                Edit::Removal(Removal { dir, .. }) | Edit::Move(Move { dir, .. }) => {
                    let forget = self.lose_bits(&mut state, dir, WRITE_LEASE);
                    let client = self.clone();
                    spawn(async move { forget.done(&client).await });
                }
                Edit::Amendment(amendment) => {
                    self.uncover(&mut state, amendment.fid, dir_of(&amendment));
                }
            }
        }
    }

    /// The bytes of files that these moves put in the place of others are made durable. Resolves when that
    /// has come further. `None`: no move waits.
    pub(super) fn settle_moves(
        &self,
        state: &mut State,
        moves: &BTreeSet<u64>,
    ) -> Option<Oneshot<()>> {
        for number in moves {
            let edits = state.births.edits_mut();
            if let Some(Edit::Move(Move { fid, .. })) = edits.get(*number)
                && edits.bytes(*number) == Bytes::Undurable
            {
                let (client, number, fid) = (self.clone(), *number, *fid);
                edits.set_bytes(number, Bytes::Settling);
                spawn(async move { client.settle_move(number, fid).await });
            }
        }
        (!moves.is_empty()).then(|| state.birth_reporter.wait_for_bytes())
    }

    async fn settle_move(&self, number: u64, fid: Fid) {
        let settled = self.settle_bytes(fid).await;
        if let Err(error) = settled {
            self.edit_is_lost(number, error);
        }
        let mut state = self.lock();
        state.births.edits_mut().set_bytes(number, Bytes::Durable);
        state.birth_reporter.bytes_are_settled();
    }
}

/// A file that moves over another and the name that this loses go together.
fn with(state: &State, number: u64) -> Option<u64> {
    let edits = state.births.edits();
    match edits.get(number)? {
        Edit::Removal(removal) => edits.moved_to(removal.dir, &removal.name),
        Edit::Move(moved) => edits.removal_of(moved.dir, &moved.to),
        Edit::Amendment(_) => None,
    }
}

fn dir_of(amendment: &crate::cache::edits::Amendment) -> Fid {
    match amendment.lease == amendment.fid {
        true => Fid::NONE,
        false => amendment.lease,
    }
}

fn is_done(state: &mut State, number: u64, (version, at): (u64, Timestamp)) {
    let Some(edit) = state.births.edits().get(number).cloned() else {
        return;
    };
    let is_changed_since = state.births.edits_mut().acknowledged(number);
    if !is_changed_since {
        state.journal.end_edit(number);
    }
    match edit {
        Edit::Removal(removal) => {
            state.cache.inode(removal.dir).attrs.born(version, at);
            name_again(state, removal.dir, &removal.name);
            state.drop_if_idle(removal.fid);
        }
        Edit::Move(moved) => {
            for fid in [moved.dir, moved.fid] {
                state.cache.inode(fid).attrs.born(version, at);
            }
            name_again(state, moved.dir, &moved.from);
            name_again(state, moved.dir, &moved.to);
            state.drop_if_idle(moved.fid);
        }
        Edit::Amendment(amendment) => {
            let attrs = &mut state.cache.inode(amendment.fid).attrs;
            match is_changed_since {
                true => attrs.is_version(version),
                false => attrs.born(version, at),
            }
        }
    }
}

/// The MDT knows since now what became of the name. An answer that is on its way may be older.
fn name_again(state: &mut State, dir: Fid, name: &Name) {
    let named = state.cache.directory_of(dir).and_then(|d| d.get(name));
    let kind = named.and_then(|named| Some(state.cache.attr_of(named.fid)?.kind));
    let (change, is_known) = match (named, kind) {
        (None, _) => (NameChange::Removed(name.clone()), true),
        (Some(Named { fid, cookie }), Some(kind)) if cookie != 0 => {
            let name = name.clone();
            let entry = Listed { name, fid, kind };
            (NameChange::Made { cookie, entry }, true)
        }
        // Where it leads is to be asked.
        (Some(_), _) => (NameChange::Removed(name.clone()), false),
    };
    let is_covered = is_known && state.locks.holds(dir, Bits::NAMES);
    state.cache.name_changed(dir, change, is_covered);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use base::LockHandle;
    use dlm::Mode;
    use wire::FileKind;
    use wire::attr::Grant;

    use super::*;
    use crate::session::locks::Locks;

    const DIR: Fid = Fid(7);

    fn leased() -> State {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        let grant = Grant {
            handle: LockHandle(5),
            fid: DIR,
            mode: Mode::EX.index() as u8,
            bits: WRITE_LEASE.0,
            version: 1,
        };
        assert!(state.locks.take_write_lease(&grant, &[]));
        state
    }

    /// Whether answers that were asked for before are to show the name as it is here.
    fn overrides(state: &mut State, name: &Name) -> bool {
        let mark = state.cache.mark(DIR);
        name_again(state, DIR, name);
        let mut changes = state.cache.changes_since(mark).expect("it is remembered");
        changes.next().expect("there is one").current
    }

    #[test]
    fn a_name_that_went_stays_away_and_one_whose_file_is_not_known_is_asked_for() {
        let (mut state, name) = (leased(), Name::new(b"a").expect("valid"));
        assert!(overrides(&mut state, &name), "it is gone");
        let entry = Listed {
            name: name.clone(),
            fid: Fid(8),
            kind: FileKind::Regular,
        };
        let made = NameChange::Made { cookie: 9, entry };
        state.cache.name_changed(DIR, made, true);
        assert!(!overrides(&mut state, &name), "it is there again");
    }
}
