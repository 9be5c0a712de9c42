//! Cached bytes of one file: absent, clean, dirty, in flight (sent, not answered) or uncommitted (answered,
//! not durable). Of one byte at most one write is in flight, so that the server cannot apply two in the wrong
//! order. No locks, clock or I/O: the caller holds the lock.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use base::{ByteRange, Tick, Transno};
use memory::blocks::Blocks;
use wire::frame::Bulk;

use super::extents::Extents;
use super::write_size::WriteSize;

/// Bytes of one block, the unit of allocation and eviction.
pub const BLOCK_BYTES: u64 = 128 << 10;
/// Bytes of one block of a file system that an OST is on, as a rule.
const SPACE_BYTES: u64 = 4 << 10;
/// What a range takes of space beside its bytes, at most: blocks that it begins and ends in.
pub const RANGE_SPACE_MAX: u64 = 2 * SPACE_BYTES;
/// Ages of dirty bytes are kept to this grain, so that small writes in a row stay one range.
const AGE_GRAIN: Duration = Duration::from_millis(125);

/// Bytes on their way to the server. Ends in [`PageCache::written`],
/// [`PageCache::failed`] or [`PageCache::lost`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOut {
    /// Names it in the answer.
    pub id: WriteId,
    /// Where in the file.
    pub offset: u64,
    /// At most `BULK_BYTES_MAX`.
    pub bytes: Bulk,
}

/// One [`WriteOut`] of one [`PageCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(u64);

/// A moment in the cache's life. Bytes fetched before something was dropped may be older than
/// what was dropped, so they do not come in afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(u64);

/// A part of the answer to [`PageCache::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Cached bytes.
    Hit {
        /// Where in the file.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// Not cached: ask the server.
    Hole(ByteRange),
}

/// What a write that failed for good took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing that was still wanted, or that was noted when it was dropped.
    Nothing,
    /// Bytes of a file that was as long before.
    Within,
    /// Bytes that made the file longer, from here on. All behind was written later.
    End(u64),
}

/// A sent write that was not answered yet.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    range: ByteRange,
    /// How old its bytes are.
    since: Tick,
}

/// How many numbers are in the ranges, from the first to before the second, which come in order.
fn count_apart(ranges: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (mut count, mut until) = (0, 0);
    for (start, end) in ranges {
        count += end - start.max(until).min(end);
        until = end;
    }
    count
}

/// Up to [`BLOCK_BYTES`] of memory; the tail that was never needed is not there.
#[derive(Debug, Clone, Default)]
struct Block {
    bytes: Bytes,
    /// Its place in the order of use.
    used: u64,
}

/// The cache of one file.
#[derive(Debug, Clone, Default)]
pub struct PageCache {
    /// By number: offset / [`BLOCK_BYTES`].
    blocks: BTreeMap<u64, Block>,
    /// Block numbers by last use.
    by_use: BTreeMap<u64, u64>,
    uses: u64,
    /// Bytes of all blocks.
    held: u64,
    /// Every byte that can be read here.
    valid: Extents<()>,
    /// Since when.
    dirty: Extents<Tick>,
    /// No dirty byte is older.
    dirty_since: Tick,
    /// Bytes in flight whose content is still wanted.
    writing: Extents<WriteId>,
    /// Every write in flight, dropped bytes too: until it ends nothing else is sent there.
    in_flight: BTreeMap<WriteId, InFlight>,
    last_write: u64,
    /// Of what is unsent or in flight.
    write_size: WriteSize,
    /// Unsent or unanswered bytes that were written where the file ended, or behind that: whatever is
    /// behind one of them was written later.
    grown: Extents<()>,
    /// Bytes the server could still lose, by the modification that brought them there.
    uncommitted: Extents<Transno>,
    generation: Generation,
    /// Where bytes ceased to be what the server could lose, or to be wanted, since that was asked.
    settled: Vec<ByteRange>,
    /// Bytes here or at the server changed by our writes since `generation` began. What was asked
    /// for in it may be older than what is here.
    written: bool,
}

