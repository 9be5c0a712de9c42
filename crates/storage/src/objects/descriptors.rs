//! Open files, kept: opening one anew for each call costs more than most calls. Where the process or
//! the system has no descriptor left, kept files are closed until one can be opened.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::store::ObjectId;
use crate::error::is_out_of_descriptors;

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

    /// Opens a file that is not kept, or one that will be.
    pub(super) fn open<T>(&self, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
        (0..SHARDS).fold(open(), |opened, at| match opened {
            Err(error) if is_out_of_descriptors(&error) => {
                self.close_all(at);
                open()
            }
            opened => opened,
        })
    }

    /// Those of one shard, unless a thread is busy with it: that thread makes room itself.
    fn close_all(&self, at: usize) {
        match self.shards[at].try_lock() {
            Ok(mut shard) => shard.close_all(),
            Err(TryLockError::Poisoned(shard)) => shard.into_inner().close_all(),
            Err(TryLockError::WouldBlock) => {}
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
        open: impl Fn() -> io::Result<Option<File>>,
    ) -> io::Result<Option<Arc<File>>> {
        let mut shard = self.shard(id);
        if let Some(file) = shard.touch(id) {
            return Ok(Some(file));
        }
        // Under the lock, so that a file being removed is not kept open by mistake.
        let opened = match self.open(&open) {
            Err(error) if is_out_of_descriptors(&error) => {
                shard.close_all();
                open()
            }
            opened => opened,
        };
        let Some(file) = opened?.map(Arc::new) else {
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
    fn close_all(&mut self) {
        self.open.clear();
        self.by_use.clear();
    }

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
    use nix::errno::Errno;

    use super::*;

    fn id(n: u64) -> ObjectId {
        ObjectId::new(Fid(n * SHARDS as u64), 0)
    }

    #[test]
    fn keeps_what_is_used_and_closes_the_oldest() {
        let kept = Descriptors::new(2 * SHARDS);
        let opened = std::cell::Cell::new(0);
        let get = |n| {
            kept.get(id(n), || {
                opened.set(opened.get() + 1);
                tempfile::tempfile().map(Some)
            })
            .unwrap();
            opened.get()
        };
        assert_eq!((get(1), get(2), get(1)), (1, 2, 2));
        assert_eq!(get(3), 3, "closes 2, not 1");
        assert_eq!((get(1), get(2)), (3, 4));
    }

    #[test]
    fn where_no_descriptor_is_left_kept_files_make_room() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let kept = Descriptors::new(2 * SHARDS);
        let open_files = |kept: &Descriptors| -> usize {
            let shards = kept.shards.iter();
            shards.map(|shard| shard.lock().unwrap().open.len()).sum()
        };
        for n in 0..2 * SHARDS as u64 {
            let id = ObjectId::new(Fid(n), 0);
            kept.get(id, || tempfile::tempfile().map(Some)).unwrap();
        }
        assert_eq!(open_files(&kept), 2 * SHARDS);
        // As the system does: an error as long as so many are open.
        let tries = AtomicUsize::new(0);
        let refuses_at_first = || match tries.fetch_add(1, Ordering::Relaxed) {
            0..3 => Err(Errno::EMFILE.into()),
            _ => tempfile::tempfile(),
        };
        kept.open(refuses_at_first).unwrap();
        assert_eq!(open_files(&kept), 2 * (SHARDS - 3));
        // What is kept beside the new file goes last, and what is no lack of descriptors stays an error.
        tries.store(0, Ordering::Relaxed);
        let refuses_for_long = || match tries.fetch_add(1, Ordering::Relaxed) {
            0..=SHARDS => Err(Errno::ENFILE.into()),
            _ => tempfile::tempfile().map(Some),
        };
        assert!(kept.get(id(7), refuses_for_long).unwrap().is_some());
        assert_eq!(open_files(&kept), 1);
        let failed = kept.open(|| Err::<File, _>(Errno::EACCES.into()));
        assert_eq!(
            failed.unwrap_err().raw_os_error(),
            Some(Errno::EACCES as i32)
        );
        assert_eq!(open_files(&kept), 1);
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
