//! Records in the memory. Each is whole, or not there.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::region::Region;

/// Bytes cut into blocks of one size.
const SPAN_BYTES: usize = 1 << 20;
/// The smallest block.
const BLOCK_BYTES_MIN: usize = 64;
/// Words before a record's bytes.
const HEAD_BYTES: usize = 16;
/// Cells.
const CELLS: usize = 64;
/// Where the map of spans begins.
const MAP_AT: usize = 4096;
/// What the memory of this format begins with.
const MAGIC: u64 = 0x474c_4e54_4844_0001;

/// A word with a number of its own, free for use; the first is the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell(pub u8);

impl Cell {
    /// Its value in memory that another process works in.
    pub fn in_memory(self, region: &Region) -> u64 {
        region.load(cell_at(self))
    }
}

/// Which part of the memory a record may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// What is left.
    All,
    /// Three quarters. For records without a bound that have another way where there is no room, so that the
    /// others find some.
    Most,
}

/// Puts, changes and ends records. Cheap to clone. The memory looks so:
///
/// ```text
/// page 0       cells: words with a number, each stored by itself
/// spans map    a byte's worth of word for each span: the size of its blocks, 0 while it is unused
/// spans        SPAN_BYTES each, cut into blocks of one size
/// block        word 0: kind and length, 0 while it is free; word 1: mark; bytes
/// ```
///
/// A record begins when its bytes and its mark are written, and then word 0. It ends by a zero there. Each
/// process finds out anew which blocks are free.
#[derive(Clone)]
pub struct Records(Arc<Shared>);

struct Shared {
    region: Region,
    heap: Mutex<Heap>,
}

/// What is free.
struct Heap {
    /// Blocks of each size.
    free: Vec<Vec<usize>>,
    /// The first span that has no size yet.
    next_span: usize,
    spans: usize,
    first_span_at: usize,
    bytes: usize,
}

/// A record. It ends when this is dropped; not, if the process is stopped.
pub struct Record {
    records: Arc<Shared>,
    at: usize,
    class: usize,
    len: usize,
}

/// A record that was there.
#[derive(Debug)]
pub struct Found {
    /// It.
    pub record: Record,
    /// What it is about.
    pub kind: u8,
    /// See [`Record::mark`].
    pub mark: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} bytes)", self.bytes())
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({} bytes at {})", self.len, self.at)
    }
}

fn class_bytes(class: usize) -> usize {
    BLOCK_BYTES_MIN << class
}

fn classes() -> usize {
    (SPAN_BYTES / BLOCK_BYTES_MIN).trailing_zeros() as usize + 1
}

fn class_of(len: usize) -> Option<usize> {
    (0..classes()).find(|class| class_bytes(*class) >= HEAD_BYTES + len)
}

impl Records {
    /// The longest record's bytes.
    pub const BYTES_MAX: usize = SPAN_BYTES - HEAD_BYTES;

    /// Opens the memory and finds what is in it: nothing, where it is new. None: it is too small, or
    /// not of this format.
    pub fn open(region: Region) -> Option<(Records, Vec<Found>)> {
        let spans = region.len().checked_sub(MAP_AT)? / (SPAN_BYTES + 8);
        let first_span_at = (MAP_AT + spans * 8).next_multiple_of(BLOCK_BYTES_MIN);
        let spans = (region.len() - first_span_at) / SPAN_BYTES;
        match region.load(0) {
            0 => region.store(0, MAGIC),
            MAGIC => {}
            _ => return None,
        }
        let heap = Heap {
            free: vec![Vec::new(); classes()],
            next_span: 0,
            spans,
            first_span_at,
            bytes: 0,
        };
        let shared = Arc::new(Shared {
            region,
            heap: Mutex::new(heap),
        });
        let found = shared.find();
        (spans > 0).then_some((Records(shared), found))
    }

    /// Puts a record there, its bytes being `parts` after each other. None: there is no room.
    pub fn put(&self, kind: u8, mark: u64, parts: &[&[u8]]) -> Option<Record> {
        self.put_within(Share::All, kind, mark, parts)
    }