impl PageCache {
    /// The application writes. The bytes are dirty from `now` on.
    pub fn write(&mut self, offset: u64, data: &[u8], now: Tick) {
        let Some(range) = ByteRange::at(offset, data.len() as u64) else {
            return;
        };
        self.store(offset, data);
        self.written = true;
        if self.dirty.total() == 0 && self.in_flight.is_empty() {
            self.write_size = WriteSize::default();
        }
        let grain = AGE_GRAIN.as_nanos() as u64;
        // A byte that was dirty before keeps its age: the bound is on the oldest unsent change.
        self.dirties(range, Tick(now.0 - now.0 % grain));
    }

    /// Bytes that were clean are to be sent.
    fn dirties(&mut self, range: ByteRange, since: Tick) {
        self.dirty_since = match self.dirty.total() {
            0 => since,
            _ => self.dirty_since.min(since),
        };
        self.dirty.insert_where_absent(range, since);
    }

    /// The bytes of `range`, just written, made the file longer.
    pub fn grew(&mut self, range: ByteRange) {
        self.grown.insert(range, ());
    }

    /// Bytes from the server, asked for at `asked`. Only absent bytes are taken, none where a write
    /// of ours is in flight, and none at all if anything was dropped since. Returns whether the
    /// data was still current.
    pub fn fill(&mut self, offset: u64, data: &Bytes, asked: Generation) -> bool {
        if asked != self.generation {
            return false;
        }
        let Some(range) = ByteRange::at(offset, data.len() as u64) else {
            return false;
        };
        let busy = self.busy(range);
        for gap in self.valid.gaps(range) {
            for free in busy.gaps(gap) {
                let from = (free.start - offset) as usize;
                self.keep(free.start, data.slice(from..from + free.len() as usize));
            }
        }
        true
    }

    /// The moment to hand to [`PageCache::fill`]; take it before asking the server.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// What is known of `range`, in order and without gaps. The caller has cut it to the file's
    /// size. Hits end at block borders.
    pub fn read(&mut self, range: ByteRange) -> Vec<Piece> {
        for number in numbers(range) {
            self.touch(number);
        }
        let mut pieces = Vec::new();
        let mut at = range.start;
        for (held, ()) in self.valid.within(range) {
            if at < held.start {
                pieces.push(Piece::Hole(ByteRange::new(at, held.start)));
            }
            let hits = self.slices(held);
            pieces.extend(hits.map(|(offset, bytes)| Piece::Hit { offset, bytes }));
            at = held.end;
        }
        if at < range.end {
            pieces.push(Piece::Hole(ByteRange::new(at, range.end)));
        }
        pieces
    }

    /// The parts of `range` that are not cached.
    pub fn holes(&self, range: ByteRange) -> Vec<ByteRange> {
        self.valid.gaps(range)
    }

    /// Up to `max_bytes` dirty bytes from the start of `range`, to be sent now. Neighbours are joined to at
    /// most `BULK_BYTES_MAX`, in up to `max_pieces` pieces. They are in flight from here on. Bytes of which
    /// an earlier write is in flight wait for its end.
    pub fn take_dirty(
        &mut self,
        range: ByteRange,
        max_bytes: u64,
        max_pieces: usize,
    ) -> Vec<WriteOut> {
        let mut left = max_bytes;
        let mut taken = Vec::new();
        for (piece, since) in self.sendable(range, max_pieces) {
            if left == 0 {
                break;
            }
            let end = piece.end.min(piece.start.saturating_add(left));
            let piece = ByteRange::new(piece.start, end);
            left -= piece.len();
            taken.push(self.send(piece, since));
        }
        taken
    }

    /// The server has the bytes, as its modification `transno`; they are clean once that is
    /// committed. Zero: they are durable already. An unknown id is ignored.
    pub fn written(&mut self, id: WriteId, transno: Transno) {
        self.written = true;
        for piece in self.end_write(id) {
            self.grown.remove(piece);
            match transno {
                Transno(0) => self.settled.push(piece),
                _ => self.uncommitted.insert(piece, transno),
            }
        }
    }

