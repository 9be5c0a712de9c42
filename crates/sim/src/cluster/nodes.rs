//! The nodes of a cluster: their numbers, clocks and secrets, and how long a client may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, Tick, Timestamp};
use rpc::ClientSecret;

use crate::scheduler::Node;

/// The management service.
pub const MGS: Node = Node(1);
/// The metadata server.
pub const MDT: Node = Node(2);
/// The object servers, by index.
pub const OSTS: [Node; 2] = [Node(3), Node(4)];
/// All that serve a target.
pub const SERVERS: [Node; 3] = [MDT, OSTS[0], OSTS[1]];
const FIRST_CLIENT: u32 = 10;
/// How long a client may take to give a lock back; two thirds of how long it may be gone.
pub const TIMEOUT: Duration = Duration::from_secs(12);

/// The node of a client.
pub fn client_node(number: u32) -> Node {
    Node(FIRST_CLIENT + number)
}

/// The node of one of a supervised client's processes, which take turns.
pub(super) fn seat_node(number: u32, seat: u32) -> Node {
    Node(client_node(number).0 + (seat << 8))
}

/// What a client alone knows on the file system after so many crashes.
pub(super) fn secret_of(number: u32, crashes: u64) -> ClientSecret {
    let mut secret = [0; 16];
    (secret[0], secret[1]) = (number as u8 + 1, crashes as u8);
    ClientSecret(secret)
}

/// The clocks of a node.
pub struct NodeClock {
    start: Instant,
    /// Seconds by which its wall clock is wrong.
    wrong: AtomicI64,
}

impl NodeClock {
    /// The clocks of a node that starts now.
    pub(super) fn new(start: Instant) -> Arc<NodeClock> {
        Arc::new(NodeClock {
            start,
            wrong: AtomicI64::new(0),
        })
    }

    /// Its wall clock jumps.
    pub fn jump(&self, seconds: i64) {
        self.wrong.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for NodeClock {
    fn tick(&self) -> Tick {
        let since = threads::now().duration_since(self.start);
        Tick(since.as_nanos() as u64)
    }

    fn now(&self) -> Timestamp {
        let since = threads::now().duration_since(self.start);
        let wrong = self.wrong.load(Ordering::Relaxed);
        Timestamp {
            secs: 1_800_000_000 + wrong + since.as_secs() as i64,
            nanos: since.subsec_nanos(),
        }
    }
}
