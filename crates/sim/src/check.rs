//! Whether one local file system could have shown the programs what they saw.

pub mod names;
