//! Walks of trees. SEMANTICS: op.walk

mod support;

use std::collections::BTreeSet;

use base::limits::{WALK_BYTES_MAX, WALK_DEPTH_MAX, WALKS_PER_CLIENT_MAX};
use base::{ClientId, Fid, FsError};
use mds::Output;
use support::{Manners, ROOT_USER, World, name};
use wire::mdt::{Lease, NewFile, Page, Reply, Request, WalkLevel, WalkOrder};
use wire::{Cover, FileKind};

/// A tree under the root with `width` directories in each of `depth` levels, and some files.
fn plant(world: &mut World, client: ClientId, dir: Fid, width: u64, depth: u64) {
    for n in 0..width {
        world.touch(client, dir, &format!("file {n}"));
        if depth > 0 {
            let below = world.mkdir(client, dir, &format!("directory {n}"));
            plant(world, client, below, width, depth - 1);
        }
    }
}

fn from_start(dir: Fid) -> Vec<WalkLevel> {
    vec![WalkLevel {
        dir,
        cookie: 0,
        listed: false,
    }]
}

fn walk_request(levels: Vec<WalkLevel>, bytes_max: u32) -> Request {
    ordered(levels, WalkOrder::Cookie, bytes_max)
}

fn ordered(levels: Vec<WalkLevel>, order: WalkOrder, bytes_max: u32) -> Request {
    Request::Walk {
        walk: 0,
        levels,
        order,
        bytes_max,
        instead_of: 0,
    }
}

fn walked(answer: Result<Reply, FsError>) -> (Vec<(u64, Page)>, Vec<WalkLevel>) {
    match answer.expect("walked") {
        Reply::Walked { pages, next, .. } => (pages, next),
        other => panic!("{other:?}"),
    }
}

/// All of a walk, in answers of at most `bytes_max`. How many they were.
fn walk(
    world: &mut World,
    client: ClientId,
    start: Vec<WalkLevel>,
    order: WalkOrder,
    bytes_max: u32,
) -> (Vec<(Fid, Vec<String>)>, usize) {
    let (mut seen, mut next, mut answers) = (Vec::<(Fid, Vec<String>)>::new(), start, 0);
    while !next.is_empty() {
        let answer = world.call(client, ordered(next, order, bytes_max));
        let (pages, more) = walked(answer);
        answers += 1;
        for (from, page) in pages {
            assert_ne!(page.lease, Lease::None);
            let names = page.entries.iter().map(|entry| entry.name.to_string());
            match seen
                .last_mut()
                .filter(|(dir, _)| from != 0 && *dir == page.dir.fid)
            {
                Some((_, all)) => all.extend(names),
                None => {
                    assert_eq!(from, 0, "a directory that goes on was begun");
                    seen.push((page.dir.fid, names.collect()));
                }
            }
        }
        next = more;
    }
    (seen, answers)
}

/// What a reader finds that lists each directory whole before it enters the first below.
fn read(
    world: &mut World,
    client: ClientId,
    dir: Fid,
    order: WalkOrder,
) -> Vec<(Fid, Vec<String>)> {
    let mut entries = world.list(client, dir, 1000);
    let names = entries.iter().map(|entry| entry.name.to_string()).collect();
    let mut all = vec![(dir, names)];
    if order == WalkOrder::Name {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
    }
    for entry in entries
        .iter()
        .filter(|entry| entry.kind == FileKind::Directory)
    {
        all.extend(read(world, client, entry.fid, order));
    }
    all
}

#[test]
fn a_walk_is_what_a_depth_first_reader_reads_in_answers_of_any_size() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    plant(&mut world, a, Fid::ROOT, 4, 3);
    let by_cookie = read(&mut world, b, Fid::ROOT, WalkOrder::Cookie);
    let by_name = read(&mut world, b, Fid::ROOT, WalkOrder::Name);
    assert_eq!(by_cookie.len(), 1 + 4 + 16 + 64);
    assert_ne!(by_cookie, by_name);
    let sizes = [1, 300, 1000, 10_000, WALK_BYTES_MAX as u32];
    let by_name = sizes.map(|size| (WalkOrder::Name, size, &by_name));
    let by_cookie = sizes.map(|size| (WalkOrder::Cookie, size, &by_cookie));
    for (order, bytes_max, expected) in by_cookie.into_iter().chain(by_name) {
        let (seen, answers) = walk(&mut world, b, from_start(Fid::ROOT), order, bytes_max);
        assert_eq!(&seen, expected, "{order:?}, {bytes_max} bytes");
        if bytes_max == 1 {
            // A page at least, be it of one entry.
            assert!(answers > 85, "{answers}");
        }
        if bytes_max as usize == WALK_BYTES_MAX {
            assert_eq!(answers, 1);
        }
    }
}

