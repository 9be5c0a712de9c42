//! What is asked for ahead of walkers of several kinds.

use super::*;

const PLENTY: u64 = 100_000;
const ROOT: Fid = Fid(1 << 24);
const NOW: Tick = Tick(0);

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
        Step::Ask(stretch) => Some(stretch),
        Step::Alone | Step::Wait(_) => None,
    }
}

/// A walk that has begun at the first directory; `directories` came, each with ten entries.
fn begun(directories: u32) -> (Trees, WalkId) {
    let mut trees = Trees::default();
    let stretch = asked(trees.missed(place(1), PLENTY, NOW)).expect("the first one below");
    let next = vec![level(ROOT, u64::from(directories) * 10, true)];
    trees.came(stretch.walk, directories, u64::from(directories) * 10, next);
    (trees, stretch.walk)
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
        asked(trees.missed(place(1), 0, NOW)).is_none(),
        "switched off"
    );
}

#[test]
fn stretches_grow_while_what_came_is_read_and_one_is_under_way_at_a_time() {
    let (mut trees, walk) = begun(4);
    assert_eq!(
        trees.read(walk, 10, PLENTY, NOW),
        None,
        "this one was asked for"
    );
    let mut sizes = Vec::new();
    for _ in 0..5 {
        let more = trees.read(walk, 10, PLENTY, NOW).expect("guessed right");
        sizes.push(more.bytes);
        assert_eq!(trees.read(walk, 10, PLENTY, NOW), None, "one at a time");
        trees.came(walk, 4, 40, vec![level(ROOT, 100, true)]);
    }
    assert_eq!(sizes, [256 << 10, 1 << 20, 4 << 20, 4 << 20, 4 << 20]);
}

#[test]
fn what_is_ahead_and_not_read_is_bounded() {
    let (mut trees, walk) = begun(4);
    trees.came(walk, 10, 1000, vec![level(ROOT, 100, true)]);
    trees.read(walk, 10, PLENTY, NOW);
    assert_eq!(trees.read(walk, 10, PLENTY, NOW), None, "a window is ahead");
    (0..7).for_each(|_| drop(trees.read(walk, 100, 300, NOW)));
    assert_eq!(trees.read(walk, 100, 300, NOW), None, "it may not be more");
    assert!(trees.read(walk, 100, PLENTY, NOW).is_some());
}

#[test]
fn who_comes_to_what_is_on_its_way_waits_and_others_do_not() {
    let (mut trees, walk) = begun(4);
    trees.read(walk, 10, PLENTY, NOW);
    trees.read(walk, 10, PLENTY, NOW).expect("under way");
    assert!(matches!(trees.missed(place(5), PLENTY, NOW), Step::Wait(_)));
    assert!(matches!(trees.missed(place(2), PLENTY, NOW), Step::Alone));
    trees.failed(walk);
    assert!(matches!(trees.missed(place(5), PLENTY, NOW), Step::Ask(_)));
}

#[test]
fn a_walker_that_turns_is_followed_and_one_that_jumps_about_is_not() {
    let (mut trees, walk) = begun(4);
    (0..3).for_each(|_| drop(trees.read(walk, 10, 0, NOW)));
    let turned = asked(trees.missed(place(90), PLENTY, NOW)).expect("followed");
    assert_eq!(turned.levels, place(90).levels);
    let mut bytes = Vec::new();
    for n in (10..80).rev() {
        trees.came(walk, 4, 40, vec![level(ROOT, 900, true)]);
        bytes.extend(asked(trees.missed(place(n), PLENTY, NOW)).map(|stretch| stretch.bytes));
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
    trees.came(
        walk,
        1,
        500,
        vec![level(ROOT, 20, true), level(child(2), 777, false)],
    );
    assert!(trees.lists(child(2)) && !trees.lists(child(1)));
    let mut middle = place(2);
    middle.levels[1].cookie = 777;
    let stretch = asked(trees.missed(middle.clone(), PLENTY, NOW)).expect("goes on");
    assert_eq!(stretch.levels.last(), middle.levels.last());
    trees.failed(walk);
    assert!(matches!(trees.missed(middle, PLENTY, NOW), Step::Alone));
}

#[test]
fn a_walk_is_forgotten_with_its_walker() {
    let (mut trees, walk) = begun(4);
    let later = NOW.after(IDLE);
    assert!(matches!(
        trees.missed(place(50), PLENTY, later),
        Step::Alone
    ));
    assert_eq!(trees.read(walk, 10, PLENTY, later), None);
}
