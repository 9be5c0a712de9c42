//! What is asked for ahead of readers of several kinds.

use super::*;

const PLENTY: Reach = near(100_000);
const ROOT: Fid = Fid(1 << 24);
const NOW: Tick = Tick(0);

/// From a server next door.
const fn near(entries_max: u64) -> Reach {
    Reach {
        entries_max,
        round_trip: Duration::ZERO,
    }
}

fn level(dir: Fid, cookie: u64, listed: bool) -> WalkLevel {
    WalkLevel {
        dir,
        cookie,
        listed,
    }
}

/// The `n`th directory below the root.
fn child(n: u64) -> Fid {
    Fid(ROOT.0 + n)
}

fn place(n: u64) -> Place {
    Place {
        levels: vec![level(ROOT, n * 10, true), level(child(n), 0, false)],
        is_first: (n == 1).then_some(WalkOrder::Cookie),
    }
}

fn asked(step: Step) -> Option<Stretch> {
    match step {
        Step::Ask(asked) => Some(asked.needed),
        Step::Alone | Step::Wait(_) => None,
    }
}

fn part(directories: u32, entries: u64, next: Vec<WalkLevel>) -> TreePart {
    TreePart {
        directories,
        entries,
        next,
        order: WalkOrder::Cookie,
    }
}

/// A walk that has begun at the first directory; `directories` came, each with ten entries.
fn begun(directories: u32) -> (Trees, WalkId) {
    let mut trees = Trees::default();
    let stretch = asked(trees.missed(place(1), PLENTY, NOW)).expect("the first one below");
    let next = vec![level(ROOT, u64::from(directories) * 10, true)];
    trees.came(
        &stretch,
        part(directories, u64::from(directories) * 10, next),
    );
    (trees, stretch.walk)
}

/// A directory without any below it.
fn visit(entries: u64) -> Visit {
    Visit {
        dir: child(0),
        parent: ROOT,
        has_subdirectories: false,
        entries,
    }
}

/// `count` more directories are read. What is asked for meanwhile.
fn read(trees: &mut Trees, walk: WalkId, count: u32) -> Vec<Stretch> {
    let reads = (0..count).filter_map(|_| trees.read(walk, visit(10), PLENTY, NOW));
    reads.collect()
}

#[test]
fn the_first_directory_below_begins_a_walk_and_so_does_a_second_one() {
    let mut trees = Trees::default();
    let stretch = asked(trees.missed(place(1), PLENTY, NOW)).expect("a walk");
    assert_eq!(stretch.levels, place(1).levels);
    assert_eq!(stretch.bytes, STRETCH_BYTES_FIRST);
    let mut trees = Trees::default();
    assert!(asked(trees.missed(place(7), PLENTY, NOW)).is_none());
    assert!(asked(trees.missed(place(3), PLENTY, NOW)).is_some());
    let mut trees = Trees::default();
    assert!(
        asked(trees.missed(place(1), near(0), NOW)).is_none(),
        "switched off"
    );
}

#[test]
fn stretches_grow_while_what_came_is_read() {
    let (mut trees, walk) = begun(12);
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let more = loop {
            if let Some(more) = trees.read(walk, visit(10), PLENTY, NOW) {
                break more;
            }
        };
        sizes.push(more.bytes);
        trees.came(&more, part(1, 10, vec![level(ROOT, 100, true)]));
    }
    assert_eq!(sizes, [256 << 10, 1 << 20, 4 << 20, 4 << 20, 4 << 20]);
}

