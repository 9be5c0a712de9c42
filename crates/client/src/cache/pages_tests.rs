//! The page cache against a plain array of bytes with a state each.

use std::collections::VecDeque;

use base::{ByteRange, Tick, Transno};
use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn content(cache: &mut PageCache, range: ByteRange) -> Vec<Option<u8>> {
    let mut bytes = Vec::new();
    let mut at = range.start;
    for piece in cache.read(range) {
        match piece {
            Piece::Hit { offset, bytes: hit } => {
                assert_eq!(offset, at);
                at += hit.len() as u64;
                bytes.extend(hit.iter().map(|b| Some(*b)));
            }
            Piece::Hole(hole) => {
                assert_eq!(hole.start, at);
                at = hole.end;
                bytes.extend((hole.start..hole.end).map(|_| None));
            }
        }
    }
    assert_eq!(at, range.end);
    bytes
}

fn all(cache: &mut PageCache, max: u64) -> Vec<WriteOut> {
    cache.take_dirty(ByteRange::ALL, max, usize::MAX)
}

#[test]
fn a_file_ends_where_the_first_of_its_new_bytes_was_lost() {
    let mut cache = PageCache::default();
    let now = Tick(SECOND);
    let one = |cache: &mut PageCache| all(cache, 50).remove(0).id;
    cache.write(0, &[1; 100], now);
    cache.grew(ByteRange::new(0, 100));
    let (first, second) = (one(&mut cache), one(&mut cache));
    cache.written(second, Transno(1));
    assert_eq!(cache.lost(first), Loss::End(0), "all behind came later");
    assert_eq!(cache.lost(first), Loss::Nothing);
    // Bytes from 200 on were there before those from 150 on.
    cache.write(200, &[1; 50], now);
    cache.grew(ByteRange::new(200, 250));
    cache.write(150, &[2; 50], now);
    let (filled, grown) = (one(&mut cache), one(&mut cache));
    assert_eq!(cache.lost(filled), Loss::Within);
    cache.discard(ByteRange::from(200));
    assert_eq!(cache.lost(grown), Loss::Nothing);
}

#[test]
fn unsent_bytes_take_each_block_once() {
    let mut cache = PageCache::default();
    assert_eq!(cache.unsent_blocks(), 0);
    // Two in one block, one in two.
    cache.write(0, b"a", Tick(SECOND));
    cache.write(4095, b"bb", Tick(SECOND));
    assert_eq!(cache.unsent_blocks(), 2);
    cache.write(10 << 20, &[1; 8193], Tick(SECOND));
    assert_eq!(cache.unsent_blocks(), 5);
    let sent = all(&mut cache, u64::MAX);
    assert_eq!(
        cache.unsent_blocks(),
        5,
        "nobody has said that they are there"
    );
    for out in sent {
        cache.written(out.id, Transno(7));
    }
    assert_eq!(cache.unsent_blocks(), 0);
}

#[test]
fn a_byte_rewritten_in_flight_stays_dirty_and_waits() {
    let mut cache = PageCache::default();
    cache.write(0, b"aaaa", Tick(SECOND));
    let first = all(&mut cache, u64::MAX);
    assert_eq!(
        (first.len(), &first[0].bytes.joined()[..]),
        (1, &b"aaaa"[..])
    );
    cache.write(1, b"bb", Tick(2 * SECOND));
    assert!(
        all(&mut cache, u64::MAX).is_empty(),
        "an earlier write is in flight there"
    );
    assert_eq!(cache.dirty_bytes(), 6);
    cache.written(first[0].id, Transno(0));
    let second = all(&mut cache, u64::MAX);
    assert_eq!(
        (second[0].offset, &second[0].bytes.joined()[..]),
        (1, &b"bb"[..])
    );
    cache.written(second[0].id, Transno(0));
    assert!(cache.dirty_bytes() == 0 && cache.is_flushed(ByteRange::ALL));
}

