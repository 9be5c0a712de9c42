//! What travels between processes: frames, the handshake, and the messages inside; no sockets.
//!
//! docs/wire.md is the normative text; bytes are asserted by golden tests.

pub mod attr;
pub mod codec;
pub mod frame;
pub mod handshake;
pub mod hash;
pub mod mdt;
pub mod mgs;
pub mod opcode;
mod open;
mod operations;
pub mod ost;
pub mod page;
pub mod shape;
pub mod update;
pub mod xattr;

pub use attr::{Attr, Cover, DirState, FileKind, Grant, Node, SizeState};
pub use codec::{DecodeError, UNCHANGED, decode, encode, status_from, status_of};
