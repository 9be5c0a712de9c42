//! A token bucket. Whole numbers only: no token is made or lost by rounding.

use std::time::Duration;

use base::Tick;

/// A token, in the units in which they come: one for each nanosecond at a rate of one a second.
const TOKEN: i128 = 1_000_000_000;

/// How fast tokens come, and how many are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Tokens a second. At least one.
    pub rate: u32,
    /// Tokens kept while nobody wants any. At least one.
    pub burst: u32,
}

/// A bucket of tokens, full at first.
#[derive(Debug)]
pub(super) struct Bucket {
    limit: Limit,
    /// What it holds; less than nothing: what is owed.
    level: i128,
    /// Up to when tokens are counted.
    at: Tick,
}

impl Bucket {
    pub fn full(limit: Limit, now: Tick) -> Bucket {
        Bucket {
            limit,
            level: i128::from(limit.burst) * TOKEN,
            at: now,
        }
    }

    /// Tokens came until now.
    pub fn fill(&mut self, now: Tick) {
        let passed = now.since(self.at).as_nanos() as i128;
        self.level += passed * i128::from(self.limit.rate);
        self.at = self.at.max(now);
    }

    /// Nobody waits for tokens: no more are kept than it holds.
    pub fn level_off(&mut self) {
        self.level = self.level.min(i128::from(self.limit.burst) * TOKEN);
    }

    /// Takes `tokens` if it holds as many.
    pub fn take(&mut self, tokens: u64) -> bool {
        let cost = i128::from(tokens) * TOKEN;
        let enough = self.level >= cost;
        if enough {
            self.level -= cost;
        }
        enough
    }

    /// Takes `tokens` that it may not hold.
    pub fn owe(&mut self, tokens: u64) {
        self.level -= i128::from(tokens) * TOKEN;
    }

    /// When it will hold `tokens`, if none are taken before.
    pub fn due(&self, tokens: u64) -> Tick {
        let missing = i128::from(tokens) * TOKEN - self.level;
        let rate = i128::from(self.limit.rate);
        let nanos = (missing.max(0) + rate - 1) / rate;
        self.at.after(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }

    /// As good as new: to forget it changes nothing.
    pub fn is_full(&self) -> bool {
        self.level >= i128::from(self.limit.burst) * TOKEN
    }

    /// Another limit from now on.
    pub fn change(&mut self, limit: Limit) {
        self.limit = limit;
    }
}
