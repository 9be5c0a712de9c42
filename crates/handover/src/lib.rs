//! Memory that outlives the process which works in it, and the records in it.
//!
//! A supervisor holds the memory; a worker maps it, and the next worker finds in it what the one
//! before had put there, wherever that was stopped. [`Records`] is the format, [`Region`] the
//! memory (docs/adr/0011-supervisor.md).
//!
//! Invariant: after every single store the memory is whole: a record is there or it is not, and
//! becomes so by one store. A process that is killed has done all stores before one, and none after.

mod records;
mod region;

pub use records::{Cell, Found, Record, Records, Share};
pub use region::{Death, Region, bequeath, inherited};
