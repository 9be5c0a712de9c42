//! Opening a store of extents: the newest whole checkpoint, and the records of the log behind it. Reads only.

use std::collections::VecDeque;

use allocator::{Cursors, Group};
use base::ByteRange;

use super::commit::{Commit, Row};
use super::geometry::{Geometry, SUPERBLOCKS, StoreId};
use super::log::{
    self, BLOCK_BYTES, HEADER_BYTES, Header, Position, checked_body, follows, offset_of,
    parse_header, record_blocks,
};
use super::maps::{self, Map, Maps};
use super::state::State;
use super::table::{Table, sum_of};
use crate::disk::Disk;
use crate::error::{Result, StorageError};

/// Blocks of the log that are read at once.
const SCAN_BLOCKS: u64 = 256;

/// The rows of a commit behind the last checkpoint. They may be in their tables already: in order, putting
/// them once more changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// Which commit.
    pub ticket: u64,
    /// The life of the store in which it was made.
    pub life: u64,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// What a disk holds.
#[derive(Debug)]
pub struct Recovered {
    /// The store, in its next life.
    pub state: State,
    /// Rows to put into their tables.
    pub replayed: Vec<Replayed>,
    /// Where the allocator's search begins.
    pub cursors: Cursors,
    /// A copy of the superblock was lost.
    pub restores_superblock: bool,
}

/// A record of the log.
struct Record {
    header: Header,
    commit: Commit,
    end: Position,
}

/// Reads the store on `disk`, which messages call `name`.
pub fn recover(disk: &dyn Disk, name: &str) -> Result<Recovered> {
    let (geometry, restores_superblock) = superblock(disk, name)?;
    let recovery = Recovery {
        disk,
        name,
        geometry,
    };
    let table = recovery.table()?;
    let mut maps = Maps::new(table.entries.iter().map(Option::is_some));
    let mut records = recovery.records(table.start)?;
    recovery.cut(&mut records, table.maps_ticket)?;
    let end = records.last().map_or(table.start, |record| record.end);
    if end.ticket < table.maps_ticket {
        return Err(recovery.lost(end.ticket + 1));
    }
    recovery.check_behind(end.ticket)?;
    for record in records
        .iter()
        .filter(|record| record.header.ticket > table.maps_ticket)
    {
        recovery.apply(&mut maps, &table, record)?;
    }
    // Its place is the next life's: starts that do nothing else never fill the log.
    let is_idle = |last: &mut Record| {
        last.commit == Commit::default() && last.header.ticket > table.maps_ticket
    };
    let _idle = records.pop_if(is_idle);
    let positions: VecDeque<_> = std::iter::once(table.start)
        .chain(records.iter().map(|record| record.end))
        .collect();
    let cursors = table.cursors;
    let replayed = records
        .into_iter()
        .map(|Record { header, commit, .. }| Replayed {
            ticket: header.ticket,
            life: header.life,
            rows: commit.rows,
        });
    let replayed = replayed
        .filter(|replayed| !replayed.rows.is_empty())
        .collect();
    let state = State::new(geometry, table, maps, positions, end.life + 1);
    Ok(Recovered {
        state,
        replayed,
        cursors,
        restores_superblock,
    })
}

/// Visits all groups in order, each with the map that the last checkpoint and the log behind it say. Nothing
/// is written, and no record need be durable: another process may serve the store.
pub fn committed_maps(
    disk: &dyn Disk,
    name: &str,
    visit: &mut dyn FnMut(Group, Option<&Map>),
) -> Result<Geometry> {
    let (geometry, _) = superblock(disk, name)?;
    let recovery = Recovery {
        disk,
        name,
        geometry,
    };
    let table = recovery.table()?;
    let mut maps = Maps::new(table.entries.iter().map(Option::is_some));
    for record in recovery.records(table.start)? {
        if record.header.ticket > table.maps_ticket {
            recovery.apply(&mut maps, &table, &record)?;
        }
    }
    for group in 0..geometry.groups() {
        match table.entries[group as usize] {
            Some(entry) if maps.is_away(group) => {
                let offset = geometry.map_offset(group, entry.slot);
                let map = read_map(disk, name, Group(group), (offset, entry.sum))?;
                visit(Group(group), Some(&map));
            }
            _ => visit(Group(group), maps.map(group)),
        }
    }
    Ok(geometry)
}

