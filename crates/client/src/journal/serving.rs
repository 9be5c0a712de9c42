//! Which process of the mount works in the memory, and how far it has come with the kernel.

use handover::{Cell, Records, Region};

/// The incarnation of the mount's process; the first is 1.
pub(crate) const INCARNATION: Cell = Cell(1);
/// The mount's name for itself, two words.
pub(crate) const SECRET: [Cell; 2] = [Cell(2), Cell(3)];
/// What the kernel offered: minor version, features, read-ahead.
const OFFER: [Cell; 3] = [Cell(4), Cell(5), Cell(6)];
/// Not zero: requests of the kernel are served.
const SERVING: Cell = Cell(7);
/// The last process that had put in order what the one before left.
pub(crate) const SETTLED: Cell = Cell(8);

/// The next write's place in the order of all: those before it are remembered whole.
pub(crate) const WROTE: Cell = Cell(9);

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
    /// Which process of the mount it was, from 1. A process that ended before it opened the memory left the
    /// number, and all else, of the one before.
    pub incarnation: u64,
}

impl Left {
    /// Looks.
    pub fn in_memory(memory: &Region) -> Left {
        let incarnation = INCARNATION.in_memory(memory);
        Left {
            served: SERVING.in_memory(memory) != 0,
            settled: incarnation == 1 || SETTLED.in_memory(memory) == incarnation,
            incarnation,
        }
    }
}
