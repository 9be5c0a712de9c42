//! Where things go: streams, small objects, goals, full and fragmented disks.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::time::Duration;

use allocator::{
    Allocator, Block, Extent, GROUP_BLOCKS, Group, Length, Options, Owner, Refused, Want,
};
use base::Tick;

const NOW: Tick = Tick(0);

fn groups(count: u32) -> u64 {
    u64::from(count) * u64::from(GROUP_BLOCKS)
}

/// Places `blocks` of `owner` from `logical` on, and says where, with neighbours joined.
fn place(
    allocator: &mut Allocator,
    owner: u128,
    logical: u64,
    blocks: u32,
    length: Length,
) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let (mut at, mut left) = (logical, blocks);
    while left > 0 {
        let goal = extents.last().map(|last| last.end());
        let want = Want {
            owner: Owner(owner),
            logical: at,
            blocks: left,
            length,
            goal,
        };
        let extent = allocator.place(NOW, &want).unwrap();
        at += u64::from(extent.blocks);
        left -= extent.blocks;
        join(&mut extents, extent);
    }
    extents
}

fn join(extents: &mut Vec<Extent>, extent: Extent) {
    match extents.last_mut() {
        Some(last) if last.end() == extent.start => last.blocks += extent.blocks,
        _ => extents.push(extent),
    }
}

fn with_table(table: &str, disk_groups: u32) -> Allocator {
    let options = Options {
        table: table.parse().unwrap(),
        ..Options::default()
    };
    Allocator::empty(groups(disk_groups), options)
}

/// Every block is used but those that `is_free` names.
fn with_free(disk_groups: u32, is_free: impl Fn(u64) -> bool) -> Allocator {
    let mut allocator = Allocator::empty(groups(disk_groups), Options::default());
    for block in (0..groups(disk_groups)).filter(|block| !is_free(*block)) {
        allocator.mark_used(Extent::new(Block(block), 1)).unwrap();
    }
    allocator
}

#[test]
fn twenty_streams_written_at_once_lie_in_runs_of_their_windows() {
    for window in [256, 512, 1024, 2048] {
        let mut allocator = with_table(&format!("{window}"), 8);
        let mut streams = vec![Vec::new(); 20];
        for turn in 0..40 {
            for (owner, extents) in streams.iter_mut().enumerate() {
                let logical = turn * 256;
                let length = Length::Open(logical);
                let goal = extents.last().map(|last: &Extent| last.end());
                let want = Want {
                    owner: Owner(owner as u128),
                    logical,
                    blocks: 256,
                    length,
                    goal,
                };
                let extent = allocator.place(NOW, &want).unwrap();
                assert_eq!(extent.blocks, 256);
                join(extents, extent);
            }
        }
        let all = streams
            .iter()
            .flatten()
            .filter(|extent| extent.blocks == window);
        let in_windows: u64 = all.map(|extent| u64::from(extent.blocks)).sum();
        assert!(
            in_windows * 10 >= 9 * 20 * 40 * 256,
            "{window}: {in_windows}"
        );
        assert!(allocator.is_consistent());
    }
}

#[test]
fn an_object_whose_length_is_known_is_one_extent_whatever_the_table_says() {
    let mut allocator = with_table("16", 2);
    let length = Length::Known(10_000);
    let mut extents = Vec::new();
    for turn in 0..40 {
        // Others are written meanwhile.
        place(&mut allocator, 100 + turn, 0, 20, Length::Open(0));
        for extent in place(&mut allocator, 1, u64::from(turn as u32) * 250, 250, length) {
            join(&mut extents, extent);
        }
    }
    assert_eq!(extents.len(), 1, "{extents:?}");
}

#[test]
fn small_objects_of_a_batch_lie_in_a_row_beside_streams() {
    let mut allocator = with_table("256", 4);
    let mut next = None;
    allocator.prepare_small(2000).unwrap();
    for number in 0..500 {
        place(
            &mut allocator,
            1,
            number * 256,
            256,
            Length::Open(number * 256),
        );
        let extents = place(
            &mut allocator,
            10 + u128::from(number),
            0,
            4,
            Length::Known(4),
        );
        assert_eq!((extents.len(), extents[0].blocks), (1, 4));
        assert!(
            next.is_none_or(|next| extents[0].start == next),
            "small object {number}"
        );
        next = Some(extents[0].end());
    }
    // And the next batch goes on behind, also after all was given back, as a restart does.
    allocator.release_all();
    let cursor = allocator.cursors().small;
    assert_eq!(Some(cursor), next);
    let extents = place(&mut allocator, 9, 0, 4, Length::Known(4));
    assert_eq!(extents[0].start, cursor);
}