    /// The write failed for good: its bytes are never sent again.
    pub fn lost(&mut self, id: WriteId) -> Loss {
        self.written = true;
        let lost = self.end_write(id);
        self.settled.extend(&lost);
        let grown = lost.iter().flat_map(|piece| self.grown.within(*piece));
        let first = grown.map(|(range, ())| range.start).min();
        lost.iter().for_each(|piece| self.grown.remove(*piece));
        match first {
            Some(end) => Loss::End(end),
            None if lost.is_empty() => Loss::Nothing,
            None => Loss::Within,
        }
    }

    /// The server has no space for the write. True: it may have for a part; what is unsent goes in
    /// smaller writes.
    pub fn has_no_space(&mut self, id: WriteId) -> bool {
        let len = self.in_flight.get(&id).map_or(0, |write| write.range.len());
        self.write_size.refused(len)
    }

    /// The write did not happen: its bytes are dirty again, as old as they were.
    pub fn failed(&mut self, id: WriteId) {
        let Some(InFlight { since, .. }) = self.in_flight.get(&id).copied() else {
            return;
        };
        for piece in self.end_write(id) {
            // A byte rewritten meanwhile is the newer change and keeps its own age.
            self.dirties(piece, since);
        }
    }

    /// Everything up to `last_committed` is durable at the server.
    pub fn committed(&mut self, last_committed: Transno) {
        let done: Vec<ByteRange> = self
            .uncommitted
            .iter()
            .filter(|(_, transno)| *transno <= last_committed)
            .map(|(range, _)| range)
            .collect();
        for range in &done {
            self.uncommitted.remove(*range);
        }
        self.settled.extend(done);
    }

    /// Ranges in which bytes may be durable now that were not.
    pub fn take_settled(&mut self) -> Vec<ByteRange> {
        std::mem::take(&mut self.settled)
    }

    /// The parts of `range` of which nothing here is needed if the server, or this process, dies.
    pub fn durable_within(&self, range: ByteRange) -> Vec<ByteRange> {
        let sent = self.dirty.gaps(range).into_iter();
        let sent = sent.flat_map(|clean| self.writing.gaps(clean));
        sent.flat_map(|sent| self.uncommitted.gaps(sent)).collect()
    }

    /// The server restarted and may have lost what was not committed: it is dirty again, as is
    /// everything in flight. What was only read is dropped.
    pub fn server_restarted(&mut self, now: Tick) {
        for id in self.in_flight.keys().copied().collect::<Vec<_>>() {
            self.failed(id);
        }
        for (range, _) in std::mem::take(&mut self.uncommitted).iter() {
            self.dirties(range, now);
        }
        for clean in self.dirty.gaps(ByteRange::ALL) {
            self.discard(clean);
        }
    }

    /// Drops every byte of `range`, dirty ones too: the lock is gone.
    pub fn discard(&mut self, range: ByteRange) {
        self.begin_generation();
        self.settled.push(range);
        self.dirty.remove(range);
        self.writing.remove(range);
        self.grown.remove(range);
        self.uncommitted.remove(range);
        self.drop_bytes(range);
    }

    /// Drops what of `range` the server has durably: the kernel's page cache holds it now, or
    /// memory is wanted for something else.
    pub fn let_go(&mut self, range: ByteRange) {
        // What a read on its way brings may be older than what was written since it was asked.
        if self.written {
            self.begin_generation();
        }
        for clean in self.dirty.gaps(range) {
            for sent in self.writing.gaps(clean) {
                for durable in self.uncommitted.gaps(sent) {
                    self.drop_bytes(durable);
                }
            }
        }
    }

    fn begin_generation(&mut self) {
        self.generation.0 += 1;
        self.written = false;
    }

    /// Drops bytes, and the blocks that hold no others.
    fn drop_bytes(&mut self, range: ByteRange) {
        self.valid.remove(range);
        let touched: Vec<u64> = match range.is_empty() {
            true => Vec::new(),
            false => {
                let last = (range.end - 1) / BLOCK_BYTES;
                self.blocks
                    .range(range.start / BLOCK_BYTES..=last)
                    .map(|(n, _)| *n)
                    .collect()
            }
        };
        for number in touched {
            if !self.valid.touches(block_range(number)) {
                self.free(number);
            }
        }
    }

