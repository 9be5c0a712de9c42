//! What a mount waits for at its end, for the person who waits with it.

use rpc::{Peer, PeerState};

use crate::session::client::Client;

impl Client {
    /// One line: what servers do not have yet, and what each target has to answer.
    pub fn backlog(&self) -> String {
        let (unsent, undurable) = self.lock().unsettled_bytes();
        let closing = self.lock().policies.writeback.closing().len();
        let targets = self.0.cluster.peers().map(standing);
        let targets = Vec::from_iter(targets).join(", ");
        format!(
            "{unsent} bytes unsent, {undurable} not durable, {closing} files to close; {targets}"
        )
    }
}

fn standing(peer: &Peer) -> String {
    let (target, calls) = (peer.target(), peer.outstanding());
    match peer.state() {
        PeerState::Connected => format!("{target} has {calls} requests to answer"),
        PeerState::WaitingSince(_) => format!("{target} is away, {calls} requests wait for it"),
        PeerState::Refused(refusal) => format!("{target} refuses this mount: {refusal}"),
        PeerState::Closed => format!("{target} is closed"),
    }
}
