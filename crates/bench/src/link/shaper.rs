//! When a packet arrives at the far end: pure arithmetic on ticks, one shaper per direction.

use std::time::Duration;

use base::{Rng, SeededRng, Tick};

use super::settings::LinkSettings;

/// How long packets may wait for a link of limited bandwidth before no more are taken from the
/// sender, whose own queues then fill. The sender slows down and nothing is dropped.
const BACKLOG_MAX: Duration = Duration::from_millis(5);

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives then.
    Due(Tick),
}

/// Assigns each packet its fate, in the order they are sent.
#[derive(Debug)]
pub(crate) struct Shaper {
    rng: SeededRng,
    /// When the wire has carried every packet admitted.
    wire_free: Tick,
    /// No packet overtakes the one before.
    last_due: Tick,
}

impl Shaper {
    /// The same seed gives the same losses and delays.
    pub(crate) fn new(seed: u64) -> Shaper {
        Shaper {
            rng: SeededRng::new(seed),
            wire_free: Tick::default(),
            last_due: Tick::default(),
        }
    }

    /// A packet of that many bytes on the wire, sent now. A lost packet uses the wire as well.
    pub(crate) fn admit(&mut self, now: Tick, wire_bytes: u64, settings: &LinkSettings) -> Fate {
        let mut carried = now;
        if let Some(rate) = settings.bandwidth {
            let nanos = u128::from(wire_bytes) * 8 * 1_000_000_000 / u128::from(rate.max(1));
            let nanos = nanos.min(u128::from(u64::MAX)) as u64;
            carried = self.wire_free.max(now).after(Duration::from_nanos(nanos));
            self.wire_free = carried;
        }
        if settings.loss_ppm > 0 && self.rng.below(1_000_000) < u64::from(settings.loss_ppm) {
            return Fate::Lost;
        }
        let due = carried.after(self.delay(settings)).max(self.last_due);
        self.last_due = due;
        Fate::Due(due)
    }

    /// When the sender may send again, if it has to wait for the wire.
    pub(crate) fn blocked_until(&self, now: Tick, settings: &LinkSettings) -> Option<Tick> {
        settings.bandwidth?;
        let backlog = self.wire_free.since(now);
        (backlog > BACKLOG_MAX).then(|| now.after(backlog - BACKLOG_MAX))
    }

    fn delay(&mut self, settings: &LinkSettings) -> Duration {
        let half = settings.rtt / 2;
        let jitter = (settings.jitter / 2).as_nanos() as u64;
        if jitter == 0 {
            return half;
        }
        let offset = self.rng.below(2 * jitter + 1);
        (half + Duration::from_nanos(offset)).saturating_sub(Duration::from_nanos(jitter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn due(fate: Fate) -> u64 {
        match fate {
            Fate::Due(tick) => tick.0,
            Fate::Lost => panic!("lost"),
        }
    }

    #[test]
    fn half_the_round_trip_each_way() {
        let settings = LinkSettings {
            rtt: Duration::from_millis(5),
            ..LinkSettings::default()
        };
        let mut shaper = Shaper::new(1);
        assert_eq!(
            due(shaper.admit(Tick(MS), 1500, &settings)),
            MS + 5 * MS / 2
        );
    }

    #[test]
    fn a_shorter_round_trip_never_reorders() {
        let mut settings = LinkSettings {
            rtt: Duration::from_millis(50),
            ..LinkSettings::default()
        };
        let mut shaper = Shaper::new(1);
        let first = due(shaper.admit(Tick(0), 1500, &settings));
        settings.rtt = Duration::ZERO;
        assert_eq!(due(shaper.admit(Tick(MS), 1500, &settings)), first);
        assert_eq!(due(shaper.admit(Tick(30 * MS), 1500, &settings)), 30 * MS);
    }

    #[test]
    fn bandwidth_spaces_packets_and_blocks_the_sender() {
        let settings = LinkSettings {
            bandwidth: Some(12_000_000),
            ..LinkSettings::default()
        };
        let mut shaper = Shaper::new(1);
        // 1500 bytes at 12 Mbit/s take one millisecond each.
        for n in 1..=5 {
            assert_eq!(shaper.blocked_until(Tick(0), &settings), None);
            assert_eq!(due(shaper.admit(Tick(0), 1500, &settings)), n * MS);
        }
        assert_eq!(due(shaper.admit(Tick(0), 1500, &settings)), 6 * MS);
        assert_eq!(shaper.blocked_until(Tick(0), &settings), Some(Tick(MS)));
        assert_eq!(shaper.blocked_until(Tick(MS), &settings), None);
    }

    #[test]
    fn loss_is_near_its_rate_and_seeded() {
        let settings = LinkSettings {
            loss_ppm: 100_000,
            ..LinkSettings::default()
        };
        let count = |seed| {
            let mut shaper = Shaper::new(seed);
            (0..10_000)
                .filter(|&n| shaper.admit(Tick(n), 100, &settings) == Fate::Lost)
                .count()
        };
        assert_eq!(count(7), count(7));
        assert!((900..1100).contains(&count(7)), "{}", count(7));
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_varies() {
        let settings = LinkSettings {
            rtt: Duration::from_millis(10),
            jitter: Duration::from_millis(2),
            ..LinkSettings::default()
        };
        let mut shaper = Shaper::new(3);
        let delays: Vec<u64> = (0..1000)
            .map(|n| due(shaper.admit(Tick(n * 100 * MS), 100, &settings)) - n * 100 * MS)
            .collect();
        let (low, high) = (
            delays.iter().min().copied().unwrap(),
            delays.iter().max().copied().unwrap(),
        );
        assert!(low >= 4 * MS && high <= 6 * MS, "{low} {high}");
        assert!(high - low > MS);
    }
}
