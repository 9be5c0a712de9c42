//! An [`ObjectStore`] that never serves damaged bytes (docs/adr/0014-sums-of-bytes.md). Each segment of an
//! object has a row of sums in a [`Kv`], and so has its end. It is opened, durably, before its bytes change,
//! and sealed again when they are durable and were left alone for a while.

mod ends;
mod examine;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, PoisonError};

use base::ByteRange;
use base::limits::FILE_BYTES_MAX;
use bytes::Bytes;
use threads::{Mutex, MutexGuard};

use super::changing::{Changing, Sum};
use super::seal::{
    BLOCK, END, SEGMENT, Seal, extent_of, key, keys, part_in, place_of_key, segments,
};
use super::store::{ObjectId, ObjectStat, ObjectStore};
use crate::error::{Result, StorageError};
use crate::kv::{Batch, KeyRange, Kv, TableId, Ticket};
use crate::space::SpaceStat;
use ends::{Ends, WrongEnd};
pub use ends::{recorded_end, sealed_ends};
pub use examine::{check_seal, examine_seals};

/// Memory for what is known of open segments, in bytes. Beyond: their blocks are read when they are
/// sealed.
const KNOWN_BYTES_MAX: usize = 32 << 20;
/// Open segments and ends that are remembered. Beyond: they are found again when others are sealed.
const OPEN_MAX: usize = 131_072;
/// Rows looked at, for open segments that nobody remembers, each time.
const SEARCHED_ROWS_MAX: usize = 20_000;
/// Segments opened ahead of one change. Beyond: the change waits for it itself.
const FORESEEN_MAX: usize = 64;
/// Bytes read at once to seal a segment.
const READ_BYTES: u64 = 1 << 20;

/// A segment of an object, or its end.
type Place = (ObjectId, u64);

/// Objects of which every byte at rest is checked when it is read.
#[derive(Debug)]
pub struct SealedObjects {
    store: Arc<dyn ObjectStore>,
    kv: Arc<Kv>,
    table: TableId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<Place, Changing>,
    /// What they take, in bytes.
    weight: usize,
    /// Beginnings and ends of changes are numbered.
    changes: u64,
    /// Those up to this one are durable.
    synced: u64,
    /// The last one when it was looked for segments to seal.
    quiet: u64,
    /// Removed objects, and with which batch that is durable.
    removals: BTreeMap<ObjectId, Ticket>,
    /// Where the search for open segments goes on.
    search: Vec<u8>,
    /// It began at the first row, and all that were open since are remembered.
    complete: bool,
    /// It came to the last row so.
    searched: bool,
    ends: Ends,
}

/// A change under way.
struct Change {
    number: u64,
    places: Vec<Place>,
}

impl State {
    fn next(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// Does `work` on an open segment, whose weight may change.
    fn with<T>(&mut self, place: Place, work: impl FnOnce(&mut Changing) -> T) -> Option<T> {
        let changing = self.open.get_mut(&place)?;
        let before = changing.weight();
        let result = work(changing);
        if self.weight - before + changing.weight() > KNOWN_BYTES_MAX {
            changing.forget();
        }
        self.weight = self.weight - before + changing.weight();
        Some(result)
    }

    fn add(&mut self, place: Place, changing: Changing) {
        if self.open.len() < OPEN_MAX {
            self.weight += changing.weight();
            self.open.insert(place, changing);
        } else {
            (self.complete, self.searched) = (false, false);
        }
    }

    fn forget(&mut self, place: Place) {
        let gone = self.open.remove(&place);
        self.weight -= gone.map_or(0, |changing| changing.weight());
    }
}

impl SealedObjects {
    /// The objects of `store`, with their sums in `table` of `kv`.
    pub fn new(store: Arc<dyn ObjectStore>, kv: Arc<Kv>, table: TableId) -> SealedObjects {
        SealedObjects {
            store,
            kv,
            table,
            state: Mutex::default(),
        }
    }

    // A panic under it leaves segments open, of which nothing is said: poisoning adds nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What messages call an object.
    fn at(&self, id: ObjectId) -> String {
        format!("{}: object {id}", self.kv.name())
    }

    fn damaged(&self, id: ObjectId, damage: base::Damage) -> StorageError {
        StorageError::damaged(self.at(id), damage.record, damage.reason)
    }