#[test]
fn the_next_stretches_are_asked_for_before_the_one_before_has_come_once_a_good_part_is_read() {
    let (mut trees, walk) = begun(12);
    assert!(
        read(&mut trees, walk, 1).is_empty(),
        "this one was asked for"
    );
    let second = read(&mut trees, walk, 1);
    assert_eq!(second[0].levels, [level(ROOT, 120, true)]);
    assert!(read(&mut trees, walk, 1).is_empty(), "a quarter is read");
    let third = read(&mut trees, walk, 1);
    assert_eq!(
        (third[0].levels.len(), third[0].bytes),
        (0, 1 << 20),
        "it follows"
    );
    let fourth = read(&mut trees, walk, 4);
    assert_eq!((fourth.len(), fourth[0].chain), (1, second[0].chain));
    assert!(read(&mut trees, walk, 4).is_empty(), "three are enough");
    // The answers are taken in at the same time.
    trees.came(&third[0], part(40, 400, vec![level(ROOT, 900, true)]));
    trees.came(&second[0], part(10, 100, vec![level(ROOT, 300, true)]));
    trees.failed(&fourth[0]);
    let more = read(&mut trees, walk, 40);
    assert_eq!(
        more[0].levels,
        [level(ROOT, 900, true)],
        "where the last one ends"
    );
}

#[test]
fn what_is_ahead_and_not_read_is_bounded() {
    let (mut trees, walk) = begun(4);
    let first = read(&mut trees, walk, 2).remove(0);
    trees.came(&first, part(10, 1000, vec![level(ROOT, 100, true)]));
    trees.read(walk, visit(10), PLENTY, NOW);
    assert_eq!(
        trees.read(walk, visit(10), near(1000), NOW),
        None,
        "a window is ahead"
    );
    (0..7).for_each(|_| drop(trees.read(walk, visit(100), near(300), NOW)));
    assert_eq!(
        trees.read(walk, visit(100), near(300), NOW),
        None,
        "it may not be more"
    );
    assert!(trees.read(walk, visit(100), PLENTY, NOW).is_some());
}

#[test]
fn who_comes_to_what_is_on_its_way_waits_and_others_do_not() {
    let (mut trees, walk) = begun(4);
    let stretch = read(&mut trees, walk, 2).remove(0);
    assert!(matches!(trees.missed(place(5), PLENTY, NOW), Step::Wait(_)));
    assert!(matches!(trees.missed(place(2), PLENTY, NOW), Step::Alone));
    trees.failed(&stretch);
    assert!(matches!(trees.missed(place(5), PLENTY, NOW), Step::Ask(_)));
}

#[test]
fn a_reader_that_turns_while_more_is_on_its_way_ends_that() {
    let (mut trees, walk) = begun(4);
    let old = read(&mut trees, walk, 2).remove(0);
    assert!(matches!(trees.missed(place(2), PLENTY, NOW), Step::Alone));
    let new = asked(trees.missed(place(3), PLENTY, NOW)).expect("it has turned");
    assert_eq!((new.instead_of, new.levels), (old.chain, place(3).levels));
    // What comes yet of the old one does not tell where the new one is.
    trees.came(&old, part(0, 0, Vec::new()));
    assert!(matches!(trees.missed(place(3), PLENTY, NOW), Step::Wait(_)));
}

#[test]
fn a_reader_that_turns_is_followed_and_one_that_jumps_about_is_not() {
    let (mut trees, walk) = begun(4);
    (0..3).for_each(|_| drop(trees.read(walk, visit(10), near(0), NOW)));
    let mut turned = asked(trees.missed(place(90), PLENTY, NOW)).expect("followed");
    assert_eq!(turned.levels, place(90).levels);
    let mut bytes = Vec::new();
    for n in (10..80).rev() {
        trees.came(&turned, part(4, 40, vec![level(ROOT, 900, true)]));
        let Some(stretch) = asked(trees.missed(place(n), PLENTY, NOW)) else {
            break;
        };
        bytes.push(stretch.bytes);
        turned = stretch;
    }
    assert_eq!(
        bytes,
        [32 << 10, 16 << 10],
        "less each time, and then nothing"
    );
}

