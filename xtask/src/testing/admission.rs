//! When the next test program may start: a pure policy over what runs and how idle the machine is.

use std::time::Duration;

/// Programs that run at a time, as a rule: most of them wait for servers and clocks.
pub const JOBS: usize = 4;
/// The next program starts when this share of the machine had nothing to do.
const IDLE_MIN: f64 = 0.4;
/// What the last program costs is seen only after this long.
const PAUSE: Duration = Duration::from_secs(2);

/// What the policy looks at.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Programs that run.
    pub running: usize,
    /// The share of all processors' time that was idle lately, 0 to 1.
    pub idle: f64,
}

/// The policy.
#[derive(Debug)]
pub struct Admission {
    jobs: usize,
    last_start: Option<Duration>,
}

impl Admission {
    /// At most `jobs` programs at a time.
    pub fn new(jobs: usize) -> Admission {
        Admission {
            jobs,
            last_start: None,
        }
    }

    /// Whether a program starts at `now`; if so, the policy counts it as started.
    pub fn may_start(&mut self, now: Duration, machine: Machine) -> bool {
        let is_settled = self.last_start.is_none_or(|start| now >= start + PAUSE);
        let has_room = machine.running < self.jobs && machine.idle >= IDLE_MIN && is_settled;
        let may = machine.running == 0 || has_room;
        if may {
            self.last_start = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn machine(running: usize, idle: f64) -> Machine {
        Machine { running, idle }
    }

    #[test]
    fn one_program_always_runs() {
        let mut admission = Admission::new(1);
        assert!(admission.may_start(at(0), machine(0, 0.0)));
        assert!(!admission.may_start(at(60), machine(1, 1.0)));
        assert!(admission.may_start(at(60), machine(0, 0.0)));
    }

    #[test]
    fn others_start_while_a_processor_is_idle_and_the_last_one_has_settled() {
        let mut admission = Admission::new(3);
        assert!(admission.may_start(at(0), machine(0, 1.0)));
        assert!(!admission.may_start(at(1), machine(1, 1.0)));
        assert!(!admission.may_start(at(5), machine(1, 0.1)));
        assert!(admission.may_start(at(5), machine(1, 0.5)));
        assert!(admission.may_start(at(9), machine(2, 0.5)));
        assert!(!admission.may_start(at(20), machine(3, 1.0)));
    }
}
