//! Requests to an object storage target, and their replies.

use base::{BootEpoch, ByteRange, LockHandle, Timestamp, Transno};
use layout::ObjectId;
use serde::{Deserialize, Serialize};

use crate::mdt::{Space, WriteTicket};
use crate::operations::operations;

/// What a write names in a lock's place that is made under the MDT's exclusive lock on a new file.
/// The right of who opened the file first, refused once an object was changed under a later open.
pub const UNDER_MDT: LockHandle = LockHandle(u64::MAX);

/// Lock value block: an object as its OST, or a writer, sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectAttr {
    /// Bytes; zero for an object that was never written.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Last write.
    pub mtime: Timestamp,
}

/// An extent lock handed to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentGrant {
    /// The lock's name at the server.
    pub handle: LockHandle,
    /// Its object.
    pub object: ObjectId,
    /// Its mode, as `dlm::Mode` numbers it: CR, PR, PW, or EX where nobody watches the object.
    pub mode: u8,
    /// What it covers; often more than was asked for.
    pub range: ByteRange,
}

/// The watermark of an MDT. An OST remembers it, and recognizes an MDT that lost a part of its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Watermark {
    /// When this boot of the MDT began, by its clock: tells boots apart.
    pub epoch_stamp: Timestamp,
    /// The last change of the boots before.
    pub begun: Transno,
    /// Everything up to here is durable.
    pub committed: Transno,
}

/// Bytes of an object that lie in a row on the disk of its OST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredExtent {
    /// The first of them, in the object.
    pub offset: u64,
    /// How many; whole blocks of 4 KiB, also at the object's end.
    pub bytes: u64,
    /// The block of 4 KiB where they begin, among those for bytes of objects.
    pub block: u64,
    /// They were written. Else the space is reserved, and reads give zeros.
    pub written: bool,
}

/// What [`Request::Allocate`] does to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AllocateMode {
    /// Reserves space; the size grows to the range's end.
    Extend,
    /// Reserves space; the size stays.
    KeepSize,
    /// Frees the space; reads give zeros; the size stays.
    PunchHole,
    /// Reads give zeros; the size grows to the range's end.
    Zero,
    /// Reads give zeros; the size stays.
    ZeroKeepSize,
}

