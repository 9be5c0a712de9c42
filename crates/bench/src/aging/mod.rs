//! The ageing lab: how placement ages, in the allocator of the object store, on a model disk in virtual time
//! or on a real one. `glint bench aging` runs it.

pub mod parameters;
