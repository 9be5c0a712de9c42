//! A lock that readers share.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError};

use crate::simulation::{key, simulated, simulation};

/// As `std::sync::RwLock`.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

/// As `std::sync::RwLockReadGuard`.
pub struct RwLockReadGuard<'a, T: ?Sized> {
    inner: sync::RwLockReadGuard<'a, T>,
    _release: Release<'a, T>,
}

/// As `std::sync::RwLockWriteGuard`.
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    inner: sync::RwLockWriteGuard<'a, T>,
    _release: Release<'a, T>,
}

/// Tells a simulation that somebody has let go of the lock.
struct Release<'a, T: ?Sized>(&'a RwLock<T>);

impl<T: ?Sized> Drop for Release<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(simulation) = simulated() {
            simulation.wake(key(self.0), true);
        }
    }
}

impl<T> RwLock<T> {
    /// A free one.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes.
    #[inline]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        let taken = match crate::simulation::is_simulated() {
            true => self.take(sync::RwLock::try_read, sync::RwLock::read),
            false => self.0.read(),
        };
        let _release = Release(self);
        match taken {
            Ok(inner) => Ok(RwLockReadGuard { inner, _release }),
            Err(poisoned) => {
                let inner = poisoned.into_inner();
                Err(PoisonError::new(RwLockReadGuard { inner, _release }))
            }
        }
    }

    /// Waits until nobody reads or writes.
    #[inline]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        let taken = match crate::simulation::is_simulated() {
            true => self.take(sync::RwLock::try_write, sync::RwLock::write),
            false => self.0.write(),
        };
        let _release = Release(self);
        match taken {
            Ok(inner) => Ok(RwLockWriteGuard { inner, _release }),
            Err(poisoned) => {
                let inner = poisoned.into_inner();
                Err(PoisonError::new(RwLockWriteGuard { inner, _release }))
            }
        }
    }

    #[cold]
    fn take<'a, G>(
        &'a self,
        try_take: impl Fn(&'a sync::RwLock<T>) -> sync::TryLockResult<G>,
        take: impl Fn(&'a sync::RwLock<T>) -> LockResult<G>,
    ) -> LockResult<G> {
        let Some(simulation) = simulation() else {
            return take(&self.0);
        };
        simulation.point();
        loop {
            match try_take(&self.0) {
                Ok(guard) => return Ok(guard),
                Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                Err(TryLockError::WouldBlock) => simulation.wait(key(self), None),
            };
        }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
