//! What is to be done outside the core, as data.

use layout::ObjectId;
use wire::ost::ObjectAttr;

use crate::records::History;

/// Objects synced one by one. Beyond: the whole store, which on a shared disk takes along whatever
/// others have written there.
const SYNCED_ALONE_MAX: usize = 32;

/// What a sync must make durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncWork {
    /// What is true once the objects are.
    pub history: History,
    /// The objects.
    pub touched: Touched,
    /// How many were written, for statistics.
    pub bytes: u64,
}

/// Bytes to be read under a lock of the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadWork {
    /// Of what.
    pub object: ObjectId,
    /// From where on.
    pub offset: u64,
    /// How many; the object has them all, or had.
    pub len: usize,
    /// For the answer.
    pub attr: ObjectAttr,
}

/// Objects to be told of that have bytes and no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListWork {
    /// From this one on, of its FID sequence.
    pub from: ObjectId,
}

/// Objects written or removed since the last sync began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// These.
    Objects(Vec<ObjectId>),
    /// Too many to sync them one by one.
    Many,
}

impl Touched {
    /// The objects, if they are few.
    pub(crate) fn of(objects: impl Iterator<Item = ObjectId>) -> Touched {
        let objects: Vec<ObjectId> = objects.take(SYNCED_ALONE_MAX + 1).collect();
        match objects.len() {
            0..=SYNCED_ALONE_MAX => Touched::Objects(objects),
            _ => Touched::Many,
        }
    }
}
