//! The object store of extents on one disk, which does not age (docs/adr/0020-extents.md, docs/disk.md).

mod audit;
mod block_device;
mod changed;
mod commit;
mod device;
mod file;
mod gathered;
mod geometry;
pub mod log;
mod maps;
mod objects;
mod recovery;
mod rows;
mod segment;
mod state;
mod table;
mod usage;

pub use allocator::{Extent, Options, PreallocTable, Statistics};
pub use audit::{Finding, audit};
pub use commit::{Commit, Row, Taken};
pub use device::{ExtentDisk, Opened};
pub use file::{is_unsupported, make as make_file, make_on as make_on_device};
pub use geometry::{Geometry, StoreId};
pub use log::{Area, Log, LogFull, Piece};
pub use objects::ExtentObjects;
pub use recovery::{Replayed, check_owner};
pub use rows::{ExtentTables, check_row};
pub use usage::{GROUP_PARTS, GroupUse, PART_BLOCKS, Usage};