    /// Bytes not yet at the server. One rewritten while in flight counts twice: it is sent twice.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.total() + self.writing.total()
    }

    /// At most so much space will the unsent bytes take.
    pub fn unsent_space(&self) -> u64 {
        let ranges = self.dirty.len() + self.writing.len();
        self.dirty_bytes() + ranges as u64 * RANGE_SPACE_MAX
    }

    /// Blocks of 4 KiB in which bytes are that are not yet at the server. One may count twice, where it
    /// was rewritten while in flight.
    pub fn unsent_blocks(&self) -> u64 {
        let ranges =
            |range: ByteRange| (range.start / SPACE_BYTES, range.end.div_ceil(SPACE_BYTES));
        let dirty = self.dirty.iter().map(|(range, _)| ranges(range));
        let writing = self.writing.iter().map(|(range, _)| ranges(range));
        count_apart(dirty) + count_apart(writing)
    }

    /// There are bytes that the server need not have durably.
    pub fn may_be_lost(&self) -> bool {
        self.dirty_bytes() > 0 || self.uncommitted.total() > 0
    }

    /// Bytes that the server has, not durably.
    pub fn undurable_bytes(&self) -> u64 {
        self.uncommitted.total()
    }

    /// Nothing of `range` is dirty or in flight.
    pub fn is_flushed(&self, range: ByteRange) -> bool {
        !self.dirty.touches(range)
            && !self
                .in_flight
                .values()
                .any(|write| write.range.overlaps(range))
    }

    /// Nothing of `range` is dirty, but some may be in flight.
    pub fn is_sent(&self, range: ByteRange) -> bool {
        !self.dirty.touches(range)
    }

    /// The server has durably what is held of `range`.
    fn is_durable(&self, range: ByteRange) -> bool {
        !self.dirty.touches(range)
            && !self.writing.touches(range)
            && !self.uncommitted.touches(range)
    }

    /// Bytes held. The memory behind them is at most about twice that: blocks grow by doubling, and
    /// what was received together goes together.
    pub fn cached_bytes(&self) -> u64 {
        self.held
    }

    /// No dirty byte is older. None: there are none. Found without looking at all of them.
    pub fn dirty_since(&self) -> Option<Tick> {
        (self.dirty.total() > 0).then_some(self.dirty_since)
    }

    /// The same of bytes on their way that are still wanted.
    pub fn sending_since(&self) -> Option<Tick> {
        let oldest = || self.in_flight.values().map(|write| write.since).min();
        (self.writing.total() > 0).then(oldest).flatten()
    }

    /// [`PageCache::dirty_since`] is as late as it can be, after looking at all of them.
    pub fn look_at_ages(&mut self) {
        self.dirty_since = self.oldest_dirty().unwrap_or_default();
    }

    /// The first modification that brought bytes which the server could still lose.
    pub fn first_uncommitted(&self) -> Option<Transno> {
        self.uncommitted.iter().map(|(_, transno)| transno).min()
    }

    /// The age of the oldest dirty byte, to a grain of 125 ms. Bytes in flight do not count.
    pub fn oldest_dirty(&self) -> Option<Tick> {
        self.dirty.iter().map(|(_, since)| since).min()
    }

    /// The same for bytes that are dirty or in flight.
    pub fn oldest_unwritten(&self) -> Option<Tick> {
        let in_flight = self.in_flight.values().map(|write| write.since).min();
        self.oldest_dirty().into_iter().chain(in_flight).min()
    }

    /// One past the last byte that is dirty or in flight: the file is at least that long.
    pub fn dirty_end(&self) -> Option<u64> {
        let last = [self.dirty.last(), self.writing.last()];
        last.into_iter().flatten().map(|range| range.end).max()
    }

    /// Frees at least `bytes` of memory, blocks not used for longest first; blocks with bytes the
    /// server does not durably have stay. Returns how much came free.
    pub fn evict_clean(&mut self, bytes: u64) -> u64 {
        let before = self.held;
        let mut after = 0;
        while before - self.held < bytes {
            // `after` walks the order of use past the blocks that must stay.
            let Some((&used, &number)) = self.by_use.range(after..).next() else {
                break;
            };
            after = used + 1;
            let range = block_range(number);
            if self.is_durable(range) {
                self.let_go(range);
            }
        }
        before - self.held
    }

    /// Copies `data` into the blocks and makes it valid.
    fn store(&mut self, offset: u64, data: &[u8]) {
        let range = ByteRange::new(offset, offset + data.len() as u64);
        for (number, part) in by_block(range) {
            let (from, to) = within(number, part);
            let block = self.blocks.entry(number).or_default();
            let source = (part.start - offset) as usize;
            let data = &data[source..source + (to - from)];
            self.held -= block.bytes.len() as u64;
            block.bytes = match whole_block(data) {
                Some(bytes) => bytes,
                None => overwritten(std::mem::take(&mut block.bytes), from, data),
            };
            self.held += block.bytes.len() as u64;
            self.touch(number);
        }
        self.valid.insert(range, ());
    }

    /// Makes `data` valid. What begins a block that is not there yet stays where it is; the rest is
    /// copied.
    fn keep(&mut self, offset: u64, data: Bytes) {
        let range = ByteRange::new(offset, offset + data.len() as u64);
        for (number, part) in by_block(range) {
            let source = (part.start - offset) as usize;
            let data = data.slice(source..source + part.len() as usize);
            let starts = part.start == block_range(number).start;
            if !starts || self.blocks.contains_key(&number) {
                self.store(part.start, &data);
                continue;
            }
            self.held += part.len();
            let block = Block {
                bytes: data,
                ..Block::default()
            };
            self.blocks.insert(number, block);
            self.valid.insert(part, ());
            self.touch(number);
        }
    }

    /// Marks a block as just used.
    fn touch(&mut self, number: u64) {
        let Some(block) = self.blocks.get_mut(&number) else {
            return;
        };
        self.uses += 1;
        self.by_use.remove(&block.used);
        block.used = self.uses;
        self.by_use.insert(self.uses, number);
    }

    /// Gives a block's memory back.
    fn free(&mut self, number: u64) {
        if let Some(block) = self.blocks.remove(&number) {
            self.by_use.remove(&block.used);
            self.held -= block.bytes.len() as u64;
        }
    }

    /// The bytes of a valid range, block by block, each with its offset.
    fn slices(&self, range: ByteRange) -> impl Iterator<Item = (u64, Bytes)> {
        by_block(range).filter_map(|(number, part)| {
            let (from, to) = within(number, part);
            let bytes = self.blocks.get(&number)?.bytes.slice(from..to);
            Some((part.start, bytes))
        })
    }

    /// The first `max` dirty ranges with nothing in flight on them. Neighbours are joined (as old as the
    /// older), and cut to one bulk transfer each.
    fn sendable(&self, range: ByteRange, max: usize) -> Vec<(ByteRange, Tick)> {
        let busy = self.busy(range);
        let mut pieces: Vec<(ByteRange, Tick)> = Vec::new();
        for (held, since) in self.dirty.within(range) {
            // One more than is wanted has begun: those before it have no more neighbours.
            if pieces.len() > max {
                break;
            }
            for free in busy.gaps(held) {
                match pieces.last_mut() {
                    Some((last, oldest)) if last.end == free.start => {
                        last.end = free.end;
                        *oldest = since.min(*oldest);
                    }
                    _ => pieces.push((free, since)),
                }
            }
        }
        pieces
            .into_iter()
            .flat_map(|(piece, since)| cut(piece, self.write_size).map(move |p| (p, since)))
            .take(max)
            .collect()
    }

    /// Puts a dirty range in flight.
    fn send(&mut self, range: ByteRange, since: Tick) -> WriteOut {
        self.last_write += 1;
        let id = WriteId(self.last_write);
        self.dirty.remove(range);
        self.writing.insert(range, id);
        self.in_flight.insert(id, InFlight { range, since });
        let mut bytes = Bulk::default();
        for (offset, piece) in self.slices(range) {
            let block = self.blocks.get(&(offset / BLOCK_BYTES));
            bytes.push(apart(piece, block.map_or(0, |block| block.bytes.len())));
        }
        WriteOut {
            id,
            offset: range.start,
            bytes,
        }
    }

    /// What of `range` has a write in flight, dropped bytes included.
    fn busy(&self, range: ByteRange) -> Extents<()> {
        let mut busy = Extents::default();
        for part in self
            .in_flight
            .values()
            .filter_map(|w| w.range.intersection(range))
        {
            busy.insert(part, ());
        }
        busy
    }

    /// Takes a write out of flight: the parts of it that were not dropped meanwhile.
    fn end_write(&mut self, id: WriteId) -> Vec<ByteRange> {
        let Some(write) = self.in_flight.remove(&id) else {
            return Vec::new();
        };
        let parts: Vec<ByteRange> = self
            .writing
            .within(write.range)
            .filter(|(_, owner)| *owner == id)
            .map(|(range, _)| range)
            .collect();
        for part in &parts {
            self.writing.remove(*part);
        }
        // Where its bytes were dropped, nobody here knows what a read on its way will have seen.
        if parts.iter().map(|part| part.len()).sum::<u64>() < write.range.len() {
            self.begin_generation();
        }
        parts
    }
}

