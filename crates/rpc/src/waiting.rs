//! When to say that we are still waiting: after 10 s, 30 s, a minute, and every minute. Pure.

use std::time::Duration;

use base::Tick;

/// A wait for a target.
#[derive(Debug)]
pub struct Waiting {
    since: Tick,
    next: Duration,
}

impl Waiting {
    /// A wait that began at `since`.
    pub fn new(since: Tick) -> Waiting {
        Waiting {
            since,
            next: Duration::from_secs(10),
        }
    }

    /// When it began.
    pub fn since(&self) -> Tick {
        self.since
    }

    /// How long the wait has been, each time that is due to be said.
    pub fn poll(&mut self, now: Tick) -> Option<Duration> {
        let waited = now.since(self.since);
        if waited < self.next {
            return None;
        }
        while self.next <= waited {
            self.next = match self.next.as_secs() {
                10 => Duration::from_secs(30),
                30 => Duration::from_secs(60),
                more => Duration::from_secs(more / 60 * 60 + 60),
            };
        }
        Some(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_it_at_ten_thirty_sixty_and_every_minute() {
        let mut waiting = Waiting::new(Tick(0));
        let mut said = Vec::new();
        for second in 0..200 {
            let now = Tick::default().after(Duration::from_secs(second));
            said.extend(waiting.poll(now).map(|waited| waited.as_secs()));
        }
        assert_eq!(said, [10, 30, 60, 120, 180]);
    }

    #[test]
    fn a_clock_that_jumps_says_it_once() {
        let mut waiting = Waiting::new(Tick(0));
        let jump = Tick::default().after(Duration::from_secs(1000));
        assert!(waiting.poll(jump).is_some());
        assert!(waiting.poll(jump).is_none());
    }
}
