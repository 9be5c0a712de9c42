//! Two mounts doing everything at once in one directory.
// SEMANTICS: cache.names, cache.attributes, op.append, op.rename, op.readdir, cache.kernels

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use mounted::{Cluster, Mapping, count, seed};

/// Threads on each mount.
const THREADS: usize = 4;
const NAMES: u64 = 12;

/// One thread of the storm.
struct Worker<'a> {
    cluster: &'a Cluster,
    dir: &'a Path,
    id: usize,
    rng: SeededRng,
    records: u32,
}

impl Worker<'_> {
    fn name(&mut self) -> String {
        format!("n{}", self.rng.below(NAMES))
    }

    /// One call, its kind and what came of it.
    fn step(&mut self) -> (&'static str, io::Result<()>) {
        let (a, b) = (self.name(), self.name());
        let (a, b) = (self.dir.join(a), self.dir.join(b));
        let kind = self.rng.below(9);
        match kind {
            0 => (
                "create",
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&a)
                    .map(drop),
            ),
            1 => ("unlink", fs::remove_file(&a)),
            2 => ("rename", fs::rename(&a, &b)),
            3 => ("list", self.list()),
            4 => ("stat", fs::symlink_metadata(&a).map(drop)),
            5 => ("append", self.append()),
            6 => ("map", self.map()),
            7 => (
                "mkdir",
                fs::create_dir(&a).and_then(|()| fs::remove_dir(&a)),
            ),
            _ => ("link", fs::hard_link(&a, &b)),
        }
    }

    fn list(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.dir)? {
            // A name may vanish between the listing and the look.
            let _ = entry?.metadata();
        }
        Ok(())
    }

    fn append(&mut self) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).open(self.dir.join("log"))?;
        file.write_all(format!("{:03} {:08}\n", self.id, self.records).as_bytes())?;
        self.records += 1;
        Ok(())
    }

    /// Each worker has a byte of its own in a page that all map.
    fn map(&mut self) -> io::Result<()> {
        let mapping = Mapping::new(&self.dir.join("map"), 4096)?;
        let byte = self.rng.below(256) as u8;
        mapping.store(self.id * 7, &[byte]);
        assert_eq!(
            mapping.load(self.id * 7),
            byte,
            "a stored byte changed by itself"
        );
        Ok(())
    }

    fn run(mut self, until: Instant) -> (u32, BTreeMap<String, u32>) {
        let mut outcomes = BTreeMap::new();
        while Instant::now() < until {
            let cluster = self.cluster;
            let (what, result) = cluster.timed("a call in the storm", || self.step());
            let errno = result
                .err()
                .map_or(0, |error| error.raw_os_error().unwrap_or(-1));
            assert!(possible(what).contains(&errno), "{what}: errno {errno}");
            *outcomes.entry(format!("{what} {errno}")).or_default() += 1;
        }
        (self.records, outcomes)
    }
}

/// What a local file system may answer there; 0 is success.
fn possible(what: &str) -> &'static [i32] {
    use libc::{EEXIST, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPERM};
    match what {
        "create" => &[0, EISDIR],
        "unlink" => &[0, ENOENT, EISDIR],
        "rename" => &[0, ENOENT, EISDIR, ENOTDIR, ENOTEMPTY],
        "stat" => &[0, ENOENT],
        "mkdir" => &[0, EEXIST, ENOENT, ENOTDIR, ENOTEMPTY],
        "link" => &[0, ENOENT, EEXIST, EPERM],
        _ => &[0],
    }
}

fn listing(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let stat = entry.metadata().unwrap();
            use std::os::unix::fs::MetadataExt;
            format!(
                "{:?} {} {:o} {} {}",
                entry.file_name(),
                stat.ino(),
                stat.mode(),
                stat.nlink(),
                stat.len()
            )
        })
        .collect();
    names.sort();
    names
}

/// Every record that a worker was told it had written, once, in the worker's order.
fn check_log(text: &str, written: &[u32]) {
    let mut next = vec![0u32; written.len()];
    for line in text.split_inclusive('\n') {
        assert_eq!(line.len(), 13, "torn record {line:?}");
        let id: usize = line[..3]
            .parse()
            .unwrap_or_else(|_| panic!("torn record {line:?}"));
        assert_eq!(line, format!("{id:03} {:08}\n", next[id]));
        next[id] += 1;
    }
    assert_eq!(next, written);
}

