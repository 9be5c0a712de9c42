//! Workloads: real programs on a file system, timed and counted.

mod effort;
pub mod flat;
mod measured;
mod quiet;
pub mod stream;
mod system;
pub mod upcall;
pub mod walk;
pub mod wbc;
pub mod xfast;

pub use effort::Effort;
pub use flat::{FlatConfig, flat};
pub use stream::{StreamConfig, stream};
pub use system::{Cold, Setting, System, Tunable};
pub use upcall::upcalls;
pub use walk::{Step, WalkConfig, walk};
