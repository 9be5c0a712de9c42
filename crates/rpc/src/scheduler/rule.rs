//! Rules: which requests they are about, and how fast those may go.

use std::fmt;

use base::ClientId;

use super::bucket::Limit;
use crate::server::PeerInfo;

/// What the scheduler must know of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// What is asked, by its name.
    pub operation: &'static str,
    /// Who asks, where the request says so.
    pub uid: Option<u32>,
    /// Others may wait for it: it is never held, and costs nothing.
    pub urgent: bool,
}

impl Nature {
    /// What makes no sense is refused at once.
    pub const NONSENSE: Nature = Nature {
        operation: "",
        uid: None,
        urgent: true,
    };
}

/// What rules of a target may speak of.
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary {
    /// The names of its operations.
    pub operations: &'static [&'static str],
    /// Some of its requests say who asks.
    pub uids: bool,
}

/// Whose requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientPattern {
    /// The client of this number, as the target's log has it: `0x7`.
    Id(ClientId),
    /// Mounts whose UUID begins with these digits.
    Uuid(String),
    /// Clients at this address, with or without a port.
    Address(String),
}

impl ClientPattern {
    /// Understands each form.
    pub(super) fn parse(text: &str) -> Option<ClientPattern> {
        if text.is_empty() {
            return None;
        }
        if let Some(digits) = text.strip_prefix("0x") {
            let id = u64::from_str_radix(digits, 16).ok()?;
            return Some(ClientPattern::Id(ClientId(id)));
        }
        let hex = text.len() <= 32 && text.chars().all(|c| c.is_ascii_hexdigit());
        Some(match hex {
            true => ClientPattern::Uuid(text.to_ascii_lowercase()),
            false => ClientPattern::Address(text.to_owned()),
        })
    }

    fn fits(&self, client: ClientId, peer: &PeerInfo) -> bool {
        match self {
            ClientPattern::Id(id) => *id == client,
            ClientPattern::Uuid(prefix) => peer.uuid.to_string().starts_with(prefix),
            ClientPattern::Address(address) => {
                let host = peer.address.rsplit_once(':').map(|(host, _)| host);
                *address == peer.address || host == Some(address)
            }
        }
    }
}

impl fmt::Display for ClientPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientPattern::Id(id) => fmt::Display::fmt(id, f),
            ClientPattern::Uuid(text) | ClientPattern::Address(text) => f.write_str(text),
        }
    }
}

/// Who shares a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Each {
    /// All whom the rule is about.
    Rule,
    /// The requests of one client.
    Client,
    /// The requests of one caller.
    Uid,
}

/// One rule. Empty lists fit everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// These operations.
    pub operations: Vec<&'static str>,
    /// These clients.
    pub clients: Vec<ClientPattern>,
    /// These callers; who is not named by the request is none of them.
    pub uids: Vec<u32>,
    /// Who shares a bucket.
    pub each: Each,
    /// How fast they may go.
    pub limit: Limit,
}

impl Rule {
    /// The rule is about this request.
    pub(super) fn fits(&self, client: ClientId, peer: &PeerInfo, nature: &Nature) -> bool {
        let operation = self.operations.is_empty() || self.operations.contains(&nature.operation);
        let mut uids = self.uids.iter();
        let caller = match nature.uid {
            Some(uid) => self.uids.is_empty() || uids.any(|known| *known == uid),
            None => self.uids.is_empty() && self.each != Each::Uid,
        };
        let mut clients = self.clients.iter();
        let whose = self.clients.is_empty() || clients.any(|pattern| pattern.fits(client, peer));
        operation && caller && whose
    }
}

/// As it would be set again.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start {}", self.name)?;
        list(f, "opcode", &self.operations)?;
        list(f, "client", &self.clients)?;
        list(f, "uid", &self.uids)?;
        match self.each {
            Each::Rule => {}
            Each::Client => f.write_str(" each=client")?,
            Each::Uid => f.write_str(" each=uid")?,
        }
        write!(f, " rate={} burst={}", self.limit.rate, self.limit.burst)
    }
}

fn list(f: &mut fmt::Formatter<'_>, field: &str, values: &[impl fmt::Display]) -> fmt::Result {
    if values.is_empty() {
        return Ok(());
    }
    let values: Vec<String> = values.iter().map(ToString::to_string).collect();
    write!(f, " {field}={{{}}}", values.join(","))
}
