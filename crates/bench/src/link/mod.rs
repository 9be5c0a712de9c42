//! An emulated link: two network namespaces, a TUN device in each, and a thread for each direction that holds
//! packets until their time. Round trip, jitter, bandwidth and loss can change meanwhile. The machine's own
//! network is untouched but for [`FarEnd::Here`].

mod command;
mod control;
mod emulated;
mod interface;
mod namespace;
mod priority;
mod pump;
mod queue;
mod settings;
mod shaper;
mod tun;

pub use command::{CONTROL_VARIABLE, SERVER_VARIABLE, run_behind_link};
pub use control::{Control, send_control};
pub use emulated::{FarEnd, Link, LinkConfig, Traffic};
pub use namespace::Namespace;
pub use pump::Carried;
pub use settings::{LinkSettings, parse_bandwidth, parse_duration, parse_loss};
