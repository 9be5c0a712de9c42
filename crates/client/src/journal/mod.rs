//! What the next process of this mount needs, in memory that outlives this one (docs/adr/0011-supervisor.md).
//! Without such memory nothing is remembered. Invariant: a record is there before the program hears that what
//! it tells of is done, and goes after the server has it.

pub(crate) mod attempts;
pub(crate) mod births;
pub(crate) mod bytes;
pub(crate) mod call_records;
pub(crate) mod configuration;
pub(crate) mod edits;
pub(crate) mod errors;
pub(crate) mod failures;
pub(crate) mod handles;
pub(crate) mod nodes;
pub(crate) mod record;
pub(crate) mod resizes;
pub(crate) mod serving;
pub(crate) mod sessions;
pub(crate) mod store;
pub(crate) mod tunables;
pub(crate) mod written;
