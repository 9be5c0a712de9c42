//! Bytes that were read ahead of a frame's reads: what lies together comes with one read of the disk.

use std::collections::{BTreeMap, VecDeque};

use allocator::{Block, Extent};
use bytes::Bytes;

use crate::extents::log::BLOCK_BYTES;

/// Bytes that are kept until they are asked for. Beyond: those read first are forgotten.
pub(super) const AHEAD_BYTES_MAX: usize = 8 << 20;
/// Blocks of one read.
const RUN_BLOCKS_MAX: u32 = 256;
/// So many blocks between two wanted ones are read with them.
const GAP_BLOCKS_MAX: u64 = 8;

/// Blocks in a row that were read, by the first of them. They may be others by now: a reader checks their
/// sums.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    runs: BTreeMap<Block, Bytes>,
    /// The runs, the one read first first.
    order: VecDeque<Block>,
    bytes: usize,
}

impl Ahead {
    fn find(&self, place: Extent) -> Option<&[u8]> {
        let (start, bytes) = self.runs.range(..=place.start).next_back()?;
        let begin = ((place.start.0 - start.0) * BLOCK_BYTES) as usize;
        bytes.get(begin..begin + place.blocks as usize * BLOCK_BYTES as usize)
    }

    /// It has all of `place`.
    pub(super) fn has(&self, place: Extent) -> bool {
        self.find(place).is_some()
    }

    /// Fills `buffer` with the bytes of `place`, if it has them all.
    pub(super) fn copy(&self, place: Extent, buffer: &mut [u8]) -> bool {
        let found = self.find(place);
        found.is_some_and(|found| {
            buffer.copy_from_slice(found);
            true
        })
    }

    pub(super) fn put(&mut self, start: Block, bytes: Bytes) {
        self.bytes += bytes.len();
        match self.runs.insert(start, bytes) {
            Some(replaced) => self.bytes -= replaced.len(),
            None => self.order.push_back(start),
        }
        while self.bytes > AHEAD_BYTES_MAX {
            let oldest = self.order.pop_front();
            let forgotten = oldest.and_then(|oldest| self.runs.remove(&oldest));
            self.bytes -= forgotten.map_or(self.bytes, |bytes| bytes.len());
        }
    }
}

/// The runs to be read for these places.
pub(super) fn runs_of(mut places: Vec<Extent>) -> Vec<Extent> {
    places.sort();
    let mut runs: Vec<Extent> = Vec::new();
    for place in places {
        if let Some(last) = runs.last_mut() {
            let is_near = place.start.0 <= last.end().0 + GAP_BLOCKS_MAX;
            let end = place.end().0.max(last.end().0);
            let blocks = end - last.start.0;
            if is_near && blocks <= u64::from(RUN_BLOCKS_MAX) {
                last.blocks = blocks as u32;
                continue;
            }
        }
        runs.push(place);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_places_are_one_run_and_the_oldest_run_goes() {
        let places = [(90, 2), (10, 1), (11, 1), (20, 4), (2000, 256)];
        let places = places.map(|(start, blocks)| Extent::new(Block(start), blocks));
        let runs = runs_of(places.to_vec());
        let found: Vec<_> = runs.iter().map(|run| (run.start.0, run.blocks)).collect();
        assert_eq!(found, [(10, 14), (90, 2), (2000, 256)]);
        let mut ahead = Ahead::default();
        for n in 0..9 {
            ahead.put(Block(n * 1000), vec![n as u8; 1 << 20].into());
        }
        let mut buffer = vec![0; 2 * BLOCK_BYTES as usize];
        assert!(!ahead.has(Extent::new(Block(0), 1)) && ahead.has(Extent::new(Block(8255), 1)));
        assert!(!ahead.copy(Extent::new(Block(8255), 2), &mut buffer));
        assert!(ahead.copy(Extent::new(Block(1003), 2), &mut buffer) && buffer[8191] == 1);
    }
}
