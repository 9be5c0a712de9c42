//! The bytes of objects, behind one small trait; files of the local file system hold them.

mod changing;
mod descriptors;
mod direct;
mod direct_io;
mod files;
mod memory;
pub(crate) mod page_cache;
mod seal;
mod sealed;
mod size_limit;
mod store;
mod stream;

pub use files::{OPEN_FILES_MAX, ObjectFiles};
pub use memory::ObjectMemory;
pub use sealed::{SealedObjects, check_seal, examine_seals, recorded_end, sealed_ends};
pub use store::{Flaw, ObjectId, ObjectMap, ObjectStat, ObjectStore, Placed, Wanted};
