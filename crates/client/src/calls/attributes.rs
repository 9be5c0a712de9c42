//! Attributes: getattr, setattr, readlink, paths. SEMANTICS: op.stat, op.setattr

use base::{Fid, FsError, LockHandle, Timestamp};
use wire::mdt::{Caller, Reply, Request, SetAttr};
use wire::{Attr, SizeState};

use crate::cache::file::FileState;
use crate::cache::inode::Inode;
use crate::cache::stale_names::Reached;
use crate::coherence::glimpse::Glimpsing;
use crate::executor::Oneshot;
use crate::session::client::{Client, Stat, unexpected};
use crate::session::stalls;
use crate::session::state::State;
use crate::session::stats::bump;

/// The request that tells the MDT of what was changed here, for nobody in particular. Under the EX
/// lock `under`, one that has ended, or, where that is zero, under none.
pub(crate) fn changed_here(fid: Fid, dir: Fid, change: SetAttr, under: LockHandle) -> Request {
    Request::SetAttr {
        fid,
        dir,
        change,
        caller: Caller::default(),
        under,
    }
}

impl Client {
    /// A file's attributes.
    pub async fn getattr(&self, fid: Fid) -> Result<Stat, FsError> {
        bump(&self.0.stats.getattr);
        stalls::counted(&self.0.stats.walk_stalls, self.attributes(fid)).await
    }

    /// A file that is gone, as it was last, without a name. For who has a descriptor of it that opens nothing
    /// (`O_PATH`). None: nothing is known of it.
    pub fn getattr_removed(&self, fid: Fid) -> Option<Stat> {
        let state = self.lock();
        let mut attr = state.cache.attr_of(fid)?.clone();
        attr.nlink = 0;
        Some(Stat {
            attr,
            valid: false,
            stamp: state.cache.stamp(),
        })
    }

    async fn attributes(&self, fid: Fid) -> Result<Stat, FsError> {
        self.wait_until(fid, FileState::being_told).await;
        let valid = self.lock().attr_valid(fid);
        match valid {
            true => bump(&self.0.stats.getattr_hit),
            false => self.ask_attributes(fid).await?,
        }
        self.stat(fid).await
    }

    /// The file is known to be a directory.
    pub fn is_directory(&self, fid: Fid) -> bool {
        let state = self.lock();
        state.cache.known(fid).is_some_and(Inode::is_directory)
    }

    /// The kernel may still believe a name of the file that it is to forget.
    pub fn has_stale_names(&self, fid: Fid) -> bool {
        self.lock().cache.has_stale_names(fid)
    }

    /// The kernel is to forget a name of the file, or has done so since it knows the file.
    pub fn has_lost_names(&self, fid: Fid) -> bool {
        let state = self.lock();
        let inode = state.cache.known(fid);
        inode.is_some_and(|inode| inode.may_lead_astray(Reached::HeldFirst))
    }

    /// `Stale` if the kernel may have come by a name that leads here no more. It looks names up
    /// again just once, so this answers when it has forgotten all of those, or when that takes
    /// long: `linkat` asks while it holds the directory that the forgetting waits for. Then the
    /// names themselves say whether it came rightly, where it may have come by none.
    pub async fn reached_rightly(&self, fid: Fid, reached: Reached) -> Result<(), FsError> {
        // Where the process before has asked for a change it had found so. Who would look again would find
        // that change made.
        if self.0.redone.knows_origin() {
            return Ok(());
        }
        let mut result = Ok(());
        loop {
            let wait = {
                let mut state = self.lock();
                let known = state.cache.known_mut(fid);
                let Some(inode) = known.filter(|inode| inode.may_lead_astray(reached)) else {
                    return result;
                };
                result = inode.answer_astray(reached);
                match reached {
                    Reached::Held | Reached::HeldFirst | Reached::Rightly => None,
                    Reached::ByPath | Reached::Perhaps | Reached::Stat => inode.wait_for_names(),
                }
            };
            match wait {
                Some(wait) => drop(wait.await),
                None if result.is_err() && self.is_where_it_was(fid, reached).await => {
                    return Ok(());
                }
                None => return result,
            }
        }
    }

