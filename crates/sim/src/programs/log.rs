//! What all programs write down.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::history::{Call, Entry};

/// A change is new for so long: it need not be durable.
const FRESH: Duration = Duration::from_secs(1);

/// What all programs write down.
#[derive(Default)]
pub struct Log {
    entries: Mutex<Vec<Entry>>,
    /// By caller, what has not returned, and since when.
    under_way: Mutex<BTreeMap<u32, (Duration, Call)>>,
    /// How many calls each may make by now.
    allowed: AtomicUsize,
}

impl Log {
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each program may make so many calls more: faults come among calls, not after them.
    pub fn allow(&self, more: usize) {
        self.allowed.fetch_add(more, Ordering::SeqCst);
    }

    /// How many calls each may make by now.
    pub(super) fn allowed(&self) -> usize {
        self.allowed.load(Ordering::SeqCst)
    }

    /// How many calls have returned.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Nothing was called.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of `callers` was told since `then` that what it did is durable.
    pub fn has_synced(&self, callers: &Range<u32>, then: Duration) -> bool {
        let entries = self.lock();
        let (own, _) = since(&entries, callers, then);
        own.iter().any(|entry| entry.has_synced())
    }

    /// Others have seen since `then` what one of `callers` had just changed.
    pub fn has_shown(&self, callers: &Range<u32>, then: Duration) -> bool {
        let entries = self.lock();
        let (own, others) = since(&entries, callers, then.saturating_sub(FRESH));
        let mut others = others.iter().filter(|entry| entry.end >= then);
        others.any(|entry| own.iter().any(|change| entry.shows(change)))
    }

    /// A call that has not returned since `then`, and who made it when.
    pub fn under_way_since(&self, then: Duration) -> Option<(u32, Duration, Call)> {
        let under_way = self.calls_under_way();
        let mut late = under_way.iter().filter(|(_, (start, _))| *start <= then);
        late.next()
            .map(|(caller, (start, call))| (*caller, *start, call.clone()))
    }

    /// A call of `caller` is under way.
    pub(crate) fn begin(&self, caller: u32, begun: (Duration, Call)) {
        self.calls_under_way().insert(caller, begun);
    }

    /// It has returned.
    pub(crate) fn end(&self, caller: u32) {
        self.calls_under_way().remove(&caller);
    }

    fn calls_under_way(&self) -> MutexGuard<'_, BTreeMap<u32, (Duration, Call)>> {
        let calls = self.under_way.lock();
        calls.unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it.
    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut *self.lock())
    }
}

/// Calls that have returned since `then`: those of `callers`, and those of others.
fn since<'a>(
    entries: &'a [Entry],
    callers: &Range<u32>,
    then: Duration,
) -> (Vec<&'a Entry>, Vec<&'a Entry>) {
    let since = entries.iter().rev().take_while(|entry| entry.end >= then);
    since.partition(|entry| callers.contains(&entry.caller))
}