#[test]
fn a_walk_begins_in_the_middle_and_names_below_each_other_say_where() {
    let mut world = World::new();
    let client = world.connect(1);
    plant(&mut world, client, Fid::ROOT, 3, 2);
    let expected = read(&mut world, client, Fid::ROOT, WalkOrder::Cookie);
    let first = world.list(client, Fid::ROOT, 100);
    let mut directories = first
        .iter()
        .filter(|entry| entry.kind == FileKind::Directory);
    let second = directories.nth(1).expect("three");
    let levels = vec![
        WalkLevel {
            dir: Fid::ROOT,
            cookie: second.cookie,
            listed: true,
        },
        WalkLevel {
            dir: second.fid,
            cookie: 0,
            listed: false,
        },
    ];
    let (seen, _) = walk(&mut world, client, levels, WalkOrder::Cookie, 2000);
    assert_eq!(seen, expected[expected.len() - 8..]);
}

#[test]
fn what_came_is_covered_until_somebody_changes_it() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let (home, _) = (
        world.mkdir(a, Fid::ROOT, "home"),
        world.mkdir(a, Fid::ROOT, "other"),
    );
    world.touch(a, home, "file");
    world.flush();
    world
        .mirrors
        .insert(b.0, support::mirror::Mirror::default());
    let (seen, _) = walk(
        &mut world,
        b,
        from_start(Fid::ROOT),
        WalkOrder::Cookie,
        100_000,
    );
    assert_eq!(seen.len(), 3);
    let before = world.clients[&b.0].asked.len();
    world.touch(a, home, "another");
    assert!(world.clients[&b.0].asked.len() > before, "b is told");
}

#[test]
fn directories_that_go_away_end_their_branch_and_not_the_walk() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let gone = world.mkdir(a, Fid::ROOT, "gone");
    let stays = world.mkdir(a, Fid::ROOT, "stays");
    world.touch(a, stays, "file");
    world.flush();
    let answer = world.call(b, walk_request(from_start(Fid::ROOT), 500));
    let (_, next) = walked(answer);
    world.rmdir(a, Fid::ROOT, "gone").expect("removed");
    world.flush();
    let (seen, _) = walk(&mut world, b, next, WalkOrder::Cookie, 100_000);
    let dirs: BTreeSet<Fid> = seen.iter().map(|(dir, _)| *dir).collect();
    assert!(dirs.contains(&stays) && !dirs.contains(&gone));
}

#[test]
fn what_others_changed_and_is_not_durable_is_left_out() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    let (fresh, old) = (
        world.mkdir(a, Fid::ROOT, "fresh"),
        world.mkdir(a, Fid::ROOT, "old"),
    );
    world.touch(a, old, "file");
    world.flush();
    world.auto_flush = false;
    world.touch(a, fresh, "not yet durable");
    let tag = world.send(b, walk_request(from_start(Fid::ROOT), 100_000));
    while world.go_on() {}
    let (pages, next) = walked(world.poll(tag).expect("it does not wait").0);
    let dirs: Vec<Fid> = pages.iter().map(|(_, page)| page.dir.fid).collect();
    assert!(dirs.contains(&old) && !dirs.contains(&fresh), "{dirs:?}");
    assert_eq!(next, []);
}

#[test]
fn the_targets_of_symlinks_come_along() {
    let mut world = World::new();
    let client = world.connect(1);
    let dir = world.mkdir(client, Fid::ROOT, "dir");
    let links = ["one", "two"].map(|name| world.make(client, dir, name, FileKind::Symlink));
    let answer = world.call(client, walk_request(from_start(Fid::ROOT), 10_000));
    let Ok(Reply::Walked { targets, .. }) = answer else {
        panic!("{answer:?}");
    };
    let told: BTreeSet<Fid> = targets.iter().map(|(fid, _)| *fid).collect();
    assert_eq!(told, BTreeSet::from(links));
    assert!(targets.iter().all(|(_, target)| target == b"over/there"));
}

