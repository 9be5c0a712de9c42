//! Appends of more bytes than a request has room for. The kernel brings them in pieces, and the thread that
//! called waits for each. SEMANTICS: op.append

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::Fid;

use super::caller;

/// A request that lacks no more than this to the largest may be full, in bytes. The kernel counts pages, and
/// each part of the caller's memory may fill its first and last page in part.
const LACKS_MAX: u64 = 2 * PARTS_MAX * 4096;
/// Parts of a call's memory that may come in one request for certain.
const PARTS_MAX: u64 = 64;
/// Threads remembered, at most.
const THREADS_MAX: usize = 4096;

/// How much is left of the calls that threads are in.
#[derive(Debug)]
pub(super) struct Appending {
    threads: Mutex<HashMap<u32, Left>>,
    /// All bytes that the call of a thread writes; none: the kernel does not say.
    bytes_of: fn(u32) -> Option<u64>,
    /// A thread may be in a call that writes.
    may_be_writing: fn(u32) -> bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Left {
    fid: Fid,
    bytes: u64,
}

impl Default for Appending {
    fn default() -> Appending {
        Appending::new(caller::bytes_to_write, caller::may_be_writing)
    }
}

impl Appending {
    fn new(bytes_of: fn(u32) -> Option<u64>, may_be_writing: fn(u32) -> bool) -> Appending {
        Appending {
            threads: Mutex::default(),
            bytes_of,
            may_be_writing,
        }
    }

    /// `thread` brings `bytes` for the end of the file, of at most `most` in a request. Returns whether its
    /// call has more.
    pub fn goes_on(&self, thread: u32, fid: Fid, (bytes, most): (u64, u64)) -> bool {
        let begun = self.lock().remove(&thread).filter(|left| left.fid == fid);
        let may_be_full = bytes + LACKS_MAX >= most;
        let all = match begun {
            Some(left) => Some(left.bytes),
            None if may_be_full => (self.bytes_of)(thread),
            None => None,
        };
        let left = all.unwrap_or(0).saturating_sub(bytes);
        let mut threads = self.lock();
        let goes_on = left > 0 && thread != 0 && threads.len() < THREADS_MAX;
        if goes_on {
            threads.insert(thread, Left { fid, bytes: left });
        }
        goes_on
    }

    /// A thread whose call appends more to the file may be in that call still.
    pub fn is_under_way(&self, fid: Fid) -> bool {
        let threads = self.lock();
        let mut of_file = threads.iter().filter(|(_, left)| left.fid == fid);
        of_file.any(|(thread, _)| (self.may_be_writing)(*thread))
    }

    /// `thread` is told that its call has failed, or asks something else.
    pub fn ended(&self, thread: u32) {
        self.lock().remove(&thread);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Left>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 1 << 20;
    const FILE: Fid = Fid(7);

    #[test]
    fn a_call_goes_on_until_all_its_bytes_have_come() {
        let appending = Appending::new(|_| Some(2 * MOST + 5), |_| true);
        let goes_on = |bytes| appending.goes_on(1, FILE, (bytes, MOST));
        let whole = [MOST - 100, MOST, 105].map(goes_on);
        assert_eq!(whole, [true, true, false]);
        assert!(goes_on(MOST), "the next one");
        appending.ended(1);
        assert!(goes_on(MOST) && appending.goes_on(2, FILE, (MOST, MOST)));
        appending.ended(1);
        let parts = [MOST / 2, 5, MOST / 2].map(goes_on);
        assert_eq!(parts, [true; 3]);
    }

    #[test]
    fn what_fits_in_one_request_or_is_not_known_does_not_go_on() {
        let small = Appending::new(|_| panic!("nobody asks"), |_| true);
        assert!(!small.goes_on(1, FILE, (MOST - LACKS_MAX - 1, MOST)));
        let exact = Appending::new(|_| Some(MOST), |_| true);
        assert!(!exact.goes_on(1, FILE, (MOST, MOST)));
        let unknown = Appending::new(|_| None, |_| true);
        assert!(!unknown.goes_on(1, FILE, (MOST, MOST)));
        let nobody = Appending::new(|_| Some(3 * MOST), |_| true);
        assert!(!nobody.goes_on(0, FILE, (MOST, MOST)));
    }
    #[test]
    fn an_append_is_under_way_while_its_thread_may_write() {
        let appending = Appending::new(|_| Some(3 * MOST), |thread| thread == 1);
        assert!(!appending.is_under_way(FILE));
        assert!(appending.goes_on(2, FILE, (MOST, MOST)) && !appending.is_under_way(FILE));
        assert!(appending.goes_on(1, FILE, (MOST, MOST)) && appending.is_under_way(FILE));
        assert!(!appending.is_under_way(Fid(8)));
        appending.ended(1);
        assert!(!appending.is_under_way(FILE));
    }
}