/// A message may go out again after a reconnect: it must be the same.
#[test]
fn what_is_on_its_way_stays_as_it_was_sent() {
    let (block, mut cache) = (BLOCK_BYTES as usize, PageCache::default());
    let written: Vec<u8> = (0..2 * block).map(|at| (at / 7) as u8).collect();
    cache.write(0, &written, Tick(0));
    cache.write(2 * BLOCK_BYTES, b"tail", Tick(0));
    let sent = all(&mut cache, u64::MAX);
    for (offset, len) in [
        (0, block),
        (BLOCK_BYTES - 10, 20),
        (2 * BLOCK_BYTES + 1, 500),
    ] {
        cache.write(offset, &vec![0xEE; len], Tick(0));
    }
    cache.discard(ByteRange::from(BLOCK_BYTES + 3));
    cache.write(0, b"again", Tick(0));
    let sent: Vec<u8> = sent.iter().flat_map(|out| out.bytes.joined()).collect();
    assert!(sent == [&written[..], b"tail"].concat());
}

/// Or a few bytes on their way would keep a block each, and each write there would copy one.
#[test]
fn a_few_bytes_on_their_way_do_not_keep_their_block() {
    let mut cache = PageCache::default();
    cache.write(0, &[1; BLOCK_BYTES as usize - 1], Tick(0));
    let sent = all(&mut cache, u64::MAX);
    cache.written(sent[0].id, Transno(0));
    drop(sent);
    cache.write(5, b"few", Tick(0));
    let place = cache.blocks[&0].bytes.as_ptr();
    let sent = all(&mut cache, u64::MAX);
    cache.write(20, b"more", Tick(0));
    assert_eq!(cache.blocks[&0].bytes.as_ptr(), place, "it was copied");
    assert_eq!(sent[0].bytes.joined(), b"few"[..]);
}

#[test]
fn a_failed_write_keeps_its_age_and_the_newer_bytes() {
    let mut cache = PageCache::default();
    cache.write(0, b"aaaa", Tick(SECOND));
    let sent = all(&mut cache, u64::MAX);
    assert_eq!(cache.oldest_dirty(), None);
    cache.write(0, b"b", Tick(9 * SECOND));
    cache.failed(sent[0].id);
    assert_eq!(cache.oldest_dirty(), Some(Tick(SECOND)));
    assert_eq!(all(&mut cache, u64::MAX)[0].bytes.joined(), b"baaa"[..]);
}

#[test]
fn old_bytes_from_the_server_do_not_come_back_after_a_truncate() {
    let mut cache = PageCache::default();
    let asked = cache.generation();
    cache.discard(ByteRange::from(0));
    assert!(!cache.fill(0, &Bytes::from_static(b"old"), asked));
    assert_eq!(content(&mut cache, ByteRange::new(0, 3)), vec![None; 3]);
    let asked = cache.generation();
    cache.write(1, b"N", Tick(0));
    assert!(cache.fill(0, &Bytes::from_static(b"old"), asked));
    assert_eq!(content(&mut cache, ByteRange::new(0, 3)), b"oNd".map(Some));
}

#[test]
fn what_was_written_and_let_go_is_not_replaced_by_an_answer_asked_before() {
    let mut cache = PageCache::default();
    let asked = cache.generation();
    cache.write(0, b"new", Tick(0));
    let sent = all(&mut cache, u64::MAX);
    cache.written(sent[0].id, Transno(1));
    cache.committed(Transno(1));
    cache.let_go(ByteRange::new(0, 3));
    assert_eq!(content(&mut cache, ByteRange::new(0, 3)), vec![None; 3]);
    assert!(!cache.fill(0, &Bytes::from_static(b"old"), asked));
    assert!(cache.fill(0, &Bytes::from_static(b"new"), cache.generation()));
    let asked = cache.generation();
    cache.let_go(ByteRange::ALL);
    assert_eq!(asked, cache.generation(), "nothing was written since");
}

/// A read that asks for lock and bytes asks for all of its range, also for what is dirty here.
#[test]
fn what_was_written_before_an_answer_was_asked_and_sent_after_is_not_replaced_by_it() {
    let mut cache = PageCache::default();
    cache.write(0, b"new", Tick(0));
    cache.let_go(ByteRange::new(100, 200));
    let asked = cache.generation();
    let sent = all(&mut cache, u64::MAX);
    cache.written(sent[0].id, Transno(1));
    cache.committed(Transno(1));
    cache.let_go(ByteRange::new(0, 3));
    assert!(!cache.fill(0, &Bytes::from_static(b"old"), asked));
    assert_eq!(content(&mut cache, ByteRange::new(0, 3)), vec![None; 3]);
}

