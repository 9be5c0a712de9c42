//! Work for the timer's stack. What must not run on the stack of the thread that caused it, who may
//! hold a lock that the work wants.

use ::threads::{Condvar, Mutex};
use std::time::Instant;

use crate::threads::{lock, wait_until};

type Job = Box<dyn FnOnce() + Send>;

/// Jobs for the timer.
#[derive(Default)]
pub(super) struct Deferred {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: Vec<Job>,
    stopped: bool,
}

impl Deferred {
    /// Has `job` run on the timer's stack; once that has ended, on the caller's.
    pub(super) fn push(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = lock(&self.state);
        if state.stopped {
            drop(state);
            return job();
        }
        state.jobs.push(Box::new(job));
        self.changed.notify_all();
    }

    /// Runs jobs until `deadline`. False: stopped, every job taken is done.
    pub(super) fn run_until(&self, deadline: Instant) -> bool {
        let mut state = lock(&self.state);
        loop {
            let jobs = std::mem::take(&mut state.jobs);
            let stopped = state.stopped;
            if !jobs.is_empty() {
                drop(state);
                jobs.into_iter().for_each(|job| job());
                state = lock(&self.state);
            } else if stopped || ::threads::now() >= deadline {
                return !stopped;
            } else {
                state = wait_until(&self.changed, state, Some(deadline));
            }
        }
    }

    /// Ends the timer once what was pushed is done.
    pub(super) fn stop(&self) {
        lock(&self.state).stopped = true;
        self.changed.notify_all();
    }
}
