//! Open files, kept: opening one anew for each call costs more than most calls.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ObjectId;

/// Locks are per shard, so that opening one file does not hold up the others.
const SHARDS: usize = 16;

/// A bounded set of open files; the one used longest ago is closed for a new one.
#[derive(Debug)]
pub(super) struct Descriptors {
    shards: [Mutex<Shard>; SHARDS],
    per_shard: usize,
}

#[derive(Debug, Default)]
struct Shard {
    open: HashMap<ObjectId, (Arc<File>, u64)>,
    /// When each was used last, oldest first.
    by_use: BTreeMap<u64, ObjectId>,
    uses: u64,
}

impl Descriptors {
    /// Keeps at most about `bound` files open.
    pub(super) fn new(bound: usize) -> Descriptors {
        Descriptors {
            shards: std::array::from_fn(|_| Mutex::default()),
            per_shard: (bound / SHARDS).max(1),
        }
    }

    // A shard is changed by code that cannot panic half way: poisoning adds nothing.
    fn shard(&self, id: ObjectId) -> MutexGuard<'_, Shard> {
        let index = (id.fid.0 as usize).wrapping_add(id.stripe as usize) % SHARDS;
        let shard = self.shards[index].lock();
        shard.unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of `id`, opened by `open` if it is not. Not kept where `open` gives `None`.
    pub(super) fn get(
        &self,
        id: ObjectId,
        open: impl FnOnce() -> io::Result<Option<File>>,
    ) -> io::Result<Option<Arc<File>>> {
        let mut shard = self.shard(id);
        if let Some(file) = shard.touch(id) {
            return Ok(Some(file));
        }
        // Under the lock, so that a file being removed is not kept open by mistake.
        let Some(file) = open()?.map(Arc::new) else {
            return Ok(None);
        };
        shard.keep(id, file.clone(), self.per_shard);
        Ok(Some(file))
    }

    /// Forgets the file of `id` and calls `remove` before another can open it.
    pub(super) fn forget<R>(&self, id: ObjectId, remove: impl FnOnce() -> R) -> R {
        let mut shard = self.shard(id);
        if let Some((_, last_use)) = shard.open.remove(&id) {
            shard.by_use.remove(&last_use);
        }
        remove()
    }
}

impl Shard {
    fn touch(&mut self, id: ObjectId) -> Option<Arc<File>> {
        let (file, last_use) = self.open.get_mut(&id)?;
        self.by_use.remove(last_use);
        self.uses += 1;
        *last_use = self.uses;
        self.by_use.insert(self.uses, id);
        Some(file.clone())
    }

    fn keep(&mut self, id: ObjectId, file: Arc<File>, bound: usize) {
        if self.open.len() >= bound
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.open.remove(&oldest);
        }
        self.uses += 1;
        self.open.insert(id, (file, self.uses));
        self.by_use.insert(self.uses, id);
    }
}

#[cfg(test)]
mod tests {
    use base::Fid;

    use super::*;

    fn id(n: u64) -> ObjectId {
        ObjectId::new(Fid(n * SHARDS as u64), 0)
    }

    #[test]
    fn keeps_what_is_used_and_closes_the_oldest() {
        let kept = Descriptors::new(2 * SHARDS);
        let mut opened = 0;
        let mut get = |n| {
            kept.get(id(n), || {
                opened += 1;
                tempfile::tempfile().map(Some)
            })
            .unwrap();
            opened
        };
        assert_eq!((get(1), get(2), get(1)), (1, 2, 2));
        assert_eq!(get(3), 3, "closes 2, not 1");
        assert_eq!((get(1), get(2)), (3, 4));
    }

    #[test]
    fn what_is_not_there_or_forgotten_is_not_kept() {
        let kept = Descriptors::new(1);
        assert!(kept.get(id(1), || Ok(None)).unwrap().is_none());
        assert!(
            kept.get(id(1), || tempfile::tempfile().map(Some))
                .unwrap()
                .is_some()
        );
        kept.forget(id(1), || ());
        assert!(kept.get(id(1), || Ok(None)).unwrap().is_none());
    }
}