#[test]
fn what_is_not_durable_at_the_server_is_not_let_go() {
    let mut cache = PageCache::default();
    assert!(cache.fill(0, &Bytes::from_static(b"read"), cache.generation()));
    cache.write(4, b"sent", Tick(0));
    let sent = all(&mut cache, u64::MAX);
    cache.written(sent[0].id, Transno(1));
    cache.write(8, b"not", Tick(0));
    cache.let_go(ByteRange::new(0, 11));
    let kept = content(&mut cache, ByteRange::new(0, 11));
    let expected = b"....sentnot".map(|byte| (byte != b'.').then_some(byte));
    assert_eq!(kept, expected);
}

#[test]
fn a_dropped_range_is_not_sent_twice_at_once() {
    let mut cache = PageCache::default();
    cache.write(0, b"aaaa", Tick(0));
    let first = all(&mut cache, u64::MAX);
    cache.discard(ByteRange::from(0));
    cache.write(2, b"bb", Tick(0));
    assert!(!cache.is_flushed(ByteRange::ALL) && all(&mut cache, u64::MAX).is_empty());
    cache.written(first[0].id, Transno(7));
    let second = all(&mut cache, u64::MAX);
    assert_eq!(
        (second[0].offset, &second[0].bytes.joined()[..]),
        (2, &b"bb"[..])
    );
}

#[test]
fn uncommitted_bytes_stay_and_are_dirty_again_after_a_restart() {
    let mut cache = PageCache::default();
    assert!(cache.fill(10, &Bytes::from_static(b"read"), cache.generation()));
    cache.write(0, b"one", Tick(0));
    let sent = all(&mut cache, u64::MAX);
    cache.written(sent[0].id, Transno(5));
    assert_eq!(cache.evict_clean(u64::MAX), 0);
    cache.committed(Transno(4));
    cache.write(20, b"x", Tick(0));
    cache.server_restarted(Tick(SECOND));
    assert_eq!(cache.dirty_bytes(), 4);
    assert_eq!(content(&mut cache, ByteRange::new(10, 14)), vec![None; 4]);
    for sent in all(&mut cache, u64::MAX) {
        cache.written(sent.id, Transno(6));
    }
    cache.committed(Transno(6));
    assert!(cache.evict_clean(1) > 0 && cache.cached_bytes() == 0);
}

#[test]
fn write_out_comes_in_bulk_sized_pieces_and_stops_at_the_bound() {
    let mut cache = PageCache::default();
    for block in 0..80u64 {
        cache.write(
            block * BLOCK_BYTES,
            &vec![block as u8; BLOCK_BYTES as usize],
            Tick(block),
        );
    }
    let some = all(&mut cache, 5 << 20);
    let sizes: Vec<usize> = some.iter().map(|w| w.bytes.len()).collect();
    assert_eq!(sizes, [4 << 20, 1 << 20]);
    assert_eq!(some[1].bytes.joined()[0], 32);
    assert_eq!(cache.dirty_bytes(), 10 << 20);
    assert_eq!(
        all(&mut cache, u64::MAX)
            .iter()
            .map(|w| w.bytes.len())
            .sum::<usize>(),
        5 << 20
    );
}

#[test]
fn write_out_stops_at_so_many_pieces_and_goes_on_where_it_stopped() {
    let mut cache = PageCache::default();
    for at in 0..10 {
        cache.write(3 * at, b"a", Tick(0));
        cache.write(3 * at + 1, b"b", Tick(SECOND));
    }
    let mut offsets = Vec::new();
    for count in [4, 4, 2, 0] {
        let taken = cache.take_dirty(ByteRange::ALL, u64::MAX, 4);
        assert!(taken.len() == count && taken.iter().all(|out| out.bytes.len() == 2));
        offsets.extend(taken.iter().map(|out| out.offset));
    }
    assert_eq!(offsets, (0..10).map(|at| 3 * at).collect::<Vec<u64>>());
}

