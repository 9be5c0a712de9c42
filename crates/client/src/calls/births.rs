//! Files that are made, and go again, without a word to anybody: in directories whose names this mount may
//! change alone (ADR 19).

use base::{Fid, FsError, Name, TargetIndex, Timestamp};
use layout::Layout;
use wire::attr::inherited;
use wire::mdt::Access;
use wire::{Attr, FileKind, SizeState, hash};

use crate::cache::births::Birth;
use crate::cache::file::FileState;
use crate::session::client::{Client, NewNode, Place};
use crate::session::state::State;
use crate::session::state::births::NewFile;

/// Beyond so many files that the MDT does not know, it is asked.
const UNBORN_MAX: usize = 1 << 16;
/// Where there are so many they are sent, however new they are.
const MANY: usize = UNBORN_MAX / 2;
/// What a directory without entries takes, as the MDT counts it.
const DIRECTORY_BYTES: u64 = 4096;

/// A file that was made here, and the stamp when a lease was seen to cover its name.
pub(crate) type Made = (Fid, Option<u64>);

impl Client {
    /// Makes a file here. `None`: the MDT is to be asked, be it that it alone can say whether there may be
    /// such a file.
    pub(crate) fn make_here(
        &self,
        place: &Place,
        new: &NewNode,
        open: Option<Access>,
    ) -> Option<Result<Made, FsError>> {
        if self.0.params.wbc() == 0 || !is_plain(new, open) {
            return None;
        }
        let mut state = self.lock();
        let dir = may_change(&state, place.dir)?;
        let directory = state.cache.directory_of(place.dir)?;
        if directory.get(&place.name).is_some() {
            return Some(Err(FsError::Exists));
        }
        if dir.nlink >= base::limits::LINKS_MAX || state.births.len() >= UNBORN_MAX {
            return None;
        }
        let cookie = self.cookie_for(&state, (place.dir, &place.name))?;
        let layout = self.layout_for(new.kind)?;
        let fid = self.0.fids.take()?;
        let attr = new_attr(&dir, place, new, (layout, self.0.clock.now()));
        let target = new.target.clone();
        let birth = Birth::new(place.dir, place.name.clone(), self.0.clock.tick());
        let new = NewFile {
            fid,
            attr,
            cookie,
            target,
        };
        if !state.bear_recorded(birth, new) {
            return None;
        }
        state.refer(fid);
        let stamp = state.cache.stamp();
        let many = state.births.len() >= MANY;
        drop(state);
        if many {
            self.start_reporting_births();
        }
        Some(Ok((fid, Some(stamp))))
    }

    /// Removes a name of a file that nobody has heard of, and with the last one the file. `None`: the MDT is
    /// to be asked.
    pub(crate) fn remove_here(&self, dir: Fid, name: &Name, directory: bool) -> Option<Fid> {
        let mut state = self.lock();
        may_change(&state, dir)?;
        let fid = state.unreported_at((dir, name))?;
        let inode = state.cache.known(fid)?;
        if inode.is_directory() != directory || !may_lose_name(&state, fid) {
            return None;
        }
        let now = self.0.clock.now();
        state.date_names(dir, now);
        state.journal.birth_removed(fid);
        state.unlink_birth(fid, (dir, name), now);
        Some(fid)
    }

    /// The place of a new name in the list of its directory.
    pub(crate) fn cookie_for(&self, state: &State, (dir, name): (Fid, &Name)) -> Option<u64> {
        // A file that takes the place of another is where that was.
        let directory = state.cache.directory_of(dir)?;
        let place = state.births.edits().place_of(dir, name);
        if let Some(place) = place.filter(|place| directory.at(*place).is_none()) {
            return Some(place);
        }
        let (first, last) = hash::bucket(self.0.fids.hasher()?.hash(name));
        (first..=last).find(|cookie| directory.at(*cookie).is_none())
    }

    /// Files go to OSTs in turn.
    fn layout_for(&self, kind: FileKind) -> Option<Layout> {
        if kind != FileKind::Regular {
            return Some(Layout::none());
        }
        let osts: Vec<TargetIndex> = self.0.cluster.osts().map(|(index, _)| *index).collect();
        let turn = self
            .0
            .births
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let ost = osts.get(turn as usize % osts.len().max(1))?;
        Some(Layout::single(*ost))
    }
}

/// The attributes of a directory whose names may be changed here, all of which are known.
pub(super) fn may_change(state: &State, dir: Fid) -> Option<Attr> {
    let may = state.locks.is_settled() && state.locks.may_change_names(dir);
    let is_known = || {
        state
            .cache
            .directory_of(dir)
            .is_some_and(|dir| dir.is_complete())
    };
    (may && is_known()).then(|| state.attr(dir).cloned())?
}

/// A file that nobody has heard of may lose one of its names here. While it is open, or a call has locked it,
/// it does not lose the last one.
pub(crate) fn may_lose_name(state: &State, fid: Fid) -> bool {
    let has_links = |birth: &Birth| !birth.links.is_empty();
    if state.births.get(fid).is_some_and(has_links) {
        return true;
    }
    let is_used =
        |file: &FileState| file.opens.is_open() || file.opens.is_kept() || file.locks.is_used();
    state.cache.known(fid).is_some_and(|inode| {
        let is_empty = !inode.is_directory() || is_empty(state, fid);
        is_empty && !inode.as_file().is_some_and(is_used)
    })
}

/// The directory has no names, and all are known.
pub(super) fn is_empty(state: &State, dir: Fid) -> bool {
    let directory = state.cache.directory_of(dir);
    directory.is_some_and(|dir| dir.is_complete() && dir.names().next().is_none())
}

/// What cannot be is refused by the MDT.
fn is_plain(new: &NewNode, open: Option<Access>) -> bool {
    let is_symlink = new.kind == FileKind::Symlink;
    let target = &new.target;
    let is_target = !target.is_empty()
        && target.len() <= base::limits::SYMLINK_BYTES_MAX
        && !target.contains(&0);
    let may_open = open.is_none_or(|access| new.kind == FileKind::Regular && !access.exec);
    may_open && (is_target || !is_symlink) && (is_symlink || target.is_empty())
}

/// What a new file is like, as the MDT would make it.
fn new_attr(dir: &Attr, place: &Place, new: &NewNode, (layout, now): (Layout, Timestamp)) -> Attr {
    let own = (new.mode, place.caller.gid);
    let (mode, gid) = inherited((dir.mode, dir.gid), new.kind, own);
    let is_directory = new.kind == FileKind::Directory;
    let is_device = matches!(new.kind, FileKind::CharDevice | FileKind::BlockDevice);
    let size = match is_directory {
        true => DIRECTORY_BYTES,
        false => new.target.len() as u64,
    };
    Attr {
        kind: new.kind,
        mode,
        uid: place.caller.uid,
        gid,
        nlink: if is_directory { 2 } else { 1 },
        rdev: if is_device { new.rdev } else { 0 },
        has_xattrs: false,
        size_state: SizeState::Strict,
        layout,
        atime: now,
        mtime: now,
        mtime_set: now,
        ctime: now,
        btime: now,
        size,
        blocks: if is_directory {
            DIRECTORY_BYTES / 512
        } else {
            0
        },
        version: 0,
    }
}