/// The numbers of the blocks that hold a finite range.
fn numbers(range: ByteRange) -> std::ops::Range<u64> {
    match range.is_empty() {
        true => 0..0,
        false => range.start / BLOCK_BYTES..(range.end - 1) / BLOCK_BYTES + 1,
    }
}

/// The bytes of a block.
fn block_range(number: u64) -> ByteRange {
    let start = number * BLOCK_BYTES;
    ByteRange::new(start, start.saturating_add(BLOCK_BYTES))
}

/// A finite range cut at block borders: the block's number, and the part of the range in it.
fn by_block(range: ByteRange) -> impl Iterator<Item = (u64, ByteRange)> {
    numbers(range)
        .filter_map(move |number| Some((number, range.intersection(block_range(number))?)))
}

/// Where a part of a block is in it, in bytes: from, to.
fn within(number: u64, part: ByteRange) -> (usize, usize) {
    let start = block_range(number).start;
    ((part.start - start) as usize, (part.end - start) as usize)
}

/// What is sent of a block of `held` bytes: shared with it, unless it is a small part. Each write to
/// a block that is shared copies it, and what was there before stays until the answer comes.
fn apart(piece: Bytes, held: usize) -> Bytes {
    match piece.len() < held / 4 {
        true => Bytes::copy_from_slice(&piece),
        false => piece,
    }
}

