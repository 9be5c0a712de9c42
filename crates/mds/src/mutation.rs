//! What a transaction changes, and the one function that turns changes into stored bytes.

use base::{BootEpoch, Fid, TargetIndex};
use storage::{Batch, KeyRange};

use crate::keys::{self, ClientUuid, Spot, Table};
use crate::records::{
    BootBegun, Bytes, Destroy, Dirent, Inode, KnownClient, Orphan, Place, Record, SeenOst,
    SequenceOwner, State, StoredReply,
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
    /// A client that changes the target, or was given up.
    PutClient(ClientUuid, KnownClient),
    /// A client is gone for good.
    RemoveClient(ClientUuid),
    /// A boot of the target begins.
    PutBoot(BootEpoch, BootBegun),
    /// A boot so long ago that nobody remembers it.
    RemoveBoot(BootEpoch),
    /// Objects of a sequence are to be searched for, of files that are lost.
    PutLeakSearch(u64, SequenceOwner),
    /// They have been.
    RemoveLeakSearch(u64),
    /// So far an OST has come.
    PutOst(TargetIndex, SeenOst),
    /// How far it has come is not known any more.
    RemoveOst(TargetIndex),
}

/// Adds `mutations` to `batch`, in order.
pub fn apply(mutations: Vec<Mutation>, batch: &mut Batch) {
    let mut changes = Changes {
        batch,
        buffer: Vec::with_capacity(RECORD_BYTES),
    };
    for mutation in mutations {
        apply_one(mutation, &mut changes);
    }
}

/// What most records need.
const RECORD_BYTES: usize = 512;

/// A batch that is being made.
struct Changes<'b> {
    batch: &'b mut Batch,
    /// For the bytes of one record after the other.
    buffer: Vec<u8>,
}

impl Changes<'_> {
    fn put(&mut self, table: Table, key: impl AsRef<[u8]>, record: &impl Record) {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        let bytes = record.append_to(bytes);
        self.batch.put(table_id(table), key, &bytes[..]);
        self.buffer = bytes;
    }

    fn delete(&mut self, table: Table, key: impl AsRef<[u8]>) {
        self.batch.delete(table_id(table), key);
    }

    fn delete_range(&mut self, table: Table, range: KeyRange) {
        self.batch.delete_range(table_id(table), range);
    }
}

fn apply_one(mutation: Mutation, changes: &mut Changes<'_>) {
    use Mutation as M;
    match mutation {
        M::PutDirent(spot, dirent) => changes.put(Table::Dirents, keys::dirent(spot), &dirent),
        M::RemoveDirent(spot) => changes.delete(Table::Dirents, keys::dirent(spot)),
        M::PutInode(fid, inode) => changes.put(Table::Inodes, keys::fid(fid), &inode),
        M::RemoveInode(fid) => changes.delete(Table::Inodes, keys::fid(fid)),
        M::PutPlace(fid, place) => changes.put(Table::Places, keys::fid(fid), &place),
        M::RemovePlace(fid) => changes.delete(Table::Places, keys::fid(fid)),
        M::PutLink(fid, spot) => {
            changes.put(Table::Links, keys::link(fid, spot), &Bytes(Vec::new()));
        }
        M::RemoveLink(fid, spot) => changes.delete(Table::Links, keys::link(fid, spot)),
        M::PutXattr(fid, name, value) => {
            changes.put(Table::Xattrs, keys::xattr(fid, &name), &Bytes(value));
        }
        M::RemoveXattr(fid, name) => changes.delete(Table::Xattrs, keys::xattr(fid, &name)),
        M::RemoveXattrs(fid) => {
            changes.delete_range(Table::Xattrs, KeyRange::prefix(&keys::fid(fid)));
        }
        M::PutTarget(fid, target) => changes.put(Table::Targets, keys::fid(fid), &Bytes(target)),
        M::RemoveTarget(fid) => changes.delete(Table::Targets, keys::fid(fid)),
        M::PutOrphan(fid, orphan) => changes.put(Table::Orphans, keys::fid(fid), &orphan),
        M::RemoveOrphan(fid) => changes.delete(Table::Orphans, keys::fid(fid)),
        M::PutDestroy(ost, fid, stripe, destroy) => {
            changes.put(Table::Destroys, keys::destroy(ost, fid, stripe), &destroy);
        }
        M::RemoveDestroy(ost, fid, stripe) => {
            changes.delete(Table::Destroys, keys::destroy(ost, fid, stripe));
        }
        M::PutReply(client, slot, index, reply) => {
            changes.put(Table::Replies, keys::reply(&client, slot, index), &reply);
        }
        M::RemoveReplies(client, slot, first, last) => {
            let start = keys::reply(&client, slot, first);
            let end = [&keys::reply(&client, slot, last)[..], &[0]].concat();
            changes.delete_range(Table::Replies, KeyRange::new(start, end));
        }
        M::RemoveClientReplies(client) => {
            changes.delete_range(Table::Replies, KeyRange::prefix(&client));
        }
        M::PutSequence(sequence, owner) => {
            changes.put(Table::Sequences, keys::sequence(sequence), &owner);
        }
        M::RemoveSequence(sequence) => changes.delete(Table::Sequences, keys::sequence(sequence)),
        M::PutState(state) => changes.put(Table::State, keys::STATE, &state),
        M::PutClient(client, known) => changes.put(Table::Clients, client, &known),
        M::RemoveClient(client) => changes.delete(Table::Clients, client),
        M::PutBoot(boot_epoch, begun) => {
            changes.put(Table::Boots, keys::boot_epoch(boot_epoch), &begun)
        }
        M::RemoveBoot(boot_epoch) => changes.delete(Table::Boots, keys::boot_epoch(boot_epoch)),
        M::PutLeakSearch(sequence, owner) => {
            changes.put(Table::LeakSearches, keys::sequence(sequence), &owner);
        }
        M::RemoveLeakSearch(sequence) => {
            changes.delete(Table::LeakSearches, keys::sequence(sequence))
        }
        M::PutOst(ost, seen) => changes.put(Table::Osts, keys::ost(ost), &seen),
        M::RemoveOst(ost) => changes.delete(Table::Osts, keys::ost(ost)),
    }
}
