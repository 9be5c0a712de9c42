//! Files kept for calls that were led astray once. A kernel looks the names of a path up a second
//! time, and no third: what it finds then must be there for what it asks next, no matter which
//! client removes the name meanwhile. SEMANTICS: cache.kernels

use std::time::Duration;

use base::{Fid, FsError, Name};
use handover::Record;
use wire::FileKind;
use wire::mdt::OpenIntent;

use super::lookup::LOOKUP_TRIES;
use crate::calls::open::READING;
use crate::session::client::{Client, Entry};

/// How long a call may take from what it looked up to what it asks next. That comes at once, but
/// for want of a processor.
const PIN_AGE: Duration = Duration::from_secs(5);

/// Keeps a file for as long as a question about it takes, which may wait for locks.
pub struct PinnedFile {
    client: Client,
    fid: Fid,
    /// The next process must keep the file for the same question.
    _record: Option<Record>,
}

impl Drop for PinnedFile {
    fn drop(&mut self) {
        self.client.unpin(self.fid);
    }
}

impl Client {
    /// Looks a name up, as [`Client::lookup`]; what it leads to is kept for a moment, until the caller
    /// asks more, and keeps it by [`Client::pin`]. A directory is not: it can do without a name.
    pub async fn lookup_pinned(&self, dir: Fid, name: &Name) -> Result<Entry, FsError> {
        let mut last = FsError::Stale;
        for _ in 0..LOOKUP_TRIES {
            let entry = self.lookup(dir, name).await?;
            if entry.attr.kind == FileKind::Directory {
                return Ok(entry);
            }
            self.lock().cache.file(entry.fid).opens.pin();
            match self.register(entry.fid, READING, OpenIntent::Reopen).await {
                Ok(handle) => {
                    self.readers_known(entry.fid, handle);
                    let mut state = self.lock();
                    let now = state.locks.now();
                    let record = state.journal.put_pinned(entry.fid);
                    state.handles.keep_pinned(now, entry.fid, record);
                    return Ok(entry);
                }
                Err(failure) => {
                    self.unpin(entry.fid);
                    self.forget(entry.fid, 1);
                    last = failure;
                }
            }
            if last != FsError::Stale {
                break;
            }
        }
        Err(last)
    }

    /// Keeps what the caller has found by [`Client::lookup_pinned`] while he asks about it.
    pub fn pin(&self, fid: Fid) -> PinnedFile {
        let mut state = self.lock();
        state.cache.file(fid).opens.pin();
        PinnedFile {
            client: self.clone(),
            fid,
            _record: state.journal.put_pinned(fid),
        }
    }

    fn unpin(&self, fid: Fid) {
        let ended = {
            let mut state = self.lock();
            let ended = state.cache.file(fid).unpin();
            state.drop_if_idle(fid);
            ended
        };
        self.end_uses(fid, ended);
    }

    /// Lets go of what was kept for calls that have asked by now, or will not.
    pub(crate) fn release_pinned(&self) {
        let old = {
            let mut state = self.lock();
            let now = state.locks.now();
            match state.locks.is_settled() {
                true => state.handles.take_pinned(now, PIN_AGE),
                // No call can have asked yet.
                false => Vec::new(),
            }
        };
        for fid in old {
            self.unpin(fid);
        }
    }
}
