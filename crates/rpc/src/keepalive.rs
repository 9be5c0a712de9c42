//! Whether the other end of a connection still lives. Pure.

use base::Tick;
use base::limits::{KEEPALIVE_BYTES, KEEPALIVE_DEAD, KEEPALIVE_IDLE};

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

/// What has come so far of a connection, or was taken from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Whole frames.
    pub frames: u64,
    /// Bytes, those of frames that are not whole yet too.
    pub bytes: u64,
}

impl Progress {
    /// Somebody who means well is at the other end: a frame came since `before`, or much of one.
    fn is_life(self, before: Progress) -> bool {
        self.frames != before.frames || self.bytes.wrapping_sub(before.bytes) >= KEEPALIVE_BYTES
    }
}

/// Watches how far the bytes have come.
#[derive(Debug)]
pub struct Keepalive {
    /// At the last sign of life.
    progress: Progress,
    heard: Tick,
    pinged: bool,
}

impl Keepalive {
    /// A connection made at `now`.
    pub fn new(now: Tick) -> Keepalive {
        Keepalive {
            progress: Progress::default(),
            heard: now,
            pinged: false,
        }
    }

    /// `progress` grows with what the other end sends.
    pub fn poll(&mut self, now: Tick, progress: Progress) -> Health {
        if progress.is_life(self.progress) {
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

    fn at(after: Duration) -> Tick {
        Tick::default().after(after)
    }

    fn came(frames: u64, bytes: u64) -> Progress {
        Progress { frames, bytes }
    }

    #[test]
    fn asks_once_then_gives_up() {
        let start = Tick::default().after(Duration::from_secs(5));
        let at = |after: Duration| start.after(after);
        let mut keepalive = Keepalive::new(start);
        let none = Progress::default();
        assert_eq!(keepalive.poll(at(KEEPALIVE_IDLE / 2), none), Health::Fine);
        assert_eq!(keepalive.poll(at(KEEPALIVE_IDLE), none), Health::Ping);
        assert_eq!(keepalive.poll(at(KEEPALIVE_IDLE), none), Health::Fine);
        assert_eq!(keepalive.poll(at(KEEPALIVE_DEAD), none), Health::Dead);
    }

    #[test]
    fn a_frame_or_much_of_one_is_a_sign_of_life() {
        for life in [came(1, 32), came(0, KEEPALIVE_BYTES)] {
            let mut keepalive = Keepalive::new(at(Duration::ZERO));
            assert_eq!(keepalive.poll(at(KEEPALIVE_IDLE), came(0, 0)), Health::Ping);
            assert_eq!(keepalive.poll(at(KEEPALIVE_DEAD), life), Health::Fine);
            let later = KEEPALIVE_DEAD + KEEPALIVE_IDLE;
            assert_eq!(keepalive.poll(at(later), life), Health::Ping);
        }
    }

    #[test]
    fn a_large_frame_may_take_as_long_as_its_link_is_slow() {
        let mut keepalive = Keepalive::new(at(Duration::ZERO));
        let step = KEEPALIVE_DEAD / 2;
        for steps in 1..100 {
            let some = came(0, u64::from(steps) * KEEPALIVE_BYTES / 2);
            assert_ne!(keepalive.poll(at(step * steps), some), Health::Dead);
        }
    }

    #[test]
    fn pings_that_fill_up_a_frame_are_no_sign_of_life() {
        let mut keepalive = Keepalive::new(at(Duration::ZERO));
        let pings = |steps: u32| came(0, 500_000 + 64 * u64::from(steps));
        let health = (0..=4).map(|steps| keepalive.poll(at(KEEPALIVE_IDLE * steps), pings(steps)));
        let health: Vec<Health> = health.collect();
        let expected = [
            Health::Fine,
            Health::Ping,
            Health::Fine,
            Health::Fine,
            Health::Dead,
        ];
        assert_eq!(health, expected);
    }
}
