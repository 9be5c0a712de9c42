//! The free blocks of one group: a bitmap, and above it a tree that finds runs of any length.

use crate::places::{GROUP_BLOCKS, GROUP_ORDER};

/// Words of a group's bitmap.
pub const GROUP_WORDS: usize = GROUP_BLOCKS as usize / 64;

/// Levels of the tree: a bit of level `n` is set where all its 2^n blocks are free.
const LEVELS: usize = GROUP_ORDER + 1;
/// So many of the largest chunks are looked at for the longest run.
const CHUNKS_LOOKED_AT_MAX: usize = 16;

const fn words_of(level: usize) -> usize {
    match GROUP_WORDS >> level {
        0 => 1,
        words => words,
    }
}

const OFFSETS: [usize; LEVELS + 1] = {
    let mut offsets = [0; LEVELS + 1];
    let mut level = 0;
    while level < LEVELS {
        offsets[level + 1] = offsets[level] + words_of(level);
        level += 1;
    }
    offsets
};

/// Blocks in a row inside a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub start: u32,
    /// How many.
    pub blocks: u32,
}

impl Run {
    /// `blocks` of them from `start` on.
    pub fn new(start: u32, blocks: u32) -> Run {
        Run { start, blocks }
    }

    fn end(self) -> u32 {
        self.start + self.blocks
    }
}

/// The free blocks of one group. An allocation or release of one block changes one word on each level at
/// most.
#[derive(Clone)]
pub struct GroupMap {
    words: Box<[u64; OFFSETS[LEVELS]]>,
    /// Bits set on each level.
    counts: [u32; LEVELS],
    runs: u32,
}

/// The even bits of `word & word >> 1`, moved together: which pairs are set.
fn pairs(word: u64) -> u64 {
    let mut x = word & (word >> 1) & 0x5555_5555_5555_5555;
    x = (x | (x >> 1)) & 0x3333_3333_3333_3333;
    x = (x | (x >> 2)) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | (x >> 4)) & 0x00ff_00ff_00ff_00ff;
    x = (x | (x >> 8)) & 0x0000_ffff_0000_ffff;
    (x | (x >> 16)) & 0x0000_0000_ffff_ffff
}

/// The lower 32 bits of `half`, each twice.
fn doubled(half: u64) -> u64 {
    let mut x = half & 0x0000_0000_ffff_ffff;
    x = (x | (x << 16)) & 0x0000_ffff_0000_ffff;
    x = (x | (x << 8)) & 0x00ff_00ff_00ff_00ff;
    x = (x | (x << 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    x = (x | (x << 2)) & 0x3333_3333_3333_3333;
    x = (x | (x << 1)) & 0x5555_5555_5555_5555;
    x | (x << 1)
}

/// Each word that `run` touches, with the bits of it there.
fn masks(run: Run) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (run.start, run.end());
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (word, bit) = (at / 64, at % 64);
        let bits = (64 - bit).min(end - at);
        at += bits;
        let mask = (u64::MAX >> (64 - bits)) << bit;
        Some((word as usize, mask))
    })
}

/// The free blocks of a group that has `blocks` of them. Set bits of `used` are not free, nor are bits behind
/// the last block.
pub fn free_words_of(used: &[u64; GROUP_WORDS], blocks: u32) -> [u64; GROUP_WORDS] {
    let mut free = used.map(|word| !word);
    for (at, word) in (0..).step_by(64).zip(&mut free) {
        let bits = blocks.saturating_sub(at).min(64);
        *word &= (1_u64.checked_shl(bits).unwrap_or(0)).wrapping_sub(1);
    }
    free
}

/// The smallest level whose chunks have `blocks` or more.
pub fn level_for(blocks: u32) -> usize {
    blocks.max(1).next_power_of_two().trailing_zeros() as usize
}

impl GroupMap {
    /// No block is free.
    pub fn full() -> GroupMap {
        GroupMap {
            words: Box::new([0; OFFSETS[LEVELS]]),
            counts: [0; LEVELS],
            runs: 0,
        }
    }

