//! Random lists of operations, compared with a bitmap after each step.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::time::Duration;

use allocator::{
    Allocator, Block, Cursors, Extent, GROUP_BLOCKS, GROUP_WORDS, Group, Length, Options, Owner,
    Refused, Reuse, Summary, Want,
};
use base::{Rng, SeededRng, Tick};

/// A disk as simple as can be, beside the allocator.
struct Rig {
    allocator: Allocator,
    used: Vec<bool>,
    /// Blocks that are not used.
    free: u64,
    objects: Vec<Object>,
    rng: SeededRng,
    now: Tick,
    /// Bitmaps that were asked for.
    loads: u64,
}

#[derive(Default, Clone)]
struct Object {
    extents: Vec<Extent>,
    blocks: u64,
}

impl Rig {
    fn new(blocks: u64, objects: usize, seed: u64) -> Rig {
        let mut allocator = Allocator::new(blocks, Cursors::default(), small_regions());
        for group in 0..allocator.groups() {
            let there = (blocks - Group(group).block(0).0).min(u64::from(GROUP_BLOCKS)) as u32;
            let levels = there.ilog2() as u8 + 1;
            let summary = Summary {
                free: there,
                runs: 1,
                levels,
            };
            allocator.summarize(Group(group), summary);
        }
        Rig {
            allocator,
            used: vec![false; blocks as usize],
            free: blocks,
            objects: vec![Object::default(); objects],
            rng: SeededRng::new(seed),
            now: Tick(0),
            loads: 0,
        }
    }

    /// A group's blocks that objects have.
    fn words(&self, group: Group) -> [u64; GROUP_WORDS] {
        let mut words = [0; GROUP_WORDS];
        let start = group.block(0).0 as usize;
        let end = self.used.len().min(start + GROUP_BLOCKS as usize);
        for (at, used) in self.used[start..end].iter().enumerate() {
            words[at / 64] |= u64::from(*used) << (at % 64);
        }
        words
    }

    fn load(&mut self, group: Group) {
        self.loads += 1;
        let words = self.words(group);
        let summary = self.allocator.summary(group);
        self.allocator.load(group, &words);
        assert_eq!(
            self.allocator.summary(group),
            summary,
            "what was known of {group:?}"
        );
    }

    /// Does it, with bitmaps loaded as they are asked for.
    fn with_maps<T>(
        &mut self,
        mut step: impl FnMut(&mut Allocator) -> Result<T, Refused>,
    ) -> Option<T> {
        loop {
            match step(&mut self.allocator) {
                Ok(done) => return Some(done),
                Err(Refused::Away(group)) => self.load(group),
                Err(Refused::Full) => return None,
                Err(Refused::OutOfRange) => panic!("out of range"),
            }
        }
    }

    fn grow(&mut self, number: usize) {
        let object = &self.objects[number];
        let mut blocks = match self.rng.below(4) {
            0 => 1,
            1 => 1 + self.rng.below(16),
            _ => 1 + self.rng.below(300),
        };
        let mut logical = object.blocks
            + if self.rng.below(8) == 0 {
                self.rng.below(100)
            } else {
                0
            };
        let length = match self.rng.below(3) {
            0 => Length::Known(logical + blocks),
            1 => Length::Known(logical + blocks + self.rng.below(2000)),
            _ => Length::Open(object.blocks),
        };
        while blocks > 0 {
            let goal = self.objects[number].extents.last().map(|last| last.end());
            let want = Want {
                owner: Owner(number as u128),
                logical,
                blocks: blocks as u32,
                length,
                goal,
            };
            let now = self.now;
            let Some(extent) = self.with_maps(|allocator| allocator.place(now, &want)) else {
                let free = self.used.iter().filter(|used| !**used).count();
                assert_eq!(
                    (free, self.allocator.free_blocks()),
                    (0, 0),
                    "full before it is"
                );
                return;
            };
            assert!((1..=blocks).contains(&u64::from(extent.blocks)), "{extent}");
            self.set(extent, true);
            self.objects[number].extents.push(extent);
            logical += u64::from(extent.blocks);
            blocks -= u64::from(extent.blocks);
            self.objects[number].blocks = logical;
        }
    }

    fn set(&mut self, extent: Extent, used: bool) {
        for block in extent.start.0..extent.end().0 {
            assert_ne!(self.used[block as usize], used, "block {block} of {extent}");
            self.used[block as usize] = used;
        }
        let blocks = u64::from(extent.blocks);
        self.free = if used {
            self.free - blocks
        } else {
            self.free + blocks
        };
    }

    fn free(&mut self, extent: Extent) {
        self.with_maps(|allocator| allocator.free(extent)).unwrap();
        self.set(extent, false);
    }

