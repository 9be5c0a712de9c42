//! The only crate that knows the kernel's FUSE protocol and errno numbers. [`kernel`] speaks the protocol and
//! knows no file system; [`translate`] turns each request into a call of the client.

pub mod kernel;
pub mod translate;