/// Refuses a disk with the store of another target than `id`. Where no copy of the superblock is whole,
/// opening the store says so.
pub fn check_owner(disk: &dyn Disk, name: &str, id: StoreId) -> Result<()> {
    let len = disk.len()?;
    for copy in 0..SUPERBLOCKS.min(len / BLOCK_BYTES) {
        let mut block = vec![0; BLOCK_BYTES as usize];
        disk.read(copy * BLOCK_BYTES, &mut block)?;
        match Geometry::decode(name, &block, u64::MAX) {
            Ok(found) if found.id != id => {
                let [found, id] = [found.id, id].map(|id| u128::from_be_bytes(id.0));
                let reason = format!(
                    "it holds the objects of target {found:032x}, not of {id:032x}; \
                     look where the name leads, nothing was written"
                );
                return Err(StorageError::refused(name, reason));
            }
            _ => {}
        }
    }
    Ok(())
}

fn superblock(disk: &dyn Disk, name: &str) -> Result<(Geometry, bool)> {
    let len = disk.len()?;
    let mut found = Vec::new();
    for copy in 0..SUPERBLOCKS {
        let mut block = vec![0; BLOCK_BYTES as usize];
        if len >= (copy + 1) * BLOCK_BYTES {
            disk.read(copy * BLOCK_BYTES, &mut block)?;
        }
        found.push(Geometry::decode(name, &block, len));
    }
    let is_one_lost = found.iter().any(Result::is_err);
    let first_error = found.iter().find_map(|copy| copy.as_ref().err().cloned());
    let mut whole = found.into_iter().flatten();
    match (whole.next(), whole.next(), first_error) {
        (Some(one), Some(other), _) if one != other => Err(StorageError::damaged(
            name,
            "superblock of extents",
            "its two copies differ",
        )),
        (Some(geometry), _, _) => Ok((geometry, is_one_lost)),
        (None, _, Some(error)) => Err(error),
        (None, _, None) => Err(StorageError::refused(name, "it has no superblock")),
    }
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    name: &'a str,
    geometry: Geometry,
}

