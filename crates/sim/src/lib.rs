//! A whole cluster in one process: the real client, sessions and servers, on a network, disks and clocks that
//! fail as a seed says (docs/adr/0012-simulated-cluster.md). A [`run`] starts a [`cluster`], lets programs
//! work while [`faults`] come, and [`check`]s what they saw.

pub mod check;
pub mod cluster;
mod entropy;
pub mod excuses;
pub mod faults;
mod fibers;
pub mod garden;
pub mod history;
mod network;
pub mod processor;
pub mod programs;
pub mod run;
pub mod scheduler;
pub mod workers;

/// The product's allocator: a simulated cluster allocates much.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
