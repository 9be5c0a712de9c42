//! A [`Disk`] that fails on demand: power cuts, torn writes, flipped bits. Deterministic.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::{Rng, SeededRng};

use super::device::Disk;
use crate::error::{Result, StorageError};

/// What a disk writes whole or not at all, in bytes.
const SECTOR: usize = 512;

/// Which unsynced changes are found on the disk after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// None.
    Nothing,
    /// All, the last write cut off after `torn_bytes`: a device that writes in order.
    Torn {
        /// How many bytes of the last write arrived.
        torn_bytes: usize,
    },
    /// The last one alone, whole: a device that writes in any order.
    Last,
    /// Each sector and each change of length by the toss of a seeded coin.
    Random {
        /// The same seed, the same survivors.
        seed: u64,
    },
}

/// Wraps a disk; clones share it. Changes are counted from one: each write, set_len and sync.
#[derive(Clone)]
pub struct FaultyDisk {
    inner: Arc<dyn Disk>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    changes: u64,
    cut_after: Option<u64>,
    refuse: Option<(u64, io::ErrorKind)>,
    dead: bool,
    unsynced: Vec<Change>,
}

/// One unsynced change, with what undoes it.
enum Change {
    Write {
        offset: u64,
        old_len: u64,
        old: Vec<u8>,
        new: Vec<u8>,
    },
    SetLen {
        old_len: u64,
        lost_tail: Vec<u8>,
        new_len: u64,
    },
}

impl FaultyDisk {
    /// Wraps `inner`, which works until told otherwise.
    pub fn new(inner: impl Disk + 'static) -> FaultyDisk {
        FaultyDisk {
            inner: Arc::new(inner),
            state: Arc::default(),
        }
    }

    /// The power fails with change `count + 1`, which is unsynced then; every later call fails.
    pub fn cut_after(&self, count: u64) {
        self.state().cut_after = Some(count);
    }

    /// Change number `count` is not done and fails with `kind`, once.
    pub fn refuse_change(&self, count: u64, kind: io::ErrorKind) {
        self.state().refuse = Some((count, kind));
    }

    /// How many changes there have been.
    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    /// Cuts the power now: undoes what was not synced, but for the survivors. The wrapped disk is
    /// then what a reboot finds; this one stays dead.
    pub fn power_cut(&self, survivors: Survivors) -> Result<()> {
        let mut state = self.state();
        state.dead = true;
        let changes = std::mem::take(&mut state.unsynced);
        for change in changes.iter().rev() {
            change.undo(&*self.inner)?;
        }
        match survivors {
            Survivors::Nothing => Ok(()),
            Survivors::Torn { torn_bytes } => redo_torn(&*self.inner, &changes, torn_bytes),
            Survivors::Last => changes
                .last()
                .map_or(Ok(()), |change| change.redo(&*self.inner)),
            Survivors::Random { seed } => redo_random(&*self.inner, &changes, seed),
        }
    }

    /// Flips bit `bit` (0 to 7) of the byte at `offset` behind everyone's back.
    pub fn flip_bit(&self, offset: u64, bit: u8) -> Result<()> {
        let mut byte = [0];
        self.inner.read(offset, &mut byte)?;
        byte[0] ^= 1 << (bit & 7);
        self.inner.write(offset, &byte)
    }

    // State is consistent between statements that can panic (none): poisoning adds nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a change and says whether it happens (`Ok(true)`), or is the one in flight when the
    /// power fails (`Ok(false)`).
    fn begin_change(&self, state: &mut State) -> Result<bool> {
        state.check_alive()?;
        state.changes += 1;
        if let Some((count, kind)) = state.refuse
            && count == state.changes
        {
            state.refuse = None;
            let error = io::Error::new(kind, "injected");
            return Err(StorageError::from_io("faulty disk", "write it", &error));
        }
        state.dead = state.cut_after.is_some_and(|cut| state.changes > cut);
        Ok(!state.dead)
    }
}

impl State {
    fn check_alive(&self) -> Result<()> {
        match self.dead {
            true => Err(power_is_off()),
            false => Ok(()),
        }
    }
}

fn power_is_off() -> StorageError {
    let error = io::Error::other("the power is off");
    StorageError::from_io("faulty disk", "reach it", &error)
}

impl Change {
    fn undo(&self, disk: &dyn Disk) -> Result<()> {
        match self {
            Change::Write {
                offset,
                old_len,
                old,
                ..
            } => {
                disk.write(*offset, old)?;
                disk.set_len(*old_len)
            }
            Change::SetLen {
                old_len, lost_tail, ..
            } => {
                disk.set_len(*old_len)?;
                disk.write(*old_len - lost_tail.len() as u64, lost_tail)
            }
        }
    }

    fn redo(&self, disk: &dyn Disk) -> Result<()> {
        match self {
            Change::Write { offset, new, .. } => disk.write(*offset, new),
            Change::SetLen { new_len, .. } => disk.set_len(*new_len),
        }
    }
}

fn redo_torn(disk: &dyn Disk, changes: &[Change], torn_bytes: usize) -> Result<()> {
    let Some((last, earlier)) = changes.split_last() else {
        return Ok(());
    };
    for change in earlier {
        change.redo(disk)?;
    }
    match last {
        Change::Write { offset, new, .. } => disk.write(*offset, &new[..torn_bytes.min(new.len())]),
        Change::SetLen { .. } => Ok(()),
    }
}

fn redo_random(disk: &dyn Disk, changes: &[Change], seed: u64) -> Result<()> {
    let mut coin = SeededRng::new(seed);
    for change in changes {
        match change {
            Change::Write { offset, new, .. } => {
                for (index, sector) in new.chunks(SECTOR).enumerate() {
                    if coin.below(2) == 0 {
                        disk.write(*offset + (index * SECTOR) as u64, sector)?;
                    }
                }
            }
            Change::SetLen { .. } if coin.below(2) == 0 => change.redo(disk)?,
            Change::SetLen { .. } => {}
        }
    }
    Ok(())
}

/// What `disk` holds at `offset`, at most `len` bytes, fewer where it ends.
fn existing(disk: &dyn Disk, offset: u64, len: u64) -> Result<Vec<u8>> {
    let available = disk.len()?.saturating_sub(offset).min(len);
    let mut bytes = vec![0; available as usize];
    if available > 0 {
        disk.read(offset, &mut bytes)?;
    }
    Ok(bytes)
}

impl fmt::Debug for FaultyDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyDisk({:?})", self.inner)
    }
}

impl Disk for FaultyDisk {
    fn len(&self) -> Result<u64> {
        self.state().check_alive()?;
        self.inner.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.state().check_alive()?;
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.state();
        let survives_call = self.begin_change(&mut state)?;
        state.unsynced.push(Change::Write {
            offset,
            old_len: self.inner.len()?,
            old: existing(&*self.inner, offset, data.len() as u64)?,
            new: data.to_vec(),
        });
        self.inner.write(offset, data)?;
        survives_call.then_some(()).ok_or_else(power_is_off)
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.state();
        if !self.begin_change(&mut state)? {
            return Err(power_is_off());
        }
        self.inner.sync()?;
        state.unsynced.clear();
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut state = self.state();
        let survives_call = self.begin_change(&mut state)?;
        state.unsynced.push(Change::SetLen {
            old_len: self.inner.len()?,
            lost_tail: existing(&*self.inner, len, u64::MAX)?,
            new_len: len,
        });
        self.inner.set_len(len)?;
        survives_call.then_some(()).ok_or_else(power_is_off)
    }

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}
