//! Names that come, go and move: link, unlink, rmdir, rename.
//! SEMANTICS: op.link, op.unlink, op.rmdir, op.rename

use base::{Fid, FsError, Name};
use dlm::Bits;
use wire::FileKind;
use wire::attr::Node;
use wire::mdt::{Caller, RenameMode, Reply, Request};

use crate::cache::file::FileState;
use crate::cache::listed::Listed;
use crate::cache::local_changes::NameChange;
use crate::cache::stamps::Mark;
use crate::calls::lookup::cached_name;
use crate::coherence::invalidation::{Invalidation, KernelName, Leads};
use crate::executor::{AT_ONCE, each_of, oneshot, spawn};
use crate::session::client::{Client, Entry, Place, unexpected};
use crate::session::kernel::Forget;
use crate::session::state::State;
use crate::session::stats::bump;

/// What a rename has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// What the source led to.
    pub there: Fid,
    /// What the target led to, where the two changed places.
    pub back: Option<Fid>,
    /// What the target led to, where the source took its place.
    pub over: Option<Fid>,
}

/// The user who may remove any name.
const ROOT: u32 = 0;

impl Client {
    /// One more name for `fid`.
    pub async fn link(&self, fid: Fid, dir: Fid, name: Name) -> Result<Entry, FsError> {
        if let Some(linked) = self.link_here(fid, dir, &name) {
            return self.entry(fid, Some(linked?)).await;
        }
        let mark = self.lock().cache.mark(dir);
        let request = Request::Link {
            fid,
            dir,
            name: name.clone(),
        };
        let reply = match self.0.mdt(request).await {
            // Its last name went after the kernel had looked it up, which is no news on a local disk
            // either. Where the kernel was wrong about the name it is to look again, by `Stale`.
            Err(FsError::Stale) if !self.lock().cache.has_stale_names(fid) => {
                return Err(FsError::NotFound);
            }
            reply => reply?,
        };
        let Reply::Linked {
            node,
            cookie,
            dir: dir_now,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let named_at = {
            let mut state = self.lock();
            let current = state.take_dir(&dir_now, mark);
            state.take_node(&node, mark);
            let kind = node.attr.kind;
            let name_change = NameChange::Made {
                cookie,
                entry: Listed { name, fid, kind },
            };
            state.cache.name_changed(dir, name_change, current);
            let name_valid = current && state.locks.holds(dir, Bits::NAMES);
            name_valid.then(|| state.cache.stamp())
        };
        self.entry(fid, named_at).await
    }

    /// Removes a name; of a directory if `directory`, else of anything but one. The file that it led to.
    pub async fn unlink(&self, place: Place, directory: bool) -> Result<Fid, FsError> {
        bump(&self.0.stats.unlink);
        let Place { dir, name, caller } = place;
        let removed_before = self.lock().journal.was_removed();
        if let Some(fid) = removed_before {
            return Ok(fid);
        }
        self.hear_closes(dir, &name).await;
        if let Some(fid) = self.remove_here(dir, &name, directory) {
            return Ok(fid);
        }
        if let Some(fid) = self.remove_known_here(dir, &name, directory).await {
            return Ok(fid);
        }
        self.report_births_in_named(dir, &name).await;
        self.report_new_owner(dir, &name, caller).await;
        let _removing = self.begin_removing(dir, &name).await;
        let mark = self.lock().cache.mark(dir);
        let request = Request::Unlink {
            dir,
            name: name.clone(),
            directory,
            caller,
        };
        let reply = self.0.mdt(request).await?;
        let Reply::Unlinked { dir: dir_now, node } = reply else {
            return Err(unexpected(&reply));
        };
        let mut state = self.lock();
        let current = state.take_dir(&dir_now, mark);
        state
            .cache
            .name_changed(dir, NameChange::Removed(name), current);
        state.servers.forget_space();
        lost_name(&mut state, &node, mark);
        Ok(node.fid)
    }

    /// Moves a name; where it was a whiteout may be left, which is there at the same moment. What has moved.
    pub async fn rename(
        &self,
        source: Place,
        target_dir: Fid,
        target: Name,
        mode: RenameMode,
        leaves_whiteout: bool,
    ) -> Result<Moved, FsError> {
        bump(&self.0.stats.rename);
        if leaves_whiteout && mode == RenameMode::Exchange {
            return Err(FsError::Invalid);
        }
        let Place {
            dir: source_dir,
            name: source,
            caller,
        } = source;
        // The process before has renamed it without the MDT.
        let moved_before = self.lock().journal.was_made();
        if let Some(there) = moved_before {
            return Ok(Moved {
                there,
                back: None,
                over: None,
            });
        }
        self.hear_closes(target_dir, &target).await;
        if !leaves_whiteout
            && let Some(renamed) =
                self.rename_here((source_dir, &source), (target_dir, &target), mode)
        {
            return renamed;
        }
        if !leaves_whiteout
            && source_dir == target_dir
            && let Some(moved) = self.move_here(source_dir, (&source, &target), mode).await
        {
            return moved;
        }
        self.report_births_in_named(source_dir, &source).await;
        self.report_births_in_named(target_dir, &target).await;
        self.report_new_owner(source_dir, &source, caller).await;
        self.report_new_owner(target_dir, &target, caller).await;
        let (from, to) = ((source_dir, &source), (target_dir, &target));
        let _removing = self.begin_renaming(from, to, mode).await?;
        let ask = |whiteout| Request::Rename {
            source_dir,
            source: source.clone(),
            target_dir,
            target: target.clone(),
            mode,
            caller,
            whiteout,
        };
        let target_mark = self.lock().cache.mark(target_dir);
        let (source_mark, reply) = match leaves_whiteout {
            true => {
                let asked = |fid| ask(Some(fid));
                self.ask_with_fid(source_dir, asked).await?
            }
            false => {
                let mark = self.lock().cache.mark(source_dir);
                (mark, self.0.mdt(ask(None)).await?)
            }
        };
        self.renamed((source_mark, &source), (target_mark, &target), mode, reply)
    }

    /// Takes what came of it: from a directory and its mark of before, to another.
    fn renamed(
        &self,
        (source_mark, source): (Mark, &Name),
        (target_mark, target): (Mark, &Name),
        mode: RenameMode,
        reply: Reply,
    ) -> Result<Moved, FsError> {
        let source_dir = source_mark.dir;
        let Reply::Renamed {
            source_dir: source_now,
            target_dir: target_now,
            node,
            cookie,
            replaced,
            replaced_cookie,
            whiteout,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let mut state = self.lock();
        let source_current = state.take_dir(&source_now, source_mark);
        let target_current = state.take_dir(&target_now, target_mark);
        // Of two names of one file both stay.
        let both_stay = replaced.is_none() && may_have_names(&node);
        let gone = NameChange::Removed(source.clone());
        state
            .cache
            .name_changed(source_dir, gone, source_current && !both_stay);
        let (from, to) = ((source_mark, source), (target_mark, target));
        self.name_moved(&mut state, &node, from, to, cookie, target_current);
        let mut has_moved = Moved {
            there: node.fid,
            back: None,
            over: None,
        };
        match replaced {
            Some(back) if mode == RenameMode::Exchange => {
                has_moved.back = Some(back.fid);
                let cookie = replaced_cookie;
                self.name_moved(&mut state, &back, to, from, cookie, source_current);
            }
            Some(gone) => {
                has_moved.over = Some(gone.fid);
                lost_name(&mut state, &gone, target_mark);
            }
            None => {}
        }
        if let Some(left) = whiteout {
            state.take_node(&left, source_mark);
            state.servers.forget_space();
            let (name, fid, kind) = (source.clone(), left.fid, left.attr.kind);
            let entry = Listed { name, fid, kind };
            let cookie = replaced_cookie;
            state.cache.name_changed(
                source_dir,
                NameChange::Made { cookie, entry },
                source_current,
            );
        }
        Ok(has_moved)
    }

    /// A file that is in use cannot lose its name here, nor a directory of which attributes changed. What has
    /// the name may be closed already, which the kernel says late.
    async fn hear_closes(&self, dir: Fid, name: &Name) {
        if self.0.params.wbc() == 0 {
            return;
        }
        let is_used = {
            let state = self.lock();
            let is_used = |fid: Fid| {
                let is_changed = || state.births.are_attributes_of(fid);
                let inode = state.cache.known(fid).filter(|inode| inode.is_used());
                inode.is_some_and(|inode| !inode.is_directory() || is_changed())
            };
            cached_name(&state, dir, name).is_some_and(is_used)
        };
        if is_used {
            let (done, heard) = oneshot();
            self.0.kernel.after_closes(done);
            heard.await;
        }
    }

    /// The MDT knows what is in the directory that the name leads to: it decides whether that may go. It is
    /// asked which that is where no lease says so, as after its restart.
    async fn report_births_in_named(&self, dir: Fid, name: &Name) {
        let named = {
            let state = self.lock();
            if state.births.is_empty() {
                return;
            }
            cached_name(&state, dir, name)
        };
        let named = match named {
            Some(fid) => Some(fid),
            None => self.find(dir, name).await.ok().map(|(fid, _)| fid),
        };
        if let Some(fid) = named {
            self.report_births_first(&[fid]).await;
        }
    }

    /// A sticky directory lets owners remove names, and of a file that this mount has to itself it
    /// alone knows the owner. The MDT is told.
    async fn report_new_owner(&self, dir: Fid, name: &Name, caller: Caller) {
        if caller.uid == ROOT {
            return;
        }
        let fids = {
            let mut state = self.lock();
            let mut fids = match cached_name(&state, dir, name) {
                Some(fid) => vec![fid],
                None => state.cache.fids().collect(),
            };
            fids.retain(|fid| {
                let is_new = |file: &mut FileState| file.change.attrs().uid.is_some();
                state.cache.file_known(*fid).is_some_and(is_new)
            });
            fids
        };
        for fid in fids {
            if let Err(error) = self.report_changes(fid).await {
                tracing::debug!("{fid}: its new owner could not be told: {error}");
            }
        }
    }

    /// The names may lead elsewhere soon: files that go with them, or replace others, are as they must be.
    async fn begin_renaming(
        &self,
        source: (Fid, &Name),
        target: (Fid, &Name),
        mode: RenameMode,
    ) -> Result<Vec<Removing>, FsError> {
        if mode != RenameMode::NoReplace {
            self.settle_before_it_replaces(source, target).await?;
        }
        let goes_elsewhere = source.0 != target.0;
        let target_goes = match mode {
            RenameMode::Replace => true,
            RenameMode::Exchange => goes_elsewhere,
            RenameMode::NoReplace => false,
        };
        // Nothing need tell this client of what becomes of a file in another directory.
        let mut removing = Vec::new();
        if goes_elsewhere {
            removing.push(self.begin_removing(source.0, source.1).await);
        }
        if target_goes {
            removing.push(self.begin_removing(target.0, target.1).await);
        }
        Ok(removing)
    }

    /// Reports a file that is open here without the MDT's knowledge, before its name goes or moves to a new
    /// place.
    async fn begin_removing(&self, dir: Fid, name: &Name) -> Removing {
        let (fid, readers) = {
            let mut state = self.lock();
            match cached_name(&state, dir, name) {
                Some(fid) => {
                    state.cache.inode(fid).begin_losing_name();
                    let open = state.has_unregistered_readers(fid);
                    (Some(fid), open.then_some(fid).into_iter().collect())
                }
                None => {
                    state.cache.begin_blind_removal();
                    let mut fids = state.handles.open_files();
                    fids.retain(|fid| state.has_unregistered_readers(*fid));
                    (None, fids)
                }
            }
        };
        let removing = Removing {
            client: self.clone(),
            fid,
        };
        each_of(readers, AT_ONCE, |fid| self.register_reader(fid)).await;
        removing
    }

    /// The file has come from one place to another. The kernel keeps believing the name as long as it
    /// would have believed the old one: where no lease covers the new one it must forget it. So it must
    /// where it was still to forget the old one, and has moved what that led to before. The marks are
    /// those of the directories.
    fn name_moved(
        &self,
        state: &mut State,
        node: &Node,
        (left, old): (Mark, &Name),
        (mark, name): (Mark, &Name),
        cookie: u64,
        current: bool,
    ) {
        let dir = mark.dir;
        moved(state, node, mark);
        let entry = Listed {
            name: name.clone(),
            fid: node.fid,
            kind: node.attr.kind,
        };
        state
            .cache
            .name_changed(dir, NameChange::Made { cookie, entry }, current);
        let mut invalidation = Invalidation::default();
        let (from, to) = ((left.dir, old), (dir, name));
        self.forget_mistaken(state, from, to, node.fid, &mut invalidation);
        if !current {
            invalidation.forget(Forget::Attributes { fid: node.fid, dir });
            let (name, fid) = (name.clone(), node.fid);
            drop(self.forget_name_later(state, KernelName { dir, name, fid }));
        }
        let client = self.clone();
        spawn(async move { invalidation.done(&client).await });
    }

    /// The kernel has moved what the old name led to, as it believed. Where that is not `fid` it must forget
    /// the new name.
    pub(crate) fn forget_mistaken(
        &self,
        state: &mut State,
        (left, old): (Fid, &Name),
        (dir, name): (Fid, &Name),
        fid: Fid,
        invalidation: &mut Invalidation,
    ) {
        for fid in state.cache.mistaken(left, old, fid) {
            let name = name.clone();
            let mistaken = KernelName { dir, name, fid };
            self.forget_name(state, mistaken, Leads::Elsewhere, invalidation);
        }
    }
}

/// It may have names beside the one just told of.
fn may_have_names(node: &Node) -> bool {
    node.attr.kind != FileKind::Directory && node.attr.nlink > 1
}

/// While a name is being removed: who opens the file meanwhile tells the MDT.
struct Removing {
    client: Client,
    /// The file it leads to; `None`: not known here, it may be any.
    fid: Option<Fid>,
}

impl Drop for Removing {
    fn drop(&mut self) {
        let mut state = self.client.lock();
        let Some(fid) = self.fid else {
            state.cache.end_blind_removal();
            return;
        };
        state.cache.inode(fid).end_losing_name();
        state.drop_if_idle(fid);
    }
}

/// A file came to the directory of `mark`: the old directory's lease covers it no more.
fn moved(state: &mut State, node: &Node, mark: Mark) {
    state.take_node(node, mark);
    let inode = state.cache.inode(node.fid);
    // Another move may have been answered first.
    if !inode.attrs.are_newer_than(&node.attr) {
        inode.seen_in(mark.dir);
    }
}

/// A file has one name less, by what was asked at `asked`. Its other names may be in other directories: this
/// one's lease covers it no more.
fn lost_name(state: &mut State, node: &Node, asked: Mark) {
    let nowhere = Mark {
        dir: Fid::NONE,
        ..asked
    };
    state.take_node(node, nowhere);
    let inode = state.cache.inode(node.fid);
    if inode.dir() == asked.dir {
        inode.seen_in(Fid::NONE);
    }
    if node.attr.nlink == 0 {
        inode.attrs.lease_lost();
        state.drop_if_idle(node.fid);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use base::{LockHandle, TargetIndex};
    use dlm::Mode;
    use wire::{Cover, Grant};

    use crate::cache::bits::EXCLUSIVE;
    use crate::rig::attr_at;
    use crate::session::locks::Locks;

    use super::*;

    const DIR: Fid = Fid(6);
    const FILE: Fid = Fid(7);

    /// The file with a lock for this mount alone, as it comes with the answer to a rename.
    fn alone() -> Node {
        let grant = Grant {
            handle: LockHandle(5),
            fid: FILE,
            mode: Mode::EX.index() as u8,
            bits: EXCLUSIVE.0,
            version: 1,
        };
        Node {
            fid: FILE,
            attr: attr_at(TargetIndex(0)),
            cover: Cover::Own(grant),
        }
    }

    /// What is seen of the file when `take` has taken an answer to what was asked before the locks in
    /// it were void, or after.
    fn is_alone(voided: bool, take: fn(&mut State, &Node, Mark)) -> bool {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        let asked = state.cache.mark(DIR);
        if voided {
            state.void_answers();
        }
        state.refer(FILE);
        take(&mut state, &alone(), asked);
        state.cache.file(FILE).locks.is_exclusive()
    }

    /// The MDT says of what it answers later that the file's own directory covers it.
    #[test]
    fn a_file_that_lost_a_name_is_not_taken_for_one_of_that_directory() {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        let asked = state.cache.mark(DIR);
        state.refer(FILE);
        let mut node = alone();
        node.cover = Cover::None;
        moved(&mut state, &node, asked);
        assert_eq!(state.cache.inode(FILE).dir(), DIR);
        let elsewhere = state.cache.mark(Fid(8));
        lost_name(&mut state, &node, elsewhere);
        assert_eq!(state.cache.inode(FILE).dir(), DIR);
        lost_name(&mut state, &node, asked);
        assert_eq!(state.cache.inode(FILE).dir(), Fid::NONE);
    }

    #[test]
    fn a_lock_of_the_process_before_is_not_taken_with_the_answer_to_its_rename_or_removal() {
        for take in [moved, lost_name] {
            assert!(is_alone(false, take));
            assert!(!is_alone(true, take));
        }
    }
}
