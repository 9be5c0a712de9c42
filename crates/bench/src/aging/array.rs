//! The model disk: eight data drives with parity beside, behind a path of limited rate, in virtual time.
//! Two batches are under way at once, each sorted by place.

use allocator::{Extent, Group};

use super::drive::Head;
use super::medium::{BLOCK_BYTES, Direction, Medium, sorted_runs};
use super::parameters::{AREA_START_GROUP, CHUNK_BYTES, DATA_DRIVES, Parameters};
use crate::error::Result;

const STRIPE_BYTES: u64 = CHUNK_BYTES * DATA_DRIVES;

/// The array, its drives' heads and its clock.
#[derive(Debug, Clone)]
pub struct Array {
    parameters: Parameters,
    heads: Vec<Head>,
    /// Where blocks of the tested area begin.
    start: u64,
    /// When the path has carried all it was given.
    path: f64,
    /// When the last batch was done, and the one before.
    done: [f64; 2],
    drained: f64,
}

/// Bytes of drive `drive` that lie before byte `byte` of the array.
fn before(drive: u64, byte: u64) -> u64 {
    let in_stripe = byte % STRIPE_BYTES;
    let in_chunk = in_stripe.saturating_sub(drive * CHUNK_BYTES);
    byte / STRIPE_BYTES * CHUNK_BYTES + in_chunk.min(CHUNK_BYTES)
}

impl Array {
    /// With its heads at the start of the tested area.
    pub fn new(parameters: Parameters) -> Array {
        let start = Group(AREA_START_GROUP as u32).block(0).0 * BLOCK_BYTES;
        let head = Head::new(parameters.drive, before(0, start) as f64);
        Array {
            parameters,
            heads: vec![head; DATA_DRIVES as usize],
            start,
            path: 0.0,
            done: [0.0; 2],
            drained: 0.0,
        }
    }

    /// Moves the drives over one run. A stripe written in part is read first, a revolution before.
    fn transfer(&mut self, direction: Direction, from: f64, (start, end): (u64, u64)) -> f64 {
        let (start, end) = (
            self.start + start * BLOCK_BYTES,
            self.start + end * BLOCK_BYTES,
        );
        let is_whole = start % STRIPE_BYTES == 0 && end % STRIPE_BYTES == 0;
        let turns = match direction {
            Direction::Write if !is_whole => 1.0,
            _ => 0.0,
        };
        let mut last = from;
        for (drive, head) in (0..).zip(&mut self.heads) {
            let (first, behind) = (before(drive, start), before(drive, end));
            if first < behind {
                let bytes = (behind - first) as f64;
                last = last.max(head.transfer(direction, from, first as f64, bytes, turns));
            }
        }
        last
    }
}

impl Medium for Array {
    fn batch(&mut self, direction: Direction, extents: &[Extent]) -> Result<()> {
        let runs = sorted_runs(extents);
        let blocks: u64 = runs.iter().map(|(start, end)| end - start).sum();
        let carrying = (blocks * BLOCK_BYTES) as f64 / self.parameters.path_rate;
        let room = self.done[1];
        let from = match direction {
            Direction::Read => room,
            Direction::Write => {
                self.path = self.path.max(room) + carrying;
                self.path
            }
        };
        let mut done = from;
        for run in runs {
            done = done.max(self.transfer(direction, from, run));
        }
        if direction == Direction::Read {
            self.path = self.path.max(done) + carrying;
            done = self.path;
        }
        self.done = [done.max(self.done[0]), self.done[0]];
        Ok(())
    }

    fn drain(&mut self) -> Result<f64> {
        let now = self.done[0].max(self.path);
        let seconds = now - self.drained;
        (self.drained, self.path, self.done) = (now, now, [now; 2]);
        Ok(seconds)
    }
}

#[cfg(test)]
mod tests {
    use allocator::Block;

    use super::*;

    const MIB: u32 = 256;

    /// MiB/s of requests of `blocks` blocks at `places`, in batches of 64.
    fn rate(direction: Direction, blocks: u32, places: impl Iterator<Item = u64>) -> f64 {
        let mut array = Array::new(Parameters::default());
        let extents: Vec<Extent> = places
            .map(|place| Extent::new(Block(place), blocks))
            .collect();
        for batch in extents.chunks(64) {
            array.batch(direction, batch).unwrap();
        }
        let mib = extents.len() as f64 * f64::from(blocks) / f64::from(MIB);
        mib / array.drain().unwrap()
    }

    fn every(stride: u32) -> impl Iterator<Item = u64> {
        (0..2000).map(move |number| number * u64::from(stride))
    }

    #[test]
    fn drives_share_the_bytes_of_the_array_without_gap() {
        for byte in [0, 1, CHUNK_BYTES, STRIPE_BYTES - 1, 7 * STRIPE_BYTES + 5] {
            let all: u64 = (0..DATA_DRIVES).map(|drive| before(drive, byte)).sum();
            assert_eq!(all, byte);
        }
    }

    #[test]
    fn what_lies_in_a_row_comes_as_fast_as_the_path() {
        for direction in [Direction::Read, Direction::Write] {
            let rate = rate(direction, MIB, every(MIB));
            let path = 625e6 / f64::from(1 << 20);
            assert!(
                (0.98 * path..=path).contains(&rate),
                "{direction:?}: {rate}"
            );
        }
    }

    #[test]
    fn holes_of_a_megabyte_cost_a_seek_each_and_those_of_eight_little() {
        for direction in [Direction::Read, Direction::Write] {
            let of = |mib: u32| rate(direction, mib * MIB, every(20 * mib * MIB));
            assert!(of(1) < 0.5 * of(8), "{} {}", of(1), of(8));
            assert!(of(1) > 50.0);
        }
    }

    #[test]
    fn a_stripe_written_in_part_costs_a_revolution_more() {
        let whole = rate(Direction::Write, MIB, every(20 * MIB));
        let part = rate(Direction::Write, MIB - 1, every(20 * MIB));
        assert!(part < 0.8 * whole, "{part} {whole}");
        let read = rate(Direction::Read, MIB - 1, every(20 * MIB));
        assert!(read > 0.9 * rate(Direction::Read, MIB, every(20 * MIB)));
    }
}
