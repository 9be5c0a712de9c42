//! A [`Disk`] that notices damage: every 4 KiB block read is the block that was written there. docs/disk.md,
//! "Checked disk", describes the layout.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::device::Disk;
use crate::error::{Result, StorageError};

/// Bytes in a block: what one checksum covers.
pub const BLOCK: usize = 4096;
/// Bytes of the logical block 0 that may be used.
pub const HEAD_BYTES: usize = BLOCK - SLOT_PAYLOAD - 4;
/// The version of this layout.
pub const CHECKED_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"GLINTCHK";
/// Where the head begins in its slot.
const SLOT_PAYLOAD: usize = 64;
const SLOTS: u64 = 4;
/// Blocks one block of checksums covers.
const GROUP: u64 = (BLOCK / 4) as u64;
/// Checksums are written in sectors, so that a write in flight spoils none but its own.
const SECTOR: usize = 512;
const SUMS_PER_SECTOR: u64 = (SECTOR / 4) as u64;
const BLOCK_64: u64 = BLOCK as u64;

/// Checks what it reads from the disk below. Takes whole blocks, apart from the head. The engine above checks
/// its pages only when it repairs itself.
///
/// The engine overwrites block 0, the head, in place. So the head lives in four slots: it is written once a
/// sync, alternates between two pairs, and its second copy is written after the sync. One whole synced head
/// always exists, and one lost slot never brings back an older head.
///
/// A block that was never synced may fail its check after a power cut. One that was never written always
/// fails it: a sum that was lost with its block looks the same. The engine reads neither.
#[derive(Debug)]
pub struct CheckedDisk<D> {
    disk: D,
    /// Held for moments only: readers never wait for a sync.
    sums: RwLock<Sums>,
    /// Held through a sync, which makes syncs follow each other.
    head: Mutex<Head>,
}

/// Kept in memory: 4 bytes a block, 0.1 % of the disk.
#[derive(Debug, Default)]
struct Sums {
    /// The checksum of each logical block; zero for one never written, which cannot be read.
    of_block: Vec<u32>,
    /// Sectors of checksums not yet written, by number.
    unwritten: BTreeSet<u64>,
}

#[derive(Debug)]
struct Head {
    bytes: Box<[u8; HEAD_BYTES]>,
    changed: bool,
    /// Counts the syncs that changed the head.
    sequence: u64,
}

impl<D: Disk> CheckedDisk<D> {
    /// Starts on `disk`, forgetting what it held.
    pub fn create(disk: D) -> Result<CheckedDisk<D>> {
        disk.set_len(0)?;
        disk.set_len(SLOTS * BLOCK_64)?;
        let head = Head {
            bytes: Box::new([0; HEAD_BYTES]),
            changed: true,
            sequence: 0,
        };
        Ok(CheckedDisk {
            disk,
            sums: RwLock::default(),
            head: Mutex::new(head),
        })
    }

    /// Goes on with what `disk` holds since its last sync.
    pub fn open(disk: D) -> Result<CheckedDisk<D>> {
        let (sequence, bytes) = read_head(&disk)?;
        restore_copies(&disk, sequence, &bytes)?;
        let sums = Sums {
            of_block: read_sums(&disk)?,
            unwritten: BTreeSet::new(),
        };
        let head = Head {
            bytes,
            changed: false,
            sequence,
        };
        Ok(CheckedDisk {
            disk,
            sums: RwLock::new(sums),
            head: Mutex::new(head),
        })
    }

    /// The disk below.
    pub fn inner(&self) -> &D {
        &self.disk
    }

    // A panic under one of these locks leaves a write undone, and its caller's transaction with
    // it: poisoning adds nothing.
    fn sums(&self) -> RwLockReadGuard<'_, Sums> {
        self.sums.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn sums_mut(&self) -> RwLockWriteGuard<'_, Sums> {
        self.sums.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse<T>(&self, offset: u64, len: usize) -> Result<T> {
        Err(StorageError::refused(
            format!("{:?}", self.disk),
            format!("{len} bytes at {offset} are not whole blocks of the disk"),
        ))
    }

