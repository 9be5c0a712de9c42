//! Renames of files that nobody has heard of, in and between directories whose names this mount may change
//! alone (ADR 19).

use base::limits::LINKS_MAX;
use base::{Fid, FsError, Name};
use wire::mdt::RenameMode;

use crate::calls::births::{may_change, may_lose_name};
use crate::calls::links::Moved;
use crate::coherence::invalidation::Invalidation;
use crate::executor::spawn;
use crate::session::client::Client;
use crate::session::state::State;
use crate::session::state::births::Spot;

/// A name in a directory.
type At<'a> = (Fid, &'a Name);

impl Client {
    /// Renames a file here. `None`: the MDT is to be asked.
    pub(crate) fn rename_here(
        &self,
        source: At<'_>,
        target: At<'_>,
        mode: RenameMode,
    ) -> Option<Result<Moved, FsError>> {
        let mut state = self.lock();
        // Two files have two records, of which the next process may find one.
        if mode == RenameMode::Exchange && state.journal.records().is_some() {
            return None;
        }
        let there = state.unreported_at(source)?;
        let from = may_change(&state, source.0)?;
        let into = may_change(&state, target.0)?;
        let directory = state.cache.directory_of(target.0)?;
        let named = directory.get(target.1);
        let mut moved = Moved {
            there,
            back: None,
            over: None,
        };
        let cookie = match (named, mode) {
            (None, RenameMode::Exchange) => return Some(Err(FsError::NotFound)),
            (Some(_), RenameMode::NoReplace) => return Some(Err(FsError::Exists)),
            (Some(named), _) if named.fid == there => return Some(Ok(moved)),
            (Some(named), RenameMode::Exchange) => {
                moved.back = Some(state.unreported_at(target)?);
                named.cookie
            }
            (Some(named), RenameMode::Replace) => {
                moved.over = Some(replaceable(&state, there, target)?);
                named.cookie
            }
            (None, _) => self.cookie_for(&state, target)?,
        };
        let is_full = from.nlink >= LINKS_MAX || into.nlink >= LINKS_MAX;
        let is_ring = state.births.is_inside(target.0, there)
            || moved
                .back
                .is_some_and(|back| state.births.is_inside(source.0, back));
        // The MDT says what is wrong.
        if is_full || is_ring || cookie == 0 || !may_move(&state, (source, target), moved) {
            return None;
        }
        if moved.over.is_some()
            && let Err(error) = state.report_before_it_replaces(there)
        {
            return Some(Err(error));
        }
        self.do_rename(&mut state, (source, target), cookie, moved)?;
        Some(Ok(moved))
    }

    fn do_rename(
        &self,
        state: &mut State,
        (source, target): (At<'_>, At<'_>),
        cookie: u64,
        moved: Moved,
    ) -> Option<()> {
        let now = self.0.clock.now();
        let old = state.cache.directory_of(source.0)?.get(source.1)?.cookie;
        // From here on the next process knows the file by its new name. What had the name is gone.
        if !state.record_birth_at(moved.there, Spot::new(target, cookie)) {
            return None;
        }
        let mut invalidation = Invalidation::default();
        if let Some(over) = moved.over {
            state.unlink_birth(over, target, now);
        }
        state.rename_birth(moved.there, source, Spot::new(target, cookie), now);
        self.forget_mistaken(state, source, target, moved.there, &mut invalidation);
        if let Some(back) = moved.back {
            state.rename_birth(back, target, Spot::new(source, old), now);
            self.forget_mistaken(state, target, source, back, &mut invalidation);
        }
        let client = self.clone();
        spawn(async move { invalidation.done(&client).await });
        Some(())
    }
}

/// One request can report all names that the files will have.
fn may_move(state: &State, (source, target): (At<'_>, At<'_>), moved: Moved) -> bool {
    let births = &state.births;
    let may = |fid: Fid, at: At<'_>| births.may_link(fid, at.0) && births.may_get_name(fid, at);
    may(moved.there, target) && moved.back.is_none_or(|back| may(back, source))
}

/// The file at `target`, if nobody has heard of it either, and `there` may take its place.
fn replaceable(state: &State, there: Fid, target: At<'_>) -> Option<Fid> {
    let over = state.unreported_at(target)?;
    let (inode, new) = (state.cache.known(over)?, state.cache.known(there)?);
    let is_alike = inode.is_directory() == new.is_directory();
    (is_alike && may_lose_name(state, over)).then_some(over)
}
