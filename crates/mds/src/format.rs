//! A target's first records, and what happens to them each time it is opened.

use base::{Damage, Fid, Timestamp, Transno};
use layout::Layout;
use storage::{Batch, Kv, StorageError};
use wire::{FileKind, SizeState};

use crate::keys::{self, Spot, Table};
use crate::mutation::{Mutation, apply};
use crate::records::{DIRECTORY_BYTES, Inode, Place, State};
use crate::store::{Failure, Store};

/// Makes the root directory in an empty store, owned by root. `hash_key` is random: it keys the name
/// hash. Durable when this returns.
pub fn format(kv: &Kv, hash_key: u64, now: Timestamp) -> Result<(), StorageError> {
    format_for(kv, hash_key, now, (0, 0))
}

/// The same with a root directory owned by this user and group.
pub fn format_for(
    kv: &Kv,
    hash_key: u64,
    now: Timestamp,
    owner: (u32, u32),
) -> Result<(), StorageError> {
    let root = Spot {
        dir: Fid::ROOT,
        cookie: 0,
    };
    let state = State {
        hash_key,
        boots: 0,
        transno: Transno(1),
        next_sequence: Fid::SEQUENCE_FIRST,
        files: 1,
    };
    let mutations = vec![
        Mutation::PutInode(Fid::ROOT, directory_inode(now, owner, 0o755)),
        Mutation::PutPlace(Fid::ROOT, Place::Directory(root)),
        Mutation::PutState(state),
    ];
    let mut batch = Batch::new();
    apply(mutations, &mut batch);
    kv.wait_durable(kv.commit(batch)?)
}

/// An empty directory's record.
pub(crate) fn directory_inode(now: Timestamp, (uid, gid): (u32, u32), mode: u16) -> Inode {
    Inode {
        kind: FileKind::Directory,
        mode,
        uid,
        gid,
        nlink: 2,
        rdev: 0,
        has_xattrs: false,
        size_state: SizeState::Strict,
        written: false,
        layout: Layout::none(),
        atime: now,
        mtime: now,
        mtime_set: now,
        ctime: now,
        btime: now,
        size: DIRECTORY_BYTES,
        blocks: DIRECTORY_BYTES / 512,
        version: 1,
        entries: 0,
    }
}

/// Begins another boot of the target: counts it, durably, before anything is answered.
pub(crate) fn start(store: &Store) -> Result<State, StorageError> {
    let state: Option<State> = store.get(Table::State, keys::STATE).map_err(cause)?;
    let Some(mut state) = state else {
        return Err(StorageError::refused(
            "MDT",
            "the store holds no metadata target; format it",
        ));
    };
    state.boots += 1;
    let mut batch = Batch::new();
    apply(vec![Mutation::PutState(state)], &mut batch);
    let ticket = store.commit(batch).map_err(cause)?;
    store.kv().wait_durable(ticket)?;
    Ok(state)
}

pub(crate) fn cause(failure: Failure) -> StorageError {
    match failure {
        Failure::Broken(cause) => cause,
        Failure::Refused(error) => StorageError::Damaged {
            at: "MDT".into(),
            damage: Damage {
                record: "target state".into(),
                reason: error.to_string(),
            },
        },
    }
}
