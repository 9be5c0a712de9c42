//! What clients and server say to each other, and what there is to lock.

use base::LockHandle;
use dlm::{Bits, CacheInput, Grant, Kind, Mode, Readmitted, Release, ResourceId};

pub const INODES: u64 = 4;
pub const DIRECTORIES: u64 = 2;
pub const CHILDREN: u64 = 6;
pub const FILES: u64 = 2;
pub const BLOCKS: u64 = 8;
pub const BLOCK: u64 = 4096;

/// The inode bits whose state is modelled, one number for each.
pub const ATTRIBUTES: [Bits; 2] = [Bits::UPDATE, Bits::PERM];

pub fn inode(id: u64) -> ResourceId {
    ResourceId { space: b'r', id }
}

pub fn directory(id: u64) -> ResourceId {
    ResourceId { space: b'd', id }
}

/// The inode of a child.
pub fn child(directory: u64, key: u64) -> ResourceId {
    let id = directory * CHILDREN + key;
    ResourceId { space: b'c', id }
}

pub fn file(id: u64) -> ResourceId {
    ResourceId { space: b'f', id }
}

/// A client's request.
#[derive(Debug, Clone)]
pub enum Request {
    /// Attributes and whatever locks are free.
    GetAttr(u64),
    /// Attributes and a lock on one of them, waited for.
    GetAttrLocked(u64, Bits),
    /// Changes one attribute.
    SetAttr(u64, Bits),
    /// All children, with a lease if there is none; the lease held if there is one.
    ReadDir(u64, Option<LockHandle>),
    /// One child, to be covered again by the lease held.
    LookupChild(u64, u64, Option<LockHandle>),
    /// Changes one child's attributes.
    SetChild(u64, u64, Option<LockHandle>),
    /// Changes the set of names.
    Create(u64, u64),
    /// A lock for its own sake.
    Lock(ResourceId, Mode, Kind),
    /// The largest number written to a file.
    Glimpse(u64),
}

/// To the server. Those of one client arrive in any order, but for releases.
#[derive(Debug, Clone)]
pub enum ToServer {
    Request(u64, Request),
    Release(Release),
    Values(LockHandle, u64),
    Abandon(u64),
}

/// What a reply says.
#[derive(Debug, Clone)]
pub enum Reply {
    Attributes(u64, Vec<(Bits, u64)>, Option<Grant>),
    Changed(u64, Bits, u64),
    Page(u64, Vec<(u64, u64)>, u64, Option<Grant>, Option<Readmitted>),
    Child(u64, u64, u64, Option<Readmitted>),
    ChildChanged(u64, u64, u64, Option<Readmitted>),
    Created(u64, u64),
    Refused,
    Glimpsed,
}

/// To a client. Callbacks arrive in order, replies in any order.
#[derive(Debug, Clone)]
pub enum ToClient {
    Callback(CacheInput),
    Glimpse(LockHandle, ResourceId),
    Granted(u64, Grant),
    /// Number of the request, version of the table when the state was read, and the answer.
    Reply(u64, u64, Reply),
}
