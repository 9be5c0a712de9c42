//! Memory in huge pages: buffers that disks fill, and blocks that caches keep. The first touch of a small
//! page costs more than copying its bytes (docs/adr/0007-large-writes.md). Invariant: every set here is
//! bounded, and none is needed: without it ordinary memory is used.

pub mod blocks;
pub mod buffers;
mod mapping;
