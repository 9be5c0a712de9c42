//! A mutex.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use crate::simulation::{key, simulated, simulation};

/// As `std::sync::Mutex`.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

/// As `std::sync::MutexGuard`.
pub struct MutexGuard<'a, T: ?Sized> {
    // Let go of before the simulation hears of it.
    inner: sync::MutexGuard<'a, T>,
    release: Release<'a, T>,
}

/// Tells a simulation that the lock is free.
pub(crate) struct Release<'a, T: ?Sized>(pub(crate) &'a Mutex<T>);

impl<T: ?Sized> Drop for Release<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(simulation) = simulated() {
            simulation.wake(key(self.0), true);
        }
    }
}

impl<T> Mutex<T> {
    /// A free one.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    /// What it kept.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for it.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match crate::simulation::is_simulated() {
            true => self.lock_simulated(),
            false => self.guarded(self.0.lock()),
        }
    }

    #[cold]
    fn lock_simulated(&self) -> LockResult<MutexGuard<'_, T>> {
        let Some(simulation) = simulation() else {
            return self.guarded(self.0.lock());
        };
        simulation.point();
        loop {
            match self.0.try_lock() {
                Ok(inner) => return self.guarded(Ok(inner)),
                Err(TryLockError::Poisoned(poisoned)) => return self.guarded(Err(poisoned)),
                Err(TryLockError::WouldBlock) => simulation.wait(key(self), None),
            };
        }
    }

    /// Takes it if it is free.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let taken = match self.0.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Ok(inner) => Ok(inner),
        };
        self.guarded(taken).map_err(TryLockError::Poisoned)
    }

    /// What it keeps, to who has it alone.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }

    #[inline]
    pub(crate) fn guarded<'a>(
        &'a self,
        taken: LockResult<sync::MutexGuard<'a, T>>,
    ) -> LockResult<MutexGuard<'a, T>> {
        let release = Release(self);
        match taken {
            Ok(inner) => Ok(MutexGuard { inner, release }),
            Err(poisoned) => {
                let inner = poisoned.into_inner();
                Err(PoisonError::new(MutexGuard { inner, release }))
            }
        }
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    #[inline]
    pub(crate) fn take_apart(self) -> (sync::MutexGuard<'a, T>, Release<'a, T>) {
        (self.inner, self.release)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}
