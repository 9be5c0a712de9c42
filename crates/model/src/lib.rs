//! The oracle: what a POSIX file system on Linux answers, as simple as possible. Random operations on it and
//! on tmpfs prove it. Callers are root or own all they touch, for the kernel of a mount checks permissions.

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
