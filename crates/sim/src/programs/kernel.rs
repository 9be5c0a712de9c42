//! What the kernel of a node does for its programs before it asks the client.

use std::sync::{Arc, PoisonError};

use threads::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::bounds::{ATTRIBUTES, DIRS, FILES};
use crate::history::{Call, Slot};

/// The locks that the kernel of a node has on inodes. The client is never asked otherwise.
pub struct InodeLocks {
    /// A call that changes names in a directory has it alone, lookups and listings share it.
    dirs: Vec<RwLock<()>>,
    /// A call that writes to a file, changes its size, or makes it durable has it alone.
    files: Vec<Mutex<()>>,
    /// The same for files that programs keep open; the kernel has one for each.
    opened: Mutex<()>,
    /// The directory that all of those are in.
    root: RwLock<()>,
    /// Who changes attributes of a file has it alone.
    attributes: Vec<Mutex<()>>,
}

impl InodeLocks {
    /// Free ones.
    pub fn free() -> Arc<InodeLocks> {
        Arc::new(InodeLocks {
            dirs: (0..DIRS).map(|_| RwLock::new(())).collect(),
            files: (0..FILES).map(|_| Mutex::new(())).collect(),
            opened: Mutex::new(()),
            root: RwLock::new(()),
            attributes: (0..ATTRIBUTES).map(|_| Mutex::new(())).collect(),
        })
    }

    pub(super) fn file(&self, file: u8) -> MutexGuard<'_, ()> {
        let lock = self.files[usize::from(file)].lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn opened(&self) -> MutexGuard<'_, ()> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn attributes(&self, file: u8) -> MutexGuard<'_, ()> {
        let lock = self.attributes[usize::from(file)].lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// For who looks a name up in a directory.
    pub(super) fn names_of(&self, dir: u8) -> RwLockReadGuard<'_, ()> {
        let lock = self.dirs[usize::from(dir)].read();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// For who looks a name up in the root.
    pub(super) fn root(&self) -> RwLockReadGuard<'_, ()> {
        self.root.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For who changes names in it.
    pub(super) fn root_alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.root.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a call holds.
pub(super) enum Held<'a> {
    Nothing,
    Shared {
        _dir: RwLockReadGuard<'a, ()>,
    },
    Alone {
        _dirs: Vec<RwLockWriteGuard<'a, ()>>,
    },
}

/// What is held of directories during a call. Others take locks themselves, in turn.
pub(super) fn hold<'a>(locks: &'a InodeLocks, call: &Call) -> Held<'a> {
    let locks = &locks.dirs;
    let dirs = match call {
        Call::Lookup(Slot { dir, .. }) | Call::List(dir) => {
            let lock = locks[usize::from(*dir)].read();
            let _dir = lock.unwrap_or_else(PoisonError::into_inner);
            return Held::Shared { _dir };
        }
        // A program that says what it will need holds nothing.
        Call::Prefetch
        | Call::ReadLink(_)
        | Call::Open(..)
        | Call::WriteOpen(..)
        | Call::ReadOpen(_)
        | Call::Put(..)
        | Call::Append(..)
        | Call::Truncate(..)
        | Call::Reserve(..)
        | Call::Punch(..)
        | Call::Zero(..)
        | Call::Get(_)
        | Call::Size(_)
        | Call::Remake(..)
        | Call::Chmod(..)
        | Call::Mode(_)
        | Call::Chown(..)
        | Call::Owner(_)
        | Call::SetXattr(..)
        | Call::GetXattr(_)
        | Call::RemoveXattr(_)
        | Call::Contents(_) => return Held::Nothing,
        Call::SyncDir(dir) => vec![*dir],
        // In one order: no two calls wait for each other.
        Call::Rename(from, to) | Call::RenameNew(from, to) | Call::Exchange(from, to)
            if from.dir != to.dir =>
        {
            vec![from.dir.min(to.dir), from.dir.max(to.dir)]
        }
        Call::Create(slot)
        | Call::Mkdir(slot)
        | Call::Unlink(slot)
        | Call::Rmdir(slot)
        | Call::Symlink(slot, _)
        | Call::Rename(slot, _)
        | Call::RenameNew(slot, _)
        | Call::Exchange(slot, _)
        | Call::Link(_, slot) => vec![slot.dir],
    };
    let locks = dirs.into_iter().map(|dir| locks[usize::from(dir)].write());
    let _dirs = locks.map(|lock| lock.unwrap_or_else(PoisonError::into_inner));
    Held::Alone {
        _dirs: _dirs.collect(),
    }
}
