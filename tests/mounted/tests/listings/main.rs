//! Listings and walks of a tree that other mounts change, with all prefetch on. A file system without
//! prefetch could have given the same answers.
// SEMANTICS: op.readdir, op.walk, op.stat, op.lookup, cache.names, cache.attributes, crash.server

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

mod clock;
mod mutator;
mod reader;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use model::History;
use model::listing::{Change, Impossible, Span};
use mounted::{Cluster, count, seed};

use crate::clock::Clock;
use crate::mutator::{Mutator, QUIET, survey};
use crate::reader::{ORDERS, Order, Told, walk};

/// Mounts that change the tree.
const CHANGERS: [usize; 2] = [1, 2];
/// Two on each of them.
const MUTATORS: u64 = 4;
/// Each makes a call in so many milliseconds, about.
const PAUSE_MS: u64 = 12;
const TOPS: usize = 6;
const BELOW: usize = 5;
const FILES: usize = 15;
/// In the one large directory, which a walk takes more than a page to read.
const MANY: usize = 1200;
/// Directories of the one more mutator.
const QUIET_DIRS: u64 = 8;
/// So few that their directory still gives a lease when all were changed.
const QUIET_FILES: u64 = 10;

type Changes = Vec<(Span, Change)>;

/// A tree, and all that is known of it.
struct Scene {
    cluster: Cluster,
    clock: Clock,
    seed: u64,
    history: History,
    changes: Changes,
    told: Told,
    /// What the mounts that walked have fetched ahead.
    ahead: BTreeMap<&'static str, u64>,
}

/// Ends its threads also when a test fails in their middle.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Scene {
    fn new() -> Scene {
        let mut cluster = Cluster::with_mounts(1);
        let root = cluster.root(0).join("tree");
        cluster.timed("making a tree", || make_tree(&root));
        // Its maker would keep the new files' locks, and they would not be fetched ahead.
        cluster.unmount(0);
        let mounts = CHANGERS.map(|_| cluster.mount());
        assert_eq!(mounts, CHANGERS);
        let root = cluster.root(mounts[0]).join("tree");
        let mut history = History::new();
        let start = |change| history.record(Span::START, change);
        cluster.timed("looking at it", || tell_of(&root, start));
        Scene {
            cluster,
            clock: Clock::default(),
            seed: seed(),
            history,
            changes: Vec::new(),
            told: Told::default(),
            ahead: BTreeMap::new(),
        }
    }

    fn root(&self, mount: usize) -> PathBuf {
        self.cluster.root(mount).join("tree")
    }

    /// Runs `work` while mutators change the tree, then holds what was told against what was done.
    fn beside_changes(
        &mut self,
        pause: Option<&RwLock<()>>,
        storms: usize,
        work: impl FnOnce(&mut Cluster, &Clock, &mut Told) -> Changes,
    ) {
        let stop = AtomicBool::new(false);
        let (clock, seed) = (&self.clock, self.seed);
        let mutators: Vec<Mutator<'_>> = (0..MUTATORS)
            .map(|id| {
                Mutator::new(
                    id,
                    &self.root(CHANGERS[id as usize % 2]),
                    clock,
                    seed,
                    pause,
                )
            })
            .collect();
        let _watch = self
            .cluster
            .watch(Duration::from_secs(120), "walks beside changes");
        let (cluster, told) = (&mut self.cluster, &mut self.told);
        let changes = thread::scope(|scope| {
            let stop = &stop;
            let threads = mutators.into_iter().enumerate().map(|(number, mutator)| {
                scope.spawn(move || change(mutator, number < storms, seed, stop))
            });
            let threads: Vec<_> = threads.collect();
            let end = Stop(stop);
            let mut done = work(cluster, clock, told);
            drop(end);
            done.extend(
                threads
                    .into_iter()
                    .flat_map(|thread| thread.join().unwrap()),
            );
            done
        });
        println!("{} changes", changes.len());
        for (span, change) in &changes {
            self.history.record(*span, change.clone());
        }
        self.changes.extend(changes);
        self.check();
    }

    fn check(&self) {
        let Told { listings, looks } = &self.told;
        println!("{} listings, {} looks", listings.len(), looks.len());
        for listing in listings {
            let right = self.history.check_listing(listing);
            right.unwrap_or_else(|wrong| self.report(&wrong));
        }
        for look in looks {
            let right = self.history.check_look(look);
            right.unwrap_or_else(|wrong| self.report(&wrong));
        }
    }

    /// Fails with what was done to the names and files that are told of wrongly.
    fn report(&self, wrong: &Impossible) {
        let said = format!("{wrong}\n{wrong:?}");
        let about = self.changes.iter().filter(|(_, change)| match change {
            Change::Name { name, leads_to, .. } => {
                said.contains(&format!("{name:?}"))
                    || leads_to.is_some_and(|ino| said.contains(&ino.to_string()))
            }
            Change::Mode(ino, _) | Change::Size(ino, _) => said.contains(&ino.to_string()),
        });
        let about: Vec<String> = about.map(|change| format!("{change:?}")).collect();
        panic!("{said}\nwhat was done there:\n{}", about.join("\n"));
    }

    /// The mounts that walk fetched ahead, in each of these ways.
    fn assert_ahead(&self, ways: &[&str]) {
        println!("{:?}", self.ahead);
        for way in ways {
            let count = self.ahead.get(way).copied().unwrap_or(0);
            assert!(count > 0, "{way}: {:?}", self.ahead);
        }
    }
}

