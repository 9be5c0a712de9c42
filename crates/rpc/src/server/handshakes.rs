//! Connections in their handshake: how many there may be, of each source and in all, and which of them must
//! go. The normative text is docs/wire.md, "Silence, floods and garbage".

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use base::limits::{HANDSHAKES_MAX, HANDSHAKES_PER_SOURCE_MAX};
use wire::handshake::{Handshake, Refusal, RefusalReason};

use crate::transport::{Identity, Outgoing, Transport};

/// Who connects, as far as that can be told before the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Root, or who this process runs as: no stranger.
    Own,
    /// A machine, or a network of IPv6, which one machine may have for itself.
    Machine(IpAddr),
    /// Another user of this machine.
    User(u32),
}

impl Source {
    fn of(transport: &dyn Transport) -> Source {
        match (transport.identity().trusted(), transport.identity()) {
            (None, Identity::User(uid)) => Source::User(uid),
            (None, Identity::Unknown) => Source::of_machine(&transport.peer()),
            (Some(_), _) => Source::Own,
        }
    }

    fn of_machine(peer: &str) -> Source {
        let address = peer.split(' ').next().unwrap_or_default();
        let ip = match address.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_canonical(),
            Err(_) => return Source::Own,
        };
        Source::Machine(match ip {
            ip if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V4(_) => ip,
            IpAddr::V6(ip) => {
                let network = ip.to_bits() & !u128::from(u64::MAX);
                Ipv6Addr::from_bits(network).into()
            }
        })
    }
}

/// Connections in their handshake, by the order in which they came.
#[derive(Default)]
pub(super) struct Handshakes {
    pending: BTreeMap<u64, (Source, Arc<dyn Transport>)>,
}

/// A connection that must go for others to come.
pub(super) struct TurnedAway {
    id: u64,
    transport: Arc<dyn Transport>,
    count: usize,
}

impl Handshakes {
    /// One more connection. Where that is one too many: the one that must go, perhaps this one. Who is idle
    /// goes before who has just come, so that a crowd that says nothing keeps nobody out.
    pub(super) fn begin(&mut self, id: u64, transport: &Arc<dyn Transport>) -> Option<TurnedAway> {
        let source = Source::of(&**transport);
        self.pending.insert(id, (source, transport.clone()));
        let gone = self.one_too_many(id, source)?;
        let (of, transport) = self.pending.remove(&gone)?;
        Some(TurnedAway {
            id: gone,
            transport,
            count: self.count(of) + 1,
        })
    }

    fn one_too_many(&self, id: u64, source: Source) -> Option<u64> {
        if source != Source::Own && self.count(source) > HANDSHAKES_PER_SOURCE_MAX {
            return self.oldest(source);
        }
        if self.pending.len() <= HANDSHAKES_MAX {
            return None;
        }
        let sources = self.pending.values().map(|(source, _)| *source);
        let strangers = sources.filter(|source| *source != Source::Own);
        let largest = strangers.max_by_key(|source| self.count(*source));
        match largest {
            Some(largest) if self.count(largest) > self.count(source) => self.oldest(largest),
            _ => Some(id),
        }
    }

    /// It is no longer in its handshake.
    pub(super) fn end(&mut self, id: u64) {
        self.pending.remove(&id);
    }

    fn count(&self, source: Source) -> usize {
        let all = self.pending.values();
        all.filter(|(of, _)| *of == source).count()
    }

    fn oldest(&self, source: Source) -> Option<u64> {
        let mut all = self.pending.iter();
        all.find(|(_, (of, _))| *of == source).map(|(id, _)| *id)
    }
}

impl TurnedAway {
    /// Tells it, and hangs up. True: it is the connection `id`.
    pub(super) fn tell(self, id: u64) -> bool {
        let (peer, count) = (self.transport.peer(), self.count);
        tracing::warn!(
            peer,
            "{count} connections from there are in their handshake: the oldest is told to come again"
        );
        turn_away(
            &*self.transport,
            "too many connections are in their handshake: come again",
        );
        self.id == id
    }
}

/// Tells a connection that the server is busy, if it takes that at once, and hangs up.
pub(super) fn turn_away(transport: &dyn Transport, text: &str) {
    let refusal = Handshake::Refusal(Refusal::new(RefusalReason::Busy, text));
    if let Ok(mut outgoing) = Outgoing::new(&refusal.to_frame(), false) {
        // An error means that the peer has gone.
        let _ = transport.try_send(&mut outgoing);
    }
    transport.shutdown();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_one_source_whatever_its_port_or_its_place_in_its_network() {
        let of = Source::of_machine;
        assert_eq!(of("127.0.0.1:5"), of("127.9.9.9:6"));
        assert_eq!(of("127.0.0.1:5"), of("[::1]:6"));
        assert_eq!(of("10.0.0.1:5"), of("[::ffff:10.0.0.1]:6"));
        assert_eq!(of("[2001:db8::1]:5"), of("[2001:db8::ff:2]:6"));
        assert_ne!(of("[2001:db8::1]:5"), of("[2001:db8:0:1::1]:5"));
        assert_ne!(of("10.0.0.1:5"), of("10.0.0.2:5"));
    }
}
