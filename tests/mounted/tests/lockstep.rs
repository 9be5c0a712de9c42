//! A directory that is listed while others write to its files, step by step. Requests with prefetch and
//! without are counted exactly.
// SEMANTICS: op.stat, op.walk, cache.attributes

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use base::{Rng, SeededRng};
use mounted::{Cluster, seed};

const FILES: usize = 120;
/// In a directory that is read and not looked at.
const LISTED: usize = 4000;
/// Whole listings.
const ROUNDS: usize = 3;

/// Each has its own files open, on one of two mounts.
struct Writer {
    files: Vec<(String, File, u64)>,
}

impl Writer {
    /// Some bytes more in one file; its new size is the truth when this returns.
    fn step(&mut self, rng: &mut SeededRng) {
        let which = rng.below(self.files.len() as u64) as usize;
        let bytes = vec![7; 1 + rng.below(3000) as usize];
        let (_, file, size) = &mut self.files[which];
        file.write_all(&bytes).unwrap();
        *size += bytes.len() as u64;
    }
}

fn size_of(writers: &[Writer], name: &str) -> u64 {
    let mut files = writers.iter().flat_map(|writer| &writer.files);
    files.find(|(own, ..)| own == name).unwrap().2
}

/// Free space, which is asked of the servers now and then.
const SPACE: [&str; 2] = ["statfs", "ost_statfs"];
/// Those, and requests about the directory itself by its path: one or two in a listing whose names change,
/// with and without prefetch.
const BUT_PAGES: [&str; 4] = ["statfs", "ost_statfs", "lookup", "getattr"];

/// What the lister asks servers beside `by_the_way`, each question of a message, and frames.
fn asked(cluster: &Cluster, mount: usize, by_the_way: &[&str]) -> [u64; 2] {
    let stats = cluster.stats(mount);
    let kinds = stats["requests"].as_object().unwrap();
    let of_kind = |kind: &str| kinds.get(kind).and_then(|count| count.as_u64());
    let questions: u64 = kinds.values().filter_map(|count| count.as_u64()).sum();
    let by_the_way: u64 = by_the_way.iter().filter_map(|kind| of_kind(kind)).sum();
    let frames = stats["rpcs_sent"].as_u64().unwrap();
    [questions - by_the_way, frames - by_the_way]
}

/// A name in `DIR` and its writer's file.
fn open_all(dirs: &[impl AsRef<Path>], writers: usize) -> Vec<Writer> {
    let writer = |id: usize| {
        let of_his = (0..FILES).filter(|number| number % writers == id);
        let open = |number| {
            let name = format!("file{number}");
            let path = dirs[id % dirs.len()].as_ref().join(&name);
            (name, File::create(path).unwrap(), 0)
        };
        Writer {
            files: of_his.map(open).collect(),
        }
    };
    (0..writers).map(writer).collect()
}

/// What `ROUNDS` listings cost in which each call is followed by one of each writer.
fn cost(writers: usize, seed: u64, prefetch: bool) -> [u64; 2] {
    let mut cluster = Cluster::with_mounts(2);
    let dirs = [0, 1].map(|mount| cluster.root(mount).join("dir"));
    let lister = cluster.mount();
    if !prefetch {
        cluster.set_param(lister, "statahead_max", 0);
    }
    let mut rng = SeededRng::new(seed);
    let mut writers = cluster.timed("opening files", || {
        fs::create_dir(&dirs[0]).unwrap();
        open_all(&dirs, writers)
    });
    let dir = cluster.root(lister).join("dir");
    let before = asked(&cluster, lister, &SPACE);
    for round in 0..ROUNDS {
        cluster.timed("a listing", || {
            let mut listing = fs::read_dir(&dir).unwrap();
            let mut count = 0;
            loop {
                writers.iter_mut().for_each(|writer| writer.step(&mut rng));
                let Some(entry) = listing.next() else {
                    break;
                };
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                writers.iter_mut().for_each(|writer| writer.step(&mut rng));
                let told = entry.metadata().unwrap().len();
                assert_eq!(told, size_of(&writers, &name), "{name} in round {round}");
                count += 1;
            }
            assert_eq!(count, FILES);
        });
    }
    let after = asked(&cluster, lister, &SPACE);
    [after[0] - before[0], after[1] - before[1]]
}

fn no_dearer_than_without(writers: usize) {
    let seed = seed();
    let [with, without] = [true, false].map(|prefetch| cost(writers, seed, prefetch));
    println!("{writers} writers: {with:?} questions and frames, {without:?} without prefetch");
    assert!(
        with[0] <= without[0] && with[1] <= without[1],
        "{writers} writers: {with:?} questions and frames, {without:?} without prefetch"
    );
}

/// Makes and removes names between reads of a long list, so that each page may come from an outdated list.
fn cost_beside_makers(makers: usize, prefetch: bool) -> [u64; 2] {
    let mut cluster = Cluster::with_mounts(2);
    let dirs = [0, 1].map(|mount| cluster.root(mount).join("dir"));
    let lister = cluster.mount();
    if !prefetch {
        cluster.set_param(lister, "statahead_max", 0);
    }
    cluster.timed("making files", || {
        fs::create_dir(&dirs[0]).unwrap();
        (0..LISTED).for_each(|n| drop(File::create(dirs[0].join(format!("file{n}"))).unwrap()));
    });
    let mut steps = 0;
    let mut step = || {
        (0..makers).for_each(|id| {
            let name = dirs[id % 2].join(format!("made{id}"));
            match steps % 2 {
                0 => drop(File::create(name).unwrap()),
                _ => fs::remove_file(name).unwrap(),
            }
        });
        steps += 1;
    };
    let dir = cluster.root(lister).join("dir");
    let before = asked(&cluster, lister, &BUT_PAGES);
    for round in 0..ROUNDS {
        cluster.timed("a listing", || {
            let mut listed = BTreeSet::new();
            for (number, entry) in fs::read_dir(&dir).unwrap().enumerate() {
                if number % 100 == 0 {
                    step();
                }
                let name = entry.unwrap().file_name().into_string().unwrap();
                assert!(listed.insert(name.clone()), "{name} twice in round {round}");
            }
            let stayed = (0..LISTED).filter(|n| listed.contains(&format!("file{n}")));
            assert_eq!(stayed.count(), LISTED, "round {round}");
        });
    }
    let after = asked(&cluster, lister, &BUT_PAGES);
    [after[0] - before[0], after[1] - before[1]]
}

#[test]
fn who_lists_beside_makers_of_names_loses_one_page_at_most_to_prefetch() {
    for makers in [1, 10] {
        let [with, without] = [true, false].map(|prefetch| cost_beside_makers(makers, prefetch));
        println!("{makers} makers: {with:?} questions and frames, {without:?} without prefetch");
        // The page that was on its way when names changed for the first time; none after that.
        let lost = 1;
        assert!(
            with[0] <= without[0] + lost && with[1] <= without[1] + lost,
            "{makers} makers: {with:?} questions and frames, {without:?} without prefetch"
        );
    }
}

#[test]
fn who_lists_beside_one_writer_asks_no_more_than_without_prefetch() {
    no_dearer_than_without(1);
}

#[test]
fn who_lists_beside_ten_writers_asks_no_more_than_without_prefetch() {
    no_dearer_than_without(10);
}
