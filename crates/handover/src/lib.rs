//! Memory that outlives the process which works in it, and the records in it (docs/adr/0011-supervisor.md).
//! [`Records`] is the format, [`Region`] the memory that a supervisor holds. Invariant: after every single
//! store the memory is whole: a record is there or it is not, and becomes so by one store.

mod records;
mod region;

pub use records::{Cell, Found, Record, Records, Share};
pub use region::{Death, Region, bequeath, inherited};
