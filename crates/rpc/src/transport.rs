//! Byte carriers: what a connection needs of TCP, Unix sockets, memory and emulated links.

mod carrier;
pub(crate) mod delay;
pub(crate) mod listener;
pub(crate) mod mem;
pub(crate) mod socket;

use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use carrier::{Identity, Incoming, Outgoing, ReceiveError, Transport, Watched};

use crate::address::Address;

/// How long a connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to `address`; beyond loopback only if `insecure` was said.
pub(crate) fn connect(address: &Address, insecure: bool) -> io::Result<Arc<dyn Transport>> {
    match address {
        Address::Tcp(host) => Ok(Arc::new(socket::Socket::connect_tcp(
            host,
            insecure,
            CONNECT_TIMEOUT,
        )?)),
        Address::Unix(path) => Ok(Arc::new(socket::Socket::connect_unix(path)?)),
        Address::Mem(port) => Ok(Arc::new(port.connect()?)),
        Address::Delayed(inner, link) => Ok(Arc::new(delay::Delayed::new(
            connect(inner, insecure)?,
            link.clone(),
        )?)),
    }
}
