//! Ports that no other process takes, for servers that must listen at the same address again, or at one known
//! before they start.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the system gives away.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// An address on loopback at which nobody listens. Processes begin at different places, and none
/// gives an address twice.
pub fn free_address() -> String {
    free_address_of("127.0.0.1")
}

/// The same of `host`, which is this one.
pub fn free_address_of(host: &str) -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let address = format!("{host}:{}", FIRST + (begin + offset) % COUNT);
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
    panic!("no port is free");
}
