//! Which target a peer reaches, and how.

use std::time::Duration;

use base::TargetName;
use wire::handshake::{ClientSecret, Credential, Key};

use super::clocks::Clocks;
use crate::address::Address;
use crate::session::{Keeping, Legacy};

/// What a call does when the target is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Waits until it is back.
    Hard,
    /// Fails with `Disrupted::Timeout` when the answer takes longer.
    Soft {
        /// From the call on.
        timeout: Duration,
    },
    /// As soft, for who has nothing to lose and asks a person: a refusal ends it, proven or not.
    Trial {
        /// From the call on; none: as long as it takes.
        timeout: Option<Duration>,
    },
}

impl Policy {
    pub(crate) fn is_trial(self) -> bool {
        matches!(self, Policy::Trial { .. })
    }

    pub(super) fn timeout(self) -> Option<Duration> {
        match self {
            Policy::Hard => None,
            Policy::Soft { timeout } => Some(timeout),
            Policy::Trial { timeout } => timeout,
        }
    }
}

/// Whom to reach, and how.
#[derive(Debug, Clone)]
pub struct PeerConfig {
    /// The target.
    pub target: TargetName,
    /// Where it may be at first; tried in turn. See [`crate::Peer::set_addresses`].
    pub addresses: Vec<Address>,
    /// What the mount alone knows, by which it is known.
    pub secret: ClientSecret,
    /// Which incarnation of that mount.
    pub incarnation: u64,
    /// The key that both ends prove, where the kernel does not vouch for them.
    pub key: Option<Key>,
    /// Whose key that is.
    pub credential: Credential,
    /// Speak to addresses beyond loopback although connections are not encrypted.
    pub insecure: bool,
    /// What a call does when the target is away.
    pub policy: Policy,
    /// Connections: 1, or 2 with one for bulk data, or up to one for each lane
    /// where the target is far away.
    pub lanes: u8,
    /// Whether what was done is kept until it is durable.
    pub keeping: Keeping,
    /// The session of a process whose place this one takes.
    pub legacy: Option<Legacy>,
    /// The servers of whose clocks a person was told: one for all peers of a process.
    pub clocks: Clocks,
}
