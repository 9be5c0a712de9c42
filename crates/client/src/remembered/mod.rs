//! What the next process of this mount needs, in memory that outlives this one
//! (docs/adr/0011-supervisor.md). Without such memory nothing is remembered.
//!
//! Invariant: a record is there before the program hears that what it tells of is done, and goes
//! after the server has it.

mod bytes;
mod errors;
mod heritage;
mod memos;
mod nodes;
mod reshapes;
mod sessions;
#[cfg(test)]
mod tests;
mod written;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use base::{BootEpoch, Fid, LockHandle};
use handover::{Cell, Record, Records, Region};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::mdt::{Access, SetAttr};

use crate::executor::{self, UntilAnswered};
use crate::handles::HandleId;
use crate::io::failures::Told;

pub(crate) use bytes::RememberedBytes;
pub(crate) use errors::{
    RememberedFailures, close as close_failures, remember as remember_failures,
    tell as tell_failures,
};
pub use heritage::Heritage;
pub(crate) use heritage::Takings;
pub(crate) use memos::{Forgotten, Redone, RequestMemo};
pub use nodes::FurtherNode;
pub(crate) use reshapes::RememberedReshape;
pub(crate) use sessions::{Sessions, TargetBody};
pub(crate) use written::WrittenBefore;

/// Which life of the mount's process this is; the first is 1.
pub(crate) const INCARNATION: Cell = Cell(1);
/// The mount's name for itself, two words.
const SECRET: [Cell; 2] = [Cell(2), Cell(3)];
/// What the kernel offered: minor version, features, read-ahead.
const OFFER: [Cell; 3] = [Cell(4), Cell(5), Cell(6)];
/// Not zero: requests of the kernel are served.
const SERVING: Cell = Cell(7);
/// The last process that had put in order what the one before left.
pub(crate) const SETTLED: Cell = Cell(8);

/// The next write's place in the order of all: those before it are remembered whole.
pub(crate) const WROTE: Cell = Cell(9);

/// A session with a target: which, its number, the target's life.
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
pub(crate) const RESHAPE: u8 = 9;
/// A request of the kernel whose bytes are written, until it is answered.
pub(crate) const WRITTEN: u8 = 10;
/// A further node of a directory in the kernel; its mark is how often the kernel knows that.
pub(crate) const FURTHER_NODE: u8 = 11;

/// Body of a [`HANDLE`].
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct HandleBody {
    pub id: u64,
    pub fid: Fid,
    pub access: Access,
    pub append: bool,
    pub directory: bool,
    /// The kernel's request that opened it; zero: unknown.
    pub origin: u64,
}

/// Body of a [`CHANGE`].
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct ChangeBody {
    pub fid: Fid,
    pub under: LockHandle,
    /// The MDT's life that granted it.
    pub life: BootEpoch,
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
    fn change(&self, new: impl FnOnce(u64) -> u64) {
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
    fn on_drop(marked: &Arc<Marked>, bit: u64) -> Noted {
        let marked = marked.clone();
        Noted { marked, bit }
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

/// Remembers an open file or directory.
pub(crate) fn remember_handle(
    records: &Records,
    id: HandleId,
    (fid, directory): (Fid, bool),
    (access, append): (Access, bool),
    told: Told,
) -> Option<Record> {
    let body = HandleBody {
        id: id.0,
        fid,
        access,
        append,
        directory,
        origin: executor::origin().map_or(0, |origin| origin.number()),
    };
    put(records, HANDLE, told.mark(), &encode(&body))
}

/// What the process before this one had agreed on with the kernel: minor version, features,
/// read-ahead. None: nothing.
pub fn offer(records: &Records) -> Option<(u32, u64, u32)> {
    let [minor, flags, read_ahead] = OFFER.map(|cell| records.get(cell));
    (minor != 0).then_some((minor as u32, flags, read_ahead as u32))
}

/// Notes that for the next.
pub fn note_offer(records: &Records, (minor, flags, read_ahead): (u32, u64, u32)) {
    let [minor_cell, flags_cell, read_ahead_cell] = OFFER;
    records.set(flags_cell, flags);
    records.set(read_ahead_cell, read_ahead.into());
    records.set(minor_cell, minor.into());
}

/// From now on a process that ends without being asked is to be replaced.
pub fn begin_serving(records: &Records) {
    records.set(SERVING, 1);
}

/// From now on it is not, however it ends: its mount is off, and there is nothing to go on with.
pub fn end_serving(records: &Records) {
    records.set(SERVING, 0);
}

/// Whether it would be.
pub(crate) fn is_serving(records: &Records) -> bool {
    records.get(SERVING) != 0
}

/// What a supervisor sees of the process that worked in the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// It served the kernel's requests.
    pub served: bool,
    /// What the process before it had left, if there was one, was in order.
    pub settled: bool,
}

impl Left {
    /// Looks.
    pub fn in_memory(memory: &Region) -> Left {
        let incarnation = INCARNATION.in_memory(memory);
        Left {
            served: SERVING.in_memory(memory) != 0,
            settled: incarnation == 1 || SETTLED.in_memory(memory) == incarnation,
        }
    }
}
