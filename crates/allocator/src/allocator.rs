//! The allocator: says which blocks an object's next bytes get. One call is one extent and a bounded amount
//! of work, however full and fragmented the disk is.

use std::fmt;
use std::time::Duration;

use base::Tick;

use crate::index::{Index, Summary};
use crate::map::{GROUP_WORDS, GroupMap, Run, free_words_of, level_for};
use crate::packing::Packing;
use crate::places::{Block, Extent, GROUP_BLOCKS, Group, Owner};
use crate::report::GroupReport;
use crate::table::PreallocTable;
use crate::windows::{Window, Windows};

/// What can be set.
#[derive(Debug, Clone)]
pub struct Options {
    /// Windows of objects whose length is not known.
    pub table: PreallocTable,
    /// An object that will have fewer blocks is packed with others, and has no window.
    pub small_blocks: u64,
    /// Blocks of the region that small objects share.
    pub packing_blocks: u32,
    /// Objects that have windows. Beyond: the windows used longest ago are given back.
    pub owners_max: usize,
    /// Bitmaps that the caller keeps in memory. Beyond: those loaded first are forgotten.
    pub loaded_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            table: PreallocTable::default(),
            small_blocks: 256,
            packing_blocks: 512,
            owners_max: 4096,
            loaded_max: 1024,
        }
    }
}

/// Where the search begins; kept over restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursors {
    /// `mb_last_group`: the group that large objects got their last window in.
    pub stream: Group,
    /// Where the next small object goes.
    pub small: Block,
}

/// How long an object will be, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// So long: its writer has all of it.
    Known(u64),
    /// So long until now: it may grow.
    Open(u64),
}

/// Blocks that an object needs.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    /// The object.
    pub owner: Owner,
    /// Its first block that needs one.
    pub logical: u64,
    /// How many do. At least one.
    pub blocks: u32,
    /// How long it will be.
    pub length: Length,
    /// The block behind the extent before, if there is one.
    pub goal: Option<Block>,
}

/// An extent for the first blocks of a [`Want`]; the caller asks again for the others.
pub type Placed = Extent;

/// Why there is no extent. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The bitmap of this group is needed: the caller loads it and asks again.
    Away(Group),
    /// No block is free. Freed ones may become so.
    Full,
    /// There is no such group or block.
    OutOfRange,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Away(group) => write!(f, "the bitmap of group {} is not loaded", group.0),
            Refused::Full => f.write_str("no block is free"),
            Refused::OutOfRange => f.write_str("no such group or block"),
        }
    }
}

impl std::error::Error for Refused {}

/// Counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Runs taken from groups: windows, regions, and single extents.
    pub runs: u64,
    /// Of these, behind the extent before.
    pub goal_hits: u64,
    /// Of these, shorter than wanted.
    pub breaks: u64,
    /// Windows taken back because no block was free.
    pub steals: u64,
    /// Extents handed out of windows.
    pub from_windows: u64,
    /// Extents handed out of the region of small objects.
    pub packed: u64,
}

/// Free space of a disk, and what is reserved of it.
#[derive(Debug)]
pub struct Allocator {
    blocks: u64,
    maps: Vec<Option<GroupMap>>,
    index: Index,
    windows: Windows,
    packing: Packing,
    stream: Group,
    options: Options,
    statistics: Statistics,
}

impl Allocator {
    /// Of a disk of `blocks`, of which nothing is known to be free.
    pub fn new(blocks: u64, cursors: Cursors, options: Options) -> Allocator {
        let groups = blocks.div_ceil(u64::from(GROUP_BLOCKS)) as usize;
        let last = Group(groups.saturating_sub(1) as u32);
        Allocator {
            blocks,
            maps: vec![None; groups],
            index: Index::new(groups),
            windows: Windows::default(),
            packing: Packing::new(Block(cursors.small.0.min(blocks.saturating_sub(1)))),
            stream: cursors.stream.min(last),
            options,
            statistics: Statistics::default(),
        }
    }