#[test]
fn an_answer_that_leaves_all_out_ends_where_its_bytes_do() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    world.touch(a, Fid::ROOT, "durable");
    world.flush();
    world.auto_flush = false;
    plant(&mut world, a, Fid::ROOT, 4, 2);
    let tag = world.send(b, walk_request(from_start(Fid::ROOT), 1000));
    while world.go_on() {}
    let (pages, next) = walked(world.poll(tag).expect("it does not wait").0);
    assert!(pages.is_empty() && !next.is_empty(), "{next:?}");
}

#[test]
fn others_come_between_the_chunks_of_a_walk() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    for n in 0..1000 {
        world.touch(a, Fid::ROOT, &format!("file {n}"));
    }
    world.flush();
    let walk = world.send(b, walk_request(from_start(Fid::ROOT), 1 << 20));
    assert_eq!(world.poll(walk), None, "more than a chunk");
    let other = world.send(
        a,
        Request::GetAttr {
            fid: Fid::ROOT,
            dir: Fid::NONE,
        },
    );
    assert!(world.poll(other).is_some());
    let mut chunks = 1;
    while world.go_on() {
        chunks += 1;
    }
    assert!((2..=5).contains(&chunks), "{chunks}");
    assert_eq!(walked(world.poll(walk).expect("done").0).1, []);
}

/// A request of the walk named `walk`; without `levels` one that follows.
fn chained(walk: u64, levels: Vec<WalkLevel>, bytes_max: u32, instead_of: u64) -> Request {
    Request::Walk {
        walk,
        levels,
        order: WalkOrder::Cookie,
        bytes_max,
        instead_of,
    }
}

#[test]
fn requests_that_follow_each_other_go_on_where_the_one_before_ends() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    plant(&mut world, a, Fid::ROOT, 5, 4);
    world.flush();
    let expected = read(&mut world, a, Fid::ROOT, WalkOrder::Cookie);
    let mut asked = vec![world.send(b, chained(7, from_start(Fid::ROOT), 70_000, 0))];
    asked.extend((0..3).map(|_| world.send(b, chained(7, Vec::new(), 70_000, 0))));
    assert_eq!(world.poll(asked[0]), None, "they are all under way");
    while world.go_on() {}
    let mut seen = Vec::new();
    for tag in asked {
        let (pages, next) = walked(world.poll(tag).expect("answered").0);
        let begun = pages.into_iter().filter(|(from, _)| *from == 0);
        seen.extend(begun.map(|(_, page)| page.dir.fid));
        assert_ne!(next, [], "not at the end yet");
    }
    while seen.len() < expected.len() {
        let (pages, _) = walked(world.call(b, chained(7, Vec::new(), 70_000, 0)));
        assert!(!pages.is_empty());
        let begun = pages.into_iter().filter(|(from, _)| *from == 0);
        seen.extend(begun.map(|(_, page)| page.dir.fid));
    }
    let expected: Vec<Fid> = expected.iter().map(|(dir, _)| *dir).collect();
    assert_eq!(seen, expected);
    let (pages, next) = walked(world.call(b, chained(7, Vec::new(), 70_000, 0)));
    assert!(pages.is_empty() && next.is_empty(), "it is at its end");
}

#[test]
fn a_walk_that_is_not_wanted_any_more_is_answered_with_what_there_is() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    plant(&mut world, a, Fid::ROOT, 5, 4);
    world.flush();
    let old = world.send(b, chained(1, from_start(Fid::ROOT), 1 << 20, 0));
    let follower = world.send(b, chained(1, Vec::new(), 1 << 20, 0));
    assert_eq!(world.poll(old), None);
    let new = world.send(b, chained(2, from_start(Fid::ROOT), 300, 1));
    let (pages, next) = walked(world.poll(old).expect("cut short").0);
    assert!(!pages.is_empty() && !next.is_empty());
    let follower = world.poll(follower).expect("cut off").0;
    assert_eq!(follower, Err(FsError::TryAgain));
    assert!(world.poll(new).is_some());
    while world.go_on() {}
    let (_, goes_on) = walked(world.call(b, chained(1, Vec::new(), 1 << 20, 0)));
    assert_eq!(goes_on, [], "also from there");
}