/// Pages with attributes, batches of stats, stretches of trees.
const WAYS: [&str; 4] = [
    "statahead_total",
    "statahead_batches",
    "statahead_tree_walks",
    "statahead_tree_hit",
];

fn add_up(ahead: &mut BTreeMap<&'static str, u64>, cluster: &Cluster, mount: usize) {
    let stats = cluster.stats(mount);
    for way in WAYS {
        *ahead.entry(way).or_default() += stats[way].as_u64().unwrap();
    }
}

fn make_tree(root: &Path) {
    fs::create_dir(root).unwrap();
    let files = |dir: &Path, count: usize| {
        fs::create_dir(dir).unwrap();
        let make = |name: String| drop(File::create(dir.join(name)).unwrap());
        (0..count).for_each(|number| make(format!("stays{number}")));
        (0..2 * MUTATORS).for_each(|number| make(format!("m{}.{}", number / 2, number % 2)));
    };
    for top in 0..TOPS {
        files(&root.join(format!("top{top}")), FILES);
        for below in 0..BELOW {
            files(&root.join(format!("top{top}/below{below}")), FILES);
        }
    }
    files(&root.join("many"), MANY);
    fs::create_dir(root.join(QUIET)).unwrap();
    for number in 0..QUIET_DIRS {
        let dir = root.join(QUIET).join(number.to_string());
        fs::create_dir(&dir).unwrap();
        let name = |file| format!("m{MUTATORS}.{file}");
        (0..QUIET_FILES).for_each(|file| drop(File::create(dir.join(name(file))).unwrap()));
    }
    File::open(root).unwrap().sync_all().unwrap();
}

fn tell_of(root: &Path, mut start: impl FnMut(Change)) {
    survey(root, &mut |dir, _, name, seen| {
        start(Change::Mode(seen.ino, seen.mode));
        if let Some(size) = seen.size {
            start(Change::Size(seen.ino, size));
        }
        if let Some(name) = name {
            start(Change::Name {
                dir,
                name: name.to_owned(),
                leads_to: Some(seen.ino),
            });
        }
    });
}

fn change(mut mutator: Mutator<'_>, storms: bool, seed: u64, stop: &AtomicBool) -> Changes {
    let mut rng = SeededRng::new(seed);
    while !stop.load(Ordering::SeqCst) {
        match storms {
            true => mutator.storm(),
            false => mutator.step(),
        }
        sleep(Duration::from_millis(rng.below(2 * PAUSE_MS)));
    }
    mutator.take_done()
}

/// Walks through cold mounts in all orders for so long; each mount twice, so that the second time
/// much is at hand.
fn walk_cold(scene: &mut Scene, time: Duration, storms: usize) {
    let mut ahead = std::mem::take(&mut scene.ahead);
    scene.beside_changes(None, storms, |cluster, clock, told| {
        let start = Instant::now();
        let quiet = cluster.root(CHANGERS[0]).join("tree").join(QUIET);
        let mut between = Mutator::new(MUTATORS, &quiet, clock, 0, None);
        let mut orders = ORDERS.iter().cycle().enumerate();
        while let Some((round, order)) = orders.next()
            && (start.elapsed() < time || round < ORDERS.len())
        {
            let mount = cluster.mount();
            let root = cluster.root(mount).join("tree");
            walk(clock, &root, *order, told);
            between.chmod_all_of_next();
            walk(clock, &root, *order, told);
            add_up(&mut ahead, cluster, mount);
            cluster.unmount(mount);
        }
        between.take_done()
    });
    scene.ahead = ahead;
}

fn walks_beside_changes(seconds: u64) {
    let mut scene = Scene::new();
    walk_cold(&mut scene, Duration::from_secs(seconds), 0);
    scene.assert_ahead(&[
        "statahead_total",
        "statahead_tree_walks",
        "statahead_tree_hit",
    ]);
}