    /// The same disk with every block free and every bitmap in memory.
    pub fn empty(blocks: u64, options: Options) -> Allocator {
        let mut allocator = Allocator::new(blocks, Cursors::default(), options);
        for group in 0..allocator.maps.len() as u32 {
            allocator.load(Group(group), &[0; GROUP_WORDS]);
        }
        allocator
    }

    /// Groups of the disk.
    pub fn groups(&self) -> u32 {
        self.maps.len() as u32
    }

    /// Blocks of the disk.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Free blocks that are not reserved.
    pub fn free_blocks(&self) -> u64 {
        self.index.free()
    }

    /// Blocks reserved for objects that grow, and for small ones: given back when others need them.
    pub fn reserved_blocks(&self) -> u64 {
        self.windows.blocks() + u64::from(self.packing.rest().blocks)
    }

    /// Where the search begins.
    pub fn cursors(&self) -> Cursors {
        Cursors {
            stream: self.stream,
            small: self.packing.next(),
        }
    }

    /// `mb_last_group`: large objects are put into this group and those behind it.
    pub fn set_last_group(&mut self, group: Group) -> Result<(), Refused> {
        if group.0 >= self.groups() {
            return Err(Refused::OutOfRange);
        }
        self.stream = group;
        Ok(())
    }

    /// `prealloc_table`.
    pub fn table(&self) -> &PreallocTable {
        &self.options.table
    }

    /// From now on new windows have these sizes.
    pub fn set_table(&mut self, table: PreallocTable) {
        self.options.table = table;
    }

    /// Counters since the start.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// A group's line of `mb_groups`; `None` where its bitmap is not in memory.
    pub fn report(&self, group: Group) -> Option<GroupReport> {
        let map = self.maps.get(group.0 as usize)?.as_ref()?;
        Some(GroupReport::of(group, map))
    }

    /// A group whose bitmap is not in memory is like this.
    pub fn summarize(&mut self, group: Group, summary: Summary) {
        if self.maps[group.0 as usize].is_none() {
            self.index.put(group, summary);
        }
    }

    /// What is known of a group.
    pub fn summary(&self, group: Group) -> Summary {
        self.index.summary(group)
    }

    /// The bitmap of a group: set bits of `used` are not free. Blocks behind the disk's end never are.
    pub fn load(&mut self, group: Group, used: &[u64; GROUP_WORDS]) {
        let map = GroupMap::from_free(&free_words_of(used, self.blocks_of(group)));
        self.index.put(group, Summary::of(&map));
        self.maps[group.0 as usize] = Some(map);
    }

    /// The bitmap is in memory.
    pub fn is_loaded(&self, group: Group) -> bool {
        self.maps[group.0 as usize].is_some()
    }

    /// Forgets a bitmap that the caller has as `used`. `false`: it differs, and stays. Blocks are reserved
    /// then, not yet named, or not yet free again.
    pub fn unload(&mut self, group: Group, used: &[u64; GROUP_WORDS]) -> bool {
        let free = free_words_of(used, self.blocks_of(group));
        let map = &mut self.maps[group.0 as usize];
        if map.as_ref().is_some_and(|map| map.free_words() != free) {
            return false;
        }
        *map = None;
        true
    }

    /// Blocks that the disk has in this group.
    fn blocks_of(&self, group: Group) -> u32 {
        let there = self.blocks.saturating_sub(group.block(0).0);
        there.min(u64::from(GROUP_BLOCKS)) as u32
    }