#[test]
fn walks_that_nobody_knows_of_are_not_gone_on_with() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    plant(&mut world, a, Fid::ROOT, 2, 2);
    let others = chained(3, from_start(Fid::ROOT), 300, 0);
    walked(world.call(a, others));
    let follows = |walk| chained(walk, Vec::new(), 300, 0);
    assert_eq!(world.call(b, follows(3)), Err(FsError::TryAgain));
    assert_eq!(world.call(b, follows(0)), Err(FsError::Invalid));
    for walk in 1..=WALKS_PER_CLIENT_MAX as u64 + 1 {
        walked(world.call(b, chained(walk, from_start(Fid::ROOT), 300, 0)));
    }
    assert_eq!(
        world.call(b, follows(1)),
        Err(FsError::TryAgain),
        "the oldest"
    );
    walked(world.call(b, follows(2)));
}

#[test]
fn a_walk_ends_with_its_client_and_at_once_with_nonsense() {
    let mut world = World::new();
    let (a, b) = (world.connect(1), world.connect(2));
    for n in 0..1000 {
        world.touch(a, Fid::ROOT, &format!("file {n}"));
    }
    world.flush();
    let level = from_start(Fid::ROOT)[0];
    let deep = vec![level; WALK_DEPTH_MAX + 1];
    let far = WalkLevel {
        cookie: 1 << 63,
        ..level
    };
    for levels in [Vec::new(), deep, vec![far]] {
        let refused = world.call(b, walk_request(levels, 1000));
        assert_eq!(refused, Err(FsError::Invalid));
    }
    let file = world.touch(a, Fid::ROOT, "no directory");
    for dir in [Fid(77 << 24 | 5), file] {
        let (pages, next) = walked(world.call(b, walk_request(from_start(dir), 1000)));
        assert!(pages.is_empty() && next.is_empty());
    }
    let all = || walk_request(from_start(Fid::ROOT), 1 << 20);
    for _ in 0..WALKS_PER_CLIENT_MAX {
        world.send(b, all());
    }
    let refused = world.send(b, all());
    assert_eq!(
        world.poll(refused).map(|(r, _)| r),
        Some(Err(FsError::TryAgain))
    );
    world.evict(b);
    while world.go_on() {}
    assert!(!world.outputs.contains(&Output::GoOn));
}

#[test]
fn no_lock_is_given_that_the_answer_does_not_tell_of() {
    let mut world = World::new();
    let (a, b, c) = (world.connect(1), world.connect(2), world.connect(3));
    world.mkdir(a, Fid::ROOT, "below");
    world.flush();
    world.list(c, Fid::ROOT, 10);
    world.client(c).manners = Manners::Silent;
    // It waits for c to forget, and meanwhile no lease covers the list of the root.
    let waiting = Request::Create {
        dir: Fid::ROOT,
        name: name("another"),
        file: new_directory(world.fid(a)),
        caller: ROOT_USER,
        open: None,
    };
    world.send(a, waiting);
    let before = world.mds.locks().table().lock_count();
    let answer = world.call(b, walk_request(from_start(Fid::ROOT), 100_000));
    let (pages, _) = walked(answer);
    assert!(!pages[0].1.covers_list);
    let mut told = BTreeSet::new();
    for (_, page) in &pages {
        let nodes = page.entries.iter().filter_map(|entry| entry.node.as_ref());
        told.extend(nodes.filter_map(|node| match node.cover {
            Cover::Own(grant) => Some(grant.handle),
            _ => None,
        }));
        if let Lease::Held(grant) = page.lease {
            told.insert(grant.handle);
        }
    }
    let given = world.mds.locks().table().lock_count() - before;
    assert!(given > 0);
    assert_eq!(given, told.len());
}

fn new_directory(fid: Fid) -> NewFile {
    NewFile {
        fid,
        kind: FileKind::Directory,
        mode: 0o755,
        rdev: 0,
        target: Vec::new(),
    }
}
