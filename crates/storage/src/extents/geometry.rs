//! What lies where on the disk of a store of extents, and the superblock that says so. docs/disk.md,
//! "Extents", is the normative text.

use allocator::{Block, Extent, GROUP_BLOCKS, Group};

use super::log::{Area, BLOCK_BYTES};
use crate::error::{Result, StorageError};

/// The version of this layout.
pub const EXTENTS_VERSION: u32 = 2;
/// Blocks with a copy of the superblock: the first ones.
pub const SUPERBLOCKS: u64 = 2;
/// Bytes of the superblock; the rest of its block is zero.
const SUPERBLOCK_BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"GLINTEXT";
/// Bytes of a group's entry in a table.
pub const ENTRY_BYTES: u64 = 12;
/// Blocks of a step: the space below is taken and given back in these. A word of a map has their bits.
pub const STEP_BLOCKS: u32 = u64::BITS;
/// Blocks of the log that a commit may need: a record of the greatest length, and one of a start.
const LOG_BLOCKS_MIN: u64 = 16;

/// The UUID of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreId(pub [u8; 16]);

impl StoreId {
    /// What each record of the log names it by.
    pub(super) fn short(self) -> u64 {
        let mut half = [0; 8];
        half.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(half)
    }
}

/// The parts of the disk, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Whose they are.
    pub id: StoreId,
    /// Blocks of the disk that are used.
    pub blocks: u64,
    /// The log's ring.
    pub log: Area,
    /// Blocks of one of the two tables, which lie behind the log.
    pub table_blocks: u64,
    /// Blocks for objects' bytes: the last ones. Maps lie before them, two slots a group.
    pub data_blocks: u64,
}

impl Geometry {
    /// That of a disk of `bytes`, with a log of `log_blocks`. Refused where too little is left for data.
    pub fn new(id: StoreId, bytes: u64, log_blocks: u64) -> Result<Geometry> {
        let blocks = bytes / BLOCK_BYTES;
        let log = Area {
            first: SUPERBLOCKS,
            blocks: log_blocks,
        };
        let for_groups = blocks.saturating_sub(SUPERBLOCKS + log_blocks);
        // As many groups as if maps and tables took nothing: one too many at most.
        let groups = for_groups.div_ceil(u64::from(GROUP_BLOCKS));
        let table_blocks = 1 + (groups * ENTRY_BYTES).div_ceil(BLOCK_BYTES);
        let overhead = 2 * table_blocks + 2 * groups;
        let data_blocks = for_groups.saturating_sub(overhead);
        if data_blocks == 0 || log_blocks < LOG_BLOCKS_MIN {
            return Err(StorageError::refused(
                "a disk for extents",
                format!("{bytes} bytes with a log of {log_blocks} blocks leave no room for data"),
            ));
        }
        Ok(Geometry {
            id,
            blocks,
            log,
            table_blocks,
            data_blocks,
        })
    }

    /// How many groups the data have.
    pub fn groups(&self) -> u32 {
        self.data_blocks.div_ceil(u64::from(GROUP_BLOCKS)) as u32
    }

    /// There is such a group.
    pub fn has(&self, group: Group) -> bool {
        group.0 < self.groups()
    }

    /// How many blocks of data a group has.
    pub fn blocks_of(&self, group: Group) -> u32 {
        let there = self.data_blocks.saturating_sub(group.block(0).0);
        there.min(u64::from(GROUP_BLOCKS)) as u32
    }

    /// The byte where table 0 or 1 begins.
    pub fn table_offset(&self, table: u64) -> u64 {
        (self.log.first + self.log.blocks + table * self.table_blocks) * BLOCK_BYTES
    }

    /// The byte where slot 0 or 1 of a group's map is.
    pub fn map_offset(&self, group: u32, slot: u8) -> u64 {
        self.table_offset(2) + (2 * u64::from(group) + u64::from(slot)) * BLOCK_BYTES
    }

    /// The byte where a block of data is.
    pub fn data_offset(&self, block: Block) -> u64 {
        (self.blocks - self.data_blocks + block.0) * BLOCK_BYTES
    }

    /// All of `extent` is on the disk.
    pub fn contains(&self, extent: Extent) -> bool {
        let end = extent.start.0.checked_add(u64::from(extent.blocks));
        extent.blocks > 0 && end.is_some_and(|end| end <= self.data_blocks)
    }

    /// The superblock's block.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&EXTENTS_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.id.0);
        for number in [
            self.blocks,
            self.log.blocks,
            self.table_blocks,
            self.data_blocks,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(SUPERBLOCK_BYTES - 4, 0);
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.resize(BLOCK_BYTES as usize, 0);
        bytes
    }

    /// What a superblock says of a disk of `disk_bytes`, which `at` names.
    pub fn decode(at: &str, block: &[u8], disk_bytes: u64) -> Result<Geometry> {
        let damaged = |reason: String| StorageError::damaged(at, "superblock of extents", reason);
        let long = |at: usize| {
            let bytes = block
                .get(at..at + 8)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        if block.get(..8) != Some(MAGIC) {
            return Err(StorageError::refused(
                at,
                "it has no superblock of a store of extents",
            ));
        }
        let version = long(8) as u32;
        if version != EXTENTS_VERSION {
            let (at, ours) = (at.to_owned(), EXTENTS_VERSION);
            return Err(StorageError::ForeignVersion {
                at,
                found: version,
                ours,
            });
        }
        let (body, sum) = block[..SUPERBLOCK_BYTES].split_at(SUPERBLOCK_BYTES - 4);
        if crc32c::crc32c(body).to_le_bytes() != sum {
            return Err(damaged("its checksum is wrong".to_owned()));
        }
        let mut id = StoreId([0; 16]);
        id.0.copy_from_slice(&body[16..32]);
        let (blocks, log_blocks) = (long(32), long(40));
        let bytes = blocks.saturating_mul(BLOCK_BYTES);
        let expected = Geometry::new(id, bytes, log_blocks)?;
        if (expected.table_blocks, expected.data_blocks) != (long(48), long(56)) {
            return Err(damaged("its parts do not fill the disk".to_owned()));
        }
        if bytes > disk_bytes {
            let reason = format!("the store has {bytes} bytes, the disk only {disk_bytes}");
            return Err(StorageError::refused(at, reason));
        }
        Ok(expected)
    }
}

/// The parts of an extent that are in one step each.
pub fn steps_of(place: Extent) -> impl Iterator<Item = Extent> {
    let mut rest = place;
    std::iter::from_fn(move || {
        let to_end = STEP_BLOCKS - rest.start.in_group() % STEP_BLOCKS;
        let (step, behind) = rest.split(to_end);
        rest = behind;
        (step.blocks > 0).then_some(step)
    })
}