/// What a client (or an MDT) asks of an OST. One per sub-message. File data travels in the frame's
/// bulk region, named by `bulk`: offset and length there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A lock -> [`Reply::Locked`], when it can be had.
    Enqueue {
        /// On what.
        object: ObjectId,
        /// PR or PW, as `dlm::Mode` numbers them.
        mode: u8,
        /// At least this.
        range: ByteRange,
    },
    /// Reads -> [`Reply::Read`]; the bytes are in the reply's bulk region.
    Read {
        /// From what.
        object: ObjectId,
        /// From where.
        offset: u64,
        /// How many bytes at most.
        len: u32,
        /// A PR (or PW) lock over the whole object is wanted with it, if it is free; zero: one is
        /// held. With it no bytes need be wanted: then it is a guess ahead of need, which is refused
        /// in the first minute after a restart.
        lock_mode: u8,
        /// The held lock, or zero.
        under: LockHandle,
    },
    /// Writes bytes that a lock (or the MDT's EX lock) covers -> [`Reply::Written`].
    Write {
        /// To what; made by the first write that carries a ticket.
        object: ObjectId,
        /// Where.
        offset: u64,
        /// The bytes in the request's bulk region.
        bulk: (u32, u32),
        /// The right to write.
        ticket: WriteTicket,
        /// When the application wrote.
        mtime: Timestamp,
        /// The PW lock it was written under; [`UNDER_MDT`] under the MDT's EX lock. Zero where the
        /// lock was lost with an older boot of the OST.
        under: LockHandle,
        /// The boot of the OST that it is meant for: another refuses it, for it is written again
        /// there, perhaps with newer bytes. Zero: for any.
        boot_epoch: BootEpoch,
    },
    /// Appends: the OST picks the offset under PW [EOF, infinity) of its own -> [`Reply::Appended`].
    Append {
        /// To what.
        object: ObjectId,
        /// The bytes in the request's bulk region.
        bulk: (u32, u32),
        /// The right to write.
        ticket: WriteTicket,
        /// When the application wrote.
        mtime: Timestamp,
    },
    /// Sets the size -> [`Reply::Written`]. Takes PW on the OST unless `under` is held.
    Truncate {
        /// Of what.
        object: ObjectId,
        /// To how many bytes.
        size: u64,
        /// The right to write.
        ticket: WriteTicket,
        /// When.
        mtime: Timestamp,
        /// The PW lock held over what changes, or zero.
        under: LockHandle,
        /// As in [`Request::Write`].
        boot_epoch: BootEpoch,
    },
    /// Reserves, frees or zeroes a range -> [`Reply::Written`]. Takes PW on the OST unless `under` is
    /// held.
    Allocate {
        /// Of what.
        object: ObjectId,
        /// Which bytes.
        range: ByteRange,
        /// How.
        mode: AllocateMode,
        /// The right to write.
        ticket: WriteTicket,
        /// When.
        mtime: Timestamp,
        /// The PW lock held over what changes, or zero.
        under: LockHandle,
        /// As in [`Request::Write`].
        boot_epoch: BootEpoch,
    },
    /// Size, blocks, mtime as of now, from the writer if there is one, without disturbing its
    /// cache -> [`Reply::Glimpsed`].
    Glimpse {
        /// Of what.
        object: ObjectId,
        /// A guess ahead of need (AGL): where a writer would have to be asked, answer `TryAgain`.
        speculative: bool,
    },
    /// The next data or hole at or after `offset` -> [`Reply::Offset`].
    Seek {
        /// In what.
        object: ObjectId,
        /// From where.
        offset: u64,
        /// A hole; else data.
        hole: bool,
    },
    /// Answers when everything written to the target so far is durable -> [`Reply::Done`].
    Sync,
    /// Removes objects whose file is gone (an MDT asks) -> [`Reply::Done`] when durable, or
    /// [`Reply::Ahead`].
    Destroy {
        /// Which, each with the highest open epoch that may still write it.
        objects: Vec<(ObjectId, u64)>,
        /// The watermark of the MDT.
        watermark: Watermark,
    },
    /// Gives locks back -> [`Reply::Done`].
    Cancel {
        /// Which.
        handles: Vec<LockHandle>,
    },
    /// Keeps a lock in a weaker mode -> [`Reply::Done`].
    Convert {
        /// Which.
        handle: LockHandle,
        /// How, as `dlm::Mode` numbers it.
        mode: u8,
    },
    /// A lock under which this client is told when the object grows -> [`Reply::Locked`]: CR on all of
    /// it, or more where that disturbs nobody.
    Watch {
        /// Which.
        object: ObjectId,
        /// Its bytes will be written here, too.
        writes: bool,
        /// It was watched already, or nobody could make it longer: CR, also while clients of an earlier
        /// boot are waited for. Where another client has it to itself by now: `TryAgain`, at once.
        again: bool,
    },
    /// The object is so long for all who watch it when this is answered -> [`Reply::Announced`]. The
    /// bytes may have yet to come.
    Announce {
        /// Which.
        object: ObjectId,
        /// How long.
        size: u64,
    },
    /// Space and objects -> [`Reply::Space`].
    StatFs,
    /// From now on bytes may be here that the target does not have: it waits for this client after
    /// a restart. What was here of earlier boots of the target is written -> [`Reply::Done`], when
    /// it is durable that the target knows of the client.
    Join {
        /// The target's boot that this is said to. An older one: nothing is done.
        boot_epoch: BootEpoch,
    },
    /// The objects that are here of files of one FID sequence (an MDT asks) -> [`Reply::Objects`], or
    /// [`Reply::Ahead`].
    List {
        /// The first that is wanted; it names the sequence.
        from: ObjectId,
        /// Those that lost their record in a crash, for which all of the target is looked through; else
        /// those that have one.
        unrecorded: bool,
        /// The watermark of the MDT.
        watermark: Watermark,
    },
    /// Compares how far MDT and OST have come, to find an older copy of either. An MDT asks now and then ->
    /// [`Reply::Watermark`], or [`Reply::Ahead`]. A target that had come further than it is stops.
    Watermark {
        /// The watermark of the MDT.
        watermark: Watermark,
        /// The watermark that this OST acknowledged last.
        seen: Transno,
    },
    /// Keeps a lock of the client's process before when this one is settled -> [`Reply::Locked`]. Where it
    /// had none: one in PW, if nobody has any.
    Inherit {
        /// On which object.
        object: ObjectId,
    },
    /// Where the object lies on the disk, from `offset` on -> [`Reply::Map`]. `NotSupported` where objects
    /// are files of another file system.
    Map {
        /// Which.
        object: ObjectId,
        /// From where.
        offset: u64,
    },
}