    /// The blocks that `len` bytes at `offset` are, none of them the head.
    fn blocks(&self, offset: u64, len: usize) -> Result<Range<u64>> {
        let whole = offset.is_multiple_of(BLOCK_64) && len.is_multiple_of(BLOCK);
        if !whole || offset < BLOCK_64 || offset.checked_add(len as u64).is_none() {
            return self.refuse(offset, len);
        }
        let first = offset / BLOCK_64;
        Ok(first..first + (len / BLOCK) as u64)
    }

    fn check(&self, block: u64, data: &[u8], sum: u32) -> Result<()> {
        match sum {
            0 => Err(self.damaged(
                block,
                "it has no checksum: it was never written, or lost it",
            )),
            sum if sum == checksum(block, data) => Ok(()),
            _ => Err(self.damaged(block, "its checksum does not match")),
        }
    }

    fn damaged(&self, block: u64, reason: &str) -> StorageError {
        let (at, record) = (format!("{:?}", self.disk), format!("block {block}"));
        StorageError::damaged(at, record, reason)
    }
}

/// The physical byte offset of a logical block.
fn place(block: u64) -> u64 {
    (SLOTS + block / GROUP * (GROUP + 1) + 1 + block % GROUP) * BLOCK_64
}

/// The physical byte offset of a sector of checksums.
fn sums_place(sector: u64) -> u64 {
    let first_block = sector * SUMS_PER_SECTOR;
    let in_group = first_block % GROUP * 4;
    (SLOTS + first_block / GROUP * (GROUP + 1)) * BLOCK_64 + in_group
}

/// The physical length of a disk of `blocks` logical blocks.
fn physical_len(blocks: u64) -> u64 {
    match blocks {
        0 => SLOTS * BLOCK_64,
        blocks => place(blocks - 1) + BLOCK_64,
    }
}

/// How many logical blocks fit whole in `len` physical bytes.
fn logical_blocks(len: u64) -> u64 {
    let beyond_slots = (len / BLOCK_64).saturating_sub(SLOTS);
    beyond_slots / (GROUP + 1) * GROUP + (beyond_slots % (GROUP + 1)).saturating_sub(1)
}

/// Never zero; covers the block's number, so that a block in another's place is noticed.
fn checksum(block: u64, data: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block.to_le_bytes()), data).max(1)
}

/// The runs of `blocks` that lie side by side below: the first block of each, and which bytes of
/// the caller's buffer it is.
fn runs(blocks: Range<u64>) -> impl Iterator<Item = (u64, Range<usize>)> {
    let mut next = blocks.start;
    std::iter::from_fn(move || {
        let start = next;
        next = blocks.end.min((start / GROUP + 1) * GROUP);
        let byte = |block: u64| (block - blocks.start) as usize * BLOCK;
        (start < blocks.end).then(|| (start, byte(start)..byte(next)))
    })
}

fn encode_slot(sequence: u64, head: &[u8; HEAD_BYTES]) -> [u8; BLOCK] {
    let mut slot = [0; BLOCK];
    slot[..8].copy_from_slice(MAGIC);
    slot[8..12].copy_from_slice(&CHECKED_VERSION.to_le_bytes());
    slot[16..24].copy_from_slice(&sequence.to_le_bytes());
    slot[SLOT_PAYLOAD..BLOCK - 4].copy_from_slice(head);
    let sum = crc32c::crc32c(&slot[..BLOCK - 4]);
    slot[BLOCK - 4..].copy_from_slice(&sum.to_le_bytes());
    slot
}

