//! A disk of a simulated machine on which one bit reads flipped.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{Rng, SeededRng};
use storage::{Disk, Result};

use super::syncs::Syncs;

/// What is looked at for a place that is in use.
const BLOCK: u64 = 4096;
/// How often.
const LOOKS: usize = 64;
/// Bytes of a checksum.
const WORD: usize = 4;

/// The flipped bit, if there is one. Clones share it.
///
/// Reads show the bit flipped until its byte is written or the disk is cured. The disk below stays as it was,
/// so a cure harms nothing that was written since.
#[derive(Debug, Clone, Default)]
pub(super) struct Rot(Arc<Mutex<Option<Flip>>>);

#[derive(Debug, Clone, Copy)]
struct Flip {
    at: u64,
    mask: u8,
    is_read: bool,
}

impl Rot {
    fn bit(&self) -> MutexGuard<'_, Option<Flip>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flips a bit of a block of `disk` that is not empty, and says which.
    pub fn begin(&self, disk: &dyn Disk, numbers: &mut SeededRng) -> Result<u64> {
        let blocks = disk.len()? / BLOCK;
        let mut start = 0;
        for _ in 0..LOOKS {
            start = numbers.below(blocks.max(1)) * BLOCK;
            let mut block = [0; BLOCK as usize];
            disk.read(start, &mut block)?;
            if block.iter().any(|byte| *byte != 0) {
                break;
            }
        }
        let at = start + numbers.below(BLOCK);
        let mask = 1 << numbers.below(8);
        *self.bit() = Some(Flip {
            at,
            mask,
            is_read: false,
        });
        Ok(at)
    }

    /// Everything is as it was written.
    pub fn cure(&self) {
        *self.bit() = None;
    }
}

/// `disk`, with that bit.
pub(super) struct Rotten<D> {
    /// What damage there is told of.
    pub name: String,
    pub disk: D,
    pub rot: Rot,
    pub syncs: Syncs,
}

impl<D> fmt::Debug for Rotten<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl<D: Disk> Rotten<D> {
    /// `data` with the sound word, if `data` has the word with the flipped bit as it was read.
    ///
    /// A program may write that word back along with others (a checksum with those beside it). Then the sound
    /// word is written: else the damage would be there for good, and nothing could be cured.
    fn written_along(&self, flip: Flip, offset: u64, data: &[u8]) -> Result<Option<Vec<u8>>> {
        let start = flip.at - flip.at % WORD as u64;
        let Some(from) = start.checked_sub(offset).map(|from| from as usize) else {
            return Ok(None);
        };
        let mut word = [0; WORD];
        self.disk.read(start, &mut word)?;
        let sound = word;
        word[(flip.at - start) as usize] ^= flip.mask;
        if data.get(from..from + WORD) != Some(&word[..]) {
            return Ok(None);
        }
        let mut data = data.to_vec();
        data[from..from + WORD].copy_from_slice(&sound);
        Ok(Some(data))
    }
}

impl<D: Disk> Disk for Rotten<D> {
    fn len(&self) -> Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.disk.read(offset, buffer)?;
        if let Some(flip) = &mut *self.rot.bit()
            && let Some(byte) = flip.at.checked_sub(offset)
            && let Some(byte) = buffer.get_mut(byte as usize)
        {
            *byte ^= flip.mask;
            flip.is_read = true;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut bit = self.rot.bit();
        // A program that writes the same word before it was read means it.
        if let Some(flip) = *bit
            && flip.is_read
            && let Some(sound) = self.written_along(flip, offset, data)?
        {
            return self.disk.write(offset, &sound);
        }
        self.disk.write(offset, data)?;
        *bit = bit.filter(|bit| !(offset..offset + data.len() as u64).contains(&bit.at));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.syncs.wait();
        self.disk.sync()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.disk.set_len(len)?;
        let mut bit = self.rot.bit();
        *bit = bit.filter(|bit| bit.at < len);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.disk.close()
    }
}

#[cfg(test)]
mod tests {
    use storage::MemDisk;

    use super::*;

    #[test]
    fn a_bit_is_wrong_until_it_is_written_or_cured() {
        let disk = MemDisk::from_bytes(vec![7; 3 * BLOCK as usize]);
        let rot = Rot::default();
        let rotten = Rotten {
            name: "a disk".to_owned(),
            disk: disk.clone(),
            rot: rot.clone(),
            syncs: Syncs::default(),
        };
        let bytes = || {
            let mut bytes = vec![0; 3 * BLOCK as usize];
            let read = rotten.read(0, &mut bytes);
            read.map(|()| bytes).expect("it can be read")
        };
        let flip = || {
            let flipped = rot.begin(&disk, &mut SeededRng::new(1));
            flipped.expect("it can be read")
        };
        let at = flip();
        let wrong: Vec<usize> = (0..bytes().len()).filter(|at| bytes()[*at] != 7).collect();
        assert_eq!(wrong, [at as usize]);
        rot.cure();
        assert_eq!(bytes(), disk.to_bytes());
        let at = flip();
        rotten.write(at, &[9]).expect("it can be written");
        assert_eq!((bytes()[at as usize], bytes()), (9, disk.to_bytes()));
        let at = flip();
        let mut meant = disk.to_bytes();
        let mask = rot.bit().expect("it is flipped").mask;
        meant[at as usize] ^= mask;
        rotten.write(0, &meant).expect("it can be written");
        rot.cure();
        assert_eq!(disk.to_bytes(), meant, "nobody had read it");
        meant[at as usize] ^= mask;
        rotten.write(0, &meant).expect("it can be written");
        let at = flip() as usize;
        let read = bytes();
        let mut along = read.clone();
        along[(at + 2 * WORD) % read.len()] = 5;
        rotten.write(0, &along).expect("it can be written");
        assert_eq!(bytes(), along);
        rot.cure();
        assert_eq!(
            (bytes()[at], disk.to_bytes()[at]),
            (9, 9),
            "as it was before"
        );
    }
}
