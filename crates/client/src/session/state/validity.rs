//! What of the cache is valid under the locks held, and what may be said of it.

use base::Fid;
use dlm::Bits;
use wire::attr::SizeState;
use wire::mdt::SizeUpdate;
use wire::ost::ObjectAttr;
use wire::{Attr, FileKind};

use super::State;
use crate::cache::ahead::Sized;
use crate::cache::attributes::merge_object;
use crate::cache::bits::own_bits;
use crate::cache::cached_attr::Covered;

impl State {
    /// The attributes of `fid` are valid now.
    pub fn attr_valid(&self, fid: Fid) -> bool {
        let Some(inode) = self.cache.known(fid) else {
            return false;
        };
        let Some(attr) = inode.attrs.known() else {
            return false;
        };
        // While a name is stale, the kernel must ask at each use.
        if inode.has_stale_names() {
            return false;
        }
        match inode.attrs.covered() {
            Covered::No | Covered::Refused | Covered::Mode => false,
            // Nobody looks at a directory, or changes it, without entering it.
            Covered::Own => {
                self.locks.holds(fid, own_bits(attr.kind)) || self.locks.may_change_names(fid)
            }
            Covered::Parent { child_epoch } => {
                let dir = inode.dir();
                self.locks.holds(dir, Bits::CHILD)
                    && self.cache.child_epoch(dir) == Some(child_epoch)
            }
        }
    }

    /// The mode and owner of `fid` are valid now, and whether it has extended attributes.
    pub fn mode_valid(&self, fid: Fid) -> bool {
        let known = self.cache.known(fid);
        let is_held = known.is_some_and(|inode| inode.attrs.covered() == Covered::Mode)
            && self.locks.holds(fid, Bits::PERM);
        is_held || self.attr_valid(fid)
    }

    /// The attributes of `fid` with its size are valid now, and stay so until somebody is told. A size
    /// fetched ahead may be that of a lock which is being given back: it is right, but the kernel
    /// has been told to forget it already.
    pub fn stat_valid(&self, fid: Fid) -> bool {
        let file = self.cache.file_of(fid);
        let stays = file.is_none_or(|file| {
            file.kernel.sized() == Sized::No
                || file.locks.is_exclusive()
                || self.locks.holds_to_eof(fid)
        });
        stays && self.attr_valid(fid)
    }

    /// The kernel may keep the attributes for as long as [`State::stat_valid`]: not while space is an
    /// estimate.
    pub fn stat_stays(&self, fid: Fid) -> bool {
        let file = self.cache.file_of(fid);
        self.stat_valid(fid) && !file.is_some_and(|file| file.is_unsent())
    }

    /// The blocks that the file's OST is known to have for it, without those for unsent bytes.
    pub fn stored_blocks(&self, fid: Fid) -> Option<u64> {
        let inode = self.cache.known(fid).filter(|_| self.stat_valid(fid))?;
        match inode.as_file() {
            Some(file) if file.locks.is_exclusive() || self.locks.reaches_eof(fid) => {
                Some(file.object.blocks())
            }
            _ => {
                let attr = inode.attrs.known();
                attr.filter(|attr| attr.size_state == SizeState::Strict)
                    .map(|attr| attr.blocks)
            }
        }
    }

    /// The attributes, if valid.
    pub fn attr(&self, fid: Fid) -> Option<&Attr> {
        self.attr_valid(fid)
            .then(|| self.cache.attr_of(fid))
            .flatten()
    }

    /// The attributes a user sees: the MDT's, with what this client knows of the bytes. `None`
    /// where somebody must be asked for the size.
    pub fn seen(&self, fid: Fid) -> Option<Attr> {
        let inode = self.cache.known(fid)?;
        let mut attr = inode.attrs.known()?.clone();
        if attr.kind != FileKind::Regular {
            return Some(attr);
        }
        let Some(file) = inode.as_file() else {
            return (attr.size_state == SizeState::Strict).then_some(attr);
        };
        if file.locks.is_exclusive() || self.locks.reaches_eof(fid) {
            merge_object(&mut attr, file.shown());
            return Some(attr);
        }
        (attr.size_state == SizeState::Strict).then_some(attr)
    }

    /// What this client may say of the size: only what its locks let nobody else change.
    pub fn size_to_report(&self, fid: Fid, committed: bool) -> Option<SizeUpdate> {
        let file = self.cache.file_of(fid)?;
        if !file.locks.is_exclusive() && !self.locks.reaches_eof(fid) {
            return None;
        }
        // Bytes that are lost do not count: the OST knows where those end that are not.
        if file.errors.is_any() {
            return None;
        }
        let ObjectAttr {
            size,
            blocks,
            mtime,
        } = file.shown();
        Some(SizeUpdate {
            size,
            blocks,
            mtime,
            committed,
        })
    }
}