    /// All names by which the kernel may have come to the file lead there. Who stands in a directory,
    /// or asks for the attributes of what is open, came by none: it would be told that it is gone, and
    /// need not be.
    async fn is_where_it_was(&self, fid: Fid, reached: Reached) -> bool {
        let names = {
            let state = self.lock();
            let by_none = |inode: &Inode| {
                inode.is_directory() || (reached == Reached::Stat && inode.is_open())
            };
            match state.cache.known(fid).is_some_and(by_none) {
                true => state.cache.names_invalidated(fid),
                false => return false,
            }
        };
        if names.is_empty() {
            // It may have come by one that is just forgotten.
            return false;
        }
        for (dir, name) in names {
            let Ok(found) = self.lookup(dir, &name).await else {
                return false;
            };
            self.forget(found.fid, 1);
            if found.fid != fid {
                return false;
            }
        }
        true
    }

    /// Fetches the attributes from the MDT.
    pub(crate) async fn ask_attributes(&self, fid: Fid) -> Result<(), FsError> {
        let (dir, mark) = {
            let mut state = self.lock();
            let inode = state.cache.inode(fid);
            let dir = match inode.is_directory() {
                true => Fid::NONE,
                false => inode.dir(),
            };
            (dir, state.cache.mark(dir))
        };
        let reply = match self.0.mdt(Request::GetAttr { fid, dir }).await {
            Err(FsError::Stale) if self.outlives_removal(fid) => return Ok(()),
            reply => reply?,
        };
        let Reply::Node(node) = reply else {
            return Err(unexpected(&reply));
        };
        self.lock().take_node(&node, mark);
        Ok(())
    }

    /// The MDT does not know `fid`, which was a directory, a fifo or another file without bytes: it was
    /// removed. The MDT does not hear who has such a file open, or stands in it. For those it remains what it
    /// was, as on a local disk; a directory was empty.
    pub(crate) fn outlives_removal(&self, fid: Fid) -> bool {
        let mut state = self.lock();
        let inode = state.cache.known_mut(fid);
        inode.is_some_and(|inode| inode.attrs.removed_elsewhere())
    }

    /// Changes attributes; `size` truncates. Where neither says anything the ctime alone changes.
    pub async fn setattr(
        &self,
        caller: Caller,
        fid: Fid,
        change: SetAttr,
        size: Option<u64>,
    ) -> Result<Stat, FsError> {
        bump(&self.0.stats.setattr);
        let mut change = change;
        let is_size_alone = size.is_some() && change == SetAttr::default();
        if !is_size_alone {
            self.check_owner(caller, fid, &change)?;
        }
        if let Some(size) = size {
            self.truncate(fid, size).await?;
        }
        if !is_size_alone
            && !self.set_here(fid, &change).await
            && !self.set_known_here(fid, &change).await
        {
            if change.mtime.is_some() {
                change.ctime = self.when_written(fid).await?;
            }
            let request = |dir| Request::SetAttr {
                fid,
                dir,
                change: change.clone(),
                caller,
                under: LockHandle(0),
            };
            match self.change_at_mdt(fid, request).await {
                Err(FsError::Stale) if self.outlives_removal(fid) => {
                    self.change_removed(fid, &change);
                }
                changed => changed?,
            }
        }
        self.stat(fid).await
    }

    /// Changes what outlives its removal, and of which the MDT knows nothing any more. Only processes of this
    /// mount that have it open, or work in it, can tell.
    fn change_removed(&self, fid: Fid, change: &SetAttr) {
        let now = self.0.clock.now();
        let mut state = self.lock();
        let attrs = &mut state.cache.inode(fid).attrs;
        let before = attrs.known().map(|attr| attr.mtime_set.later(attr.ctime));
        attrs.change_here(change, now.later(before.unwrap_or_default()));
    }

    /// The kernel may have let the caller do it for the owner that the file had before. Where the attributes
    /// here are out of date the MDT looks at this.
    fn check_owner(&self, caller: Caller, fid: Fid, change: &SetAttr) -> Result<(), FsError> {
        let state = self.lock();
        let known = state.cache.attr_of(fid).filter(|_| state.mode_valid(fid));
        let may = known.is_none_or(|attr| change.may_be_made_by(caller.uid, (attr.uid, attr.mode)));
        match may {
            true => Ok(()),
            false => Err(FsError::NotPermitted),
        }
    }

