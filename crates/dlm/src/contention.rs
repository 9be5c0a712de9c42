//! When is a resource fought over? More than so many events in a window, and for a while after.

use std::collections::VecDeque;
use std::time::Duration;

use base::Tick;

/// How contention is judged.
#[derive(Debug, Clone, Copy)]
pub struct ContentionRule {
    /// More events than this in the window are contention.
    pub max: usize,
    /// The window.
    pub window: Duration,
    /// How long contention is assumed to last once seen.
    pub hold: Duration,
}

/// The recent events of one resource; at most `max + 1` of them are remembered.
#[derive(Debug, Default)]
pub struct Contention {
    recent: VecDeque<Tick>,
    until: Option<Tick>,
}

impl Contention {
    /// Notes one event. True if it is the one that makes the resource contended.
    pub fn note(&mut self, now: Tick, rule: ContentionRule) -> bool {
        if self.holds(now) {
            return false;
        }
        self.until = None;
        while self
            .recent
            .front()
            .is_some_and(|at| now.since(*at) >= rule.window)
        {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let contended = self.recent.len() > rule.max;
        if contended {
            self.recent.clear();
            self.until = Some(now.after(rule.hold));
        }
        contended
    }

    /// The resource is contended now.
    pub fn holds(&self, now: Tick) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// When there will be nothing left to remember; `None` if there is nothing now.
    pub fn forgotten_at(&self, rule: ContentionRule) -> Option<Tick> {
        self.until
            .or_else(|| self.recent.back().map(|last| last.after(rule.window)))
    }

    /// Nothing is remembered.
    #[cfg(test)]
    fn is_idle(&self) -> bool {
        self.until.is_none() && self.recent.is_empty()
    }

    /// Forgets what has run out.
    pub fn expire(&mut self, now: Tick, rule: ContentionRule) {
        if self.forgotten_at(rule).is_some_and(|at| at <= now) {
            *self = Contention::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: ContentionRule = ContentionRule {
        max: 2,
        window: Duration::from_secs(4),
        hold: Duration::from_secs(30),
    };

    fn at(seconds: u64) -> Tick {
        Tick::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_burst_is_contention_for_a_while() {
        let mut contention = Contention::default();
        assert!(!contention.note(at(0), RULE) && !contention.note(at(1), RULE));
        assert!(
            contention.note(at(3), RULE),
            "the third within four seconds"
        );
        assert!(
            !contention.note(at(10), RULE) && contention.holds(at(32)) && !contention.holds(at(33))
        );
        contention.expire(at(33), RULE);
        assert!(contention.is_idle());
    }

    #[test]
    fn a_slow_trickle_is_not() {
        let mut contention = Contention::default();
        assert!((0..20).all(|second| !contention.note(at(2 * second), RULE)));
        assert_eq!(contention.forgotten_at(RULE), Some(at(42)));
    }
}
