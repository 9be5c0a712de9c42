//! Memory in huge pages: buffers that disks fill, and blocks that caches keep.
//!
//! The first touch of a small page costs the system more than copying its bytes, and where a
//! virtual machine gives free memory back to its host, many times more. So data that comes in
//! megabytes lies in huge pages; everything else is the allocator's business.
//!
//! Invariant: every set here is bounded, and none of it is needed: who gets nothing uses ordinary
//! memory.

pub mod blocks;
pub mod buffers;
mod mapping;