    /// The same within a share of the memory.
    pub fn put_within(&self, share: Share, kind: u8, mark: u64, parts: &[&[u8]]) -> Option<Record> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let class = class_of(len)?;
        let region = &self.0.region;
        let at = self.0.heap().take(share, class, region)?;
        let mut to = at + HEAD_BYTES;
        for part in parts {
            #[allow(unsafe_code)]
            // SAFETY: the block was free, and is this call's alone.
            unsafe {
                region.write(to, part);
            }
            to += part.len();
        }
        region.store(at + 8, mark);
        region.store(at, head(kind, len));
        let records = self.0.clone();
        Some(Record {
            records,
            at,
            class,
            len,
        })
    }

    /// The value of a cell; zero at first.
    pub fn get(&self, cell: Cell) -> u64 {
        self.0.region.load(cell_at(cell))
    }

    /// Changes a cell.
    pub fn set(&self, cell: Cell, value: u64) {
        self.0.region.store(cell_at(cell), value);
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.0.heap().bytes
    }
}

fn cell_at(cell: Cell) -> usize {
    let number = usize::from(cell.0);
    assert!((1..CELLS).contains(&number), "there is no cell {number}");
    number * 8
}

/// Never zero.
fn head(kind: u8, len: usize) -> u64 {
    1 << 63 | u64::from(kind) << 32 | len as u64
}

impl Record {
    /// A word of the record's that is changed by one store.
    pub fn mark(&self) -> u64 {
        self.records.region.load(self.at + 8)
    }

    /// Changes it.
    pub fn set_mark(&self, mark: u64) {
        self.records.region.store(self.at + 8, mark);
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        #[allow(unsafe_code)]
        // SAFETY: bytes of a record never change while it is there.
        unsafe {
            self.records.region.read(self.at + HEAD_BYTES, self.len)
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.records.region.store(self.at, 0);
        self.records.heap().give(self.class, self.at);
    }
}

impl Shared {
    /// What is free changes in one step.
    fn heap(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes through every block.
    fn find(self: &Arc<Shared>) -> Vec<Found> {
        let mut heap = self.heap();
        let mut found = Vec::new();
        while heap.next_span < heap.spans {
            let span = heap.next_span;
            let class = match self.region.load(MAP_AT + span * 8) {
                0 => break,
                class => (class as usize - 1).min(classes() - 1),
            };
            heap.next_span += 1;
            let start = heap.first_span_at + span * SPAN_BYTES;
            for at in (start..start + SPAN_BYTES).step_by(class_bytes(class)) {
                match self.found(at, class) {
                    Some(record) => {
                        heap.bytes += class_bytes(class);
                        found.push(record);
                    }
                    None => heap.free[class].push(at),
                }
            }
        }
        found
    }

    fn found(self: &Arc<Shared>, at: usize, class: usize) -> Option<Found> {
        let word = self.region.load(at);
        let (kind, len) = ((word >> 32) as u8, (word & u64::from(u32::MAX)) as usize);
        if word == 0 || len > class_bytes(class) - HEAD_BYTES {
            return None;
        }
        let records = self.clone();
        let record = Record {
            records,
            at,
            class,
            len,
        };
        Some(Found {
            kind,
            mark: record.mark(),
            bytes: record.bytes(),
            record,
        })
    }
}

impl Heap {
    fn take(&mut self, share: Share, class: usize, region: &Region) -> Option<usize> {
        if self.free[class].is_empty() {
            let spans = match share {
                Share::All => self.spans,
                Share::Most => self.spans - self.spans.div_ceil(4),
            };
            if self.next_span >= spans {
                return None;
            }
            let span = self.next_span;
            self.next_span += 1;
            region.store(MAP_AT + span * 8, class as u64 + 1);
            let start = self.first_span_at + span * SPAN_BYTES;
            let blocks = (start..start + SPAN_BYTES).step_by(class_bytes(class));
            self.free[class].extend(blocks.rev());
        }
        self.bytes += class_bytes(class);
        self.free[class].pop()
    }

