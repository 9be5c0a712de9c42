//! How many directories, names, files and blocks programs work on.

/// Directories that programs work in.
pub const DIRS: u8 = 3;
/// Names in each: digits, so that they can be told to be needed as a range.
pub const NAMES: u8 = 4;
/// Files whose bytes programs read and write; their names nobody touches.
pub const FILES: u8 = 3;

/// Blocks of a file that are written by number, or that one is cut down to; appends make more.
pub const BLOCKS: u8 = 4;

/// Files whose attributes programs change, and which they make anew.
pub const ATTRIBUTES: u8 = 2;
