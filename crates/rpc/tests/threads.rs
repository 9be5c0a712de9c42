//! No thread outlives its owner. Alone in its process, as it counts the process's threads.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should panic")]

mod support;

use std::time::{Duration, Instant};

use rpc::Batch;
use support::*;

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// The kernel may list a thread for a moment after it was joined.
fn threads_left(before: usize) -> usize {
    let late = Instant::now() + Duration::from_secs(1);
    while threads() > before && Instant::now() < late {
        std::thread::yield_now();
    }
    threads()
}

#[test]
fn none_is_left() {
    let before = threads();
    for over in [
        Over::Tcp,
        Over::Unix,
        Over::Mem,
        Over::DelayedTcp,
        Over::DelayedMem,
    ] {
        let mut place = Place::new(over);
        let (server, service) = place.serve(1);
        let (peer, _) = place.peer();
        let bulk = peer.call_bulk(Batch {
            bulk: vec![0; 1 << 20].into(),
            ..Batch::of(ECHO, Vec::new())
        });
        bulk.wait().unwrap();
        assert!(threads() >= before + 8, "{over:?}: both lanes are up");
        peer.disconnect();
        echo(&peer, "again");
        let parked = peer.call(Batch::of(PARK, Vec::new()));
        service.wait_for_line("parked");
        peer.close();
        assert!(parked.wait().is_err());
        server.stop();
        assert_eq!(threads_left(before), before, "{over:?}");

        // The other way round: the server goes first, the client is in the middle of its search.
        let (server, _) = place.serve(2);
        let (peer, _) = place.peer();
        echo(&peer, "hello");
        drop(server);
        drop(peer);
        assert_eq!(threads_left(before), before, "{over:?}");
    }
}