    fn give(&mut self, class: usize, at: usize) {
        self.bytes -= class_bytes(class);
        self.free[class].push(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Death;

    /// Memory that two processes after each other would map.
    fn memory() -> std::os::fd::OwnedFd {
        Region::create(8 << 20).unwrap()
    }

    fn open(memory: &std::os::fd::OwnedFd) -> (Records, Vec<(u8, u64, Vec<u8>)>) {
        let (records, found) = Records::open(Region::map(memory).unwrap()).unwrap();
        let mut seen: Vec<_> = found
            .iter()
            .map(|found| (found.kind, found.mark, found.bytes.clone()))
            .collect();
        seen.sort();
        // What was found is the finder's: here it is left as a killed process would leave it.
        found
            .into_iter()
            .for_each(|found| std::mem::forget(found.record));
        (records, seen)
    }

    #[test]
    fn what_was_there_is_found_and_what_has_ended_is_not() {
        let memory = memory();
        let (records, found) = open(&memory);
        assert!(found.is_empty());
        records.set(Cell(3), 77);
        let stays = records.put(1, 5, &[b"he", b"llo"]).unwrap();
        let large = records.put(2, 0, &[&[7; 300_000]]).unwrap();
        drop(records.put(3, 0, &[b"gone"]).unwrap());
        stays.set_mark(6);
        std::mem::forget((stays, large));
        let (records, found) = open(&memory);
        assert_eq!(records.get(Cell(3)), 77);
        assert_eq!(found[0], (1, 6, b"hello".to_vec()));
        assert_eq!((found.len(), found[1].0, found[1].2.len()), (2, 2, 300_000));
    }

    #[test]
    fn a_full_memory_says_so_and_takes_again_what_was_given_back() {
        let memory = memory();
        let (records, _) = open(&memory);
        let mut kept = Vec::new();
        while let Some(record) = records.put(1, 0, &[&[1; 100_000]]) {
            kept.push(record);
        }
        assert!(kept.len() > 30);
        assert!(records.put(1, 0, &[&[0; Records::BYTES_MAX + 1]]).is_none());
        let before = records.bytes();
        kept.pop();
        assert!(records.bytes() < before && records.put(2, 0, &[b"xxx"]).is_none());
        assert!(records.put(1, 0, &[&[1; 100_000]]).is_some());
    }

    #[test]
    fn a_share_is_left_to_those_who_may_take_all() {
        let memory = memory();
        let (records, _) = open(&memory);
        let (mut most, mut rest) = (Vec::new(), Vec::new());
        while let Some(record) = records.put_within(Share::Most, 1, 0, &[&[1; 100_000]]) {
            most.push(record);
        }
        while let Some(record) = records.put(2, 0, &[&[1; 100_000]]) {
            rest.push(record);
        }
        assert_eq!((most.len(), rest.len()), (5 * 8, 2 * 8));
        most.pop();
        assert!(records.put_within(Share::Most, 1, 0, &[b"x"]).is_none());
        let room = records.put_within(Share::Most, 1, 0, &[&[1; 100_000]]);
        assert!(room.is_some(), "what was given back");
    }

    /// Stops a process after each of its stores. What it had put is there, what it had ended is
    /// not, and what it was about to put is whole or not there.
    #[test]
    fn every_prefix_of_stores_is_a_valid_memory() {
        let work = |records: &Records, death: &Death| {
            let mut done = Vec::new();
            let mut step = |step: u8| {
                if !death.has_come() {
                    done.push(step);
                }
            };
            let first = records.put(1, 5, &[b"first"]);
            step(1);
            let second = records.put(2, 0, &[&[7; 3_000]]);
            step(2);
            first.iter().for_each(|record| record.set_mark(6));
            step(3);
            drop(first);
            step(4);
            let third = records.put(3, 1, &[b"third"]);
            step(5);
            records.set(Cell(9), 99);
            step(6);
            std::mem::forget((second, third));
            done.last().copied().unwrap_or(0)
        };
        let mut ended = false;
        for stores in 1_u64.. {
            let (memory, death) = (memory(), Death::after(stores));
            let region = Region::mapped_until(&memory, &death).unwrap();
            let done = Records::open(region).map_or(0, |(records, _)| work(&records, &death));
            let (records, found) = open(&memory);
            let kinds: Vec<u8> = found.iter().map(|found| found.0).collect();
            let is_whole = |(kind, mark, bytes): &(u8, u64, Vec<u8>)| match kind {
                1 => bytes == b"first" && [5, 6].contains(mark),
                2 => bytes.len() == 3_000 && bytes.iter().all(|byte| *byte == 7),
                _ => bytes == b"third" && *mark == 1,
            };
            assert!(found.iter().all(is_whole), "after {stores}: {found:?}");
            for (kind, from, until) in [(1, 1, 3), (2, 2, 9), (3, 5, 9)] {
                let there = (from..until).contains(&done);
                assert!(
                    !there || kinds.contains(&kind),
                    "{kind} after {stores}, {done}"
                );
                let gone = done < from.saturating_sub(1) || done > until;
                assert!(
                    !gone || !kinds.contains(&kind),
                    "{kind} after {stores}, {done}"
                );
            }
            assert!(done < 6 || records.get(Cell(9)) == 99);
            if !death.has_come() {
                ended = true;
                break;
            }
        }
        assert!(ended);
    }

    #[test]
    fn memory_of_another_format_is_refused() {
        let memory = memory();
        Region::map(&memory).unwrap().store(0, 9);
        assert!(Records::open(Region::map(&memory).unwrap()).is_none());
        assert!(Records::open(Region::private(4096).unwrap()).is_none());
    }
}