    /// An extent for the first blocks of `want`.
    pub fn place(&mut self, now: Tick, want: &Want) -> Result<Placed, Refused> {
        let gap = match self
            .windows
            .take(now, want.owner, want.logical, want.blocks)
        {
            Ok(extent) => {
                self.statistics.from_windows += 1;
                return Ok(extent);
            }
            Err(gap) => gap.map_or(u32::MAX, |gap| gap.min(u64::from(u32::MAX)) as u32),
        };
        let blocks = want.blocks.min(gap).min(GROUP_BLOCKS);
        if let Length::Known(length) = want.length
            && length < self.options.small_blocks
        {
            return self.pack(blocks);
        }
        let window = self.window(want, blocks).min(gap).min(GROUP_BLOCKS);
        let goal = want
            .goal
            .or_else(|| self.windows.near(want.owner, want.logical));
        let place = self.take_or_steal(window, goal, self.stream)?;
        self.stream = place.start.group();
        let (placed, rest) = place.split(blocks);
        if rest.blocks > 0 {
            let logical = want.logical + u64::from(placed.blocks);
            let window = Window {
                logical,
                place: rest,
            };
            if let Some(replaced) = self.windows.put(now, want.owner, window) {
                self.give(replaced);
            }
            if self.windows.owners() > self.options.owners_max {
                self.give_back_oldest();
            }
        }
        Ok(placed)
    }

    /// The first free blocks of `range`, which lies in one group, and at most `blocks` of them. None: all are
    /// in use or reserved.
    pub fn place_in(&mut self, range: Extent, blocks: u32) -> Result<Option<Extent>, Refused> {
        let group = range.start.group();
        let map = self.map(group)?;
        let (first, end) = (
            range.start.in_group(),
            range.start.in_group() + range.blocks,
        );
        let Some(start) = map.next_free(first).filter(|start| *start < end) else {
            return Ok(None);
        };
        let run = Run::new(start, map.run_at(start, blocks.min(end - start)));
        Ok(Some(self.taken(blocks, group, run)))
    }

    /// The next free blocks of a group in a row, from block `first` of it on, and at most `blocks`. None:
    /// there are none, or its bitmap is not in memory.
    pub fn next_free(&self, group: Group, first: u32, blocks: u32) -> Option<Extent> {
        let map = self.map(group).ok()?;
        let start = map.next_free(first)?;
        Some(Extent::new(group.block(start), map.run_at(start, blocks)))
    }

    /// Free stretches of a group that consist of whole aligned parts of `part` blocks. `None`: its bitmap is
    /// not in memory.
    pub fn free_stretches(&self, group: Group, part: u32) -> Option<Vec<Extent>> {
        let (map, end) = (self.map(group).ok()?, self.blocks_of(group));
        let mut stretches: Vec<Extent> = Vec::new();
        for first in (0..end).step_by(part as usize) {
            let free = Run::new(first, part.min(end - first));
            if !map.is_free(free) {
                continue;
            }
            let start = group.block(first);
            match stretches.last_mut() {
                Some(last) if last.end() == start => last.blocks += free.blocks,
                _ => stretches.push(Extent::new(start, free.blocks)),
            }
        }
        Some(stretches)
    }

    /// Blocks to take at once for `blocks` that `want` begins with.
    fn window(&self, want: &Want, blocks: u32) -> u32 {
        let end = want.logical + u64::from(blocks);
        let window_end = match want.length {
            Length::Known(length) => length.max(end),
            Length::Open(length) => {
                let window = u64::from(self.options.table.window(length.max(end)));
                end.div_ceil(window) * window
            }
        };
        (window_end - want.logical).min(u64::from(GROUP_BLOCKS)) as u32
    }

    /// Blocks of the region that small objects go to next.
    pub fn small_region(&self) -> u32 {
        self.packing.rest().blocks
    }

    /// The next `blocks` small objects' blocks will lie in a row, where there is such a run.
    pub fn prepare_small(&mut self, blocks: u32) -> Result<(), Refused> {
        let missing = blocks.min(GROUP_BLOCKS) > self.packing.rest().blocks;
        if missing {
            self.new_region(blocks.min(GROUP_BLOCKS), blocks.min(GROUP_BLOCKS))
        } else {
            Ok(())
        }
    }