#[test]
fn memory_follows_the_file_and_the_oldest_blocks_go_first() {
    let mut cache = PageCache::default();
    assert!(cache.fill(0, &Bytes::from_static(b"tiny"), cache.generation()));
    assert!(cache.cached_bytes() < 100);
    for block in 1..10u64 {
        let data = Bytes::from(vec![1; BLOCK_BYTES as usize]);
        assert!(cache.fill(block * BLOCK_BYTES, &data, cache.generation()));
    }
    cache.read(ByteRange::new(BLOCK_BYTES, BLOCK_BYTES + 1));
    cache.write(3 * BLOCK_BYTES, b"d", Tick(0));
    assert!(cache.evict_clean(2 * BLOCK_BYTES) >= 2 * BLOCK_BYTES);
    let held = |cache: &PageCache, block: u64| cache.holes(block_range(block)).is_empty();
    assert!(held(&cache, 1) && held(&cache, 3) && !held(&cache, 2) && !held(&cache, 4));
    cache.evict_clean(u64::MAX);
    assert_eq!(cache.cached_bytes(), BLOCK_BYTES);
    assert!(held(&cache, 3));
}

#[test]
fn any_range_can_be_dropped() {
    let mut cache = PageCache::default();
    cache.write(base::limits::FILE_BYTES_MAX - 3, b"end", Tick(0));
    cache.discard(ByteRange::new(5, 5));
    assert_eq!(cache.dirty_end(), Some(base::limits::FILE_BYTES_MAX));
    cache.discard(ByteRange::ALL);
    assert_eq!((cache.cached_bytes(), cache.dirty_bytes()), (0, 0));
}

/// The file of the random runs: some bytes on both sides of each block border.
const WINDOW: usize = 48;

/// Model places are spread so that block borders fall inside.
fn place(at: usize) -> u64 {
    BLOCK_BYTES - 16 + at as u64
}

#[derive(Debug, Clone)]
enum Op {
    Write(usize, usize, u8),
    /// The server answers a read that was just asked for (true) or before the last drop.
    Fill(usize, usize, bool),
    /// A read reaches the server, of what is missing (true) or of all; its answer is on the way.
    Ask(usize, usize, bool),
    /// The oldest such answer arrives.
    Answer,
    Take(usize, usize, u64),
    Written(usize),
    Failed(usize),
    Commit,
    Discard(usize, usize),
    LetGo(usize, usize),
    Truncate(usize),
    Evict(u64),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let span = || (0..WINDOW, 0..WINDOW).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        5 => (span(), any::<u8>()).prop_map(|((a, b), v)| Op::Write(a, b, v)),
        4 => (span(), any::<bool>()).prop_map(|((a, b), f)| Op::Fill(a, b, f)),
        2 => (span(), any::<bool>()).prop_map(|((a, b), m)| Op::Ask(a, b, m)),
        2 => Just(Op::Answer),
        4 => (span(), 1u64..60).prop_map(|((a, b), n)| Op::Take(a, b, n)),
        4 => (0usize..8).prop_map(Op::Written),
        1 => (0usize..8).prop_map(Op::Failed),
        1 => Just(Op::Commit),
        1 => span().prop_map(|(a, b)| Op::Discard(a, b)),
        2 => span().prop_map(|(a, b)| Op::LetGo(a, b)),
        1 => (0..WINDOW).prop_map(Op::Truncate),
        1 => (0u64..300_000).prop_map(Op::Evict),
        1 => Just(Op::Restart),
    ]
}

/// What the cache must know of one byte.
#[derive(Debug, Clone, Copy, Default)]
struct Byte {
    value: Option<u8>,
    dirty: bool,
    /// In flight and still wanted.
    writing: Option<WriteId>,
    uncommitted: Option<u64>,
}

/// A write of this place was sent and not answered.
fn flying(at: usize, writes: &[WriteOut]) -> bool {
    writes
        .iter()
        .any(|w| (w.offset..w.offset + w.bytes.len() as u64).contains(&place(at)))
}

/// An answer on its way: what it tells of one hole, and when that was asked.
struct Answer {
    hole: ByteRange,
    bytes: Bytes,
    asked: Generation,
}

struct Reference {
    bytes: [Byte; WINDOW],
    /// What the server holds, as far as writes reached it.
    server: [u8; WINDOW],
    flying: Vec<WriteOut>,
    answers: VecDeque<Answer>,
    transno: u64,
    before_drop: Generation,
    tick: u64,
}