    /// When bytes of the file were written last, by anybody, where the MDT may not know. A time
    /// that is set now counts as set no earlier, no matter by which clock.
    async fn when_written(&self, fid: Fid) -> Result<Option<Timestamp>, FsError> {
        if !self.lock().attr_valid(fid) {
            self.ask_attributes(fid).await?;
        }
        let here = {
            let state = self.lock();
            let attr = state.cache.attr_of(fid);
            let asks = |attr: &Attr| attr.size_state == SizeState::Ask;
            let here = state.cache.last_written(fid);
            if !attr.is_some_and(asks) || state.locks.reaches_eof(fid) {
                return Ok(here);
            }
            here.unwrap_or_default()
        };
        let object = self.glimpse_object(fid, Glimpsing::Alone).await?;
        Ok(Some(object.mtime.later(here)))
    }

    /// Sends the request that `ask` makes, given the directory in which the file was seen last, and
    /// takes what the file is like then.
    pub(crate) async fn change_at_mdt(
        &self,
        fid: Fid,
        ask: impl FnOnce(Fid) -> Request,
    ) -> Result<(), FsError> {
        let (dir, mark) = {
            let mut state = self.lock();
            let dir = state.cache.inode(fid).dir();
            (dir, state.cache.mark(dir))
        };
        let reply = self.0.mdt(ask(dir)).await?;
        let Reply::Node(node) = reply else {
            return Err(unexpected(&reply));
        };
        self.lock().take_changed(&node, mark);
        Ok(())
    }

    /// Waits as long as `pending` says that the truth about the file is on its way.
    pub(crate) async fn wait_until(
        &self,
        fid: Fid,
        pending: impl Fn(&mut FileState) -> Option<Oneshot<()>>,
    ) {
        let wait = || self.lock().cache.file_known(fid).and_then(&pending);
        while let Some(wait) = wait() {
            wait.await;
        }
    }

    /// Makes a change here under the EX lock, to be reported with the Close. It waits while the lock, or an
    /// earlier change, is on its way to the MDT, which would overtake this one.
    async fn set_here(&self, fid: Fid, change: &SetAttr) -> bool {
        loop {
            let wait = {
                let mut state = self.lock();
                let file = state.cache.file_known(fid);
                match file.and_then(FileState::exclusive_revoked) {
                    Some(wait) => wait,
                    None => return self.set_locally(&mut state, fid, change),
                }
            };
            wait.await;
        }
    }

    fn set_locally(&self, state: &mut State, fid: Fid, change: &SetAttr) -> bool {
        let now = self.0.clock.now();
        let is_changed = state.cache.inode(fid).change_here(change, now);
        if is_changed {
            state.journal_change(fid, self.0.clock.tick());
        }
        is_changed
    }

    /// What the MDT knows of a file, and how far its size can be trusted.
    pub async fn size_on_mdt(&self, fid: Fid) -> Result<Attr, FsError> {
        self.ask_attributes(fid).await?;
        let state = self.lock();
        state.cache.attr_of(fid).cloned().ok_or(FsError::Stale)
    }

    /// A symlink's target.
    pub async fn readlink(&self, fid: Fid) -> Result<Vec<u8>, FsError> {
        if let Some(target) = self.lock().cache.inode(fid).target() {
            return Ok(target.to_vec());
        }
        match self.0.mdt(Request::ReadLink { fid }).await? {
            Reply::Target(target) => {
                self.lock()
                    .cache
                    .inode(fid)
                    .learn_target(target.clone().into());
                Ok(target)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// A path from the root to the file, components joined by `/`.
    pub async fn path_of(&self, fid: Fid) -> Result<Vec<u8>, FsError> {
        match self.0.mdt(Request::PathOf { fid }).await? {
            Reply::Path(path) => Ok(path),
            other => Err(unexpected(&other)),
        }
    }
}
