//! When the supervisor replaces a worker that has ended, and when it gives the mount up. Pure: times and
//! what the worker left are arguments (docs/adr/0011-supervisor.md).

use std::time::{Duration, Instant};

/// A worker that fails sooner has perhaps met what every other will meet.
const SOON: Duration = Duration::from_secs(1);
/// Workers in a row that got nowhere, before the mount is given up.
const ROW_MAX: u32 = 10;
/// And the time since the first of them began: a process that kills them quickly may yet let one get on.
const ROW_MIN: Duration = Duration::from_secs(10);
/// The wait before the next worker after the second in a row; doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// The end of a worker.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// When it was started.
    pub began: Instant,
    /// When it was found to have ended.
    pub at: Instant,
    /// The incarnation in the memory after its end.
    pub incarnation: u64,
    /// That incarnation had put in order what the one before had left.
    pub settled: bool,
    /// It was killed from outside, which says nothing about the next one.
    pub killed: bool,
}

/// What the supervisor does then.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Another worker is started after this time.
    GoOn { pause: Duration },
    /// None is: so many in a row got nowhere.
    GiveUp { row: u32 },
}

/// Workers in a row that got nowhere.
#[derive(Debug, Default)]
pub struct CrashLoop {
    row: u32,
    /// The first of them.
    row_began: Option<Instant>,
    /// The last incarnation that opened the memory.
    incarnation: u64,
}

impl CrashLoop {
    /// A worker has ended that was not asked to.
    pub fn after(&mut self, ended: Ended) -> Next {
        let row_began = *self.row_began.get_or_insert(ended.began);
        // The memory that a worker has not opened tells of the one before.
        let opened = ended.incarnation != self.incarnation;
        self.incarnation = ended.incarnation;
        let failed_soon = !ended.killed && ended.at.duration_since(ended.began) < SOON;
        if opened && ended.settled && !failed_soon {
            (self.row, self.row_began) = (0, None);
            return Next::GoOn {
                pause: Duration::ZERO,
            };
        }
        self.row += 1;
        if self.row >= ROW_MAX && ended.at.duration_since(row_began) >= ROW_MIN {
            return Next::GiveUp { row: self.row };
        }
        let pause = match self.row {
            1 => Duration::ZERO,
            row => PAUSE_FIRST * (1 << (row - 2).min(4)),
        };
        Next::GoOn { pause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers one after the other, each of which lives for `SOON`.
    struct Workers {
        crash_loop: CrashLoop,
        now: Instant,
    }

    impl Workers {
        fn new() -> Workers {
            Workers {
                crash_loop: CrashLoop::default(),
                now: Instant::now(),
            }
        }

        fn end(&mut self, incarnation: u64, settled: bool, killed: bool) -> Next {
            let began = self.now;
            self.now += SOON;
            self.crash_loop.after(Ended {
                began,
                at: self.now,
                incarnation,
                settled,
                killed,
            })
        }
    }

    const AT_ONCE: Next = Next::GoOn {
        pause: Duration::ZERO,
    };

    #[test]
    fn a_worker_that_has_not_opened_the_memory_is_not_settled() {
        let mut workers = Workers::new();
        assert_eq!(workers.end(1, true, true), AT_ONCE, "the first");
        // What is in the memory stays that of the first.
        for row in 1..ROW_MAX {
            let next = workers.end(1, true, true);
            assert!(matches!(next, Next::GoOn { .. }), "{row}: {next:?}");
        }
        assert_eq!(workers.end(1, true, true), Next::GiveUp { row: ROW_MAX });
    }

    #[test]
    fn killed_workers_that_had_taken_over_are_replaced_without_end() {
        let mut workers = Workers::new();
        for incarnation in 1..5 * u64::from(ROW_MAX) {
            assert_eq!(workers.end(incarnation, true, true), AT_ONCE);
        }
    }

    #[test]
    fn a_row_ends_with_a_worker_that_takes_over() {
        let mut workers = Workers::new();
        assert_eq!(workers.end(1, true, true), AT_ONCE);
        for incarnation in 2..100 {
            let settles = incarnation % u64::from(ROW_MAX) == 0;
            let next = workers.end(incarnation, settles, true);
            assert!(matches!(next, Next::GoOn { .. }), "{incarnation}: {next:?}");
            assert!(!settles || next == AT_ONCE);
        }
    }

    #[test]
    fn a_row_of_failures_takes_ten_seconds_and_longer_and_longer_pauses() {
        let mut workers = Workers::new();
        let mut pauses = Vec::new();
        let fails = |workers: &mut Workers, incarnation| {
            let began = workers.now;
            workers.now += SOON / 4;
            workers.crash_loop.after(Ended {
                began,
                at: workers.now,
                incarnation,
                settled: true,
                killed: false,
            })
        };
        let began = workers.now;
        let row = loop {
            match fails(&mut workers, pauses.len() as u64 + 1) {
                Next::GoOn { pause } => pauses.push(pause.as_millis()),
                Next::GiveUp { row } => break row,
            }
        };
        assert_eq!(row, 40);
        assert_eq!(workers.now - began, ROW_MIN);
        assert_eq!(pauses[..7], [0, 50, 100, 200, 400, 800, 800]);
    }
}