impl Reference {
    fn new() -> Reference {
        Reference {
            bytes: [Byte::default(); WINDOW],
            server: [0; WINDOW],
            flying: Vec::new(),
            answers: VecDeque::new(),
            transno: 0,
            before_drop: Generation::default(),
            tick: 0,
        }
    }

    fn drop_bytes(&mut self, from: usize, to: usize, cache: &PageCache) {
        self.before_drop = cache.generation();
        self.bytes[from..to].fill(Byte::default());
    }

    fn step(&mut self, cache: &mut PageCache, op: &Op) {
        self.tick += SECOND;
        match *op {
            Op::Write(from, to, value) => {
                cache.write(place(from), &vec![value; to - from], Tick(self.tick));
                for byte in &mut self.bytes[from..to] {
                    (byte.value, byte.dirty) = (Some(value), true);
                }
            }
            Op::Fill(from, to, current) => self.fill(cache, from, to, current),
            Op::Ask(from, to, missing) => self.ask(cache, from, to, missing),
            Op::Answer => self.answer(cache),
            Op::Take(from, to, max) => self.take(cache, from, to, max),
            Op::Written(which) if !self.flying.is_empty() => {
                let write = self.flying.remove(which % self.flying.len());
                self.arrive(cache, write);
            }
            Op::Failed(which) if !self.flying.is_empty() => {
                let write = self.flying.remove(which % self.flying.len());
                cache.failed(write.id);
                for byte in self
                    .bytes
                    .iter_mut()
                    .filter(|b| b.writing == Some(write.id))
                {
                    (byte.writing, byte.dirty) = (None, true);
                }
            }
            Op::Written(_) | Op::Failed(_) => {}
            Op::Commit => {
                cache.committed(Transno(self.transno));
                self.bytes.iter_mut().for_each(|b| b.uncommitted = None);
            }
            Op::Discard(from, to) => {
                self.drop_bytes(from, to, cache);
                cache.discard(ByteRange::new(place(from), place(to)));
            }
            Op::LetGo(from, to) => {
                self.before_drop = cache.generation();
                cache.let_go(ByteRange::new(place(from), place(to)));
                for byte in &mut self.bytes[from..to] {
                    if !byte.dirty && byte.writing.is_none() && byte.uncommitted.is_none() {
                        byte.value = None;
                    }
                }
            }
            Op::Truncate(to) => {
                self.drop_bytes(to, WINDOW, cache);
                cache.discard(ByteRange::from(place(to)));
            }
            Op::Evict(bytes) => self.evict(cache, bytes),
            Op::Restart => self.restart(cache),
        }
    }

    fn fill(&mut self, cache: &mut PageCache, from: usize, to: usize, current: bool) {
        let asked = if current {
            cache.generation()
        } else {
            self.before_drop
        };
        let taken = cache.fill(
            place(from),
            &Bytes::copy_from_slice(&self.server[from..to]),
            asked,
        );
        assert_eq!(taken, asked == cache.generation());
        if taken {
            for at in from..to {
                if !flying(at, &self.flying) {
                    self.bytes[at].value.get_or_insert(self.server[at]);
                }
            }
        }
    }

    fn ask(&mut self, cache: &PageCache, from: usize, to: usize, missing: bool) {
        let range = ByteRange::new(place(from), place(to));
        let asked = match missing {
            true => cache.holes(range),
            false => vec![range],
        };
        for hole in asked {
            let (start, end) = (hole.start - place(0), hole.end - place(0));
            self.answers.push_back(Answer {
                hole,
                bytes: Bytes::copy_from_slice(&self.server[start as usize..end as usize]),
                asked: cache.generation(),
            });
        }
    }

    fn answer(&mut self, cache: &mut PageCache) {
        let Some(answer) = self.answers.pop_front() else {
            return;
        };
        if !cache.fill(answer.hole.start, &answer.bytes, answer.asked) {
            return;
        }
        let start = (answer.hole.start - place(0)) as usize;
        for (at, told) in (start..).zip(&answer.bytes) {
            if self.bytes[at].value.is_none() && !flying(at, &self.flying) {
                assert_eq!(*told, self.server[at], "older than what was written since");
                self.bytes[at].value = Some(*told);
            }
        }
    }

