//! Files that get another name in their directory, which may be the name of another file. The MDT knows one
//! of them. They are renamed here under the directory's write lease, and reported later (ADR 19).

use base::{Fid, FsError, Name};
use wire::mdt::RenameMode;

use crate::cache::births::Standing;
use crate::cache::directory::Named;
use crate::cache::edits::{Bytes, Move, Removal};
use crate::calls::births::{may_change, may_lose_name};
use crate::calls::links::Moved;
use crate::calls::local_removal::{
    EDITS_MAX, is_removable_file, is_removable_moved, may_lose_only_name,
};
use crate::coherence::invalidation::Invalidation;
use crate::executor::{Oneshot, spawn};
use crate::session::client::Client;
use crate::session::state::State;

/// What stands in the way of a rename here.
enum Obstacle {
    /// The MDT is to be asked.
    Ask,
    /// It is being sent something of one of the files.
    OnItsWay,
    /// The name is taken.
    Taken,
}

/// What becomes of the file that has had the name so far.
#[derive(Debug, Clone, Copy)]
enum Over {
    /// There is none.
    None,
    /// Nobody has heard of it, or of anything that it replaced.
    Birth(Named),
    /// It has moved there, by this number.
    Moved(Named, u64),
    /// The MDT knows it there.
    Known(Named),
}

impl Over {
    fn named(self) -> Option<Named> {
        match self {
            Over::None => None,
            Over::Birth(named) | Over::Moved(named, _) | Over::Known(named) => Some(named),
        }
    }
}

impl Client {
    /// Renames a file here, from one name to another. `None`: the MDT is to be asked.
    pub(crate) async fn move_here(
        &self,
        dir: Fid,
        (from, to): (&Name, &Name),
        mode: RenameMode,
    ) -> Option<Result<Moved, FsError>> {
        // There is no record of it for the next process.
        if self.0.params.wbc() == 0 || self.0.records.is_some() || mode == RenameMode::Exchange {
            return None;
        }
        loop {
            let wait: Option<Oneshot<()>> = {
                let mut state = self.lock();
                match may_move(&state, dir, (from, to), mode) {
                    Ok((named, over)) => {
                        if over.named().is_some()
                            && let Err(error) = state.report_before_it_replaces(named.fid)
                        {
                            return Some(Err(error));
                        }
                        return self.do_move(&mut state, dir, (from, named), (to, over));
                    }
                    Err(Obstacle::Taken) => return Some(Err(FsError::Exists)),
                    Err(Obstacle::Ask) => None,
                    Err(Obstacle::OnItsWay) => state.birth_reporter.wait_for_answer(),
                }
            };
            wait?.await;
        }
    }

    fn do_move(
        &self,
        state: &mut State,
        dir: Fid,
        (from, named): (&Name, Named),
        (to, over): (&Name, Over),
    ) -> Option<Result<Moved, FsError>> {
        let (now, since) = (self.0.clock.now(), self.0.clock.tick());
        let fid = named.fid;
        let cookie = match over.named() {
            Some(named) => named.cookie,
            None => self.cookie_for(state, (dir, to))?,
        };
        match over {
            Over::None => {}
            Over::Birth(over) => state.unlink_birth(over.fid, (dir, to), now),
            Over::Moved(_, number) => state.remove_moved(number, (now, since)),
            Over::Known(over) => {
                let removal = Removal {
                    dir,
                    name: to.clone(),
                    fid: over.fid,
                    cookie: over.cookie,
                    ctime: now,
                };
                state.remove_known(removal, since);
            }
        }
        let bytes = match over {
            Over::None => Bytes::Durable,
            Over::Birth(_) | Over::Moved(..) | Over::Known(_) => Bytes::Undurable,
        };
        let moved = Move {
            dir,
            fid,
            from: from.clone(),
            cookie: named.cookie,
            to: to.clone(),
            ctime: now,
        };
        state.move_known(moved, cookie, bytes, since);
        let mut invalidation = Invalidation::default();
        self.forget_mistaken(state, (dir, from), (dir, to), fid, &mut invalidation);
        let client = self.clone();
        spawn(async move { invalidation.done(&client).await });
        Some(Ok(Moved {
            there: fid,
            back: None,
            over: over.named().map(|named| named.fid),
        }))
    }
}

/// The file, and what it replaces.
fn may_move(
    state: &State,
    dir: Fid,
    (from, to): (&Name, &Name),
    mode: RenameMode,
) -> Result<(Named, Over), Obstacle> {
    let directory = may_change(state, dir).and_then(|_| state.cache.directory_of(dir));
    let directory = directory.ok_or(Obstacle::Ask)?;
    let named = directory.get(from).ok_or(Obstacle::Ask)?;
    let there = directory.get(to);
    if there.is_some() && mode == RenameMode::NoReplace {
        return Err(Obstacle::Taken);
    }
    let is_same = there.is_some_and(|there| there.fid == named.fid);
    if state.births.len() >= EDITS_MAX {
        return Err(Obstacle::Ask);
    }
    if is_same || named.cookie == 0 || there.is_some_and(|there| there.cookie == 0) {
        return Err(Obstacle::Ask);
    }
    if state.births.edits().moved_from(dir, to).next().is_some() {
        return Err(Obstacle::Ask);
    }
    is_movable(state, (dir, from), named.fid)?;
    let over = match there {
        None => Over::None,
        Some(there) => replaced(state, (dir, to), there)?,
    };
    let is_birth = state.births.is_unborn(named.fid);
    match over {
        // Its name changes as that of a new file.
        Over::None | Over::Birth(_) if is_birth => Err(Obstacle::Ask),
        over => Ok((named, over)),
    }
}

/// The file has this name alone, and may have another.
fn is_movable(state: &State, (dir, from): (Fid, &Name), fid: Fid) -> Result<(), Obstacle> {
    let may = match state.births.get(fid) {
        Some(birth) if birth.standing == Standing::OnItsWay => return Err(Obstacle::OnItsWay),
        Some(birth) => {
            let is_directory = state
                .cache
                .known(fid)
                .is_none_or(|inode| inode.is_directory());
            birth.links.is_empty() && (birth.dir, &birth.name) == (dir, from) && !is_directory
        }
        None => may_lose_only_name(state, dir, fid) && state.births.edits().move_of(fid).is_none(),
    };
    may.then_some(()).ok_or(Obstacle::Ask)
}

/// What becomes of the file that has the name.
fn replaced(state: &State, (dir, name): (Fid, &Name), named: Named) -> Result<Over, Obstacle> {
    let (births, edits, fid) = (&state.births, state.births.edits(), named.fid);
    let birth = births.get(fid);
    if birth.is_some_and(|birth| birth.standing == Standing::OnItsWay) {
        return Err(Obstacle::OnItsWay);
    }
    let is_file = state
        .cache
        .known(fid)
        .is_some_and(|inode| !inode.is_directory());
    let over = match edits.move_of(fid) {
        Some(number) if edits.is_sent(number) => return Err(Obstacle::OnItsWay),
        Some(number) => {
            is_removable_moved(state, dir, number).then_some(Over::Moved(named, number))
        }
        None if birth.is_some() => {
            let is_name = state.unreported_at((dir, name)) == Some(fid);
            (is_name && may_lose_name(state, fid)).then_some(Over::Birth(named))
        }
        None => is_removable_file(state, dir, fid).then_some(Over::Known(named)),
    };
    over.filter(|_| is_file).ok_or(Obstacle::Ask)
}
