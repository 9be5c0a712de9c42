//! Kinds of records, what stands in them, and when they go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::{BootEpoch, Fid, LockHandle};
use handover::{Record, Records};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::mdt::SetAttr;

use crate::executor::UntilAnswered;

/// A session with a target: which, its number, the target's boot.
pub(crate) const TARGET: u8 = 1;
/// A file that the kernel knows; its mark is how often.
pub(crate) const NODE: u8 = 2;
/// An open file or directory; its mark says which errors it was told of.
pub(crate) const HANDLE: u8 = 3;
/// A change asked of the MDT; its mark is where it was sent.
pub(crate) const REQUEST: u8 = 4;
/// What requests to the MDT were answered, until the kernel is answered and what they changed is
/// durable; its mark tells of both.
pub(crate) const ANSWER: u8 = 5;
/// Bytes written by programs and not durable.
pub(crate) const BYTES: u8 = 6;
/// Attributes changed under the MDT's EX lock and not told.
pub(crate) const CHANGE: u8 = 7;
/// What could not be written of a file; its mark tells how often, and whether somebody knows.
pub(crate) const FAILED: u8 = 8;
/// What was done to a file's size or space and is not durable; its mark says whether the kernel is
/// answered, and whether it is.
pub(crate) const RESIZE: u8 = 9;
/// A request of the kernel whose bytes are written, until it is answered.
pub(crate) const WRITTEN: u8 = 10;
/// A further node of a directory in the kernel; its mark is how often the kernel knows that.
pub(crate) const FURTHER_NODE: u8 = 11;

/// What the MGS told last.
pub(crate) const CONFIGURATION: u8 = 12;
/// A file that was made here and that the MDT does not know. Its mark says whether the kernel is answered,
/// whether the MDT has the file by now, and for which request it was removed.
pub(crate) const BIRTH: u8 = 13;
/// The tunables that were set while mounted.
pub(crate) const TUNABLES: u8 = 14;
/// A directory that has lost names of which the MDT does not know; its mark is when that was.
pub(crate) const DIRECTORY_TIME: u8 = 15;

/// A call's second attempt; its mark is greater than that of an earlier record of the same thread.
pub(crate) const ATTEMPT: u8 = 16;
/// A file that a call has found in its second attempt, and must find again.
pub(crate) const PINNED: u8 = 17;

/// A change of a file that the MDT knows, and of which it has not heard. Its mark says whether the kernel is
/// answered, and whether the MDT has heard by now.
pub(crate) const EDIT: u8 = 18;

/// Body of a [`CHANGE`].
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct ChangeBody {
    pub fid: Fid,
    pub under: LockHandle,
    /// The MDT's boot that granted it.
    pub epoch: BootEpoch,
    pub change: SetAttr,
    /// Which of two is the later one.
    pub order: u64,
}

/// A record whose mark tells of several things, which come to pass in any order. It ends with the
/// last who waits for one of them.
#[derive(Debug)]
pub(crate) struct Marked {
    record: Record,
    changes: Mutex<()>,
}

impl Marked {
    pub fn new(record: Record) -> Arc<Marked> {
        Arc::new(Marked {
            record,
            changes: Mutex::new(()),
        })
    }

    pub fn change(&self, new: impl FnOnce(u64) -> u64) {
        let _one = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        self.record.set_mark(new(self.record.mark()));
    }
}

/// When this is dropped, something has come to pass: a bit of the mark says so.
#[derive(Debug)]
pub(crate) struct Noted {
    marked: Arc<Marked>,
    bit: u64,
}

impl Noted {
    pub fn on_drop(marked: &Arc<Marked>, bit: u64) -> Noted {
        let marked = marked.clone();
        Noted { marked, bit }
    }

    /// The mark becomes another beside that.
    pub fn change(&self, new: impl FnOnce(u64) -> u64) {
        self.marked.change(new);
    }
}

impl UntilAnswered for Noted {}

impl Drop for Noted {
    fn drop(&mut self) {
        self.marked.change(|mark| mark | self.bit);
    }
}

pub(crate) fn encode(body: &impl Serialize) -> Vec<u8> {
    wire::encode(body)
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    wire::decode(bytes).ok()
}

/// Remembers what nothing else stands for. Where there is no room, the log says so once.
pub(crate) fn put(records: &Records, kind: u8, mark: u64, body: &[u8]) -> Option<Record> {
    static SAID: AtomicBool = AtomicBool::new(false);
    let record = records.put(kind, mark, &[body]);
    if record.is_none() && !SAID.swap(true, Ordering::Relaxed) {
        tracing::error!(
            "the supervisor's memory is full, {} bytes: if this process is killed, the next will not \
             know all that is open or cached here",
            records.bytes()
        );
    }
    record
}