/// What an OST answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Nothing to tell.
    Done,
    /// To [`Request::Enqueue`].
    Locked {
        /// The lock.
        grant: ExtentGrant,
        /// The object under it.
        attr: ObjectAttr,
    },
    /// To [`Request::Read`].
    Read {
        /// The bytes in the reply's bulk region; fewer than asked at the end of file.
        bulk: (u32, u32),
        /// The lock, if one was wanted and could be had without waiting.
        grant: Option<ExtentGrant>,
        /// The object when it was read.
        attr: ObjectAttr,
    },
    /// To writes, truncates and allocations.
    Written {
        /// The object now.
        attr: ObjectAttr,
        /// As in [`Space`].
        unsent_max: u64,
    },
    /// To [`Request::Append`].
    Appended {
        /// Where the bytes went.
        offset: u64,
        /// The object now.
        attr: ObjectAttr,
    },
    /// To [`Request::Announce`].
    Announced {
        /// EX on all of it, where nobody watches it: growth need not be announced under that.
        grant: Option<ExtentGrant>,
        /// The object as the target has it.
        attr: ObjectAttr,
    },
    /// To [`Request::Glimpse`].
    Glimpsed {
        /// As of now.
        attr: ObjectAttr,
    },
    /// To [`Request::Seek`].
    Offset(u64),
    /// To [`Request::StatFs`].
    Space(Space),
    /// To [`Request::List`].
    Objects {
        /// In their order.
        objects: Vec<ObjectId>,
        /// From where on there may be more; `None`: these are all.
        next: Option<ObjectId>,
    },
    /// To [`Request::Watermark`].
    Watermark {
        /// Everything up to here is durable.
        committed: Transno,
    },
    /// To what an MDT asks: nothing was done. It told of a change here, as durable, that it does not
    /// have: it was restored from an older copy, and knows nothing of newer files.
    Ahead {
        /// Up to where it had come.
        committed: Transno,
    },
    /// To [`Request::Map`].
    Map {
        /// Ascending. Between them are holes; two that follow each other may lie in a row.
        extents: Vec<StoredExtent>,
        /// From where on there may be more; `None`: these are all.
        next: Option<u64>,
    },
}

/// What an OST asks of a client, on the control lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Callback {
    /// Write back what the lock covers, forget it, then cancel. Acknowledged at once.
    Blocking {
        /// Which lock.
        handle: LockHandle,
        /// On what.
        object: ObjectId,
        /// The range somebody wants.
        range: ByteRange,
        /// To do what, as `dlm::Mode` numbers it. For CR it is enough to keep the lock in PW.
        mode: u8,
    },
    /// How does the object look under your PW lock? -> [`CallbackReply::Glimpse`].
    Glimpse {
        /// Which lock.
        handle: LockHandle,
        /// On what.
        object: ObjectId,
    },
    /// Another client made the object longer: the answer says that nothing here goes by an older size.
    Grown {
        /// Under which CR lock this is watched.
        handle: LockHandle,
        /// Which.
        object: ObjectId,
        /// How long it is.
        size: u64,
    },
    /// You hold too many locks: cancel the oldest.
    Shrink {
        /// How many to give back.
        locks: u32,
    },
}

/// What a client answers to a callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallbackReply {
    /// Heard.
    Done,
    /// The object with what is not yet written; `None`: held no more, or nothing unwritten.
    Glimpse(Option<ObjectAttr>),
    /// The object, whose size or space is being changed under a lock on all of it. This is what it
    /// is, whether the target has done that or not.
    Resizing(ObjectAttr),
}

impl Request {
    /// Changes the target.
    pub fn is_modification(&self) -> bool {
        matches!(
            self,
            Request::Write { .. }
                | Request::Append { .. }
                | Request::Truncate { .. }
                | Request::Allocate { .. }
                | Request::Destroy { .. }
        )
    }

    /// Only an MDT asks it, which has proven that it speaks for targets. It removes what is
    /// anybody's, or tells what the OST believes of the past.
    pub fn is_for_servers(&self) -> bool {
        match self {
            Request::Destroy { .. } | Request::List { .. } | Request::Watermark { .. } => true,
            Request::Enqueue { .. }
            | Request::Read { .. }
            | Request::Write { .. }
            | Request::Append { .. }
            | Request::Truncate { .. }
            | Request::Allocate { .. }
            | Request::Glimpse { .. }
            | Request::Seek { .. }
            | Request::Map { .. }
            | Request::Sync
            | Request::Cancel { .. }
            | Request::Convert { .. }
            | Request::Watch { .. }
            | Request::Announce { .. }
            | Request::Inherit { .. }
            | Request::StatFs
            | Request::Join { .. } => false,
        }
    }

    /// Gives back what others may wait for, or writes again, after a restart, what the target had
    /// known. No rule holds it: who waits for it would wait for longer, and who is held would be
    /// evicted.
    pub fn is_urgent(&self) -> bool {
        match self {
            Request::Cancel { .. }
            | Request::Convert { .. }
            | Request::Inherit { .. }
            | Request::Join { .. } => true,
            Request::Watch { again, .. } => *again,
            Request::Write { under, .. }
            | Request::Truncate { under, .. }
            | Request::Allocate { under, .. } => *under == LockHandle(0),
            _ => false,
        }
    }
}

operations! { Request:
    Enqueue = "ldlm_extent_enqueue",
    Read = "ost_read",
    Write = "ost_write",
    Append = "ost_append",
    Truncate = "ost_punch",
    Allocate = "ost_fallocate",
    Glimpse = "ldlm_glimpse_enqueue",
    Seek = "ost_seek",
    Sync = "ost_sync",
    Destroy = "ost_destroy",
    Cancel = "ldlm_cancel",
    Convert = "ldlm_extent_convert",
    Watch = "ldlm_watch",
    Announce = "ost_announce",
    StatFs = "ost_statfs",
    Join = "ost_join",
    List = "ost_list",
    Watermark = "ost_watermark",
    Inherit = "ldlm_inherit",
    Map = "ost_map",
}
