//! Whether the other end of a connection still lives. Pure.

use base::Tick;
use base::limits::{KEEPALIVE_DEAD, KEEPALIVE_IDLE};

/// What to do about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Nothing.
    Fine,
    /// Ask whether anybody is there.
    Ping,
    /// Nobody is: disconnect.
    Dead,
}

/// Watches how far the bytes have come.
#[derive(Debug)]
pub struct Keepalive {
    progress: u64,
    heard: Tick,
    pinged: bool,
}

impl Keepalive {
    /// A connection made at `now`.
    pub fn new(now: Tick) -> Keepalive {
        Keepalive {
            progress: 0,
            heard: now,
            pinged: false,
        }
    }

    /// `progress` grows whenever the other end shows a sign of life.
    pub fn poll(&mut self, now: Tick, progress: u64) -> Health {
        if progress != self.progress {
            *self = Keepalive {
                progress,
                ..Keepalive::new(now)
            };
        }
        let silent = now.since(self.heard);
        if silent >= KEEPALIVE_DEAD {
            Health::Dead
        } else if silent >= KEEPALIVE_IDLE && !self.pinged {
            self.pinged = true;
            Health::Ping
        } else {
            Health::Fine
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn asks_once_then_gives_up() {
        let start = Tick::default().after(Duration::from_secs(5));
        let at = |after: Duration| start.after(after);
        let mut keepalive = Keepalive::new(start);
        assert_eq!(keepalive.poll(at(KEEPALIVE_IDLE / 2), 0), Health::Fine);
        assert_eq!(keepalive.poll(at(KEEPALIVE_IDLE), 0), Health::Ping);
        assert_eq!(keepalive.poll(at(KEEPALIVE_IDLE), 0), Health::Fine);
        assert_eq!(keepalive.poll(at(KEEPALIVE_DEAD), 0), Health::Dead);
    }

    #[test]
    fn a_byte_is_a_sign_of_life() {
        let at = |after: Duration| Tick::default().after(after);
        let mut keepalive = Keepalive::new(at(Duration::ZERO));
        assert_eq!(keepalive.poll(at(KEEPALIVE_IDLE), 0), Health::Ping);
        assert_eq!(keepalive.poll(at(KEEPALIVE_DEAD), 1), Health::Fine);
        let later = KEEPALIVE_DEAD + KEEPALIVE_IDLE;
        assert_eq!(keepalive.poll(at(later), 1), Health::Ping);
    }
}
