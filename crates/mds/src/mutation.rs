//! What a transaction changes, and the one function that turns changes into stored bytes.

use base::{Fid, TargetIndex};
use storage::{Batch, KeyRange};

use crate::keys::{self, ClientUuid, Spot, Table};
use crate::records::{
    Bytes, Destroy, Dirent, Inode, Orphan, Place, Record, SequenceOwner, State, StoredReply,
};
use crate::store::table_id;

/// One change of one record (or of all records of one thing).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mutation {
    /// A name is made or changed.
    PutDirent(Spot, Dirent),
    /// A name goes.
    RemoveDirent(Spot),
    /// A file's own record is made or changed.
    PutInode(Fid, Inode),
    /// A file's own record goes.
    RemoveInode(Fid),
    /// A file is found there from now on.
    PutPlace(Fid, Place),
    /// The FID is no file any more.
    RemovePlace(Fid),
    /// One of several names.
    PutLink(Fid, Spot),
    /// One of several names goes.
    RemoveLink(Fid, Spot),
    /// An extended attribute is made or changed.
    PutXattr(Fid, Vec<u8>, Vec<u8>),
    /// An extended attribute goes.
    RemoveXattr(Fid, Vec<u8>),
    /// All extended attributes of a file go.
    RemoveXattrs(Fid),
    /// A symlink's target.
    PutTarget(Fid, Vec<u8>),
    /// A symlink's target goes.
    RemoveTarget(Fid),
    /// The file has no name but may be open.
    PutOrphan(Fid, Orphan),
    /// The file is no orphan any more.
    RemoveOrphan(Fid),
    /// An object shall be removed.
    PutDestroy(TargetIndex, Fid, u32, Destroy),
    /// An object was removed.
    RemoveDestroy(TargetIndex, Fid, u32),
    /// What a client's request was answered.
    PutReply(ClientUuid, u16, u16, StoredReply),
    /// The answers of a slot from this index up to that one go.
    RemoveReplies(ClientUuid, u16, u16, u16),
    /// All answers a client was given go.
    RemoveClientReplies(ClientUuid),
    /// A sequence is granted.
    PutSequence(u64, SequenceOwner),
    /// A sequence belongs to nobody, for ever.
    RemoveSequence(u64),
    /// The target's state.
    PutState(State),
}

/// Adds `mutations` to `batch`, in order.
pub fn apply(mutations: Vec<Mutation>, batch: &mut Batch) {
    for mutation in mutations {
        apply_one(mutation, batch);
    }
}

fn apply_one(mutation: Mutation, batch: &mut Batch) {
    use Mutation as M;
    match mutation {
        M::PutDirent(spot, dirent) => put(batch, Table::Dirents, keys::dirent(spot), &dirent),
        M::RemoveDirent(spot) => delete(batch, Table::Dirents, keys::dirent(spot)),
        M::PutInode(fid, inode) => put(batch, Table::Inodes, keys::fid(fid), &inode),
        M::RemoveInode(fid) => delete(batch, Table::Inodes, keys::fid(fid)),
        M::PutPlace(fid, place) => put(batch, Table::Places, keys::fid(fid), &place),
        M::RemovePlace(fid) => delete(batch, Table::Places, keys::fid(fid)),
        M::PutLink(fid, spot) => {
            put(
                batch,
                Table::Links,
                keys::link(fid, spot),
                &Bytes(Vec::new()),
            );
        }
        M::RemoveLink(fid, spot) => delete(batch, Table::Links, keys::link(fid, spot)),
        M::PutXattr(fid, name, value) => {
            put(batch, Table::Xattrs, keys::xattr(fid, &name), &Bytes(value));
        }
        M::RemoveXattr(fid, name) => delete(batch, Table::Xattrs, keys::xattr(fid, &name)),
        M::RemoveXattrs(fid) => {
            batch.delete_range(table_id(Table::Xattrs), KeyRange::prefix(&keys::fid(fid)));
        }
        M::PutTarget(fid, target) => put(batch, Table::Targets, keys::fid(fid), &Bytes(target)),
        M::RemoveTarget(fid) => delete(batch, Table::Targets, keys::fid(fid)),
        M::PutOrphan(fid, orphan) => put(batch, Table::Orphans, keys::fid(fid), &orphan),
        M::RemoveOrphan(fid) => delete(batch, Table::Orphans, keys::fid(fid)),
        M::PutDestroy(ost, fid, stripe, destroy) => {
            put(
                batch,
                Table::Destroys,
                keys::destroy(ost, fid, stripe),
                &destroy,
            );
        }
        M::RemoveDestroy(ost, fid, stripe) => {
            delete(batch, Table::Destroys, keys::destroy(ost, fid, stripe));
        }
        M::PutReply(client, slot, index, reply) => {
            put(
                batch,
                Table::Replies,
                keys::reply(&client, slot, index),
                &reply,
            );
        }
        M::RemoveReplies(client, slot, first, last) => {
            let start = keys::reply(&client, slot, first);
            let end = [&keys::reply(&client, slot, last)[..], &[0]].concat();
            batch.delete_range(table_id(Table::Replies), KeyRange::new(start, end));
        }
        M::RemoveClientReplies(client) => {
            batch.delete_range(table_id(Table::Replies), KeyRange::prefix(&client));
        }
        M::PutSequence(sequence, owner) => {
            put(batch, Table::Sequences, keys::sequence(sequence), &owner);
        }
        M::RemoveSequence(sequence) => delete(batch, Table::Sequences, keys::sequence(sequence)),
        M::PutState(state) => put(batch, Table::State, keys::STATE, &state),
    }
}

fn put(batch: &mut Batch, table: Table, key: impl AsRef<[u8]>, record: &impl Record) {
    batch.put(table_id(table), key.as_ref(), record.to_bytes());
}

fn delete(batch: &mut Batch, table: Table, key: impl AsRef<[u8]>) {
    batch.delete(table_id(table), key.as_ref());
}
