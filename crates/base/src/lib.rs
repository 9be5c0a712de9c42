//! What every other crate speaks in: ids, units, byte ranges, limits, errors, clock and randomness.
//!
//! Invariant: depends on no other crate of the workspace, does no I/O, and reads no clock of its own.

pub mod clock;
pub mod error;
pub mod fid;
pub mod id;
pub mod limits;
pub mod name;
pub mod range;
pub mod rng;
pub mod time;

pub use clock::{Clock, SystemClock, Tick, VirtualClock};
pub use error::{Damage, Disrupted, FsError};
pub use fid::{Fid, SequenceRange};
pub use id::{BootEpoch, ClientId, LockHandle, TargetIndex, TargetKind, TargetName, Transno, Xid};
pub use name::{Name, NameError};
pub use range::ByteRange;
pub use rng::{Rng, SeededRng};
pub use time::{Timestamp, TooManyNanos};