fn storm(seconds: u64) {
    let cluster = Cluster::with_mounts(2);
    let seed = seed();
    let dirs = [0, 1].map(|mount| cluster.root(mount).join("storm"));
    cluster.timed("preparing", || {
        fs::create_dir(&dirs[0]).unwrap();
        fs::write(dirs[0].join("log"), "").unwrap();
        fs::write(dirs[0].join("map"), vec![0; 4096]).unwrap();
    });
    let until = Instant::now() + Duration::from_secs(seconds);
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..2 * THREADS)
            .map(|id| {
                let rng = SeededRng::new(seed + id as u64);
                let worker = Worker {
                    cluster: &cluster,
                    dir: &dirs[id % 2],
                    id,
                    rng,
                    records: 0,
                };
                scope.spawn(move || worker.run(until))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect()
    });
    let mut outcomes = BTreeMap::<String, u32>::new();
    for (what, times) in results.iter().flat_map(|(_, outcomes)| outcomes) {
        *outcomes.entry(what.clone()).or_default() += times;
    }
    println!("{outcomes:?}");
    let written: Vec<u32> = results.iter().map(|(records, _)| *records).collect();
    cluster.timed("the last look", || {
        assert_eq!(listing(&dirs[0]), listing(&dirs[1]));
        for dir in &dirs {
            check_log(&fs::read_to_string(dir.join("log")).unwrap(), &written);
        }
        assert_eq!(
            fs::read(dirs[0].join("map")).unwrap(),
            fs::read(dirs[1].join("map")).unwrap()
        );
    });
    // The process that believes to hold a lock that he has given back is refused.
    for mount in [0, 1] {
        let said = cluster.said(mount);
        assert!(!said.contains("did not take"), "mount {mount}:\n{said}");
    }
}

#[test]
fn two_mounts_storm_one_directory() {
    storm(count("MOUNTED_SECONDS", 20));
}

#[test]
#[ignore = "soak: a minute"]
fn soak_two_mounts_storm_one_directory() {
    storm(count("MOUNTED_SECONDS", 60));
}

/// Calls by path on three mounts, in so many directories that these have leases most of the time.
struct Walker<'a> {
    root: &'a Path,
    rng: SeededRng,
}

impl Walker<'_> {
    const DIRECTORIES: u64 = 60;
    const CALLS: u64 = 12;

    /// Two names of one directory or of those below it.
    fn paths(&mut self) -> [PathBuf; 2] {
        let dir = self
            .root
            .join(format!("d{}", self.rng.below(Self::DIRECTORIES)));
        let mut path = || {
            let name = format!("n{}", self.rng.below(4));
            match self.rng.below(4) {
                0 => dir.join("below").join(name),
                1 => dir.join("above").join(name),
                _ => dir.join(name),
            }
        };
        [path(), path()]
    }

    fn call(&mut self) -> (&'static str, io::Result<()>) {
        let [a, b] = self.paths();
        let create = |options: &mut OpenOptions| options.write(true).open(&a).map(drop);
        match self.rng.below(Self::CALLS) {
            0 => (
                "create",
                create(OpenOptions::new().create(true).truncate(false)),
            ),
            1 => ("create anew", create(OpenOptions::new().create_new(true))),
            2 => ("open", File::open(&a).map(drop)),
            3 => ("open and cut", create(OpenOptions::new().truncate(true))),
            4 => ("lstat", fs::symlink_metadata(&a).map(drop)),
            5 => ("stat", fs::metadata(&a).map(drop)),
            6 => (
                "chmod",
                fs::set_permissions(&a, Permissions::from_mode(0o755)),
            ),
            7 => ("link", fs::hard_link(&a, &b)),
            8 => ("rename", fs::rename(&a, &b)),
            9 => ("unlink", fs::remove_file(&a)),
            10 => ("mkdir", fs::create_dir(&a)),
            _ => ("rmdir", fs::remove_dir(&a)),
        }
    }
}

#[test]
#[ignore = "soak: half an hour"]
fn soak_a_million_calls_by_path_on_three_mounts_are_never_told_of_a_stale_file() {
    let cluster = Cluster::with_mounts(3);
    let (seed, calls) = (seed(), count("MOUNTED_CALLS", 1_000_000));
    let first = cluster.root(0);
    cluster.timed("preparing", || {
        for number in 0..Walker::DIRECTORIES {
            let dir = first.join(format!("d{number}"));
            fs::create_dir_all(dir.join("below")).unwrap();
            fs::create_dir(dir.join("above")).unwrap();
        }
    });
    let made = AtomicU64::new(0);
    thread::scope(|scope| {
        for id in 0..3 * THREADS {
            let rng = SeededRng::new(seed + id as u64);
            let root = cluster.root(id % 3);
            let (cluster, made) = (&cluster, &made);
            scope.spawn(move || {
                let mut walker = Walker { root, rng };
                while made.fetch_add(1, Ordering::Relaxed) < calls {
                    let (what, result) = cluster.timed("a call by path", || walker.call());
                    let errno = result.err().and_then(|error| error.raw_os_error());
                    assert_ne!(errno, Some(libc::ESTALE), "{what}");
                }
            });
        }
    });
}
