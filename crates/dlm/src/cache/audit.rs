//! Recomputes what must hold of a cache, from scratch. For tests and the simulator.

use super::{BY_AGE, BY_RESOURCE, LockCache};

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

impl LockCache {
    /// Checks every invariant of the cache between steps; says which one is broken.
    pub fn audit(&self) -> Result<(), String> {
        ensure(self.by_handle.len() == self.locks.len(), || {
            "a lock has no handle".into()
        })?;
        for (handle, slot) in &self.by_handle {
            let entry = self.locks.at(*slot);
            ensure(entry.handle == *handle, || {
                format!("{handle} names {entry:?}")
            })?;
            let stuck = entry.uses == 0 && entry.dropping.is_none() && entry.rest().is_some();
            ensure(!stuck, || {
                format!("{entry:?} is wanted and nobody drops it")
            })?;
            ensure(!entry.cover.is_empty(), || {
                format!("{entry:?} covers nothing")
            })?;
        }
        let mut threaded = 0;
        for (id, record) in &self.resources {
            let slots: Vec<u32> = record.locks.iter(&self.locks, BY_RESOURCE).collect();
            ensure(!slots.is_empty(), || {
                format!("{id:?} is empty but recorded")
            })?;
            ensure(slots.len() == record.locks.len as usize, || {
                format!("{id:?}: length of list")
            })?;
            let own = slots
                .iter()
                .all(|slot| self.locks.at(*slot).resource == *id);
            ensure(own, || format!("{id:?}: a foreign lock on its list"))?;
            threaded += slots.len();
        }
        ensure(threaded == self.locks.len(), || {
            "a lock is on no resource's list".into()
        })?;
        let idle: Vec<u32> = self.idle.iter(&self.locks, BY_AGE).collect();
        let expected = self
            .locks
            .iter()
            .filter(|(_, entry)| entry.is_idle())
            .count();
        ensure(idle.len() == expected, || {
            format!("{} of {expected} idle", idle.len())
        })?;
        let all_idle = idle.iter().all(|slot| self.locks.at(*slot).is_idle());
        ensure(all_idle, || "a lock in use is on the idle list".into())?;
        let ages: Vec<_> = idle
            .iter()
            .map(|slot| self.locks.at(*slot).used_at)
            .collect();
        ensure(ages.is_sorted(), || {
            "the idle list is not in order of age".into()
        })?;
        let dropping = self
            .locks
            .iter()
            .filter(|(_, entry)| entry.dropping.is_some())
            .count();
        ensure(dropping == self.dropping, || {
            format!("{dropping} are being dropped")
        })?;
        ensure(self.early.len() <= self.limits.early_max, || {
            "too many early callbacks".into()
        })?;
        ensure(self.gone.len() <= self.limits.early_max, || {
            "too many gone handles".into()
        })
    }
}