    fn take(&mut self, cache: &mut PageCache, from: usize, to: usize, max: u64) {
        let sendable: Vec<usize> = (from..to)
            .filter(|at| self.bytes[*at].dirty && !flying(*at, &self.flying))
            .take(max as usize)
            .collect();
        let mut taken = Vec::new();
        for write in cache.take_dirty(ByteRange::new(place(from), place(to)), max, usize::MAX) {
            for (i, sent) in write.bytes.joined().iter().enumerate() {
                let at = (write.offset - place(0)) as usize + i;
                let byte = &mut self.bytes[at];
                assert_eq!(byte.value, Some(*sent));
                (byte.dirty, byte.writing) = (false, Some(write.id));
                taken.push(at);
            }
            self.flying.push(write);
        }
        assert_eq!(taken, sendable);
    }

    fn arrive(&mut self, cache: &mut PageCache, write: WriteOut) {
        self.transno += 1;
        cache.written(write.id, Transno(self.transno));
        let start = (write.offset - place(0)) as usize;
        self.server[start..start + write.bytes.len()].copy_from_slice(&write.bytes.joined());
        for byte in self
            .bytes
            .iter_mut()
            .filter(|b| b.writing == Some(write.id))
        {
            (byte.writing, byte.uncommitted) = (None, Some(self.transno));
        }
    }

    fn evict(&mut self, cache: &mut PageCache, bytes: u64) {
        self.before_drop = cache.generation();
        let (before, said) = (cache.cached_bytes(), cache.evict_clean(bytes));
        assert_eq!(before - cache.cached_bytes(), said);
        for block in [0..16, 16..WINDOW] {
            let known = content(cache, ByteRange::new(place(block.start), place(block.end)));
            if known.iter().all(Option::is_none) {
                for byte in &mut self.bytes[block] {
                    assert!(!byte.dirty && byte.writing.is_none() && byte.uncommitted.is_none());
                    *byte = Byte::default();
                }
            }
        }
    }

    fn restart(&mut self, cache: &mut PageCache) {
        self.before_drop = cache.generation();
        cache.server_restarted(Tick(self.tick));
        self.flying.clear();
        for byte in &mut self.bytes {
            let kept = byte.dirty || byte.writing.is_some() || byte.uncommitted.is_some();
            *byte = match kept {
                true => Byte {
                    value: byte.value,
                    dirty: true,
                    ..Byte::default()
                },
                false => Byte::default(),
            };
        }
    }

    fn check(&self, cache: &mut PageCache) {
        let expected: Vec<Option<u8>> = self.bytes.iter().map(|b| b.value).collect();
        assert_eq!(
            content(cache, ByteRange::new(place(0), place(WINDOW))),
            expected
        );
        let unsent = self
            .bytes
            .iter()
            .map(|b| u64::from(b.dirty) + u64::from(b.writing.is_some()));
        assert_eq!(cache.dirty_bytes(), unsent.sum::<u64>());
        assert_eq!(
            cache.oldest_dirty().is_some(),
            self.bytes.iter().any(|b| b.dirty)
        );
        let end = self
            .bytes
            .iter()
            .rposition(|b| b.dirty || b.writing.is_some());
        assert_eq!(cache.dirty_end(), end.map(|at| place(at) + 1));
        assert!(cache.cached_bytes() <= 2 * BLOCK_BYTES);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn agrees_with_an_array_of_bytes(ops in proptest::collection::vec(op(), 1..60)) {
        let mut cache = PageCache::default();
        let mut reference = Reference::new();
        for op in &ops {
            reference.step(&mut cache, op);
            reference.check(&mut cache);
        }
        // Everything written reaches the server once all writes are sent and answered.
        while cache.dirty_bytes() > 0 || !reference.flying.is_empty() {
            reference.take(&mut cache, 0, WINDOW, u64::MAX);
            for write in std::mem::take(&mut reference.flying) {
                reference.arrive(&mut cache, write);
            }
        }
        for (byte, server) in reference.bytes.iter().zip(reference.server) {
            prop_assert!(byte.value.is_none_or(|value| value == server));
        }
    }
}
