//! Where an object's bytes go on a disk: free space by groups, windows for growing objects, packing of small
//! ones. Pure: no I/O, and time is an argument. docs/adr/0020-extents.md gives the reasons.

mod allocator;
mod index;
mod map;
mod packing;
mod places;
mod report;
mod reuse;
mod table;
mod visits;
mod windows;

pub use allocator::{Allocator, Cursors, Length, Options, Placed, Refused, Statistics, Want};
pub use index::Summary;
pub use map::{GROUP_WORDS, GroupMap};
pub use places::{Block, Extent, GROUP_BLOCKS, GROUP_ORDER, Group, Owner};
pub use report::GroupReport;
pub use reuse::{Io, Reuse};
pub use table::{PreallocTable, TableError};
pub use visits::{is_better, is_scattered, visits};