    /// The blocks are free whose bits are set in `free`.
    pub fn from_free(free: &[u64; GROUP_WORDS]) -> GroupMap {
        let mut map = GroupMap::full();
        map.words[..GROUP_WORDS].copy_from_slice(free);
        map.counts[0] = free.iter().map(|word| word.count_ones()).sum();
        map.build_above(Run::new(0, GROUP_BLOCKS));
        let mut before = 0;
        for word in free {
            map.runs += (word & !(word << 1 | before)).count_ones();
            before = word >> 63;
        }
        map
    }

    /// The bitmap: set bits are free.
    pub fn free_words(&self) -> &[u64] {
        self.level(0)
    }

    /// Free blocks.
    pub fn free(&self) -> u32 {
        self.counts[0]
    }

    /// Runs of free blocks.
    pub fn runs(&self) -> u32 {
        self.runs
    }

    /// The highest level on which a chunk is free; `None` where no block is.
    pub fn largest_level(&self) -> Option<usize> {
        self.counts.iter().rposition(|count| *count > 0)
    }

    /// Free chunks of a level that are no part of a larger free one.
    pub fn chunks(&self, level: usize) -> u32 {
        let above = self.counts.get(level + 1).copied().unwrap_or(0);
        self.counts[level] - 2 * above
    }

    fn level(&self, level: usize) -> &[u64] {
        &self.words[OFFSETS[level]..OFFSETS[level + 1]]
    }

    /// All of `run` is free.
    pub fn is_free(&self, run: Run) -> bool {
        masks(run).all(|(word, mask)| self.words[word] & mask == mask)
    }

    /// No block of `run` is free.
    pub fn is_used(&self, run: Run) -> bool {
        masks(run).all(|(word, mask)| self.words[word] & mask == 0)
    }

    /// Takes `run`, all of which is free.
    pub fn take(&mut self, run: Run) {
        debug_assert!(self.is_free(run), "taken twice: {run:?}");
        let (left, right) = self.neighbours(run);
        self.runs = self.runs + u32::from(left && right) - u32::from(!left && !right);
        masks(run).for_each(|(word, mask)| self.words[word] &= !mask);
        self.counts[0] -= run.blocks;
        self.build_above(run);
    }

    /// Gives `run` back, no block of which is free.
    pub fn give(&mut self, run: Run) {
        debug_assert!(self.is_used(run), "given back twice: {run:?}");
        let (left, right) = self.neighbours(run);
        self.runs = self.runs + u32::from(!left && !right) - u32::from(left && right);
        masks(run).for_each(|(word, mask)| self.words[word] |= mask);
        self.counts[0] += run.blocks;
        self.build_above(run);
    }

    /// Whether the blocks before and behind `run` are free.
    fn neighbours(&self, run: Run) -> (bool, bool) {
        let left = run.start > 0 && self.is_free(Run::new(run.start - 1, 1));
        let right = run.end() < GROUP_BLOCKS && self.is_free(Run::new(run.end(), 1));
        (left, right)
    }

    /// Makes the levels above the bitmap agree with what changed in `run`.
    fn build_above(&mut self, run: Run) {
        let (mut first, mut last) = (run.start as usize / 64, (run.end() as usize - 1) / 64);
        for level in 1..LEVELS {
            let below = OFFSETS[level - 1];
            let below_words = words_of(level - 1);
            (first, last) = (first / 2, last / 2);
            let mut changed = false;
            for word in first..=last {
                let mut new = pairs(self.words[below + 2 * word]);
                if 2 * word + 1 < below_words {
                    new |= pairs(self.words[below + 2 * word + 1]) << 32;
                }
                let old = std::mem::replace(&mut self.words[OFFSETS[level] + word], new);
                self.counts[level] = self.counts[level] + new.count_ones() - old.count_ones();
                changed |= new != old;
            }
            if !changed {
                return;
            }
        }
    }