    fn pack(&mut self, blocks: u32) -> Result<Placed, Refused> {
        if self.packing.rest().blocks < blocks {
            match self.new_region(blocks, blocks.max(self.options.packing_blocks)) {
                Err(Refused::Full) if self.packing.rest().blocks > 0 => {}
                result => result?,
            }
        }
        // A fragmented disk has no such run: then what there is.
        let blocks = blocks.min(self.packing.rest().blocks);
        self.statistics.packed += 1;
        self.packing.take(blocks).ok_or(Refused::Full)
    }

    /// Makes the region longer where it lies, if it then holds `needed`; or has another, of `blocks` if there
    /// is such a run.
    fn new_region(&mut self, needed: u32, blocks: u32) -> Result<(), Refused> {
        let rest = self.packing.rest();
        let goal = rest.end();
        let is_inside = goal.0 < self.blocks && goal.group() == rest.start.group();
        if is_inside && self.index.summary(goal.group()).free > 0 {
            let run = self
                .map(goal.group())?
                .run_at(goal.in_group(), blocks - rest.blocks);
            if rest.blocks + run >= needed {
                let added = self.take_in(goal.group(), Run::new(goal.in_group(), run));
                let region = Extent::new(rest.start, rest.blocks + added.blocks);
                let _same_blocks = self.packing.replace(region);
                return Ok(());
            }
        }
        let region = self.take_or_steal(blocks, None, rest.start.group())?;
        // The steal may have given the old rest back.
        let replaced = self.packing.replace(region);
        self.give(replaced);
        Ok(())
    }

    /// A run of up to `blocks`; where nothing is free, out of what is reserved.
    fn take_or_steal(
        &mut self,
        blocks: u32,
        goal: Option<Block>,
        from: Group,
    ) -> Result<Extent, Refused> {
        loop {
            match self.take_run(blocks, goal, from) {
                Err(Refused::Full) if self.give_back_oldest() => self.statistics.steals += 1,
                Err(Refused::Full) if self.packing.rest().blocks > 0 => {
                    self.statistics.steals += 1;
                    let rest = self.packing.release();
                    self.give(rest);
                }
                result => return result,
            }
        }
    }

    /// A run of `blocks`, or the best shorter one: behind `goal`, in its group, in the next group from `from`
    /// on that has one.
    fn take_run(
        &mut self,
        blocks: u32,
        goal: Option<Block>,
        from: Group,
    ) -> Result<Extent, Refused> {
        let level = level_for(blocks);
        if let Some(goal) = goal.filter(|goal| goal.0 < self.blocks) {
            let group = goal.group();
            let is_free_somewhere = self.index.summary(group).free > 0;
            if is_free_somewhere {
                let run = self.map(group)?.run_at(goal.in_group(), blocks);
                if run > 0 {
                    self.statistics.goal_hits += 1;
                    return Ok(self.taken(blocks, group, Run::new(goal.in_group(), run)));
                }
                if let Some(run) = self.map(group)?.find(blocks, goal.in_group()) {
                    return Ok(self.taken(blocks, group, run));
                }
            }
        }
        if let Some(group) = self.index.with_chunk(level, from) {
            let found = self.map(group)?.find(blocks, 0);
            if let Some(run) = found {
                return Ok(self.taken(blocks, group, run));
            }
        }
        let best = self.index.with_average(level, from);
        let group = best
            .or_else(|| self.index.with_largest(from))
            .ok_or(Refused::Full)?;
        let run = self
            .map(group)?
            .find_longest(blocks, 0)
            .ok_or(Refused::Full)?;
        Ok(self.taken(blocks, group, run))
    }

    fn map(&self, group: Group) -> Result<&GroupMap, Refused> {
        self.maps[group.0 as usize]
            .as_ref()
            .ok_or(Refused::Away(group))
    }

    fn taken(&mut self, wanted: u32, group: Group, run: Run) -> Extent {
        self.statistics.runs += 1;
        self.statistics.breaks += u64::from(run.blocks < wanted);
        self.take_in(group, run)
    }

    fn take_in(&mut self, group: Group, run: Run) -> Extent {
        if let Some(map) = &mut self.maps[group.0 as usize] {
            map.take(run);
            self.index.put(group, Summary::of(map));
        }
        Extent::new(group.block(run.start), run.blocks)
    }

