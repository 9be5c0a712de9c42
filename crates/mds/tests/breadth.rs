//! Breadth-first walks of trees. SEMANTICS: op.walk

mod support;

use std::collections::{BTreeSet, VecDeque};

use base::limits::{WALK_BYTES_MAX, WALK_DEPTH_MAX};
use base::{ClientId, Fid, FsError, Rng, SeededRng};
use support::World;
use wire::FileKind;
use wire::mdt::{Page, Reply, Request, WalkLevel, WalkOrder};

/// Where a walk goes on.
type Cursor = (Vec<WalkLevel>, WalkOrder);

fn level(dir: Fid, cookie: u64, listed: bool) -> WalkLevel {
    WalkLevel {
        dir,
        cookie,
        listed,
    }
}

fn at_depth(depth: u8) -> WalkOrder {
    WalkOrder::Breadth {
        depth,
        deeper: false,
    }
}

fn from_start() -> Cursor {
    (vec![level(Fid::ROOT, 0, false)], at_depth(0))
}

/// A walk named `walk`; without levels it goes on.
fn request(walk: u64, (levels, order): Cursor, bytes_max: u32) -> Request {
    Request::Walk {
        walk,
        levels,
        order,
        bytes_max,
        instead_of: 0,
    }
}

fn walked(answer: Result<Reply, FsError>) -> (Vec<(u64, Page)>, Cursor) {
    match answer.expect("walked") {
        Reply::Walked {
            pages, next, order, ..
        } => (pages, (next, order)),
        other => panic!("{other:?}"),
    }
}

/// What a walk found, directory by directory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found(Vec<(Fid, Vec<String>)>);

impl Found {
    fn take(&mut self, pages: Vec<(u64, Page)>) {
        for (from, page) in pages {
            let names = page.entries.iter().map(|entry| entry.name.to_string());
            match self.0.last_mut() {
                Some((dir, all)) if from != 0 && *dir == page.dir.fid => all.extend(names),
                _ => {
                    assert_eq!(from, 0, "a directory that goes on was begun");
                    self.0.push((page.dir.fid, names.collect()));
                }
            }
        }
    }
}

/// All of a walk, in answers of at most `bytes_max`. How many they were.
fn walk(world: &mut World, client: ClientId, from: Cursor, bytes_max: u32) -> (Found, usize) {
    let (mut found, mut next, mut answers) = (Found::default(), from, 0);
    while !next.0.is_empty() {
        let tag = world.send(client, request(0, next, bytes_max));
        while world.go_on() {}
        let (pages, more) = walked(world.poll(tag).expect("answered").0);
        found.take(pages);
        (next, answers) = (more, answers + 1);
    }
    (found, answers)
}

/// What a reader finds that has a queue of directories.
fn read(world: &mut World, client: ClientId) -> Found {
    let (mut queue, mut found) = (VecDeque::from([Fid::ROOT]), Found::default());
    while let Some(dir) = queue.pop_front() {
        let entries = world.list(client, dir, 1000);
        let is_directory = |entry: &&wire::mdt::DirEntry| entry.kind == FileKind::Directory;
        queue.extend(entries.iter().filter(is_directory).map(|entry| entry.fid));
        let names = entries.iter().map(|entry| entry.name.to_string());
        found.0.push((dir, names.collect()));
    }
    found
}

/// `count` directories anywhere below the root, each with a few files; the first with many.
fn plant(world: &mut World, client: ClientId, count: usize, seed: u64) {
    let (mut rng, mut dirs) = (SeededRng::new(seed), vec![Fid::ROOT]);
    for n in 0..count {
        let parent = dirs[rng.below(dirs.len() as u64) as usize];
        let dir = world.mkdir(client, parent, &format!("directory {n}"));
        let files = if n == 0 { 600 } else { rng.below(4) };
        for file in 0..files {
            world.touch(client, dir, &format!("file {file}"));
        }
        dirs.push(dir);
    }
    world.flush();
}

#[test]
fn a_walk_is_what_a_reader_with_a_queue_reads_in_answers_of_any_size() {
    for seed in 1..4 {
        let mut world = World::new();
        let (a, b) = (world.connect(1), world.connect(2));
        plant(&mut world, a, 150, seed);
        let expected = read(&mut world, b);
        assert_eq!(expected.0.len(), 151);
        for bytes_max in [1, 300, 1000, 10_000, 100_000, WALK_BYTES_MAX as u32] {
            let (found, answers) = walk(&mut world, b, from_start(), bytes_max);
            assert_eq!(found, expected, "seed {seed}, {bytes_max} bytes");
            assert!(bytes_max > 300 || answers > 150, "{answers}");
            assert!(bytes_max < WALK_BYTES_MAX as u32 || answers == 1);
        }
    }
}

#[test]
fn requests_that_follow_each_other_go_on_at_the_depth_they_are_at() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    plant(&mut world, a, 1500, 7);
    let expected = read(&mut world, a);
    let on = || (Vec::new(), at_depth(0));
    let mut asked = vec![world.send(b, request(5, from_start(), 140_000))];
    asked.push(world.send(b, request(5, on(), 140_000)));
    assert!(world.poll(asked[0]).is_none(), "both are under way");
    while world.go_on() {}
    let mut found = Found::default();
    for tag in asked {
        let (pages, next) = walked(world.poll(tag).expect("answered").0);
        found.take(pages);
        assert_ne!(next.0, [], "not at the end yet");
    }
    while found.0.len() < expected.0.len() {
        let (pages, _) = walked(world.call(b, request(5, on(), 30_000)));
        assert!(!pages.is_empty());
        found.take(pages);
    }
    assert_eq!(found, expected);
    let (pages, next) = walked(world.call(b, request(5, on(), 30_000)));
    assert!(pages.is_empty() && next.0.is_empty(), "it is at its end");
}

