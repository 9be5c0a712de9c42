//! What goes into the core beside requests, and what comes out.

use base::{ClientId, FsError, TargetIndex, Transno, Xid};
use layout::ObjectId;
use storage::StorageError;
use wire::mdt::{Callback, Reply};
use wire::ost::Watermark;

/// Where a request comes from and where its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Whose.
    pub client: ClientId,
    /// The rim's own name for it, returned with the answer.
    pub tag: u64,
    /// The slot of its frame: a client resends a frame in the same slot.
    pub slot: u16,
    /// The frame. Of one slot, a frame with another number ends the memory of this one.
    pub xid: Xid,
    /// Its place in the frame. The requests of one frame run in this order.
    pub index: u16,
}

/// What the core wants done; the order matters.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every output is the large one, an answer"
)]
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// An answer.
    Reply {
        /// To whom.
        client: ClientId,
        /// To which request.
        tag: u64,
        /// What.
        result: Result<Reply, FsError>,
        /// The change it made; zero for none.
        transno: Transno,
    },
    /// Ask a client, and bring its answer back with the same `id`.
    Callback {
        /// Whom.
        client: ClientId,
        /// The question's name.
        id: u64,
        /// The question.
        callback: Callback,
    },
    /// A client has not answered for too long: end its session, then call `Mds::evict`.
    Evict {
        /// Whom.
        client: ClientId,
    },
    /// Tell an OST to remove objects; say `Mds::destroyed` when it has, durably.
    Destroy {
        /// Which OST.
        ost: TargetIndex,
        /// Each with the highest open epoch that may still write it.
        objects: Vec<(ObjectId, u64)>,
        /// To be told.
        watermark: Watermark,
    },
    /// Ask an OST for the objects of a sequence; say `Mds::listed` when it has told.
    List {
        /// Which OST.
        ost: TargetIndex,
        /// The first that is wanted; it names the sequence.
        from: ObjectId,
        /// Those that lost their record; else those that have one.
        unrecorded: bool,
        /// To be told.
        watermark: Watermark,
    },
    /// Tell an OST how far we have come, and hear how far it has; then say `Mds::watermark_heard`.
    Watermark {
        /// Which OST.
        ost: TargetIndex,
        /// To be told.
        watermark: Watermark,
        /// So far it had come.
        seen: Transno,
    },
    /// Call `Mds::go_on` soon; threads that wait for the target come first.
    GoOn,
    /// The target cannot go on: it answers nothing but `Io` from now on, and replays not at all. Said
    /// once.
    Halt(Halted),
}

/// Why a target stopped.
#[derive(Debug, Clone)]
pub struct Halted(pub StorageError);

impl PartialEq for Halted {
    fn eq(&self, other: &Halted) -> bool {
        self.0.to_string() == other.0.to_string()
    }
}

/// What OSTs are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OstInquiry {
    /// To remove objects.
    Destroy,
    /// For the objects of a sequence.
    List,
    /// To acknowledge a watermark.
    Watermark,
}

impl OstInquiry {
    /// All of them.
    pub const ALL: [OstInquiry; 3] = [OstInquiry::Destroy, OstInquiry::List, OstInquiry::Watermark];
}
