//! Names of files that the MDT knows, removed here and reported later (ADR 19).

use base::{Fid, Name};

use crate::cache::births::Standing;
use crate::cache::edits::{Edit, Removal};
use crate::cache::file::FileState;
use crate::calls::births::{is_empty, may_change};
use crate::calls::leases::Fetched;
use crate::session::client::Client;
use crate::session::state::State;

/// Beyond so many changes that the MDT does not know, it is asked.
pub(super) const EDITS_MAX: usize = 1 << 16;
/// Where there are so many they are sent, however new they are.
const MANY: usize = EDITS_MAX / 2;

impl Client {
    /// Removes a name here, where the write leases that this takes may be had. What it led to. `None`: the
    /// MDT is to be asked.
    pub(crate) async fn remove_known_here(
        &self,
        dir: Fid,
        name: &Name,
        directory: bool,
    ) -> Option<Fid> {
        if self.0.params.wbc() == 0 {
            return None;
        }
        if may_change(&self.lock(), dir).is_none()
            && !self.wish_write_lease(dir, Fetched::List).await
        {
            return None;
        }
        if directory {
            let child = self.lock().cache.directory_of(dir)?.get(name)?.fid;
            let is_leased = may_change(&self.lock(), child).is_some();
            if !is_leased && !self.wish_write_lease(child, Fetched::List).await {
                return None;
            }
        }
        let (fid, are_many) = {
            let mut state = self.lock();
            let fid = self.remove_known_now(&mut state, (dir, name), directory)?;
            (fid, state.births.len() >= MANY)
        };
        if are_many {
            self.start_reporting_births();
        }
        Some(fid)
    }

    fn remove_known_now(
        &self,
        state: &mut State,
        (dir, name): (Fid, &Name),
        directory: bool,
    ) -> Option<Fid> {
        may_change(state, dir)?;
        let named = state.cache.directory_of(dir)?.get(name)?;
        let fid = named.fid;
        if let Some(number) = state.births.edits().move_of(fid) {
            let may_go = !directory && is_removable_moved(state, dir, number);
            return may_go.then(|| {
                state.remove_moved(number, (self.0.clock.now(), self.0.clock.tick()));
                fid
            });
        }
        let may_go = match directory {
            true => is_removable_directory(state, dir, fid),
            false => is_removable_file(state, dir, fid),
        };
        if !may_go || named.cookie == 0 || state.births.len() >= EDITS_MAX {
            return None;
        }
        let removal = Removal {
            dir,
            name: name.clone(),
            fid,
            cookie: named.cookie,
            ctime: self.0.clock.now(),
        };
        if !state.record_removal(&removal) {
            return None;
        }
        state.remove_known(removal, self.0.clock.tick());
        Some(fid)
    }
}

/// The directory is this mount's alone, and empty. It may be open: then the MDT may keep it, with the
/// attributes that were reported, so all of them must have been.
fn is_removable_directory(state: &State, dir: Fid, fid: Fid) -> bool {
    let is_whole = state
        .cache
        .known(fid)
        .is_some_and(|inode| inode.is_directory() && !inode.is_losing_names());
    is_whole
        && !state.births.is_unborn(fid)
        && may_change(state, fid).is_some()
        && is_empty(state, fid)
        && (!state.births.are_attributes_of(fid) || is_used_by_none(state, dir, fid))
}

/// No process has the directory open, be it here or by another mount.
fn is_used_by_none(state: &State, dir: Fid, fid: Fid) -> bool {
    let above = state.cache.directory_of(dir);
    let is_used_elsewhere = above.is_some_and(|above| above.outside.contains(&fid));
    let file = state.cache.file_of(fid);
    !is_used_elsewhere && file.is_none_or(FileState::is_unused)
}

/// The MDT knows the file, its only name is in this directory, and may go; nobody uses the file.
pub(super) fn is_removable_file(state: &State, dir: Fid, fid: Fid) -> bool {
    may_lose_only_name(state, dir, fid) && is_unused(state, fid)
}

/// A file that has moved, of which the MDT has not been sent that, may go.
pub(super) fn is_removable_moved(state: &State, dir: Fid, number: u64) -> bool {
    let edits = state.births.edits();
    let Some(Edit::Move(moved)) = edits.get(number) else {
        return false;
    };
    let may_go = match state.births.get(moved.fid) {
        Some(birth) => birth.standing == Standing::Unreported && birth.links.is_empty(),
        None => may_lose_only_name(state, dir, moved.fid),
    };
    may_go && !edits.is_sent(number) && is_unused(state, moved.fid)
}

fn is_unused(state: &State, fid: Fid) -> bool {
    let inode = state.cache.known(fid);
    inode.is_some_and(|inode| inode.as_file().is_none_or(FileState::is_unused))
}

/// The MDT knows the file, which is no directory. It has one name, and this directory's lease covers it.
pub(super) fn may_lose_only_name(state: &State, dir: Fid, fid: Fid) -> bool {
    let Some((inode, attr)) = state.cache.known(fid).zip(state.attr(fid)) else {
        return false;
    };
    let directory = state.cache.directory_of(dir);
    let is_outside = directory.is_some_and(|directory| directory.outside.contains(&fid));
    !inode.is_directory()
        && attr.nlink == 1
        && inode.dir() == dir
        && (inode.attrs.is_covered_by_parent() || inode.is_exclusive())
        && !is_outside
        && !inode.is_losing_names()
        && !state.births.is_unborn(fid)
}
