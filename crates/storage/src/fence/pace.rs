//! The times of a fence.

use std::time::Duration;

/// How long things take. Each is measured by the clock of the one who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// How often a holder shows that it lives, and looks whether it still holds the fence.
    pub beat: Duration,
    /// How long after such a look it may write.
    pub lease: Duration,
    /// How long a fence must show no life before somebody else claims it.
    pub watch: Duration,
    /// How long a claim must stand, with no life of anybody else, before its maker may write.
    /// Longer than a lease: who held the fence before has noticed, or writes no more.
    pub settle: Duration,
    /// A claim by the machine that held the fence last need not settle if it was made within this time after
    /// its look.
    pub haste: Duration,
    /// How often a fence is looked at by who wants it.
    pub poll: Duration,
}

impl Pace {
    /// As used.
    pub const USUAL: Pace = Pace {
        beat: Duration::from_secs(1),
        lease: Duration::from_secs(4),
        watch: Duration::from_secs(6),
        settle: Duration::from_secs(5),
        haste: Duration::from_secs(1),
        poll: Duration::from_millis(100),
    };
}