/// Memory for whole blocks: one source for the process, as its allocator is.
static BLOCKS: LazyLock<Blocks> = LazyLock::new(Blocks::new);

/// Gives some of the memory back that whole blocks had. To be called ten times a second.
pub fn give_back_some() {
    BLOCKS.give_back_some();
}

/// A copy of `data` in memory made for whole blocks, if it is one and there is some.
fn whole_block(data: &[u8]) -> Option<Bytes> {
    match data.len() as u64 == BLOCK_BYTES {
        true => BLOCKS.copy(data),
        false => None,
    }
}

/// The block's bytes with `data` at `from`: in place, or in a copy of those it shares. What it
/// lacks before `from` becomes zeros.
fn overwritten(bytes: Bytes, from: usize, data: &[u8]) -> Bytes {
    let mut bytes = bytes
        .try_into_mut()
        .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    reserve(&mut bytes, from + data.len());
    if bytes.len() < from {
        bytes.resize(from, 0);
    }
    let (over, beyond) = data.split_at(data.len().min(bytes.len() - from));
    bytes[from..from + over.len()].copy_from_slice(over);
    bytes.extend_from_slice(beyond);
    bytes.freeze()
}

/// Gives a block memory for `len` bytes, exactly that at first (most files are small), then
/// doubling up to the whole block.
fn reserve(bytes: &mut BytesMut, len: usize) {
    let capacity = match bytes.is_empty() {
        true => len,
        false => len.next_power_of_two().min(BLOCK_BYTES as usize),
    };
    if len > bytes.len() && capacity > bytes.capacity() {
        bytes.reserve(capacity - bytes.len());
    }
}

/// A range in pieces of one write at most.
fn cut(range: ByteRange, size: WriteSize) -> impl Iterator<Item = ByteRange> {
    let step = size.bytes() as usize;
    (range.start..range.end)
        .step_by(step)
        .map(move |start| ByteRange::new(start, range.end.min(start + step as u64)))
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
