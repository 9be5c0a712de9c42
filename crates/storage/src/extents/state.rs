//! What a store of extents is at a moment: its log, committed maps and last checkpoint. Pure: it says which
//! bytes go where, and its caller writes them and syncs in between.

use std::collections::VecDeque;

use allocator::{Cursors, Extent, Group, Summary};

use super::commit::Commit;
use super::geometry::Geometry;
use super::log::{BODY_BYTES_MAX, Log, Piece, Position, record_blocks};
use super::maps::{self, Contradiction, Map, Maps};
use super::table::{Entry, Table, sum_of};

/// Blocks of the log that commits leave: for the record with which the next life begins.
const LOG_BLOCKS_KEPT: u64 = 1;

/// Why a commit cannot be made. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A checkpoint must make room in the log first.
    LogFull,
    /// It has too many bytes for one record.
    TooLarge,
    /// A key is too long, or a block has no sum.
    Unsound,
    /// It names blocks that are not on the disk.
    OutOfRange(Extent),
    /// It takes a used block, or frees a free one.
    Contradiction(Extent),
    /// It names blocks of this group, whose map must be read first.
    Away(Group),
}

/// A checkpoint to be written: maps, a sync, the table, a sync. Then [`State::checkpointed`].
#[derive(Debug)]
#[must_use]
pub struct Checkpoint {
    /// Maps, each to the slot that the last checkpoint does not use.
    pub maps: Vec<Piece>,
    /// The table.
    pub table: Piece,
    new: Table,
}

/// The log, the maps, and the last checkpoint.
#[derive(Debug)]
pub struct State {
    geometry: Geometry,
    log: Log,
    maps: Maps,
    /// The last checkpoint.
    table: Table,
    /// The end of each record that the log has, and before them where it begins.
    positions: VecDeque<Position>,
}

impl State {
    /// The store after `table` and the records that end at `positions`, in its life number `life`.
    pub fn new(
        geometry: Geometry,
        table: Table,
        maps: Maps,
        positions: VecDeque<Position>,
        life: u64,
    ) -> State {
        let end = positions.back().copied().unwrap_or(table.start);
        let log = Log::new(
            geometry.log,
            geometry.id.short(),
            table.start.block,
            end,
            life,
        );
        State {
            geometry,
            log,
            maps,
            table,
            positions,
        }
    }

    /// What lies where.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Which blocks the records name, up to the last commit.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Where the last checkpoint has a group's map, in bytes, and the map's sum.
    pub fn map_source(&self, group: Group) -> Option<(u64, u32)> {
        let entry = self.table.entries[group.0 as usize]?;
        Some((self.geometry.map_offset(group.0, entry.slot), entry.sum))
    }

    /// A group's map, as the last checkpoint has it.
    pub fn put_map(&mut self, group: Group, map: Map) {
        self.maps.put(group.0, map);
    }

    /// Forgets a group's map. `false`: it changed since the last checkpoint, and stays.
    pub fn forget_map(&mut self, group: Group) -> bool {
        self.maps.forget(group.0)
    }

    /// What is free in a group, by all commits.
    pub fn summary(&self, group: Group) -> Summary {
        let blocks = self.geometry.blocks_of(group);
        match (self.maps.map(group.0), self.table.entries[group.0 as usize]) {
            (Some(map), _) => Summary::of_used(map, blocks),
            (None, Some(entry)) => entry.summary,
            (None, None) => Summary::of_empty(blocks),
        }
    }

    /// The store's life.
    pub fn life(&self) -> u64 {
        self.log.end().life
    }

    /// The last commit.
    pub fn last(&self) -> u64 {
        self.log.end().ticket
    }

    /// Every commit up to this one is durable.
    pub fn durable(&self) -> u64 {
        self.log.durable()
    }

    /// Every commit up to `ticket` is durable.
    pub fn made_durable(&mut self, ticket: u64) {
        self.log.made_durable(ticket);
    }

    /// More than half of the log is taken, or more than `maps_max` maps changed.
    pub fn wants_checkpoint(&self, maps_max: usize) -> bool {
        self.log.room() < self.geometry.log.blocks / 2 || self.maps.changed().len() > maps_max
    }

    /// The log has room for `commit`.
    pub fn has_room_for(&self, commit: &Commit) -> bool {
        record_blocks(commit.encode().len()) + LOG_BLOCKS_KEPT <= self.log.room()
    }

    /// Appends `commit` to the log. Says its ticket and what to write where.
    pub fn commit(&mut self, commit: &Commit) -> Result<(u64, Vec<Piece>), Refusal> {
        let mut places = commit.places();
        if let Some(outside) = places.find(|extent| !self.geometry.contains(*extent)) {
            return Err(Refusal::OutOfRange(outside));
        }
        if let Some(away) = self.maps.away_from(commit).first() {
            return Err(Refusal::Away(Group(*away)));
        }
        if !commit.is_sound() {
            return Err(Refusal::Unsound);
        }
        let body = commit.encode();
        if body.len() > BODY_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
        if record_blocks(body.len()) + LOG_BLOCKS_KEPT > self.log.room() {
            return Err(Refusal::LogFull);
        }
        let applied = self.maps.apply(commit);
        applied.map_err(|Contradiction(extent)| Refusal::Contradiction(extent))?;
        self.append(&body)
    }

    /// The record with which this life begins.
    pub fn begin_life(&mut self) -> Result<(u64, Vec<Piece>), Refusal> {
        self.append(&Commit::default().encode())
    }

    fn append(&mut self, body: &[u8]) -> Result<(u64, Vec<Piece>), Refusal> {
        let appended = self.log.append(body).map_err(|_| Refusal::LogFull)?;
        self.positions.push_back(self.log.end());
        Ok(appended)
    }

    /// A checkpoint of all commits. Every one must be durable, and the rows of those up to `drained` be
    /// durable in their tables: their records are not needed any more.
    pub fn checkpoint(&self, drained: u64, cursors: Cursors) -> Checkpoint {
        assert_eq!(
            self.durable(),
            self.last(),
            "a checkpoint of commits that are not durable"
        );
        let mut entries = self.table.entries.clone();
        let mut pieces = Vec::new();
        for group in self.maps.changed() {
            let Some(map) = self.maps.map(*group) else {
                continue;
            };
            let old = entries[*group as usize];
            let slot = old.map_or(0, |entry| 1 - entry.slot);
            let bytes = maps::encode(map);
            entries[*group as usize] = Some(Entry {
                slot,
                sum: sum_of(&bytes),
                summary: self.summary(Group(*group)),
            });
            let offset = self.geometry.map_offset(*group, slot);
            pieces.push(Piece { offset, bytes });
        }
        let mut kept = self
            .positions
            .iter()
            .filter(|position| position.ticket <= drained);
        let new = Table {
            sequence: self.table.sequence + 1,
            maps_ticket: self.last(),
            start: kept.next_back().copied().unwrap_or(self.table.start),
            cursors,
            entries,
        };
        Checkpoint {
            maps: pieces,
            table: new.encode(&self.geometry),
            new,
        }
    }

    /// The checkpoint is durable.
    pub fn checkpointed(&mut self, checkpoint: Checkpoint) {
        self.table = checkpoint.new;
        self.maps.checkpointed();
        let start = self.table.start;
        while self
            .positions
            .pop_front_if(|position| position.ticket < start.ticket)
            .is_some()
        {}
        self.log.trim(start.block);
    }
}
