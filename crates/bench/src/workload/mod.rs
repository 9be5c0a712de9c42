//! Workloads: real programs on a file system, timed and counted.

pub mod flat;
mod measured;
mod quiet;
pub mod stream;
mod system;
pub mod upcall;
pub mod walk;
pub mod xfast;

pub use flat::{FlatConfig, flat};
pub use stream::{StreamConfig, stream};
pub use system::{Cold, Setting, System, Tunable};
pub use upcall::upcalls;
pub use walk::{Step, WalkConfig, walk};