#[test]
fn a_window_that_is_given_back_leaves_no_hole_behind() {
    let mut allocator = with_table("512", 1);
    // A packed object costs no 2 MiB of its own, however often the target is restarted.
    for start in 0..64 {
        place(&mut allocator, start, 0, 4, Length::Known(4));
        allocator.release_all();
    }
    let report = allocator.report(Group(0)).unwrap();
    assert_eq!((report.free, report.runs), (GROUP_BLOCKS - 256, 1));
    place(&mut allocator, 1, 0, 1, Length::Open(0));
    assert_eq!(allocator.reserved_blocks(), 511);
    allocator.expire(
        Tick(0).after(Duration::from_secs(9)),
        Duration::from_secs(10),
    );
    assert_eq!(allocator.reserved_blocks(), 511);
    allocator.expire(
        Tick(0).after(Duration::from_secs(10)),
        Duration::from_secs(10),
    );
    assert_eq!(allocator.reserved_blocks(), 0);
}

#[test]
fn the_last_group_goes_round_the_disk_and_can_be_set() {
    let mut allocator = with_table("32768", 4);
    let mut place_group = |owner| {
        let extents = place(&mut allocator, owner, 0, GROUP_BLOCKS, Length::Open(0));
        (extents.len(), extents[0].start.group().0)
    };
    assert_eq!([1, 2].map(&mut place_group), [(1, 0), (1, 1)]);
    allocator.set_last_group(Group(3)).unwrap();
    assert_eq!(allocator.set_last_group(Group(4)), Err(Refused::OutOfRange));
    let mut place_group = |owner| {
        place(&mut allocator, owner, 0, GROUP_BLOCKS, Length::Open(0))[0]
            .start
            .group()
            .0
    };
    assert_eq!([3, 4].map(&mut place_group), [3, 2]);
    assert_eq!(allocator.cursors().stream, Group(2));
}

#[test]
fn a_full_disk_is_full_at_its_last_block_and_not_before() {
    let mut allocator = Allocator::empty(groups(1) + 100, Options::default());
    // Another has a window, and small objects their region: both are taken back.
    place(&mut allocator, 1, 0, 1, Length::Open(0));
    place(&mut allocator, 2, 0, 1, Length::Known(1));
    let extents = place(&mut allocator, 3, 0, GROUP_BLOCKS + 98, Length::Open(0));
    assert_eq!(
        (allocator.free_blocks(), allocator.reserved_blocks()),
        (0, 0)
    );
    assert!(allocator.statistics().steals >= 2);
    let want = Want {
        owner: Owner(4),
        logical: 0,
        blocks: 1,
        length: Length::Open(0),
        goal: None,
    };
    assert_eq!(allocator.place(NOW, &want), Err(Refused::Full));
    let small = Want {
        length: Length::Known(1),
        ..want
    };
    assert_eq!(allocator.place(NOW, &small), Err(Refused::Full));
    allocator.free(extents[0]).unwrap();
    assert_eq!(
        allocator.free(extents[0]),
        Err(Refused::OutOfRange),
        "freed twice"
    );
    assert!(allocator.place(NOW, &small).is_ok());
    assert!(allocator.is_consistent());
}

#[test]
fn a_fragmented_disk_gives_several_extents_and_no_error() {
    // A checkerboard, and one run in it that is no power of two and not aligned.
    let mut allocator = with_free(2, |block| block % 2 == 0 || (1001..1301).contains(&block));
    let extents = place(&mut allocator, 1, 0, 256, Length::Open(1 << 20));
    assert_eq!(extents.len(), 1, "{extents:?}");
    allocator.release(Owner(1));
    let extents = place(&mut allocator, 2, 0, 1000, Length::Known(1000));
    assert!(extents.len() <= 1000 && extents.iter().any(|extent| extent.blocks > 20));
    assert!(allocator.is_consistent());
}

#[test]
fn a_group_is_reported_as_mb_groups_does() {
    let allocator = with_free(1, |block| {
        (8..16).contains(&block) || block == 17 || block >= 16_384
    });
    let report = allocator.report(Group(0)).unwrap();
    let line = report.to_string();
    let words: Vec<&str> = line.split_whitespace().collect();
    // Free, runs, the first free block; chunks of 1, 2, 4 … 8192 blocks.
    let expected = "#0 : 16393 3 8 [ 1 0 0 1 0 0 0 0 0 0 0 0 0 2 ]";
    assert_eq!(words.join(" "), expected);
}
