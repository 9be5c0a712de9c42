//! Which file system is joined, and how.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::{TargetKind, TargetName};
use rpc::{Address, ClientSecret, Clocks, Keeping, Key, PeerConfig, Policy};
use wire::mgs;

use crate::recovery::takeover::TakeoverState;

/// Finds the way to an address as the configuration spells it.
pub type Reach = Arc<dyn Fn(&str) -> Option<Address> + Send + Sync>;

/// Which file system to join, and how.
#[derive(Clone)]
pub struct MountConfig {
    /// Where the MGS may be; tried in turn.
    pub addresses: Vec<Address>,
    /// Turns an address of the configuration into one to connect to.
    pub reach: Reach,
    /// What this mount and its next process alone know, by which servers know it.
    pub secret: ClientSecret,
    /// The file system's key, needed over TCP.
    pub key: Option<Key>,
    /// Speak beyond loopback although nothing is encrypted.
    pub insecure: bool,
    /// What a call does while a server is away.
    pub policy: Policy,
    /// Asked about once a second while the MGS does not answer at the beginning, with the time waited
    /// so far: whether to wait on.
    pub patience: Patience,
    /// The memory in which what the next process needs is remembered, and what the one before left.
    pub takeover: Option<Arc<TakeoverState>>,
    /// The servers of whose clocks a person was told.
    pub clocks: Clocks,
}

/// Whether to wait on.
pub type Patience = Arc<dyn Fn(Duration) -> bool + Send + Sync>;

/// Why a file system can't be joined.
#[derive(Debug)]
pub enum MountError {
    /// The MGS could not be asked.
    Mgs(String),
    /// The MGS refuses us.
    Refused(String),
    /// The configuration names no MDT, or no OST.
    Incomplete(&'static str),
    /// A target's address can't be used from here.
    Address(TargetName, String),
    /// A thread could not be started.
    Threads(std::io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::Mgs(cause) => write!(f, "the management service did not answer: {cause}"),
            MountError::Refused(why) => write!(f, "the management service refuses: {why}"),
            MountError::Incomplete(what) => write!(
                f,
                "the file system has no {what} yet; start 'glint serve' on a directory that holds one"
            ),
            MountError::Address(target, address) => {
                write!(
                    f,
                    "{target} is said to be at {address}, which is no address"
                )
            }
            MountError::Threads(cause) => write!(f, "a thread could not be started: {cause}"),
        }
    }
}

impl std::error::Error for MountError {}

impl MountConfig {
    pub(crate) fn peer(
        &self,
        target: TargetName,
        addresses: Vec<Address>,
        lanes: u8,
    ) -> PeerConfig {
        PeerConfig {
            target,
            addresses,
            secret: self.secret,
            incarnation: self
                .takeover
                .as_deref()
                .map_or(1, TakeoverState::incarnation),
            key: self.key.clone(),
            credential: rpc::Credential::Client,
            insecure: self.insecure,
            policy: self.policy,
            lanes,
            // What was written is kept with the pages it is in.
            keeping: match target.kind {
                TargetKind::Mdt => Keeping::Changes,
                TargetKind::Mgs | TargetKind::Ost => Keeping::Nothing,
            },
            legacy: None,
            clocks: self.clocks.clone(),
        }
    }
}

/// Where to look for a target. One that listens on all addresses of the MGS's machine is where the
/// MGS is.
pub(crate) fn reachable(
    config: &MountConfig,
    target: &mgs::TargetInfo,
) -> Result<Vec<Address>, MountError> {
    let mut reachable = Vec::new();
    for text in &target.addresses {
        let address =
            (config.reach)(text).ok_or_else(|| MountError::Address(target.name, text.clone()))?;
        let known = reachable.len();
        if address.is_wildcard() {
            let mgs = config.addresses.iter();
            reachable.extend(mgs.filter_map(|mgs| address.at_host_of(mgs)));
        }
        if reachable.len() == known {
            reachable.push(address);
        }
    }
    Ok(reachable)
}
