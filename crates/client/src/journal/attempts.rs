//! Second attempts of calls that another mount has led astray. The kernel makes no third one, so the next
//! process must know of those under way, and of what they have found (docs/locks.md, section 10).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Fid;
use handover::{Found, Record, Records};
use serde::{Deserialize, Serialize};
use wire::FileKind;

use super::record::{ATTEMPT, decode, encode, put};

/// One thread's second attempt, as the kernel's rim knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptBody {
    /// The thread.
    pub thread: u32,
    /// The kernel's request that was answered `ESTALE`, or was about to be.
    pub request: Option<u64>,
    /// The thread's call. None: the kernel does not say.
    pub call: Option<Box<str>>,
    /// Where its names led.
    pub found: Vec<(Fid, FileKind)>,
    /// One of its names led nowhere.
    pub has_missed: bool,
    /// The questions that led the first attempt astray, by numbers of the rim.
    pub led_astray: Vec<(Fid, u8)>,
}

/// Makes an attempt known to the next process until this is dropped.
#[derive(Debug)]
pub struct AttemptRecord(#[allow(dead_code, reason = "goes with its owner")] Record);

/// Where attempts are recorded; without a supervisor's memory nowhere.
#[derive(Debug, Clone, Default)]
pub struct AttemptJournal {
    records: Option<Records>,
    /// Of two records of one thread the later one counts.
    last: Arc<AtomicU64>,
}

impl AttemptJournal {
    pub(crate) fn new(records: Option<Records>, last: u64) -> AttemptJournal {
        let last = Arc::new(AtomicU64::new(last));
        AttemptJournal { records, last }
    }

    /// Records an attempt as it is now. None: there is no next process, or no room.
    pub fn put(&self, body: &AttemptBody) -> Option<AttemptRecord> {
        let records = self.records.as_ref()?;
        let order = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        put(records, ATTEMPT, order, &encode(body)).map(AttemptRecord)
    }
}

/// The attempts that the process before has left, the oldest record first.
#[derive(Debug, Default)]
pub(crate) struct FoundAttempts(Vec<Found>);

impl FoundAttempts {
    pub fn new(mut found: Vec<Found>) -> FoundAttempts {
        found.sort_by_key(|found| found.mark);
        FoundAttempts(found)
    }

    /// The last of their numbers.
    pub fn last(&self) -> u64 {
        self.0.last().map_or(0, |found| found.mark)
    }

    /// All of them.
    pub fn read(self) -> Vec<(AttemptBody, AttemptRecord)> {
        let found = self.0.into_iter();
        let body = |found: Found| Some((decode(&found.bytes)?, AttemptRecord(found.record)));
        found.filter_map(body).collect()
    }
}