#[test]
fn the_rest_of_a_long_directory_comes_with_the_walk() {
    let (mut trees, walk) = begun(1);
    let stretch = read(&mut trees, walk, 2).remove(0);
    let next = vec![level(ROOT, 20, true), level(child(2), 777, false)];
    trees.came(&stretch, part(1, 500, next));
    assert!(trees.lists(child(2)) && !trees.lists(child(1)));
    let mut middle = place(2);
    middle.levels[1].cookie = 777;
    let stretch = asked(trees.missed(middle.clone(), PLENTY, NOW)).expect("goes on");
    assert_eq!(stretch.levels.last(), middle.levels.last());
    trees.failed(&stretch);
    assert!(matches!(trees.missed(middle, PLENTY, NOW), Step::Alone));
}

#[test]
fn while_a_long_directory_is_read_its_rest_is_asked_for() {
    let (mut trees, walk) = begun(1);
    let stretch = read(&mut trees, walk, 2).remove(0);
    let rest = vec![level(ROOT, 20, true), level(child(2), 777, false)];
    trees.came(&stretch, part(1, 1500, rest.clone()));
    let within = |trees: &mut Trees, left| trees.within(child(2), left, PLENTY, NOW);
    assert_eq!(within(&mut trees, 2000), None, "enough is at hand");
    let more = within(&mut trees, 1000).expect("soon needed");
    assert_eq!((more.levels, more.bytes), (rest, 1 << 20));
    assert_eq!(within(&mut trees, 100), None, "it is on its way");
    assert_eq!(trees.within(child(1), 0, PLENTY, NOW), None);
}

#[test]
fn a_walk_is_forgotten_with_its_reader() {
    let (mut trees, walk) = begun(4);
    let later = NOW.after(IDLE);
    assert!(matches!(
        trees.missed(place(50), PLENTY, later),
        Step::Alone
    ));
    assert_eq!(trees.read(walk, visit(10), PLENTY, later), None);
}

/// The directory that these numbers lead to from the root.
fn along(path: &[u64]) -> Place {
    let dir = |depth: usize| match depth {
        0 => ROOT,
        _ => child(path[..depth].iter().fold(1, |all, n| all * 100 + n)),
    };
    let level = |depth: usize| match path.get(depth) {
        Some(n) => level(dir(depth), n * 10, true),
        None => level(dir(depth), 0, false),
    };
    Place {
        levels: (0..=path.len()).map(level).collect(),
        is_first: (path == [1]).then_some(WalkOrder::Cookie),
    }
}

#[test]
fn who_leaves_what_is_below_for_later_is_followed_by_depth() {
    let mut trees = Trees::default();
    let first = asked(trees.missed(along(&[1]), PLENTY, NOW)).expect("a walk");
    trees.came(&first, part(9, 90, along(&[1, 2, 3]).levels));
    let above = Visit {
        dir: along(&[1]).levels[1].dir,
        has_subdirectories: true,
        ..visit(10)
    };
    trees.read(first.walk, above, PLENTY, NOW);
    let turned = asked(trees.missed(along(&[5]), PLENTY, NOW)).expect("it goes by depth");
    let by_depth = |depth, deeper| WalkOrder::Breadth { depth, deeper };
    assert_eq!(turned.order, by_depth(1, true));
    assert_eq!(turned.levels, along(&[5]).levels);
    let mut next = along(&[3, 2]).levels;
    next.pop();
    let came = TreePart {
        order: by_depth(2, false),
        ..part(20, 200, next.clone())
    };
    trees.came(&turned, came);
    let more = read(&mut trees, first.walk, 2).remove(0);
    assert_eq!((more.levels, more.order), (next, by_depth(2, false)));
    let mut waits = |path: &[u64]| {
        read(&mut trees, first.walk, 1);
        matches!(trees.missed(along(path), PLENTY, NOW), Step::Wait(_))
    };
    assert!(waits(&[3, 4]) && waits(&[4, 1]) && waits(&[2, 1, 1]));
    assert!(!waits(&[3, 2]) && !waits(&[3, 1]) && !waits(&[2, 7]));
    assert!(!waits(&[7]) && !waits(&[4, 1, 1, 1]));
}

/// From a server at 200 ms.
const DISTANT: Reach = Reach {
    entries_max: 1 << 17,
    round_trip: Duration::from_millis(200),
};

