//! What the kernel of a node does for its programs before it asks the client.

use std::sync::{Arc, PoisonError};

use threads::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::DIRS;
use crate::history::{Call, Slot};

/// The locks that the kernel of a node has on directories: whoever changes names in one has it
/// alone, lookups and listings share it. The client is never asked otherwise.
pub type DirectoryLocks = Arc<Vec<RwLock<()>>>;

/// Free ones.
pub fn directory_locks() -> DirectoryLocks {
    Arc::new((0..DIRS).map(|_| RwLock::new(())).collect())
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

pub(super) fn hold<'a>(locks: &'a DirectoryLocks, call: &Call) -> Held<'a> {
    let dirs = match call {
        Call::Lookup(Slot { dir, .. }) | Call::List(dir) => {
            let lock = locks[usize::from(*dir)].read();
            let _dir = lock.unwrap_or_else(PoisonError::into_inner);
            return Held::Shared { _dir };
        }
        // A program that says what it will need holds nothing.
        Call::Prefetch | Call::Put(..) | Call::Get(_) => return Held::Nothing,
        // In one order: no two calls wait for each other.
        Call::Rename(from, to) if from.dir != to.dir => {
            vec![from.dir.min(to.dir), from.dir.max(to.dir)]
        }
        Call::Create(slot)
        | Call::Mkdir(slot)
        | Call::Unlink(slot)
        | Call::Rmdir(slot)
        | Call::Rename(slot, _)
        | Call::Link(_, slot) => vec![slot.dir],
    };
    let locks = dirs.into_iter().map(|dir| locks[usize::from(dir)].write());
    let _dirs = locks.map(|lock| lock.unwrap_or_else(PoisonError::into_inner));
    Held::Alone {
        _dirs: _dirs.collect(),
    }
}