impl Recovery<'_> {
    fn damaged(&self, record: impl Into<String>, reason: &str) -> StorageError {
        StorageError::damaged(self.name, record, reason)
    }

    fn lost(&self, ticket: u64) -> StorageError {
        self.damaged(
            format!("{ticket} of the log"),
            "it was durable, and is not there",
        )
    }

    /// The newest whole table.
    fn table(&self) -> Result<Table> {
        let mut tables = Vec::new();
        for number in 0..2 {
            let mut bytes = vec![0; (self.geometry.table_blocks * BLOCK_BYTES) as usize];
            self.disk
                .read(self.geometry.table_offset(number), &mut bytes)?;
            let whole = Table::decode(&self.geometry, &bytes);
            tables.extend(whole.filter(|table| table.sequence % 2 == number));
        }
        tables.sort_by_key(|table| table.sequence);
        tables
            .pop()
            .ok_or_else(|| self.damaged("of checkpoints", "neither table is whole"))
    }

    /// Reads `blocks` of the log from `block` on, going round.
    fn read_log(&self, block: u64, blocks: u64) -> Result<Vec<u8>> {
        let area = self.geometry.log;
        let mut bytes = vec![0; (blocks * BLOCK_BYTES) as usize];
        let before_end = (area.blocks - block % area.blocks).min(blocks);
        let (first, rest) = bytes.split_at_mut((before_end * BLOCK_BYTES) as usize);
        self.disk.read(offset_of(area, block), first)?;
        if !rest.is_empty() {
            self.disk.read(offset_of(area, 0), rest)?;
        }
        Ok(bytes)
    }

    /// The record at `block` of the log, if there is a whole one of this store.
    fn record_at(&self, block: u64) -> Result<Option<(Header, Vec<u8>)>> {
        let first = self.read_log(block, 1)?;
        let header = parse_header(&first).filter(|header| {
            let blocks = record_blocks(header.body_bytes);
            header.store == self.geometry.id.short() && blocks <= self.geometry.log.blocks
        });
        let Some(header) = header else {
            return Ok(None);
        };
        let bytes = match HEADER_BYTES + header.body_bytes <= first.len() {
            true => first,
            false => self.read_log(block, record_blocks(header.body_bytes))?,
        };
        let body = checked_body(&header, &bytes).map(<[u8]>::to_vec);
        Ok(body.map(|body| (header, body)))
    }

    /// The records behind `start`, each following the one before.
    fn records(&self, start: Position) -> Result<Vec<Record>> {
        let (mut records, mut at) = (Vec::new(), start);
        while let Some((header, body)) = self.record_at(at.block)? {
            let end = Position {
                block: at.block + record_blocks(header.body_bytes),
                ticket: header.ticket,
                sum: header.sum,
                life: header.life,
            };
            if !follows(&header, &at) || end.block - start.block > self.geometry.log.blocks {
                break;
            }
            let commit = Commit::decode(&body).ok_or_else(|| {
                self.damaged(format!("{} of the log", header.ticket), "it is no commit")
            })?;
            records.push(Record {
                header,
                commit,
                end,
            });
            at = end;
        }
        Ok(records)
    }

    /// Ends the log before the first record whose bytes a power cut took.
    fn cut(&self, records: &mut Vec<Record>, maps_ticket: u64) -> Result<()> {
        let claims = records.iter().map(|record| record.header.durable);
        let durable = claims.max().unwrap_or(0).max(maps_ticket);
        let sure = records.partition_point(|record| record.header.ticket <= durable);
        for at in sure..records.len() {
            if !self.is_written(&records[at].commit)? {
                records.truncate(at);
                break;
            }
        }
        Ok(())
    }

    /// All blocks of the commit are what their sums say.
    fn is_written(&self, commit: &Commit) -> Result<bool> {
        for taken in commit.taken.iter().chain(&commit.written) {
            if !self.geometry.contains(taken.place) {
                return Ok(false);
            }
            let offset = self.geometry.data_offset(taken.place.start);
            for (number, sum) in (0..).zip(taken.sums.iter().flatten()) {
                let mut block = [0; BLOCK_BYTES as usize];
                self.disk.read(offset + number * BLOCK_BYTES, &mut block)?;
                if crc32c::crc32c(&block) != *sum {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The parts of the log that were ever written, a few blocks at a time: where, and how many. Most of a
    /// young store's log was not, and reading it would fill the page cache with zeros.
    fn written_log(&self) -> Result<Vec<(u64, u64)>> {
        let area = self.geometry.log;
        let begin = offset_of(area, 0);
        let all = ByteRange::new(begin, begin + area.blocks * BLOCK_BYTES);
        let mut parts = Vec::new();
        // All are asked for before one is read: what is read ahead counts as written, too.
        for part in self.disk.written(all)? {
            let end = (part.end - begin).div_ceil(BLOCK_BYTES);
            let firsts = ((part.start - begin) / BLOCK_BYTES..end).step_by(SCAN_BLOCKS as usize);
            parts.extend(firsts.map(|first| (first, SCAN_BLOCKS.min(end - first))));
        }
        Ok(parts)
    }

    /// No record, wherever it is, says that one behind the log's end was durable.
    fn check_behind(&self, last: u64) -> Result<()> {
        for (first, count) in self.written_log()? {
            let bytes = self.read_log(first, count)?;
            for (block, bytes) in (first..).zip(bytes.chunks(BLOCK_BYTES as usize)) {
                let claims = parse_header(bytes).is_some_and(|header| header.durable > last);
                if claims && self.record_at(block)?.is_some() {
                    return Err(self.lost(last + 1));
                }
            }
        }
        Ok(())
    }

    fn apply(&self, maps: &mut Maps, table: &Table, record: &Record) -> Result<()> {
        let name = || format!("{} of the log", record.header.ticket);
        let mut places = record.commit.places();
        if places.any(|extent| !self.geometry.contains(extent)) {
            return Err(self.damaged(name(), "it names blocks that the disk does not have"));
        }
        for group in maps.away_from(&record.commit) {
            let Some(entry) = table.entries[group as usize] else {
                continue;
            };
            let offset = self.geometry.map_offset(group, entry.slot);
            let map = read_map(self.disk, self.name, Group(group), (offset, entry.sum))?;
            maps.put(group, map);
        }
        maps.apply(&record.commit).map_err(|log_and_maps| {
            let reason = format!("{} are not as it says", log_and_maps.0);
            self.damaged(name(), &reason)
        })
    }
}

/// The map of `group`, at a byte of the disk and with the sum that the last checkpoint says.
pub fn read_map(
    disk: &dyn Disk,
    name: &str,
    group: Group,
    (offset, sum): (u64, u32),
) -> Result<Map> {
    let mut block = [0; BLOCK_BYTES as usize];
    disk.read(offset, &mut block)?;
    match sum_of(&block) == sum {
        true => Ok(maps::decode(&block)),
        false => {
            let record = format!("map of group {}", group.0);
            Err(StorageError::damaged(name, record, "its checksum is wrong"))
        }
    }
}

/// The first table of an empty store.
pub fn first_table(geometry: &Geometry) -> Table {
    Table {
        sequence: 1,
        maps_ticket: 0,
        start: log::Position::START,
        cursors: Cursors::default(),
        entries: vec![None; geometry.groups() as usize],
    }
}