/// The version, sequence and head of a slot; `None` where it is torn, damaged or never written.
fn decode_slot(slot: &[u8; BLOCK]) -> Option<(u32, u64, Box<[u8; HEAD_BYTES]>)> {
    let u32_at =
        |at: usize| u32::from_le_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
    if &slot[..8] != MAGIC || u32_at(BLOCK - 4) != crc32c::crc32c(&slot[..BLOCK - 4]) {
        return None;
    }
    let sequence = u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
    let mut head = Box::new([0; HEAD_BYTES]);
    head.copy_from_slice(&slot[SLOT_PAYLOAD..BLOCK - 4]);
    Some((u32_at(8), sequence, head))
}

/// The slots of head number `sequence`: the first is synced with what it points to, the second is
/// written after that sync.
fn slots_of(sequence: u64) -> [u64; 2] {
    let first = sequence % 2 * 2;
    [first * BLOCK_64, (first + 1) * BLOCK_64]
}

/// The newest head. The one before it must be there as well, in one copy at least, which no power cut takes:
/// where both copies of a head are lost, that may be the newest one.
fn read_head(disk: &impl Disk) -> Result<(u64, Box<[u8; HEAD_BYTES]>)> {
    let at = format!("{disk:?}");
    let mut newest: Option<(u64, Box<[u8; HEAD_BYTES]>)> = None;
    let mut sequences = Vec::new();
    if disk.len()? < SLOTS * BLOCK_64 {
        let reason = "the file is shorter than its head; it was never formatted, or was cut";
        return Err(StorageError::damaged(at, "head", reason));
    }
    for slot in 0..SLOTS {
        let mut bytes = [0; BLOCK];
        disk.read(slot * BLOCK_64, &mut bytes)?;
        let Some((version, sequence, head)) = decode_slot(&bytes) else {
            continue;
        };
        if version != CHECKED_VERSION {
            return Err(StorageError::ForeignVersion {
                at,
                found: version,
                ours: CHECKED_VERSION,
            });
        }
        sequences.push(sequence);
        if newest.as_ref().is_none_or(|&(known, _)| sequence > known) {
            newest = Some((sequence, head));
        }
    }
    match newest {
        None => Err(StorageError::damaged(
            at,
            "head",
            "none of its copies is whole",
        )),
        Some((sequence, _)) if sequence > 1 && !sequences.contains(&(sequence - 1)) => {
            let reason = format!(
                "number {sequence} is whole, both copies of another are not, which may be newer"
            );
            Err(StorageError::damaged(at, "head", reason))
        }
        Some(newest) => Ok(newest),
    }
}

/// Writes the copies of the newest head that a power cut or damage took: one more loss would
/// bring back an older head.
fn restore_copies(disk: &impl Disk, sequence: u64, head: &[u8; HEAD_BYTES]) -> Result<()> {
    let whole = encode_slot(sequence, head);
    for offset in slots_of(sequence) {
        let mut found = [0; BLOCK];
        disk.read(offset, &mut found)?;
        if found != whole {
            tracing::info!(disk = ?disk, offset, "restoring a copy of the head");
            disk.write(offset, &whole)?;
            disk.sync()?;
        }
    }
    Ok(())
}

/// Every checksum.
fn read_sums(disk: &impl Disk) -> Result<Vec<u32>> {
    let blocks = logical_blocks(disk.len()?);
    let mut sums = Vec::with_capacity(blocks as usize);
    let mut bytes = [0; BLOCK];
    for group in 0..blocks.div_ceil(GROUP) {
        disk.read((SLOTS + group * (GROUP + 1)) * BLOCK_64, &mut bytes)?;
        let count = (blocks - group * GROUP).min(GROUP) as usize;
        let words = bytes.chunks_exact(4).take(count);
        sums.extend(words.map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])));
    }
    Ok(sums)
}