    fn step(&mut self) {
        self.now = self.now.after(Duration::from_millis(self.rng.below(50)));
        let number = self.rng.below(self.objects.len() as u64) as usize;
        match self.rng.below(20) {
            0..=10 => self.grow(number),
            11..=14 => {
                let object = std::mem::take(&mut self.objects[number]);
                self.allocator.release(Owner(number as u128));
                object
                    .extents
                    .into_iter()
                    .for_each(|extent| self.free(extent));
            }
            15 => {
                let object = &mut self.objects[number];
                let at = self.rng.below(object.extents.len() as u64 + 1) as usize;
                let cut = object.extents.split_off(at);
                cut.into_iter().for_each(|extent| self.free(extent));
            }
            16 => self.allocator.release(Owner(number as u128)),
            17 => self.allocator.expire(self.now, Duration::from_millis(700)),
            18 => {
                let group = Group(self.rng.below(u64::from(self.allocator.groups())) as u32);
                match self.rng.below(2) {
                    0 => {
                        let words = self.words(group);
                        self.allocator.unload(group, &words);
                    }
                    _ => self.allocator.set_last_group(group).unwrap(),
                }
            }
            _ => {
                let blocks = 1 + self.rng.below(200) as u32;
                let _ = self.with_maps(|allocator| allocator.prepare_small(blocks));
            }
        }
    }

    /// What is cheap to compare.
    fn check_counts(&self) {
        let counted = self.allocator.free_blocks() + self.allocator.reserved_blocks();
        assert_eq!(self.free, counted);
    }

    /// Everything.
    fn check(&self) {
        self.check_counts();
        assert!(self.allocator.is_consistent());
        let mut free = self.used.iter().map(|used| !used).collect::<Vec<_>>();
        for place in self.allocator.reserved() {
            for block in place.start.0..place.end().0 {
                assert!(free[block as usize], "{place} is reserved and in use");
                free[block as usize] = false;
            }
        }
        for (block, free) in free.into_iter().enumerate() {
            let found = self.allocator.is_free(Block(block as u64));
            assert!(found.is_none_or(|found| found == free), "block {block}");
        }
    }
}

fn small_regions() -> Options {
    Options {
        owners_max: 12,
        packing_blocks: 64,
        ..Options::default()
    }
}

#[test]
fn every_step_agrees_with_a_bitmap() {
    let mut loads = 0;
    for seed in 0..6 {
        // The last group is a part of one.
        let mut rig = Rig::new(u64::from(GROUP_BLOCKS) * 2 + 777, 24, seed);
        for _ in 0..200 {
            rig.step();
            rig.check();
        }
        loads += rig.loads;
        rig.allocator.release_all();
        rig.check();
        assert_eq!(rig.allocator.reserved_blocks(), 0);
    }
    assert!(
        loads > 6,
        "bitmaps are loaded when they are needed: {loads}"
    );
}

fn long_run(steps: u64, seed: u64) {
    let mut rig = Rig::new(u64::from(GROUP_BLOCKS) * 12 + 12_345, 3000, seed);
    let mut fullest = u64::MAX;
    for step in 0..steps {
        rig.step();
        fullest = fullest.min(rig.allocator.free_blocks());
        if step % (steps / 50) == 0 {
            rig.check();
        }
    }
    rig.check();
    assert_eq!(fullest, 0, "it was never full");
    let statistics = rig.allocator.statistics();
    assert!(statistics.steals > 0 && statistics.packed > 0 && statistics.goal_hits > 0);
}

#[test]
fn long_lists_of_operations_end_as_a_bitmap_says() {
    long_run(20_000, 1);
}

/// `make soak`.
#[test]
#[ignore = "takes a minute"]
fn soak_a_million_operations_end_as_a_bitmap_says() {
    for seed in 2..6 {
        long_run(1_000_000, seed);
    }
}

#[test]
fn freed_blocks_come_back_after_their_commit_and_never_before() {
    let mut rig = Rig::new(u64::from(GROUP_BLOCKS) + 5, 8, 9);
    let mut reuse = Reuse::default();
    let (mut ticket, mut ios) = (0, Vec::new());
    for _ in 0..3000 {
        let number = rig.rng.below(8) as usize;
        match rig.rng.below(6) {
            0..=2 => {
                let want = Want {
                    owner: Owner(number as u128),
                    logical: rig.objects[number].blocks,
                    blocks: 1 + rig.rng.below(400) as u32,
                    length: Length::Open(0),
                    goal: None,
                };
                let now = rig.now;
                if let Some(extent) = rig.with_maps(|allocator| allocator.place(now, &want)) {
                    rig.set(extent, true);
                    rig.objects[number].extents.push(extent);
                    rig.objects[number].blocks += u64::from(extent.blocks);
                }
            }
            3 => {
                let object = std::mem::take(&mut rig.objects[number]);
                rig.allocator.release(Owner(number as u128));
                ticket += 1;
                reuse.freed(ticket, object.extents);
            }
            4 => ios.push(reuse.begin()),
            _ => {
                reuse.durable(ticket.saturating_sub(rig.rng.below(3)));
                if let Some(io) = ios.pop() {
                    reuse.end(io);
                }
                while let Some(extents) = reuse.ready() {
                    extents.into_iter().for_each(|extent| rig.free(extent));
                }
            }
        }
        // What waits is still in use for the bitmap.
        rig.check_counts();
    }
}
