//! What all calls share: the servers, the locks, what is known under them, and the kernel.

mod audit;
pub(crate) mod birth_reporter;
pub(crate) mod client;
pub(crate) mod cluster;
pub(crate) mod dir_handle;
pub(crate) mod file_handle;
pub(crate) mod gathering;
pub(crate) mod handles;
pub(crate) mod idle_executions;
pub mod kernel;
pub(crate) mod lease_wishes;
pub(crate) mod locks;
pub(crate) mod long_appends;
pub mod params;
pub(crate) mod sequence;
pub(crate) mod servers;
pub(crate) mod stalls;
pub(crate) mod state;
pub mod stats;
pub(crate) mod taken_over;