    /// The free run that begins at `start`, at most `blocks_max` long.
    pub fn run_at(&self, start: u32, blocks_max: u32) -> u32 {
        let limit = blocks_max.min(GROUP_BLOCKS - start);
        let mut found = 0;
        while found < limit {
            let at = start + found;
            let word = self.words[at as usize / 64] >> (at % 64);
            let here = word.trailing_ones().min(64 - at % 64);
            found += here;
            if here < 64 - at % 64 {
                break;
            }
        }
        found.min(limit)
    }

    /// The free run that ends before `end`, at most `blocks_max` long.
    fn run_before(&self, end: u32, blocks_max: u32) -> u32 {
        let limit = blocks_max.min(end);
        let mut found = 0;
        while found < limit {
            let at = end - found - 1;
            let word = self.words[at as usize / 64] << (63 - at % 64);
            let here = word.leading_ones().min(at % 64 + 1);
            found += here;
            if here < at % 64 + 1 {
                break;
            }
        }
        found.min(limit)
    }

    /// The first free chunk of `level`, from `from` on and then from the start, that is no part of a larger
    /// one.
    fn chunk(&self, level: usize, from: u32) -> Option<u32> {
        let first = (from >> level) as usize;
        let words = words_of(level);
        let own = |word: usize| {
            let above = match level + 1 < LEVELS {
                true => self.level(level + 1)[word / 2] >> (32 * (word % 2)),
                false => 0,
            };
            self.level(level)[word] & !doubled(above)
        };
        let first_word = own(first / 64) & (u64::MAX << (first % 64));
        let later = (first / 64 + 1..words).chain(0..words.min(first / 64 + 1));
        let found = std::iter::once((first / 64, first_word))
            .chain(later.map(|word| (word, own(word))))
            .find(|(_, bits)| *bits != 0);
        found.map(|(word, bits)| ((word * 64) as u32 + bits.trailing_zeros()) << level)
    }

    /// A run of `blocks` free blocks, from the smallest chunk that has them; the first such chunk behind
    /// `near`, or else the first.
    pub fn find(&self, blocks: u32, near: u32) -> Option<Run> {
        let level = (level_for(blocks)..LEVELS).find(|level| self.chunks(*level) > 0)?;
        let start = self.chunk(level, near)?;
        Some(Run::new(start, blocks))
    }

    /// The longest run found with bounded work, at most `blocks` long. `None`: no block is free.
    pub fn find_longest(&self, blocks: u32, near: u32) -> Option<Run> {
        let level = self.largest_level()?;
        let (mut best, mut from) = (None::<Run>, near);
        for _ in 0..CHUNKS_LOOKED_AT_MAX.min(self.chunks(level) as usize) {
            let chunk = self.chunk(level, from)?;
            let before = self.run_before(chunk, blocks);
            let run = Run::new(chunk - before, self.run_at(chunk - before, blocks));
            if best.is_none_or(|best| run.blocks > best.blocks) {
                best = Some(run);
            }
            if run.blocks >= blocks {
                break;
            }
            from = (chunk + (1 << level)) % GROUP_BLOCKS;
        }
        best
    }

    /// The first free block.
    pub fn first_free(&self) -> Option<u32> {
        let word = self.level(0).iter().position(|word| *word != 0)?;
        Some((word * 64) as u32 + self.level(0)[word].trailing_zeros())
    }

    /// The first free block from `from` on.
    pub fn next_free(&self, from: u32) -> Option<u32> {
        let first = (from / 64) as usize;
        let part = |(at, word): (usize, &u64)| match at == first {
            true => (at, word & u64::MAX << (from % 64)),
            false => (at, *word),
        };
        let words = self.level(0).iter().enumerate().skip(first).map(part);
        let (at, word) = words.into_iter().find(|(_, word)| *word != 0)?;
        Some((at * 64) as u32 + word.trailing_zeros())
    }

    /// Everything kept besides the bitmap agrees with it.
    pub fn is_consistent(&self) -> bool {
        let mut free = [0; GROUP_WORDS];
        free.copy_from_slice(self.level(0));
        let anew = GroupMap::from_free(&free);
        anew.words == self.words && anew.counts == self.counts && anew.runs == self.runs
    }
}

impl std::fmt::Debug for GroupMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "GroupMap({} free in {} runs)", self.free(), self.runs)
    }
}
