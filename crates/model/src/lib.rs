//! The oracle: what a POSIX file system on Linux answers, as simple as can be.
//!
//! - [`Model`] is the truth behind the calls: files by id, names, bytes, attributes.
//! - [`Process`] makes path-level calls on it, as a process under Linux would.
//! - [`Directory`] makes the same calls on a real directory: a mount, or a tmpfs.
//! - [`Generator`] draws [`Op`]s from a seed; [`compare()`] holds a model against a real directory.
//! - [`History`] tells whether a listing that ran beside changes could have been.
//! - [`Trial`] does all of it, operation by operation, on one mount or on several in turn.
//!
//! That the oracle itself is right is proven by running random operations on it and on tmpfs.
//!
//! Invariant: callers are root or own everything they touch: permission bits of others are checked
//! by a mount's kernel, not by what this models. Sticky directories and inherited groups are the
//! file system's own work and are modelled.

pub mod compare;
pub mod directory;
pub mod generate;
pub mod listing;
pub mod namespace;
pub mod node;
pub mod op;
pub mod process;
pub mod trial;

pub use compare::{compare, compare_path};
pub use directory::Directory;
pub use generate::{Generator, Profile};
pub use listing::History;
pub use namespace::Model;
pub use node::{Node, Stat};
pub use op::{Op, OpenHow, Outcome, SLOTS, Seen};
pub use process::Process;
pub use trial::Trial;
