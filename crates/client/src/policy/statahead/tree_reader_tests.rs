//! Readers of whole trees, against a server that answers as the MDT does: what they ask for.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use base::{Fid, Rng, SeededRng, Tick};
use wire::mdt::{WalkLevel, WalkOrder};

use super::super::report::Pattern;
use super::{ENTRY_BYTES, Place, Reach, Step, Stretch, TreePart, Trees, Visit, WalkId};

const NOW: Tick = Tick(0);
const PLENTY: Reach = Reach {
    entries_max: 100_000,
    round_trip: Duration::ZERO,
};
/// Entries of each directory, beside those below it.
const FILES: u64 = 10;

/// A tree of directories, numbered so that parents come before those below them.
struct Tree {
    parents: Vec<usize>,
    below: Vec<Vec<usize>>,
}

impl Tree {
    fn new(parents: Vec<usize>) -> Tree {
        let mut below = vec![Vec::new(); parents.len()];
        for (dir, parent) in parents.iter().enumerate().skip(1) {
            below[*parent].push(dir);
        }
        Tree { parents, below }
    }

    /// With `width` directories in each but for those at `depth`.
    fn even(width: usize, depth: u32) -> Tree {
        let inner = (0..depth).map(|level| width.pow(level)).sum::<usize>();
        let all = 1 + inner * width;
        Tree::new((0..all).map(|dir| dir.saturating_sub(1) / width).collect())
    }

    fn random(count: usize, seed: u64) -> Tree {
        let mut rng = SeededRng::new(seed);
        let parent = |dir: usize| rng.below(dir.max(1) as u64) as usize;
        Tree::new((0..count).map(parent).collect())
    }

    /// Directories as a reader comes to them who goes breadth first.
    fn by_level(&self) -> Vec<usize> {
        let (mut queue, mut order) = (VecDeque::from([0]), Vec::new());
        while let Some(dir) = queue.pop_front() {
            queue.extend(&self.below[dir]);
            order.push(dir);
        }
        order
    }

    /// Depth first, as far down as that.
    fn downward(&self, depth_max: usize) -> Vec<usize> {
        let (mut stack, mut order) = (vec![0], Vec::new());
        while let Some(dir) = stack.pop() {
            order.push(dir);
            if self.path(dir).len() <= depth_max {
                stack.extend(self.below[dir].iter().rev());
            }
        }
        order
    }

    /// From the root down to `dir`.
    fn path(&self, dir: usize) -> Vec<usize> {
        let mut path = vec![dir];
        while path[path.len() - 1] != 0 {
            path.push(self.parents[path[path.len() - 1]]);
        }
        path.reverse();
        path
    }

    fn levels(&self, dir: usize) -> Vec<WalkLevel> {
        let path = self.path(dir);
        let cookie = |at: usize| path.get(at + 1).map_or(0, |below| *below as u64);
        let level = |(at, dir): (usize, &usize)| WalkLevel {
            dir: fid(*dir),
            cookie: cookie(at),
            listed: at + 1 < path.len(),
        };
        path.iter().enumerate().map(level).collect()
    }

    fn place(&self, dir: usize) -> Place {
        let siblings = &self.below[self.parents[dir]];
        Place {
            levels: self.levels(dir),
            is_first: (siblings.first() == Some(&dir)).then_some(WalkOrder::Cookie),
        }
    }

    /// What the server has for a stretch that begins at `from`; where the next one begins.
    fn stretch(&self, from: usize, order: WalkOrder, bytes: u32) -> (Vec<usize>, Option<usize>) {
        let all = match order {
            WalkOrder::Breadth { .. } => self.by_level(),
            _ => self.downward(usize::MAX),
        };
        let start = all
            .iter()
            .position(|dir| *dir == from)
            .expect("in the tree");
        let count = (u64::from(bytes) / (FILES * ENTRY_BYTES)).max(1) as usize;
        let end = (start + count).min(all.len());
        (all[start..end].to_vec(), all.get(end).copied())
    }
}

fn fid(dir: usize) -> Fid {
    Fid((1 << 24) + dir as u64)
}

fn number(fid: Fid) -> usize {
    (fid.0 - (1 << 24)) as usize
}

/// A mount with one cache, and its server.
struct World {
    tree: Tree,
    trees: Trees,
    listed: HashSet<usize>,
    ahead: HashMap<usize, WalkId>,
    on_its_way: VecDeque<(Stretch, Vec<usize>, TreePart)>,
    /// Where each walk goes on, by its name at the server, and how.
    ends: HashMap<u64, Option<(usize, WalkOrder)>>,
    requests: usize,
}

impl World {
    fn new(tree: Tree) -> World {
        World {
            tree,
            trees: Trees::default(),
            listed: HashSet::from([0]),
            ahead: HashMap::new(),
            on_its_way: VecDeque::new(),
            ends: HashMap::new(),
            requests: 1,
        }
    }

