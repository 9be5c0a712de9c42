//! The one cache: attributes, names, lists and bytes, each valid only while a lock covers it.
//!
//! Statahead and write-behind are policies over it; none has a cache of its own.

pub(crate) mod ahead;
pub(crate) mod asking;
pub(crate) mod attributes;
pub(crate) mod births;
pub(crate) mod bits;
pub(crate) mod cached_attr;
pub(crate) mod directory;
pub(crate) mod durability;
pub(crate) mod edits;
pub(crate) mod ending;
pub(crate) mod extents;
pub(crate) mod fetches;
pub(crate) mod file;
pub(crate) mod file_errors;
pub(crate) mod file_locks;
pub(crate) mod handle;
pub(crate) mod holder;
pub(crate) mod inode;
pub(crate) mod invalidations;
pub(crate) mod kernel_list;
pub(crate) mod kernel_pages;
pub(crate) mod kernel_view;
pub(crate) mod known;
pub(crate) mod list_prefetch;
pub(crate) mod listed;
pub(crate) mod local_changes;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod opens;
pub(crate) mod pages;
pub(crate) mod pending_change;
pub(crate) mod registration;
pub(crate) mod resizes;
pub(crate) mod stale_names;
pub(crate) mod stamps;
pub(crate) mod store;
pub(crate) mod withdrawn;
pub(crate) mod write_errors;
pub(crate) mod write_size;
