//! Who says that a target has lost changes that it had called durable. Any client can say so, and what
//! one says ends that client's session only; the target stops when it is known independently: from who
//! speaks for targets, or from clients of two machines (ADR 15).

use std::net::SocketAddr;

use super::connected::PeerInfo;

/// Where clients come from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// This machine, as far as can be seen.
    Here,
    /// Another one.
    At(std::net::IpAddr),
}

/// The places of clients that have seen a later copy of a target.
#[derive(Debug, Default)]
pub(super) struct Doubters {
    first: Option<Place>,
}

impl Doubters {
    /// One more says so. True: that is reason enough for the target to stop.
    pub(super) fn hear(&mut self, who: &PeerInfo) -> bool {
        let place = place_of(&who.address);
        let is_other = self.first.as_ref().is_some_and(|first| *first != place);
        self.first.get_or_insert(place);
        is_other || who.is_server()
    }
}

fn place_of(address: &str) -> Place {
    let ip = address.parse::<SocketAddr>().ok();
    let ip = ip.map(|address| address.ip().to_canonical());
    match ip.filter(|ip| !ip.is_loopback()) {
        Some(ip) => Place::At(ip),
        None => Place::Here,
    }
}

#[cfg(test)]
mod tests {
    use wire::handshake::{ClientUuid, Credential};

    use super::*;

    fn from(address: &str, credential: Credential) -> PeerInfo {
        PeerInfo {
            uuid: ClientUuid([1; 16]),
            incarnation: 1,
            address: address.to_owned(),
            uid: None,
            credential,
            was_given_up: false,
        }
    }

    #[test]
    fn two_machines_are_believed_and_two_ports_of_one_are_not() {
        let client = |address| from(address, Credential::Client);
        let mut doubters = Doubters::default();
        for again in [
            "127.0.0.1:5",
            "[::1]:6",
            "127.0.0.2:7",
            "unix:/s (pid 3)",
            "mem:here",
        ] {
            assert!(!doubters.hear(&client(again)), "{again}");
        }
        assert!(doubters.hear(&client("10.0.0.2:7")));
        let mut doubters = Doubters::default();
        assert!(!doubters.hear(&client("10.0.0.2:7")));
        assert!(!doubters.hear(&client("10.0.0.2:8")));
        assert!(!doubters.hear(&client("[::ffff:10.0.0.2]:8")));
        assert!(doubters.hear(&client("10.0.0.3:7")));
    }

    #[test]
    fn who_speaks_for_targets_is_believed() {
        let mut doubters = Doubters::default();
        assert!(doubters.hear(&from("127.0.0.1:5", Credential::Server)));
    }
}