impl Sums {
    fn sector(&self, sector: u64) -> [u8; SECTOR] {
        let first = (sector * SUMS_PER_SECTOR) as usize;
        let mut bytes = [0; SECTOR];
        for (slot, sum) in bytes.chunks_exact_mut(4).zip(&self.of_block[first..]) {
            slot.copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    fn set(&mut self, block: u64, sum: u32) {
        self.of_block[block as usize] = sum;
        self.unwritten.insert(block / SUMS_PER_SECTOR);
    }

    fn resize(&mut self, blocks: u64) {
        let old = self.of_block.len() as u64;
        self.of_block.resize(blocks as usize, 0);
        // Sectors of new blocks may hold sums from before an earlier cut.
        let end = blocks.div_ceil(SUMS_PER_SECTOR);
        self.unwritten.extend(old / SUMS_PER_SECTOR..end);
        self.unwritten.split_off(&end);
    }

    /// What is to be written, with its place.
    fn take_unwritten(&mut self) -> Vec<(u64, [u8; SECTOR])> {
        let sectors = std::mem::take(&mut self.unwritten);
        let placed = sectors
            .into_iter()
            .map(|sector| (sums_place(sector), self.sector(sector)));
        placed.collect()
    }
}

impl Head {
    /// The part that `len` bytes at `offset` are, if the head has it.
    fn part(&mut self, offset: u64, len: usize) -> Option<&mut [u8]> {
        let start = offset as usize;
        self.bytes.get_mut(start..start.checked_add(len)?)
    }
}

impl<D: Disk> Disk for CheckedDisk<D> {
    fn len(&self) -> Result<u64> {
        Ok(self.sums().of_block.len() as u64 * BLOCK_64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if offset < BLOCK_64 {
            return match self.head().part(offset, buffer.len()) {
                Some(part) => {
                    buffer.copy_from_slice(part);
                    Ok(())
                }
                None => self.refuse(offset, buffer.len()),
            };
        }
        let blocks = self.blocks(offset, buffer.len())?;
        let span = blocks.start as usize..blocks.end as usize;
        let Some(sums) = self.sums().of_block.get(span).map(<[u32]>::to_vec) else {
            return Err(self.damaged(blocks.end - 1, "the file ends before it"));
        };
        for (run, bytes) in runs(blocks.clone()) {
            self.disk.read(place(run), &mut buffer[bytes])?;
        }
        let pairs = buffer.chunks_exact(BLOCK).zip(sums);
        blocks
            .zip(pairs)
            .try_for_each(|(block, (data, sum))| self.check(block, data, sum))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        if offset < BLOCK_64 {
            let mut head = self.head();
            let Some(part) = head.part(offset, data.len()) else {
                return self.refuse(offset, data.len());
            };
            part.copy_from_slice(data);
            head.changed = true;
            return Ok(());
        }
        let blocks = self.blocks(offset, data.len())?;
        if blocks.end > self.sums().of_block.len() as u64 {
            self.set_len(blocks.end * BLOCK_64)?;
        }
        for (run, bytes) in runs(blocks.clone()) {
            self.disk.write(place(run), &data[bytes])?;
        }
        let sums: Vec<u32> = blocks
            .clone()
            .zip(data.chunks_exact(BLOCK))
            .map(|(block, data)| checksum(block, data))
            .collect();
        let mut table = self.sums_mut();
        blocks
            .zip(sums)
            .for_each(|(block, sum)| table.set(block, sum));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut head = self.head();
        let unwritten = self.sums_mut().take_unwritten();
        for (offset, sector) in unwritten {
            self.disk.write(offset, &sector)?;
        }
        if !head.changed {
            return self.disk.sync();
        }
        head.sequence += 1;
        head.changed = false;
        let slot = encode_slot(head.sequence, &head.bytes);
        let [first, second] = slots_of(head.sequence);
        self.disk.write(first, &slot)?;
        self.disk.sync()?;
        self.disk.write(second, &slot)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        if !len.is_multiple_of(BLOCK_64) {
            return self.refuse(0, len as usize);
        }
        let mut sums = self.sums_mut();
        self.disk.set_len(physical_len(len / BLOCK_64))?;
        sums.resize(len / BLOCK_64);
        Ok(())
    }

    fn close(&self) -> Result<()> {
        // The second copy of the head is the one thing written after a sync.
        self.disk.sync()?;
        self.disk.close()
    }
}