    fn ask(&mut self, stretch: Stretch) {
        self.requests += 1;
        let from = match stretch.levels.last() {
            Some(level) => Some((number(level.dir), stretch.order)),
            None => self.ends[&stretch.chain],
        };
        let (dirs, end) = match from {
            Some((from, order)) => self.tree.stretch(from, order, stretch.bytes),
            None => (Vec::new(), None),
        };
        let order = match from {
            Some((_, WalkOrder::Breadth { .. })) => WalkOrder::Breadth {
                depth: end.map_or(0, |end| self.tree.path(end).len() as u8 - 1),
                deeper: true,
            },
            _ => stretch.order,
        };
        self.ends.insert(stretch.chain, end.map(|end| (end, order)));
        let part = TreePart {
            directories: 0,
            entries: 0,
            next: end.map_or(Vec::new(), |end| self.tree.levels(end)),
            order,
        };
        self.on_its_way.push_back((stretch, dirs, part));
    }

    /// What was asked for first comes.
    fn take(&mut self) {
        let Some((stretch, dirs, mut part)) = self.on_its_way.pop_front() else {
            panic!("nothing is on its way");
        };
        for dir in dirs {
            if self.listed.insert(dir) {
                self.ahead.insert(dir, stretch.walk);
                part.directories += 1;
                part.entries += FILES;
            }
        }
        self.trees.came(&stretch, part);
    }

    fn visit(&mut self, dir: usize) {
        while !self.listed.contains(&dir) {
            match self.trees.missed(self.tree.place(dir), PLENTY, NOW) {
                Step::Ask(asked) => {
                    self.ask(asked.needed);
                    while !self.on_its_way.is_empty() {
                        self.take();
                    }
                }
                Step::Wait(_) => self.take(),
                Step::Alone => {
                    self.requests += 1;
                    self.listed.insert(dir);
                }
            }
        }
        if let Some(walk) = self.ahead.remove(&dir) {
            let visit = Visit {
                dir: fid(dir),
                parent: fid(self.tree.parents[dir]),
                has_subdirectories: !self.tree.below[dir].is_empty(),
                entries: FILES,
            };
            if let Some(stretch) = self.trees.read(walk, visit, PLENTY, NOW) {
                self.ask(stretch);
            }
        }
    }

    fn patterns(&self) -> Vec<Pattern> {
        self.trees.reports().map(|walk| walk.pattern).collect()
    }
}

/// Requests of a reader that visits these, and how it was seen to go.
fn walk(tree: Tree, visits: &[usize]) -> (usize, Vec<Pattern>) {
    let mut world = World::new(tree);
    visits.iter().for_each(|dir| world.visit(*dir));
    (world.requests, world.patterns())
}

#[test]
fn who_goes_level_by_level_asks_for_long_stretches() {
    for tree in [Tree::even(5, 5), Tree::even(20, 3), Tree::even(2, 12)] {
        let visits = tree.by_level();
        let (requests, patterns) = walk(tree, &visits);
        assert_eq!(patterns, [Pattern::Bfs]);
        assert!(requests <= 12, "{requests} for {}", visits.len());
    }
    for seed in 0..50 {
        let tree = Tree::random(5000, seed);
        let visits = tree.by_level();
        let (requests, patterns) = walk(tree, &visits);
        assert_eq!(patterns, [Pattern::Bfs], "seed {seed}");
        assert!(requests <= 15, "seed {seed}: {requests}");
    }
}

#[test]
fn who_goes_down_first_asks_for_no_more_than_when_there_was_no_other_way() {
    let trees = [Tree::even(5, 5), Tree::even(20, 3), Tree::even(2, 12)];
    let random = (0..50).map(|seed| Tree::random(5000, seed));
    for tree in trees.into_iter().chain(random) {
        let visits = tree.downward(usize::MAX);
        let (requests, patterns) = walk(tree, &visits);
        assert_eq!(patterns, [Pattern::Dfs]);
        assert!(requests <= 10, "{requests} for {}", visits.len());
    }
}

#[test]
fn who_changes_how_it_goes_is_followed() {
    for seed in 0..50 {
        let tree = Tree::random(5000, seed);
        let (mut visits, down) = (tree.by_level(), tree.downward(usize::MAX));
        visits.truncate(1000);
        let seen: HashSet<usize> = visits.iter().copied().collect();
        visits.extend(down.iter().filter(|dir| !seen.contains(dir)));
        let (requests, _) = walk(tree, &visits);
        assert!(requests <= 20, "seed {seed}: {requests}");
    }
}

#[test]
fn who_goes_down_only_so_far_asks_for_what_is_at_that_depth() {
    let tree = Tree::even(6, 5);
    let visits = tree.downward(3);
    let (requests, _) = walk(tree, &visits);
    assert!(requests <= visits.len() / 12, "{requests}");
}

#[test]
fn who_goes_about_in_no_order_costs_no_more_than_a_request_a_directory() {
    for seed in 0..20 {
        let tree = Tree::random(3000, seed);
        let mut rng = SeededRng::new(seed);
        let mut waiting: Vec<usize> = tree.below[0].clone();
        let mut visits = Vec::new();
        while !waiting.is_empty() {
            let at = rng.below(waiting.len() as u64) as usize;
            let dir = waiting.swap_remove(at);
            waiting.extend(&tree.below[dir]);
            visits.push(dir);
        }
        let (requests, _) = walk(tree, &visits);
        assert!(requests <= visits.len() + 5, "seed {seed}: {requests}");
    }
}