fn walks_beside_storms(seconds: u64) {
    let mut scene = Scene::new();
    walk_cold(&mut scene, Duration::from_secs(seconds), 2);
    scene.assert_ahead(&["statahead_total", "statahead_tree_walks"]);
}

fn walks_while_servers_are_killed(kills: u64) {
    let mut scene = Scene::new();
    let mut rng = SeededRng::new(scene.seed);
    let (mut ahead, pause) = (BTreeMap::new(), RwLock::default());
    scene.beside_changes(Some(&pause), 0, |cluster, clock, told| {
        for kill in 0..kills {
            let mount = cluster.mount();
            let root = cluster.root(mount).join("tree");
            let order = ORDERS[(kill % ORDERS.len() as u64) as usize];
            let stop = AtomicBool::new(false);
            let seen = thread::scope(|scope| {
                let end = Stop(&stop);
                let reader = scope.spawn(|| walk_until(clock, &root, order, &stop));
                sleep(Duration::from_millis(20 + rng.below(300)));
                {
                    // What is under way at a kill, and what a mount answers that has not found the
                    // server again, is another matter (docs/recovery.md): changes go on when all
                    // have.
                    let _changes_wait = pause.write().unwrap();
                    cluster.kill_server();
                    sleep(Duration::from_millis(rng.below(200)));
                    cluster.restart_server();
                    for mount in CHANGERS.into_iter().chain([mount]) {
                        nix::sys::statvfs::statvfs(cluster.root(mount)).unwrap();
                    }
                }
                sleep(Duration::from_millis(200));
                drop(end);
                reader.join().unwrap()
            });
            told.listings.extend(seen.listings);
            told.looks.extend(seen.looks);
            add_up(&mut ahead, cluster, mount);
            cluster.unmount(mount);
        }
        Changes::new()
    });
    scene.ahead = ahead;
    scene.assert_ahead(&["statahead_total", "statahead_tree_walks"]);
}

/// Walks until told to stop, at least once.
fn walk_until(clock: &Clock, root: &Path, order: Order, stop: &AtomicBool) -> Told {
    let mut told = Told::default();
    loop {
        walk(clock, root, order, &mut told);
        if stop.load(Ordering::SeqCst) {
            return told;
        }
    }
}

/// Tunables and values that they take in turn.
const TUNED: [(&str, [u64; 3]); 5] = [
    ("statahead_max", [0, 20, 8192]),
    ("statahead_tree_max", [0, 200, 65_536]),
    ("batch_max", [1, 3, 256]),
    ("statahead_fname_max", [0, 4, 256]),
    ("statahead_bytes_max", [0, 1 << 16, 16 << 20]),
];

fn walks_while_tunables_change(seconds: u64) {
    let mut scene = Scene::new();
    let mut rng = SeededRng::new(scene.seed);
    let mut ahead = BTreeMap::new();
    scene.beside_changes(None, 0, |cluster, clock, told| {
        let start = Instant::now();
        let mut orders = ORDERS.iter().cycle();
        while let Some(order) = orders.next()
            && start.elapsed() < Duration::from_secs(seconds)
        {
            let mount = cluster.mount();
            let root = cluster.root(mount).join("tree");
            let stop = AtomicBool::new(false);
            thread::scope(|scope| {
                let end = Stop(&stop);
                let (cluster, rng, stop) = (&*cluster, &mut rng, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        let (name, values) = TUNED[rng.below(5) as usize];
                        cluster.set_param(mount, name, values[rng.below(3) as usize]);
                    }
                });
                (0..2).for_each(|_| walk(clock, &root, *order, told));
                drop(end);
            });
            add_up(&mut ahead, cluster, mount);
            cluster.unmount(mount);
        }
        Changes::new()
    });
    scene.ahead = ahead;
    scene.assert_ahead(&["statahead_total", "statahead_tree_walks"]);
}

#[test]
fn a_walk_beside_changes_is_told_what_was_so() {
    walks_beside_changes(count("MOUNTED_SECONDS", 3));
}

#[test]
fn a_walk_of_directories_that_are_taken_back_all_the_time_is_told_what_was_so() {
    walks_beside_storms(count("MOUNTED_SECONDS", 3));
}

#[test]
fn a_walk_in_whose_middle_the_server_is_killed_is_told_what_was_so() {
    walks_while_servers_are_killed(4);
}

#[test]
fn a_walk_whose_tunables_change_is_told_what_was_so() {
    walks_while_tunables_change(count("MOUNTED_SECONDS", 3));
}

#[test]
#[ignore = "soak: minutes"]
fn soak_walks_are_told_what_was_so() {
    let seconds = count("MOUNTED_SECONDS", 60);
    walks_beside_changes(seconds);
    walks_beside_storms(seconds);
    walks_while_servers_are_killed(seconds);
    walks_while_tunables_change(seconds);
}
