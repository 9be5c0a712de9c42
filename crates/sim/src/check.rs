//! Whether one local file system could have shown the programs what they saw.

pub mod bytes;
pub mod names;
pub mod order;
