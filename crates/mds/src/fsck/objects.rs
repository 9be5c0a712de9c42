//! What the target says of objects on OSTs: whose they are, and which there should be.

use std::ops::ControlFlow;

use base::{Fid, FsError, TargetIndex, Timestamp};
use layout::ObjectId;
use storage::KeyRange;
use wire::SizeState;

use crate::keys::{self, Table};
use crate::records::{Dirent, Inode, KnownClient, State};
use crate::store::{Failure, Store, missing};
use crate::txn::Txn;
use wire::hash::NameHasher;

/// Whose an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A file's, which has it there.
    Named,
    /// It is to be removed: the OST will be told.
    ToBeRemoved,
    /// Its file exists but does not have it there.
    Elsewhere,
    /// There is no such file, but its maker may come back and make it again; or its record was lost.
    Awaited,
    /// There is no such file, and nobody can make it any more.
    Nobodys,
    /// Its file exists, has no such part on any OST, and nobody can give it one.
    Superfluous,
}

/// Whose the object on `ost` is.
pub fn claim(store: &Store, ost: TargetIndex, object: ObjectId) -> Result<Claim, Failure> {
    let state: Option<State> = store.get(Table::State, keys::STATE)?;
    let state = state.ok_or_else(|| missing("state", "the target"))?;
    let hasher = NameHasher::new(state.hash_key);
    let fid = object.fid;
    match Txn::new(store, hasher, state, Timestamp::default()).file(fid) {
        Ok(file) => {
            let stripes = &file.inode.layout.stripes;
            return Ok(match stripes.get(object.stripe as usize) {
                Some(place) if *place == ost => Claim::Named,
                Some(_) => Claim::Elsewhere,
                // Its first open for writing was lost with a crash, and may be repeated.
                None if stripes.is_empty() && is_anyone_awaited(store)? => Claim::Awaited,
                None => Claim::Superfluous,
            });
        }
        Err(Failure::Refused(FsError::Stale)) => {}
        Err(other) => return Err(other),
    }
    if store.contains(Table::Destroys, &keys::destroy(ost, fid, object.stripe))? {
        return Ok(Claim::ToBeRemoved);
    }
    let sequence = fid.sequence();
    let was_granted = (Fid::SEQUENCE_FIRST..state.next_sequence).contains(&sequence);
    let is_live = store.contains(Table::Sequences, &keys::sequence(sequence))?;
    Ok(match was_granted && !is_live {
        true => Claim::Nobodys,
        // A client may repeat the grant of such a sequence, if a crash has taken it.
        false => Claim::Awaited,
    })
}

/// A client may come back and repeat what a crash has taken.
fn is_anyone_awaited(store: &Store) -> Result<bool, Failure> {
    let mut found = false;
    store.scan(
        Table::Clients,
        &KeyRange::all(),
        |_, client: KnownClient| {
            found = client.given_up.is_none();
            Ok(match found {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        },
    )?;
    Ok(found)
}

/// Visits each object that there must be, with its size in bytes: files with a name of which
/// that is known, and that were written.
pub fn expected(
    store: &Store,
    mut visit: impl FnMut(TargetIndex, ObjectId, u64),
) -> Result<(), Failure> {
    let mut look = |fid: Fid, inode: &Inode| {
        let mut stripes = inode.layout.stripes.iter();
        // With several stripes each may lie in a hole.
        let (Some(ost), None) = (stripes.next(), stripes.next()) else {
            return;
        };
        let is_known = inode.written && inode.size_state == SizeState::Strict;
        // One without a name is about to go.
        if is_known && inode.size > 0 && inode.nlink > 0 {
            visit(*ost, ObjectId { fid, stripe: 0 }, inode.size);
        }
    };
    let all = KeyRange::all();
    store.scan(Table::Dirents, &all, |_, dirent: Dirent| {
        if let Some(inode) = &dirent.inode {
            look(dirent.fid, inode);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    store.scan(Table::Inodes, &all, |key, inode: Inode| {
        let fid = keys::parse_fid(key).ok_or_else(|| missing("FID", "a record"))?;
        look(fid, &inode);
        Ok(ControlFlow::Continue(()))
    })
}
