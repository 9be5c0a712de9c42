//! Extended attributes. SEMANTICS: op.xattr

use base::{Fid, FsError};
use dlm::Bits;
use wire::mdt::{Reply, Request, XattrMode};

use crate::cache::inode::Xattrs;
use crate::session::client::{Client, unexpected};

impl Client {
    /// The value of `name`.
    pub async fn getxattr(&self, fid: Fid, name: &[u8]) -> Result<Vec<u8>, FsError> {
        let values = self.xattrs(fid).await?;
        let found = values.into_iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value).ok_or(FsError::NoAttribute)
    }

    /// All names, in order.
    pub async fn listxattr(&self, fid: Fid) -> Result<Vec<Vec<u8>>, FsError> {
        Ok(self
            .xattrs(fid)
            .await?
            .into_iter()
            .map(|(name, _)| name)
            .collect())
    }

    async fn xattrs(&self, fid: Fid) -> Result<Xattrs, FsError> {
        if let Some(known) = self.xattrs_known(fid) {
            return Ok(known);
        }
        let (mark, epoch) = {
            let state = self.lock();
            (state.cache.mark(fid), state.cache.stamp())
        };
        let reply = match self.0.mdt(Request::GetXattrs { fid }).await {
            Err(FsError::Stale) if self.outlives_removal(fid) => {
                return self.xattrs_of_removed(fid);
            }
            reply => reply?,
        };
        let Reply::Xattrs { values, cover } = reply else {
            return Err(unexpected(&reply));
        };
        let mut state = self.lock();
        let covered = cover.is_some_and(|grant| state.take_asked(&grant, mark));
        let current = state.cache.is_current(mark) && state.cache.stamp() == epoch;
        let kept = covered && current && state.locks.holds(fid, Bits::XATTR);
        // The lock may be new, and what is there older.
        let inode = state.cache.inode(fid);
        match kept {
            true => inode.learn_xattrs(values.clone()),
            false => inode.forget_xattrs(),
        }
        Ok(values)
    }

    /// "Has none" travels with the attributes; others are kept under XATTR.
    fn xattrs_known(&self, fid: Fid) -> Option<Xattrs> {
        let state = self.lock();
        if state.attr(fid).is_some_and(|attr| !attr.has_xattrs) {
            return Some(Vec::new());
        }
        if !state.locks.holds(fid, Bits::XATTR) {
            return None;
        }
        state.cache.known(fid)?.xattrs().cloned()
    }

    /// Sets one.
    pub async fn setxattr(
        &self,
        fid: Fid,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrMode,
    ) -> Result<(), FsError> {
        if let Some(set) = self.change_xattr_here(fid, &name, Some((&value, mode))) {
            return set;
        }
        let ask = |dir| Request::SetXattr {
            fid,
            dir,
            name: name.clone(),
            value: value.clone(),
            mode,
        };
        match self.change_xattr(fid, ask).await {
            Err(FsError::Stale) if self.outlives_removal(fid) => {
                self.change_xattr_of_removed(fid, &name, Some((&value, mode)))
            }
            set => set,
        }
    }

    /// Removes one.
    pub async fn removexattr(&self, fid: Fid, name: Vec<u8>) -> Result<(), FsError> {
        if let Some(removed) = self.change_xattr_here(fid, &name, None) {
            return removed;
        }
        let ask = |dir| {
            let name = name.clone();
            Request::RemoveXattr { fid, dir, name }
        };
        match self.change_xattr(fid, ask).await {
            Err(FsError::Stale) if self.outlives_removal(fid) => {
                self.change_xattr_of_removed(fid, &name, None)
            }
            removed => removed,
        }
    }

    async fn change_xattr(
        &self,
        fid: Fid,
        ask: impl FnOnce(Fid) -> Request,
    ) -> Result<(), FsError> {
        self.change_at_mdt(fid, ask).await?;
        self.lock().cache.inode(fid).forget_xattrs();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use base::LockHandle;

    use crate::session::locks::Locks;
    use crate::session::state::State;

    use super::*;

    #[test]
    fn what_was_known_under_the_lock_of_who_made_the_file_goes_with_it() {
        let file = Fid(7);
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        state.cache.file(file).locks.grant_exclusive(LockHandle(1));
        let values = vec![(b"user.a".to_vec(), b"old".to_vec())];
        state.cache.inode(file).learn_xattrs(values);
        assert_eq!(state.lose_exclusive(file), Some(LockHandle(1)));
        let known = state.cache.known(file).and_then(|inode| inode.xattrs());
        assert_eq!(known, None);
    }
}
