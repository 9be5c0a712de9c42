//! A [`Disk`] whose writes stay in memory: a store opened on it changes nothing below. Used to check a
//! target.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::ByteRange;

use super::device::Disk;
use crate::error::{Result, StorageError};

/// What is kept of a write is whole blocks of this size.
const BLOCK_BYTES: u64 = 4096;

/// Keeps in memory each block that is written, and reads the others from the disk below. Opening a store
/// writes some blocks; what else is written is for the caller to bound.
pub struct UnwrittenDisk<D> {
    below: D,
    state: Mutex<State>,
}

struct State {
    len: u64,
    /// As much of the disk below is still seen.
    seen_below: u64,
    /// By their number.
    written: BTreeMap<u64, Vec<u8>>,
}

impl<D: Disk> UnwrittenDisk<D> {
    /// Shows what `below` holds.
    pub fn new(below: D) -> Result<UnwrittenDisk<D>> {
        let len = below.len()?;
        let state = Mutex::new(State {
            len,
            seen_below: len,
            written: BTreeMap::new(),
        });
        Ok(UnwrittenDisk { below, state })
    }

    // Poisoning adds nothing: a block is put in its place when it is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills `buffer` with the bytes of one block from `offset` on.
    fn read_part(&self, state: &State, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if let Some(block) = state.written.get(&(offset / BLOCK_BYTES)) {
            let start = (offset % BLOCK_BYTES) as usize;
            buffer.copy_from_slice(&block[start..start + buffer.len()]);
            return Ok(());
        }
        let below = state.seen_below.saturating_sub(offset);
        let below = below.min(buffer.len() as u64) as usize;
        let (seen, zero) = buffer.split_at_mut(below);
        zero.fill(0);
        match seen {
            [] => Ok(()),
            seen => self.below.read(offset, seen),
        }
    }
}

impl<D: fmt::Debug> fmt::Debug for UnwrittenDisk<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.below.fmt(f)
    }
}

/// The parts of `len` bytes from `offset` on that are in one block each: where, and how long.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize)> {
    let end = offset.saturating_add(len as u64);
    let mut next = offset;
    std::iter::from_fn(move || {
        let start = next;
        next = end.min((start / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES));
        (start < end).then(|| (start, (next - start) as usize))
    })
}

impl<D: Disk> Disk for UnwrittenDisk<D> {
    fn len(&self) -> Result<u64> {
        Ok(self.state().len)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let state = self.state();
        if offset.saturating_add(buffer.len() as u64) > state.len {
            return Err(StorageError::refused(
                "an unwritten disk",
                "read past its end",
            ));
        }
        let mut rest = buffer;
        for (at, len) in parts(offset, rest.len()) {
            let (part, behind) = rest.split_at_mut(len);
            self.read_part(&state, at, part)?;
            rest = behind;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.state();
        let mut rest = data;
        for (at, len) in parts(offset, data.len()) {
            let (part, behind) = rest.split_at(len);
            let number = at / BLOCK_BYTES;
            let mut block = vec![0; BLOCK_BYTES as usize];
            self.read_part(&state, number * BLOCK_BYTES, &mut block)?;
            block[(at % BLOCK_BYTES) as usize..][..len].copy_from_slice(part);
            state.written.insert(number, block);
            rest = behind;
        }
        state.len = state.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.state();
        if len < state.len {
            state.seen_below = state.seen_below.min(len);
            state.written.split_off(&len.div_ceil(BLOCK_BYTES));
            if let Some(last) = state.written.get_mut(&(len / BLOCK_BYTES)) {
                last[(len % BLOCK_BYTES) as usize..].fill(0);
            }
        }
        state.len = len;
        Ok(())
    }

    fn written(&self, range: ByteRange) -> Result<Vec<ByteRange>> {
        let state = self.state();
        match state.written.is_empty() && state.seen_below == state.len {
            true => self.below.written(range),
            false => Ok(vec![range]),
        }
    }

    fn close(&self) -> Result<()> {
        self.below.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::MemDisk;

    /// Numbers below `end`, the same in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (self.0 >> 33) % end
        }
    }

    #[test]
    fn it_shows_what_a_disk_would_and_changes_nothing_below() {
        let (first, mut numbers) = (vec![7; 9000], Numbers(1));
        let below = MemDisk::from_bytes(first.clone());
        for _ in 0..200 {
            let plain = MemDisk::from_bytes(first.clone());
            let disk = UnwrittenDisk::new(below.clone()).unwrap();
            for _ in 0..10 {
                let at = numbers.below(3 * BLOCK_BYTES);
                let bytes = vec![numbers.below(255) as u8; numbers.below(5000) as usize];
                let is_write = numbers.below(2) == 0;
                for disk in [&disk as &dyn Disk, &plain] {
                    match is_write {
                        true => disk.write(at, &bytes).unwrap(),
                        false => disk.set_len(at).unwrap(),
                    }
                }
                let mut seen = vec![1; disk.len().unwrap() as usize];
                disk.read(0, &mut seen).unwrap();
                assert!(seen == plain.to_bytes());
                assert!(disk.read(1, &mut seen).is_err() || seen.is_empty());
            }
        }
        assert!(below.to_bytes() == first);
    }
}