/// A walk of a tree far away, whose first stretches are under way.
fn begun_far() -> (Trees, Asked) {
    let mut trees = Trees::default();
    match trees.missed(place(1), DISTANT, NOW) {
        Step::Ask(asked) => (trees, asked),
        Step::Alone | Step::Wait(_) => panic!("the first one below begins a walk"),
    }
}

#[test]
fn far_away_a_walk_begins_with_two_stretches_on_one_lane() {
    let (_, asked) = begun_far();
    let beyond = asked.beyond.expect("it is far");
    assert!(asked.needed.aside && beyond.aside, "one behind the other");
    assert_eq!(asked.needed.bytes, STRETCH_BYTES_FIRST);
    assert_eq!((beyond.bytes, beyond.number), (256 << 10, 2));
    assert_eq!((beyond.chain, beyond.levels), (asked.needed.chain, vec![]));
    let near = |round_trip| Reach {
        round_trip,
        ..DISTANT
    };
    for reach in [
        near(Duration::from_millis(5)),
        Reach {
            entries_max: 1000,
            ..DISTANT
        },
    ] {
        match Trees::default().missed(place(1), reach, NOW) {
            Step::Ask(asked) => assert!(asked.beyond.is_none() && !asked.needed.aside),
            Step::Alone | Step::Wait(_) => panic!("the first one below begins a walk"),
        }
    }
}

#[test]
fn far_away_more_is_asked_for_early_and_no_more_than_was_earned() {
    let (mut trees, Asked { needed, .. }) = begun_far();
    let entries = u64::from(STRETCH_BYTES_FIRST) / ENTRY_BYTES;
    trees.came(&needed, part(38, entries, vec![level(ROOT, 380, true)]));
    let mut reads = 0;
    let third = loop {
        reads += 1;
        if let Some(third) = trees.read(needed.walk, visit(10), DISTANT, NOW) {
            break third;
        }
    };
    assert_eq!((third.bytes, third.levels), (1 << 20, vec![]));
    let asked = u64::from(STRETCH_BYTES_FIRST) * (1 + 4 + 16);
    let earned = |reads| TRUST * reads * 10 * ENTRY_BYTES;
    assert!(
        earned(reads) >= asked && earned(reads - 2) < asked,
        "{reads}"
    );
}

#[test]
fn far_away_the_line_is_full_of_what_a_reader_reads_meanwhile() {
    let (mut trees, Asked { needed, beyond }) = begun_far();
    let mut under_way = VecDeque::from([needed.clone(), beyond.expect("it is far")]);
    let mut most = 0;
    for _ in 0..8 {
        let came = under_way.pop_front().expect("the line is never empty");
        let directories = came.bytes / (10 * ENTRY_BYTES as u32);
        let entries = u64::from(directories) * 10;
        let next = vec![level(ROOT, u64::from(came.number) * 1000, true)];
        trees.came(&came, part(directories, entries, next));
        for _ in 0..directories {
            under_way.extend(trees.read(needed.walk, visit(10), DISTANT, NOW));
            let bytes: u64 = under_way.iter().map(|one| u64::from(one.bytes)).sum();
            most = most.max(bytes);
            assert!(under_way.len() <= IN_FLIGHT_FAR_MAX as usize);
            assert!(bytes <= DISTANT.bytes_max());
        }
    }
    assert!(
        most >= DISTANT.line_bytes() && most <= DISTANT.line_bytes() + (4 << 20),
        "{most}"
    );
}

#[test]
fn close_by_no_more_is_ahead_however_much_may_be() {
    let most = |entries_max| {
        let (mut trees, walk) = begun(12);
        let reach = near(entries_max);
        let mut bytes = 0;
        for _ in 0..12 {
            bytes += trees
                .read(walk, visit(10), reach, NOW)
                .map_or(0, |more| more.bytes);
        }
        bytes
    };
    assert_eq!(most(NEAR_ENTRIES_MAX), most(1 << 24));
}
