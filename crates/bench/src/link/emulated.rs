//! One emulated link, from when it is made to when it is removed.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use super::interface;
use super::namespace::{self, Namespace};
use super::pump::{Carried, LiveSettings, Pump};
use super::settings::LinkSettings;
use super::tun::Tun;
use crate::error::{BenchError, Result};

/// Networks of four addresses within 198.18.0.0/15, which RFC 2544 sets aside for measurements.
const NETWORKS: u32 = 1 << 15;
const FIRST_NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// Counts the links of this process, for names and addresses.
static LINKS: AtomicU32 = AtomicU32::new(0);

/// Where the server's end of a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FarEnd {
    /// In a namespace of its own.
    #[default]
    Namespace,
    /// In the caller's namespace. Servers that run there already are reached at the link's server address, if
    /// they listen on it or on 0.0.0.0.
    Here,
}

/// What kind of link to make.
#[derive(Debug, Clone, Copy)]
pub struct LinkConfig {
    /// How it behaves at first.
    pub settings: LinkSettings,
    /// Where the server's end is.
    pub far_end: FarEnd,
    /// Bytes in a packet.
    pub mtu: u16,
    /// Decides losses and jitter.
    pub seed: u64,
}

impl Default for LinkConfig {
    fn default() -> LinkConfig {
        LinkConfig {
            settings: LinkSettings::default(),
            far_end: FarEnd::Namespace,
            mtu: 1500,
            seed: 1,
        }
    }
}

/// What both directions have carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// From the client to the server.
    pub to_server: Carried,
    /// From the server to the client.
    pub to_client: Carried,
}

/// A link between a client's namespace and a server's. Removed on drop: devices, threads, namespaces.
/// Processes still inside lose their network then.
#[derive(Debug)]
pub struct Link {
    // Dropped in this order: threads, devices, namespaces.
    to_server: Pump,
    to_client: Pump,
    tuns: [Arc<Tun>; 2],
    client: Namespace,
    server: Namespace,
    live: Arc<LiveSettings>,
    addresses: Addresses,
}

impl Link {
    /// Makes a link. Needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN) and /dev/net/tun.
    ///
    /// Namespaces that killed processes have left behind are removed first.
    pub fn create(config: LinkConfig) -> Result<Link> {
        namespace::remove_stale();
        let number = LINKS.fetch_add(1, Ordering::Relaxed);
        let client = Namespace::create(&format!("{number}a"))?;
        let server = match config.far_end {
            FarEnd::Namespace => Namespace::create(&format!("{number}b"))?,
            FarEnd::Here => Namespace::current()?,
        };
        let addresses = server.run(|| Addresses::unused(number))??;
        let near = device(&client, addresses.client, config.mtu)?;
        let far = device(&server, addresses.server, config.mtu)?;
        let live = Arc::new(LiveSettings::new(config.settings));
        let pump = |name, from: &Arc<Tun>, to: &Arc<Tun>, seed| {
            Pump::start(
                name,
                Arc::clone(from),
                Arc::clone(to),
                Arc::clone(&live),
                seed,
            )
        };
        let link = Link {
            to_server: pump("link-to-server", &near, &far, config.seed)?,
            to_client: pump("link-to-client", &far, &near, config.seed.wrapping_add(1))?,
            tuns: [near, far],
            client,
            server,
            live,
            addresses,
        };
        link.set(config.settings)?;
        Ok(link)
    }

    /// The client's side.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// The server's side.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// The client's address on the link.
    pub fn client_address(&self) -> Ipv4Addr {
        self.addresses.client
    }

    /// The server's address on the link.
    pub fn server_address(&self) -> Ipv4Addr {
        self.addresses.server
    }

    /// How the link behaves now.
    pub fn settings(&self) -> LinkSettings {
        self.live.get()
    }

    /// Changes how the link behaves. Packets already on their way keep their time; none overtakes.
    pub fn set(&self, settings: LinkSettings) -> Result<()> {
        for tun in &self.tuns {
            tun.offer_large_segments(settings.large_segments())?;
        }
        self.live.set(settings);
        self.to_server.wake();
        self.to_client.wake();
        Ok(())
    }

    /// What the link has carried since it was made.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            to_server: self.to_server.carried(),
            to_client: self.to_client.carried(),
        }
    }
}

/// The two addresses of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Addresses {
    server: Ipv4Addr,
    client: Ipv4Addr,
}

impl Addresses {
    fn of_network(index: u32) -> Addresses {
        let first = FIRST_NETWORK + 4 * (index % NETWORKS);
        Addresses {
            server: Ipv4Addr::from(first + 1),
            client: Ipv4Addr::from(first + 2),
        }
    }

    /// A network none of whose addresses the calling thread's namespace has.
    fn unused(number: u32) -> Result<Addresses> {
        let start = std::process::id().wrapping_mul(64).wrapping_add(number);
        (0..64)
            .map(|offset| Addresses::of_network(start.wrapping_add(offset)))
            .find(|addresses| !is_local(addresses.server) && !is_local(addresses.client))
            .ok_or_else(|| {
                BenchError::unavailable(
                    "the addresses of 198.18.0.0/15 are in use here",
                    "end the other links",
                )
            })
    }
}

fn is_local(address: Ipv4Addr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn device(namespace: &Namespace, address: Ipv4Addr, mtu: u16) -> Result<Arc<Tun>> {
    namespace.run(|| {
        let tun = Tun::create(&format!("glint{}-%d", std::process::id()))?;
        interface::configure(tun.name(), address, mtu)?;
        Ok(Arc::new(tun))
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stay_in_the_range_for_measurements() {
        for index in [0, 1, NETWORKS - 1, NETWORKS, u32::MAX] {
            let Addresses { server, client } = Addresses::of_network(index);
            for address in [server, client] {
                assert_eq!(u32::from(address) & 0xfffe_0000, FIRST_NETWORK, "{address}");
            }
            assert_eq!(u32::from(server) & 3, 1);
            assert_eq!(u32::from(client) & 3, 2);
        }
    }
}
