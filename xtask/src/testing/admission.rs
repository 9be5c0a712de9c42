//! When the next test program may start: a pure policy over what runs and how idle the machine is.

/// Programs that run at a time, as a rule: most of them wait for servers and clocks.
pub const JOBS: usize = 6;
/// The next program starts when this share of the machine had nothing to do.
const IDLE_MIN: f64 = 0.3;

/// What the policy looks at.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Programs that run.
    pub running: usize,
    /// The one that was started last is among them.
    pub runs_newest: bool,
    /// The share of all processors' time that was idle since then, 0 to 1; nothing until it is measured.
    pub idle: Option<f64>,
}

/// The policy.
#[derive(Debug)]
pub struct Admission {
    jobs: usize,
    /// How idle the machine was when the newest program was started.
    idle_before: f64,
}

impl Admission {
    /// At most `jobs` programs at a time.
    pub fn new(jobs: usize) -> Admission {
        Admission {
            jobs,
            idle_before: 1.0,
        }
    }

    /// Whether a program starts; if so, the policy counts it as started.
    pub fn may_start(&mut self, machine: Machine) -> bool {
        let idle = match machine.idle {
            _ if machine.running == 0 => 1.0,
            Some(idle) => idle,
            // What that one takes is not known yet,
            None if machine.runs_newest => 0.0,
            // or it was short, and all is as before.
            None => self.idle_before,
        };
        let may = machine.running < self.jobs && idle >= IDLE_MIN;
        if may {
            self.idle_before = idle;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(running: usize, idle: f64) -> Machine {
        Machine {
            running,
            runs_newest: true,
            idle: Some(idle),
        }
    }

    #[test]
    fn one_program_always_runs() {
        let mut admission = Admission::new(1);
        assert!(admission.may_start(machine(0, 0.0)));
        assert!(!admission.may_start(machine(1, 1.0)));
        assert!(admission.may_start(machine(0, 0.0)));
    }

    #[test]
    fn others_start_while_a_processor_is_idle() {
        let mut admission = Admission::new(3);
        assert!(admission.may_start(machine(0, 1.0)));
        assert!(!admission.may_start(machine(1, 0.1)));
        assert!(admission.may_start(machine(1, 0.5)));
        assert!(admission.may_start(machine(2, 0.5)));
        assert!(!admission.may_start(machine(3, 1.0)));
    }

    #[test]
    fn none_starts_until_the_newest_was_measured_or_has_ended() {
        let mut admission = Admission::new(3);
        assert!(admission.may_start(machine(1, 0.5)));
        let newest = |runs_newest| Machine {
            running: 2,
            runs_newest,
            idle: None,
        };
        assert!(!admission.may_start(newest(true)));
        assert!(admission.may_start(newest(false)));
    }
}
