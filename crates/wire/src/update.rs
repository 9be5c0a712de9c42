//! Changes that a client made under write leases: the body of [`crate::mdt::Request::Update`], and its
//! answer. docs/wire.md, "Updates", is the normative text.

use base::{Fid, LockHandle, Name, TargetIndex, Timestamp};
use serde::{Deserialize, Serialize};

use crate::attr::{Grant, NewFile, SizeUpdate};
use crate::open::{Access, OpenHandle, WriteTicket};

/// A directory whose names a set changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedDir {
    /// The directory.
    pub dir: Fid,
    /// Its write lease. Zero: the one that a request before this one has brought, whose answer the client
    /// had not heard.
    pub lease: LockHandle,
    /// When the client changed names in it last.
    pub changed: Timestamp,
}

/// The times of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Times {
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// When `mtime` was last set.
    pub mtime_set: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

/// A file that its client has made, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeFile {
    /// Its id and kind. The mode is that of the file: whatever it inherits is in it.
    pub file: NewFile,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its times.
    pub times: Times,
    /// Of a regular file the OST that its bytes are to be on, or are on already; `None`: the server chooses.
    pub ost: Option<TargetIndex>,
    /// A use of a regular file that is registered with it. One for writing brings the exclusive lock.
    pub open: Option<Access>,
}

/// The file that a replaced name leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replacement {
    /// A new one.
    Made(MadeFile),
    /// One that is there.
    Linked {
        /// The file.
        fid: Fid,
        /// When it got the name.
        ctime: Timestamp,
    },
}

/// Attributes as they are now; `None` leaves them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AttrUpdate {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of the content, and when it was set.
    pub mtime: Option<(Timestamp, Timestamp)>,
    /// When the attributes changed last.
    pub ctime: Timestamp,
}

/// One change of a set. `dir` is the directory's place in the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A free name gets a new file.
    Make {
        /// Where.
        dir: u8,
        /// The name.
        name: Name,
        /// The file.
        made: MadeFile,
    },
    /// A free name gets a file that is there.
    Link {
        /// Where.
        dir: u8,
        /// The name.
        name: Name,
        /// The file.
        fid: Fid,
        /// When it got the name.
        ctime: Timestamp,
    },
    /// A name goes.
    Remove {
        /// Where.
        dir: u8,
        /// The name.
        name: Name,
        /// The file that it leads to.
        fid: Fid,
        /// When it went.
        ctime: Timestamp,
    },
    /// A name leads to another file.
    Replace {
        /// Where.
        dir: u8,
        /// The name.
        name: Name,
        /// The file that it leads to.
        old: Fid,
        /// The other.
        new: Replacement,
        /// When it was replaced.
        ctime: Timestamp,
    },
    /// Attributes of a file changed.
    SetAttr {
        /// The file.
        fid: Fid,
        /// What changed.
        attr: AttrUpdate,
    },
    /// An extended attribute was made or changed.
    SetXattr {
        /// The file.
        fid: Fid,
        /// Full name with prefix.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// When.
        ctime: Timestamp,
    },
    /// An extended attribute went.
    RemoveXattr {
        /// The file.
        fid: Fid,
        /// Full name with prefix.
        name: Vec<u8>,
        /// When.
        ctime: Timestamp,
    },
    /// A file's bytes changed.
    Size {
        /// The file.
        fid: Fid,
        /// What its writer knows of them.
        size: SizeUpdate,
        /// The use that ends with this; zero: none.
        handle: OpenHandle,
    },
    /// A file that the server never knew is gone, and has bytes on an OST.
    Gone {
        /// Its id.
        fid: Fid,
        /// Where its bytes are.
        ost: TargetIndex,
        /// The highest open epoch with which bytes were sent.
        open_epoch: u64,
    },
}

/// Something that a client needs to hear of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateNote {
    /// The change's place in the request.
    pub change: u16,
    /// What is to be heard.
    pub told: Told,
}

/// What is not as the client proposed it, or is the server's to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// The write lease of a new directory.
    Leased(Grant),
    /// The OST of a new file for which none was proposed.
    Ost(TargetIndex),
    /// The use of a new file.
    Opened {
        /// Names it from now on.
        handle: OpenHandle,
        /// For writing its objects.
        ticket: WriteTicket,
        /// The exclusive lock that comes with a use for writing.
        lock: Option<Grant>,
    },
    /// The cookie of a new name that is not the first of its hash.
    Cookie(u64),
    /// The size is not exact, although all bytes are committed: others wrote too.
    Inexact,
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