#[test]
fn a_walk_begins_at_any_directory_of_a_depth() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    plant(&mut world, a, 60, 3);
    let expected = read(&mut world, b);
    let first = world.list(b, Fid::ROOT, 1000);
    let directories = first.iter().filter(|e| e.kind == FileKind::Directory);
    for (n, entry) in directories.enumerate() {
        let levels = vec![
            level(Fid::ROOT, entry.cookie, true),
            level(entry.fid, 0, false),
        ];
        let order = WalkOrder::Breadth {
            depth: 1,
            deeper: true,
        };
        let (found, _) = walk(&mut world, b, (levels, order), 2000);
        assert_eq!(found.0, expected.0[1 + n..], "from the {n}th");
    }
}

#[test]
fn others_come_between_while_a_walk_is_on_its_way_down() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    for n in 0..3000 {
        world.touch(a, Fid::ROOT, &format!("file {n}"));
    }
    let middle = world.mkdir(a, Fid::ROOT, "middle");
    let low = world.mkdir(a, middle, "low");
    world.flush();
    let start = (vec![level(Fid::ROOT, 0, true)], at_depth(2));
    let tag = world.send(b, request(0, start, 1000));
    assert_eq!(world.poll(tag), None, "it has looked at a chunk");
    let (fid, dir) = (Fid::ROOT, Fid::NONE);
    let other = world.send(a, Request::GetAttr { fid, dir });
    assert!(world.poll(other).is_some());
    let mut chunks = 1;
    while world.go_on() {
        chunks += 1;
    }
    assert!((3..=5).contains(&chunks), "{chunks}");
    let (pages, next) = walked(world.poll(tag).expect("done").0);
    let dirs: Vec<Fid> = pages.iter().map(|(_, page)| page.dir.fid).collect();
    assert_eq!((dirs, next.0), (vec![low], Vec::new()));
}

#[test]
fn an_answer_costs_no_more_than_so_many_directories_gone_through() {
    let mut world = World::new();
    let client = world.connect(1);
    for n in 0..70_000 {
        world.touch(client, Fid::ROOT, &format!("{n}"));
    }
    let middle = world.mkdir(client, Fid::ROOT, "middle");
    let low = world.mkdir(client, middle, "low");
    world.flush();
    let start = (vec![level(Fid::ROOT, 0, true)], at_depth(2));
    let (found, answers) = walk(&mut world, client, start, 1000);
    assert_eq!(found.0, [(low, Vec::new())]);
    assert_eq!(answers, 2);
}

#[test]
fn directories_that_come_and_go_end_no_walk() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    for top in ["one", "two", "three"] {
        let dir = world.mkdir(a, Fid::ROOT, top);
        world.mkdir(a, dir, "below");
        world.mkdir(a, dir, "beside");
    }
    world.flush();
    let (mut found, mut next, mut answers) = (Found::default(), from_start(), 0);
    while !next.0.is_empty() {
        let (pages, more) = walked(world.call(b, request(0, next, 1)));
        found.take(pages);
        (next, answers) = (more, answers + 1);
        if answers == 4 {
            let two = world.list(a, Fid::ROOT, 10);
            let two = two.iter().find(|entry| entry.name.to_string() == "two");
            let two = two.expect("made").fid;
            world.rmdir(a, two, "below").expect("removed");
            world.mkdir(a, two, "new");
            world.flush();
        }
    }
    let dirs: BTreeSet<Fid> = found.0.iter().map(|(dir, _)| *dir).collect();
    let expected = read(&mut world, a);
    assert!(expected.0.iter().all(|(dir, _)| dirs.contains(dir)));
}

#[test]
fn nonsense_is_refused_or_ends_soon() {
    let mut world = World::new();
    let client = world.connect(1);
    plant(&mut world, client, 20, 1);
    let file = world.touch(client, Fid::ROOT, "no directory");
    let root = level(Fid::ROOT, 0, true);
    let far = level(Fid::ROOT, 1 << 63, true);
    let refused = [
        (vec![root], at_depth(WALK_DEPTH_MAX as u8)),
        (vec![root], at_depth(u8::MAX)),
        (vec![root; 3], at_depth(1)),
        (vec![far], at_depth(5)),
    ];
    for cursor in refused {
        let answer = world.call(client, request(0, cursor, 1000));
        assert_eq!(answer, Err(FsError::Invalid));
    }
    let deepest = WalkOrder::Breadth {
        depth: WALK_DEPTH_MAX as u8 - 1,
        deeper: true,
    };
    let gone = Fid(77 << 24 | 5);
    let empty = [
        (vec![root], deepest),
        (vec![root], at_depth(60)),
        (vec![level(gone, 0, false)], at_depth(0)),
        (vec![level(file, 0, true); 5], deepest),
        (
            vec![level(gone, 9, true), level(file, 7, true)],
            at_depth(1),
        ),
    ];
    for cursor in empty {
        let (found, answers) = walk(&mut world, client, cursor, 1000);
        assert_eq!((found, answers), (Found::default(), 1));
    }
    // A directory in itself is gone through as often as it is said to be, and the walk ends.
    let cycle = (vec![root; WALK_DEPTH_MAX], deepest);
    let (_, answers) = walk(&mut world, client, cycle, 1 << 20);
    assert!(answers < 10, "{answers}");
    let above = (vec![level(Fid::ROOT, 0, false)], at_depth(2));
    let (found, _) = walk(&mut world, client, above, 1 << 20);
    assert_eq!(found.0[0].0, Fid::ROOT, "what is not listed is");
}
