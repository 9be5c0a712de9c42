//! A whole Glint of real processes for tests. Servers and mounts of the real binary, a watchdog
//! that ends what hangs, and programs run with a deadline.

mod binary;
mod busy;
mod bytes;
mod cluster;
mod container;
pub mod deaths;
mod descriptors;
mod faults;
mod git_repository;
pub mod hint;
mod holder;
mod layout;
mod mapping;
mod memory_limit;
mod network;
mod ports;
mod process;
mod program;
mod pulse;
mod server;
mod signalled;
mod small_disk;
mod source_tree;
mod stored;
mod tap;
mod threads;
mod tool;
mod users;
mod watchdog;
mod work;

pub use binary::glint;
pub use busy::BusyProcesses;
pub use bytes::{first_difference, fresh_bytes};
pub use cluster::Cluster;
pub use container::Container;
pub use descriptors::own_descriptors;
pub use faults::{FaultInjection, FaultKind};
pub use git_repository::git_repository;
pub use layout::Layout;
pub use mapping::Mapping;
pub use memory_limit::MemoryLimit;
pub use network::{cut_loopback, in_own_network};
pub use program::{output, run, run_for};
pub use pulse::Pulses;
pub use server::Server;
pub use signalled::Signalled;
pub use small_disk::SmallDisk;
pub use source_tree::{make_source_tree, pack_source_tree, unpack};
pub use stored::StoredBytes;
pub use tap::{Sent, Tap};
pub use tool::tool;
pub use users::TestUser;
pub use watchdog::{PATIENCE, Watch, hung};
pub use work::Work;

use base::Rng;

/// The seed of random tests: `MODEL_SEED`, or a new one each time. Printed, so that a failure can be
/// had again.
pub fn seed() -> u64 {
    let given = std::env::var("MODEL_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        base::SeededRng::new(now.map_or(1, |now| now.as_nanos() as u64)).next_u64() >> 32
    });
    println!("MODEL_SEED={seed}");
    seed
}

/// The number in the environment variable `name`, for longer runs of the same test.
pub fn count(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(usual)
}