    fn row(&self, (id, segment): Place) -> Result<Option<Seal>> {
        let found = self.kv.get_with(self.table, &key(id, segment), |row| {
            Seal::decode(segment, row)
        })?;
        found.transpose().map_err(|damage| self.damaged(id, damage))
    }

    /// Segments among `segments` of which anything is known.
    fn known(&self, state: &State, id: ObjectId, segments: Range<u64>) -> Result<Vec<u64>> {
        let open = state.open.range((id, segments.start)..(id, segments.end));
        let mut known: Vec<u64> = open.map(|((_, segment), _)| *segment).collect();
        let mut damage = None;
        let rows = keys(id, segments);
        self.kv.scan(self.table, &rows, |key, _| {
            match place_of_key(key) {
                Ok((_, segment)) => known.push(segment),
                Err(wrong) => {
                    damage = Some(wrong);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        known.sort_unstable();
        known.dedup();
        damage.map_or(Ok(known), |damage| Err(self.damaged(id, damage)))
    }

    /// Bytes of `range` are about to be written: says so of their segments, and returns when it is
    /// durable that these are open.
    fn begin_write(&self, id: ObjectId, range: ByteRange) -> Result<Change> {
        let end = self.may_grow(id, range.end)?.then_some(END);
        let mut state = self.state();
        let segments: Vec<u64> = segments(range).chain(end).collect();
        let opened = self.open(&mut state, id, &segments)?;
        self.begin(state, (id, range), segments, opened)
    }

    /// Bytes of `range` are about to become others, or none: the same, but for segments of which
    /// nothing is known. Of those that lie in it whole nothing is known from then on. With
    /// `moves_end` the object may end elsewhere afterwards.
    fn begin_resize(&self, id: ObjectId, range: ByteRange, moves_end: bool) -> Result<Change> {
        let mut state = self.state();
        let known = self.known(&state, id, segments(range))?;
        let is_whole = |segment: &u64| {
            let part = part_in(*segment, range);
            part.end - part.start == SEGMENT && !state.open.contains_key(&(id, *segment))
        };
        let (whole, mut others): (Vec<u64>, Vec<u64>) = known.into_iter().partition(is_whole);
        others.extend(moves_end.then_some(END));
        let mut opened = self.open(&mut state, id, &others)?;
        if !whole.is_empty() {
            let mut batch = Batch::new();
            for segment in whole {
                batch.delete(self.table, key(id, segment));
            }
            opened = self.kv.commit(batch)?;
        }
        self.begin(state, (id, range), others, opened)
    }

    /// The first sealed ones among these segments.
    fn sealed(&self, state: &State, id: ObjectId, segments: Range<u64>) -> Result<Vec<u64>> {
        let is_open = |segment| state.open.contains_key(&(id, segment));
        let mut sealed = Vec::new();
        if segments.clone().take(FORESEEN_MAX).all(is_open) {
            return Ok(sealed);
        }
        self.kv.scan(self.table, &keys(id, segments), |key, row| {
            // What cannot be read is told to who changes it.
            let place = place_of_key(key).ok().filter(|_| !Seal::is_open(row));
            sealed.extend(place.map(|(_, segment)| segment));
            match sealed.len() < FORESEEN_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(sealed)
    }

    /// Opens what is sealed of `range`. The batch with which it is open.
    fn open_early(&self, id: ObjectId, range: ByteRange) -> Result<Ticket> {
        let moving = self.may_grow(id, range.end)?;
        let mut state = self.state();
        let mut sealed = self.sealed(&state, id, segments(range))?;
        if moving && self.row((id, END))?.is_some_and(|seal| !seal.open) {
            sealed.push(END);
        }
        let mut opened = self.open(&mut state, id, &sealed)?;
        let now = state.next();
        for segment in sealed {
            // As if it had changed, or it could be sealed again before it does.
            state.with((id, segment), |changing| changing.changed = now);
        }
        // Or another has opened it just now.
        let changing = segments(range).take(FORESEEN_MAX);
        for segment in changing.chain(moving.then_some(END)) {
            let open = state.open.get(&(id, segment));
            opened = opened.max(open.map(|changing| changing.opened).unwrap_or_default());
        }
        Ok(opened)
    }

    /// Opens those of these segments that are not. The batch with which all that were sealed are open.
    fn open(&self, state: &mut State, id: ObjectId, segments: &[u64]) -> Result<Ticket> {
        let (mut batch, mut opened) = (Batch::new(), Vec::new());
        for segment in segments {
            let place = (id, *segment);
            if state.open.contains_key(&place) {
                continue;
            }
            let seal = self.row(place)?;
            if seal.as_ref().is_none_or(|seal| !seal.open) {
                let open = true;
                let open = Seal {
                    open,
                    ..seal.clone().unwrap_or_default()
                };
                batch.put(self.table, key(id, *segment), open.encode(*segment));
            }
            // What an earlier life left open may have changed in any of its blocks.
            opened.push((place, seal.filter(|seal| !seal.open)));
        }
        if opened.is_empty() {
            return Ok(Ticket::default());
        }
        let (ticket, mut awaited) = (self.kv.commit(batch)?, Ticket::default());
        for (place, seal) in opened {
            let mut changing = Changing::default();
            if let Some(seal) = seal {
                (changing, awaited) = (Changing::new(seal), ticket);
                changing.opened = ticket;
            }
            if place.1 == END {
                state.ends.note(id, None);
            }
            state.add(place, changing);
        }
        // Of those that are not remembered nobody knows when they were opened.
        Ok(match state.open.len() < OPEN_MAX {
            true => awaited,
            false => ticket,
        })
    }

    /// Notes a change of `range` in open segments, and waits until `opened` is durable.
    fn begin(
        &self,
        mut state: MutexGuard<'_, State>,
        (id, range): (ObjectId, ByteRange),
        segments: Vec<u64>,
        opened: Ticket,
    ) -> Result<Change> {
        let number = state.next();
        let removed = state.removals.get(&id).copied().unwrap_or_default();
        let mut wait = opened.max(removed);
        let places: Vec<Place> = segments.into_iter().map(|segment| (id, segment)).collect();
        for place in &places {
            let opened = state.with(*place, |changing| {
                changing.begin(number, place.1, range);
                changing.opened
            });
            wait = wait.max(opened.unwrap_or_default());
        }
        drop(state);
        let change = Change { number, places };
        match self.wait_durable(wait) {
            Ok(()) => Ok(change),
            Err(error) => {
                self.end(&change, None);
                Err(error)
            }
        }
    }

    fn wait_durable(&self, ticket: Ticket) -> Result<()> {
        match ticket > self.kv.durable() {
            true => self.kv.wait_durable(ticket),
            false => Ok(()),
        }
    }

    /// The change is done: this was written, or who knows what happened.
    fn end(&self, change: &Change, written: Option<(u64, &[u8])>) {
        let mut state = self.state();
        let now = state.next();
        for place in &change.places {
            state.with(*place, |changing| {
                changing.end(change.number, now, place.1, written);
            });
        }
    }

    /// Changes bytes of `range` by `work`, other than by writing them; and where the object ends, if
    /// `moves_end`.
    fn resize<T>(
        &self,
        id: ObjectId,
        range: ByteRange,
        moves_end: bool,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.check_edges(id, range)?;
        let change = self.begin_resize(id, range, moves_end)?;
        let result = work();
        self.end(&change, None);
        result
    }

    /// A block that changes in part keeps the rest: that must be sound.
    fn check_edges(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        let keeps = |sum: &Sum| sum.bytes.start < range.start || sum.bytes.end > range.end;
        for edge in [range.start, range.end] {
            if edge % BLOCK != 0 && edge < FILE_BYTES_MAX {
                let wanted = ByteRange::new(edge - edge % BLOCK, edge);
                if self.sums(id, wanted)?.iter().any(keeps) {
                    self.checked(id, wanted)?;
                }
            }
        }
        Ok(())
    }

    /// Reads `wanted`, if there are sums for any of its blocks; and those around it that share one
    /// with it. Says where what was read begins.
    fn checked(&self, id: ObjectId, wanted: ByteRange) -> Result<Option<(u64, Bytes)>> {
        let mut sums = self.sums(id, wanted)?;
        loop {
            let (Some(first), Some(last)) = (sums.first(), sums.last()) else {
                return Ok(None);
            };
            let start = wanted.start.min(first.bytes.start);
            let end = wanted.end.max(last.bytes.end);
            let data = self.store.read_shared(id, start, (end - start) as usize)?;
            let wrong = sums.iter().find(|sum| !sum.is_sound(start, &data));
            let Some(wrong) = wrong.cloned() else {
                return Ok(Some((start, data)));
            };
            // Or it has changed since the sums were looked for, and is looked at anew.
            sums = self.sums(id, wanted)?;
            if sums.contains(&wrong) {
                return Err(StorageError::DamagedBytes {
                    at: self.at(id),
                    range: ByteRange::new(wrong.bytes.start, wrong.bytes.end),
                });
            }
        }
    }

    /// The bytes of the object from `offset` on, up to `len` of them; each has the sum that it must have.
    fn read_checked(&self, id: ObjectId, offset: u64, len: usize) -> Result<Bytes> {
        let wanted = ByteRange::at(offset, len as u64);
        let wanted = wanted.filter(|wanted| wanted.end <= FILE_BYTES_MAX);
        let checked = wanted.map(|wanted| self.checked(id, wanted)).transpose()?;
        let Some((start, data)) = checked.flatten() else {
            return self.store.read_shared(id, offset, len);
        };
        let from = ((offset - start) as usize).min(data.len());
        Ok(data.slice(from..data.len().min(from + len)))
    }

    /// Where the object ends, if that is sealed.
    fn sealed_end(&self, id: ObjectId) -> Result<Option<u64>> {
        let mut state = self.state();
        if let Some(known) = state.ends.sealed(id) {
            return Ok(known);
        }
        let sealed = self.row((id, END))?.filter(|seal| !seal.open);
        let end = sealed.map(|seal| seal.len);
        state.ends.note(id, end);
        Ok(end)
    }

    /// How the object's end is not what it was.
    fn wrong_end(&self, id: ObjectId) -> Result<Option<WrongEnd>> {
        let Some(end) = self.sealed_end(id)? else {
            return self.lost_end(id);
        };
        let size = self.stored_size(id)?;
        // Or the object has changed, and was sealed, since it was looked at.
        let is_so = || Ok(self.sealed_end(id)? == Some(end) && self.stored_size(id)? == size);
        match WrongEnd::of(end, size) {
            Some(wrong) if is_so()? => Ok(Some(wrong)),
            _ => Ok(None),
        }
    }

    /// Refuses to change an object whose end is not what it was.
    fn check_end(&self, id: ObjectId) -> Result<()> {
        let damaged = |wrong: WrongEnd| StorageError::DamagedBytes {
            at: self.at(id),
            range: wrong.bytes,
        };
        self.wrong_end(id)?
            .map_or(Ok(()), |wrong| Err(damaged(wrong)))
    }

    /// A change of bytes up to `end` may make the object longer.
    fn may_grow(&self, id: ObjectId, end: u64) -> Result<bool> {
        let moves = self.state().open.contains_key(&(id, END));
        Ok(moves || end > self.stored_size(id)?)
    }

    /// Of an object whose end is not sealed: sealed bytes are beyond it. Looked for once for each
    /// object, for the caller that changes one here opens what is sealed first.
    fn lost_end(&self, id: ObjectId) -> Result<Option<WrongEnd>> {
        if self.state().ends.is_whole(id) {
            return Ok(None);
        }
        let size = self.stored_size(id)?;
        let end = self.last_sealed(id, size)?;
        // Or it has grown, and was sealed, since its size was looked at.
        if end > size && self.stored_size(id)? < end {
            return Ok(WrongEnd::of(end, size));
        }
        self.state().ends.note_whole(id);
        Ok(None)
    }

    /// One past the last sealed byte, if that is beyond `size`; else `size`.
    fn last_sealed(&self, id: ObjectId, size: u64) -> Result<u64> {
        let (mut end, mut damage) = (size, None);
        let rows = keys(id, size / SEGMENT..END);
        self.kv.scan(self.table, &rows, |key, row| {
            let seal = place_of_key(key).and_then(|(_, at)| Ok((at, Seal::decode(at, row)?)));
            match seal {
                Ok((segment, seal)) if !seal.open => {
                    end = end.max(segment * SEGMENT + seal.len);
                }
                Ok(_) => {}
                Err(wrong) => damage = Some(wrong),
            }
            ControlFlow::Continue(())
        })?;
        damage.map_or(Ok(end), |damage| Err(self.damaged(id, damage)))
    }

    /// In bytes; zero where it is not there.
    fn stored_size(&self, id: ObjectId) -> Result<u64> {
        Ok(self.store.stat(id)?.map_or(0, |stat| stat.size))
    }

    /// The same, and nothing is missing beyond.
    fn whole_size(&self, id: ObjectId) -> Result<u64> {
        self.check_end(id)?;
        self.stored_size(id)
    }

    /// The sums that hold for the blocks of `range`, by bytes of the object, in order.
    fn sums(&self, id: ObjectId, range: ByteRange) -> Result<Vec<Sum>> {
        let mut sums = Vec::new();
        for segment in segments(range) {
            let (base, part) = (segment * SEGMENT, part_in(segment, range));
            let open = self
                .state()
                .open
                .get(&(id, segment))
                .map(|changing| changing.sums(part.clone()));
            let found = match open {
                Some(found) => found,
                None => match self.row((id, segment))? {
                    Some(seal) if !seal.open => Changing::new(seal).sums(part),
                    _ => Vec::new(),
                },
            };
            sums.extend(found.into_iter().map(|Sum { bytes, sum }| Sum {
                bytes: base + bytes.start..base + bytes.end,
                sum,
            }));
        }
        Ok(sums)
    }

    /// Seals what is open, if nothing has changed it since change `last`, which is durable.
    fn seal(&self, place: Place, last: u64) -> Result<()> {
        let (id, segment) = place;
        let size = self.store.stat(id)?.map(|stat| stat.size);
        let (open, sums) = (false, Vec::new());
        let seal = match segment {
            END => size.map(|len| Seal { open, len, sums }),
            _ => match self.seal_of(place, size.unwrap_or(0))? {
                Some(seal) => Some(seal).filter(|seal| seal.len > 0),
                // It has become shorter.
                None => return Ok(()),
            },
        };
        let mut state = self.state();
        let is_quiet = |changing: &Changing| changing.is_quiet(last);
        if !state.open.get(&place).is_some_and(is_quiet) {
            return Ok(());
        }
        let mut batch = Batch::new();
        match &seal {
            None => batch.delete(self.table, key(id, segment)),
            Some(seal) => batch.put(self.table, key(id, segment), seal.encode(segment)),
        };
        self.kv.commit(batch)?;
        if segment == END {
            state.ends.note(id, seal.map(|seal| seal.len));
        }
        state.forget(place);
        Ok(())
    }

    /// What there is of an open segment of an object of `size` bytes.
    fn seal_of(&self, place: Place, size: u64) -> Result<Option<Seal>> {
        let len = size.saturating_sub(place.1 * SEGMENT).min(SEGMENT);
        let known = self
            .state()
            .open
            .get(&place)
            .map(|changing| changing.known(len));
        let Some(mut sums) = known else {
            return Ok(None);
        };
        self.complete(place, len, &mut sums)?;
        let (open, sums) = (false, sums.into_iter().collect::<Option<Vec<u32>>>());
        Ok(sums.map(|sums| Seal { open, len, sums }))
    }

    /// Reads the blocks whose sums are missing, in runs.
    fn complete(&self, (id, segment): Place, len: u64, sums: &mut [Option<u32>]) -> Result<()> {
        let at_once = (READ_BYTES / BLOCK) as usize;
        let mut from = 0;
        while let Some(first) = sums[from..].iter().position(Option::is_none) {
            let first = from + first;
            let run = sums[first..].iter().take(at_once);
            let end = first + run.take_while(|sum| sum.is_none()).count();
            let (start, stop) = (first as u64 * BLOCK, len.min(end as u64 * BLOCK));
            let count = (stop - start) as usize;
            let data = self
                .store
                .read_shared(id, segment * SEGMENT + start, count)?;
            for (block, sum) in sums.iter_mut().enumerate().take(end).skip(first) {
                let bytes = extent_of(block, len).unwrap_or_default();
                let bytes = (bytes.start - start) as usize..(bytes.end - start) as usize;
                *sum = data.get(bytes).map(crc32c::crc32c);
            }
            from = end;
        }
        Ok(())
    }

    /// Looks for open segments that nobody remembers: a crash left them, or there were too many.
    fn search(&self) -> Result<()> {
        let (mut rows, mut found, mut damage) = (0, Vec::new(), None);
        let from = {
            let mut state = self.state();
            if state.searched {
                return Ok(());
            }
            state.complete |= state.search.is_empty();
            KeyRange::from(std::mem::take(&mut state.search))
        };
        let mut next = Vec::new();
        self.kv.scan(self.table, &from, |key, value| {
            rows += 1;
            if rows > SEARCHED_ROWS_MAX {
                next = key.to_vec();
                return ControlFlow::Break(());
            }
            if Seal::is_open(value) {
                match place_of_key(key) {
                    Ok(place) => found.push(place),
                    Err(wrong) => damage = Some(wrong),
                }
            }
            ControlFlow::Continue(())
        })?;
        if let Some(damage) = damage {
            return Err(StorageError::damaged(
                self.kv.name(),
                damage.record,
                damage.reason,
            ));
        }
        let mut state = self.state();
        state.search = next;
        for place in found {
            // Looked at once more: it may have been sealed since.
            let is_open = |seal: Option<Seal>| seal.is_some_and(|seal| seal.open);
            if !state.open.contains_key(&place) && is_open(self.row(place)?) {
                let mut changing = Changing::default();
                changing.changed = state.next();
                state.add(place, changing);
            }
        }
        state.searched |= state.search.is_empty() && state.complete;
        Ok(())
    }

    /// What was left alone since the last look, with its last change and whether that is durable.
    fn left_alone(&self) -> Vec<(Place, u64, bool)> {
        let mut state = self.state();
        let (synced, quiet) = (state.synced, state.quiet);
        state.quiet = state.changes;
        let durable = self.kv.durable();
        state.removals.retain(|_, ticket| *ticket > durable);
        let open = state.open.iter();
        let open = open.filter(|(_, changing)| changing.is_quiet(quiet));
        let told = open.map(|(place, changing)| {
            let is_durable = changing.changed <= changing.synced.max(synced);
            (*place, changing.changed, is_durable)
        });
        told.collect()
    }
}

impl ObjectStore for SealedObjects {
    fn read(&self, id: ObjectId, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let data = self.read_shared(id, offset, buffer.len())?;
        buffer[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    }

    fn read_shared(&self, id: ObjectId, offset: u64, len: usize) -> Result<Bytes> {
        let Some(end) = self.sealed_end(id)? else {
            return self.read_checked(id, offset, len);
        };
        // Bytes behind the end are not the object's.
        let len = (len as u64).min(end.saturating_sub(offset)) as usize;
        let data = self.read_checked(id, offset, len)?;
        // A hole has no sums, so a lost one is noticed by its length alone.
        if data.len() < len {
            self.check_end(id)?;
        }
        Ok(data)
    }

    fn is_cold(&self, id: ObjectId, offset: u64, len: usize) -> Result<bool> {
        self.store.is_cold(id, offset, len)
    }

    fn write(&self, id: ObjectId, offset: u64, data: &[u8]) -> Result<()> {
        let range = ByteRange::at(offset, data.len() as u64);
        let Some(range) = range.filter(|range| range.end <= FILE_BYTES_MAX) else {
            return self.store.write(id, offset, data);
        };
        self.check_end(id)?;
        self.check_edges(id, range)?;
        let change = self.begin_write(id, range)?;
        let result = self.store.write(id, offset, data);
        self.end(&change, result.is_ok().then_some((offset, data)));
        result
    }

    fn truncate(&self, id: ObjectId, size: u64) -> Result<()> {
        // Bytes that were added behind the end would become the object's.
        if self.sealed_end(id)?.is_some_and(|end| size > end) {
            self.check_end(id)?;
        }
        let range = match size < self.stored_size(id)? || size == 0 {
            // What may be missing at its end goes anyway; so does what may be too much.
            true => ByteRange::from(size),
            false => last_block(self.whole_size(id)?),
        };
        self.resize(id, range, true, || self.store.truncate(id, size))
    }

    fn stat(&self, id: ObjectId) -> Result<Option<ObjectStat>> {
        let stat = self.store.stat(id)?;
        // It is as long as it was: no shorter file is made of what is left, and no longer one.
        let as_it_was = |wrong: WrongEnd| ObjectStat {
            size: wrong.end,
            ..stat.unwrap_or_default()
        };
        Ok(self.wrong_end(id)?.map(as_it_was).or(stat))
    }

    fn punch(&self, id: ObjectId, range: ByteRange) -> Result<()> {
        self.check_end(id)?;
        self.resize(id, range, false, || self.store.punch(id, range))
    }

    fn allocate(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        // Of the bytes that are there none changes.
        let old = self.whole_size(id)?;
        let grows = range.end > old && !keep_size;
        self.resize(id, last_block(old), grows, || {
            self.store.allocate(id, range, keep_size)
        })
    }

    fn zero(&self, id: ObjectId, range: ByteRange, keep_size: bool) -> Result<()> {
        let old = self.whole_size(id)?;
        let grows = range.end > old && !keep_size;
        let touched = match grows {
            true => ByteRange::new(range.start.min(old), range.end.max(last_block(old).end)),
            // What is behind it stays as it is, and is checked by its sums.
            false => range,
        };
        self.resize(id, touched, grows, || self.store.zero(id, range, keep_size))
    }

    fn seek_data(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.check_end(id)?;
        self.store.seek_data(id, offset)
    }

    fn seek_hole(&self, id: ObjectId, offset: u64) -> Result<Option<u64>> {
        self.check_end(id)?;
        self.store.seek_hole(id, offset)
    }

    fn remove(&self, id: ObjectId) -> Result<bool> {
        let mut state = self.state();
        let known = self.known(&state, id, 0..u64::MAX)?;
        if !known.is_empty() {
            let mut batch = Batch::new();
            for segment in known {
                batch.delete(self.table, key(id, segment));
                state.forget((id, segment));
            }
            // Who makes it anew must not meet the sums of the one before.
            state.removals.insert(id, self.kv.commit(batch)?);
        }
        state.ends.forget(id);
        drop(state);
        self.store.remove(id)
    }

    fn sync_all(&self) -> Result<()> {
        let before = self.state().changes;
        self.store.sync_all()?;
        let mut state = self.state();
        state.synced = state.synced.max(before);
        Ok(())
    }

    fn sync(&self, id: ObjectId) -> Result<()> {
        let before = self.state().changes;
        self.store.sync(id)?;
        let mut state = self.state();
        let of_object = state.open.range_mut((id, 0)..=(id, u64::MAX));
        of_object.for_each(|(_, changing)| changing.synced = changing.synced.max(before));
        Ok(())
    }

    fn foresee(&self, changes: &[(ObjectId, ByteRange)]) -> Result<()> {
        let mut opened = Ticket::default();
        for (id, range) in changes {
            // Of what is damaged nothing is opened ahead: it may stay as it is.
            match self.check_end(*id) {
                Err(StorageError::DamagedBytes { .. }) => continue,
                checked => checked?,
            }
            opened = opened.max(self.open_early(*id, *range)?);
        }
        self.wait_durable(opened)
    }

    fn settle(&self) -> Result<()> {
        // One that cannot be read holds up no other.
        let mut result = Ok(());
        for (place, last, is_durable) in self.left_alone() {
            let synced = match is_durable {
                true => Ok(()),
                false => self.sync(place.0),
            };
            result = result.and(synced.and_then(|()| self.seal(place, last)));
        }
        result.and(self.search())
    }

    fn settle_all(&self) -> Result<()> {
        loop {
            let all_known = self.state().searched;
            // What is left alone is seen by the second look.
            let result = self.settle();
            let result = result.and(self.settle());
            if all_known || result.is_err() {
                return result;
            }
        }
    }

    fn statfs(&self) -> Result<SpaceStat> {
        self.store.statfs()
    }

    fn list(&self, visit: &mut dyn FnMut(ObjectId)) -> Result<()> {
        self.store.list(visit)
    }
}

/// What comes to be behind the last byte of an object of `size` bytes, in its block.
fn last_block(size: u64) -> ByteRange {
    ByteRange::new(size, size.next_multiple_of(BLOCK).max(size))
}
