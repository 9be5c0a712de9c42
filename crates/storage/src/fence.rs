//! The fence of a target: a file that says which process may write to the target. It is for storage that
//! several machines see and whose `flock`s may not (docs/recovery.md, section 12).

mod block;
mod claim;
mod keeper;
mod lease;
mod pace;
mod process;
#[cfg(test)]
mod tests;

pub use keeper::Fence;
pub(crate) use keeper::{FENCE, make, take_all};
pub(crate) use process::kernel;
pub use process::{Process, is_running};
