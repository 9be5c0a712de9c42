//! The only crate that knows the kernel's FUSE protocol and errno numbers.
//!
//! [`kernel`] speaks the protocol: it reads requests, writes answers and notices, mounts and
//! unmounts. It knows no file system.

pub mod kernel;