    /// Gives back what lies in groups whose bitmaps are in memory, as all that is reserved does.
    fn give(&mut self, extent: Extent) {
        for part in extent.by_groups() {
            let group = part.start.group();
            if let Some(map) = &mut self.maps[group.0 as usize] {
                map.give(Run::new(part.start.in_group(), part.blocks));
                self.index.put(group, Summary::of(map));
            }
        }
    }

    fn give_back_oldest(&mut self) -> bool {
        let Some((owner, _)) = self.windows.oldest() else {
            return false;
        };
        self.release(owner);
        true
    }

    /// The object grows no more: its windows are free again.
    pub fn release(&mut self, owner: Owner) {
        for place in self.windows.release(owner) {
            self.give(place);
        }
    }

    /// Gives back windows that nobody used for `idle`.
    pub fn expire(&mut self, now: Tick, idle: Duration) {
        while let Some((owner, used)) = self.windows.oldest() {
            if now.since(used) < idle {
                return;
            }
            self.release(owner);
        }
    }

    /// Gives back all that is reserved; the next small object still goes behind the last one.
    pub fn release_all(&mut self) {
        while self.give_back_oldest() {}
        let rest = self.packing.release();
        self.give(rest);
    }

    /// Checks that `extent` is on the disk, with all bitmaps in memory.
    fn check(&self, extent: Extent, is_free: bool) -> Result<(), Refused> {
        if extent.end().0 > self.blocks || extent.end().0 < extent.start.0 {
            return Err(Refused::OutOfRange);
        }
        for part in extent.by_groups() {
            let run = Run::new(part.start.in_group(), part.blocks);
            let map = self.map(part.start.group())?;
            let is_so = if is_free {
                map.is_free(run)
            } else {
                map.is_used(run)
            };
            if !is_so {
                return Err(Refused::OutOfRange);
            }
        }
        Ok(())
    }

    /// These blocks are free again. Refused if one of them is free already.
    pub fn free(&mut self, extent: Extent) -> Result<(), Refused> {
        self.check(extent, false)?;
        self.give(extent);
        Ok(())
    }

    /// These blocks are in use, as a record says. Refused if one of them is not free.
    pub fn mark_used(&mut self, extent: Extent) -> Result<(), Refused> {
        self.check(extent, true)?;
        for part in extent.by_groups() {
            let run = Run::new(part.start.in_group(), part.blocks);
            self.take_in(part.start.group(), run);
        }
        Ok(())
    }

    /// A block is free and not reserved; `None` where its group's bitmap is not in memory.
    pub fn is_free(&self, block: Block) -> Option<bool> {
        let map = self.map(block.group()).ok()?;
        Some(map.is_free(Run::new(block.in_group(), 1)))
    }

    /// All reserved extents: no block of them is free, and no two share one.
    pub fn reserved(&self) -> Vec<Extent> {
        let windows = self.windows.iter().map(|window| window.place);
        let all = windows.chain([self.packing.rest()]);
        all.filter(|place| place.blocks > 0).collect()
    }

    /// Everything kept besides the bitmaps agrees with them: for tests.
    pub fn is_consistent(&self) -> bool {
        let maps = self.maps.iter().enumerate();
        let mut anew = Index::new(self.maps.len());
        let mut sound = true;
        for (group, map) in maps {
            let group = Group(group as u32);
            let summary = map.as_ref().map_or(self.index.summary(group), Summary::of);
            sound &= map.as_ref().is_none_or(GroupMap::is_consistent);
            anew.put(group, summary);
        }
        let mut reserved = self.reserved();
        reserved.sort();
        let apart = reserved.windows(2).all(|two| !two[0].overlaps(two[1]));
        let total: u64 = reserved.iter().map(|place| u64::from(place.blocks)).sum();
        sound && apart && anew == self.index && total == self.reserved_blocks()
    }
}
