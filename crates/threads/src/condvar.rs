//! A condition variable.

use std::sync::{self, Arc, LockResult, PoisonError};
use std::time::Duration;

use crate::mutex::MutexGuard;
use crate::simulation::{Simulation, Woken, key, simulated};

/// As `std::sync::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

/// As `std::sync::WaitTimeoutResult`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// The time was over.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// One that nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Lets go of the lock until notified.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        if let Some(simulation) = simulated() {
            return self.wait_simulated(&simulation, guard, None).0;
        }
        let (inner, release) = guard.take_apart();
        release.0.guarded(self.0.wait(inner))
    }

    /// Lets go of the lock until notified, or for `timeout`.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        if let Some(simulation) = simulated() {
            let (guard, result) = self.wait_simulated(&simulation, guard, Some(timeout));
            return with_result(guard, result);
        }
        let (inner, release) = guard.take_apart();
        let (taken, timed_out) = match self.0.wait_timeout(inner, timeout) {
            Ok((inner, result)) => (Ok(inner), result.timed_out()),
            Err(poisoned) => {
                let (inner, result) = poisoned.into_inner();
                (Err(PoisonError::new(inner)), result.timed_out())
            }
        };
        with_result(release.0.guarded(taken), WaitTimeoutResult(timed_out))
    }

    /// The same, again and again while `condition` holds and the time is not over.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let until = crate::thread::now() + timeout;
        while condition(&mut guard) {
            let left = until.saturating_duration_since(crate::thread::now());
            if left.is_zero() {
                return Ok((guard, WaitTimeoutResult(true)));
            }
            (guard, _) = self.wait_timeout(guard, left)?;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    #[cold]
    fn wait_simulated<'a, T>(
        &self,
        simulation: &Arc<dyn Simulation>,
        guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> (LockResult<MutexGuard<'a, T>>, WaitTimeoutResult) {
        let (inner, release) = guard.take_apart();
        let mutex = release.0;
        // Nobody else runs before the wait below has begun: no notice is missed.
        drop(inner);
        drop(release);
        let until = timeout.map(|timeout| simulation.now() + timeout);
        let woken = simulation.wait(key(self), until);
        (mutex.lock(), WaitTimeoutResult(woken == Woken::InTime))
    }

    /// Wakes one who waits.
    pub fn notify_one(&self) {
        match simulated() {
            Some(simulation) => simulation.wake(key(self), false),
            None => self.0.notify_one(),
        }
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        match simulated() {
            Some(simulation) => simulation.wake(key(self), true),
            None => self.0.notify_all(),
        }
    }
}

fn with_result<T>(
    guard: LockResult<T>,
    result: WaitTimeoutResult,
) -> LockResult<(T, WaitTimeoutResult)> {
    match guard {
        Ok(guard) => Ok((guard, result)),
        Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), result))),
    }
}
