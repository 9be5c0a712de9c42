//! Objects on a disk that gives nothing until it is told to.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use base::ByteRange;
use bytes::Bytes;
use storage::{ObjectId, ObjectMemory, ObjectStat, ObjectStore, SpaceStat, StorageError};

/// How long a test may wait; what waits in the store does not outlast a test that failed.
const PATIENCE: Duration = Duration::from_secs(20);

type Result<T> = std::result::Result<T, StorageError>;

/// Reads wait until it is open.
#[derive(Debug)]
pub struct Gate {
    objects: ObjectMemory,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    readers: usize,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate {
            objects: ObjectMemory::new(1 << 40),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl Gate {
    /// Lets every read through.
    pub fn open(&self) {
        self.change(|state| state.open = true);
    }

    /// Waits until that many reads wait, or did.
    pub fn wait_for_readers(&self, count: usize) {
        assert!(
            self.wait(|state| state.readers >= count),
            "too few readers came"
        );
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("not poisoned"));
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&State) -> bool) -> bool {
        let state = self.state.lock().expect("not poisoned");
        let (_state, waited) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !until(state))
            .expect("not poisoned");
        !waited.timed_out()
    }
}

impl ObjectStore for Gate {
    fn read_shared(&self, id: ObjectId, offset: u64, len: usize) -> Result<Bytes> {
        self.change(|state| state.readers += 1);
        self.wait(|state| state.open);
        self.objects.read_shared(id, offset, len)
    }

    fn is_cold(&self, _: ObjectId, _: u64, _: usize) -> Result<bool> {
        Ok(true)
    }

    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.objects.read(id, offset, buffer)
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        self.objects.write(id, offset, data)
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        self.objects.truncate(id, size)
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        self.objects.stat(id)
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        self.objects.punch(id, range)
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.objects.allocate(id, range, keep_size)
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        self.objects.zero(id, range, keep_size)
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.objects.seek_data(id, offset)
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.objects.seek_hole(id, offset)
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        self.objects.remove(id)
    }

    fn sync_all(&self) -> Result<()> {
        self.objects.sync_all()
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        self.objects.sync(id)
    }

    fn statfs(&self) -> Result<SpaceStat> {
        self.objects.statfs()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.objects.list(visit)
    }
}
