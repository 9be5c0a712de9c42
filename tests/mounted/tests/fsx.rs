//! The program fsx, which writes, maps, truncates and reads one file and knows what must be in it.
// SEMANTICS: op.read, op.write, op.mmap, op.truncate, op.fallocate, op.fsync, cache.pages

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use mounted::{Cluster, count, first_difference, seed, tool};

/// It never unmaps what it mapped, and slows down: many runs, none longer than this.
const RUN: u64 = 10_000;

/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(180);

/// All it can do. A sync is a wait for the disk, so there are few.
const WEIGHTS: &str = "
[weights]
close_open = 1.0
invalidate = 1.0
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 5.0
fsync = 0.1
fdatasync = 0.1
posix_fallocate = 2.0
punch_hole = 3.0
sendfile = 3.0
posix_fadvise = 1.0
copy_file_range = 3.0
";

/// Whether a store into a mapping is followed by `msync`.
#[derive(Clone, Copy)]
enum Mappings {
    Synced,
    LeftDirty,
}

/// `operations` on `file`, with everything fsx has against it in the failure.
fn exercise(cluster: &Cluster, file: &Path, seed: u64, operations: u64, mappings: Mappings) {
    let local = tempfile::tempdir_in(cluster.local()).unwrap();
    let config = local.path().join("fsx.toml");
    let left_dirty = matches!(mappings, Mappings::LeftDirty);
    // To reserve nothing is an error, which fsx takes for a file system that cannot.
    let text = format!("nomsyncafterwrite = {left_dirty}\n[opsize]\nmin = 1\n{WEIGHTS}");
    fs::write(&config, text).unwrap();
    let mut fsx = Command::new(tool("fsx"));
    fsx.arg("-f").arg(&config).arg("-P").arg(local.path());
    fsx.args(["-S", &seed.to_string(), "-N", &operations.to_string()]);
    let output = cluster.timed_for(LIMIT, &format!("fsx -S {seed} -N {operations}"), || {
        fsx.arg(file).output().unwrap()
    });
    assert!(
        output.status.success(),
        "MODEL_SEED={seed}\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// `operations` on one mount, in two processes with a file each.
fn on_one_mount(operations: u64) {
    let cluster = Cluster::with_mounts(1);
    let seed = seed();
    thread::scope(|scope| {
        for process in 0..2 {
            let (cluster, file) = (&cluster, cluster.root(0).join(format!("file{process}")));
            scope.spawn(move || {
                for run in (process..operations / RUN).step_by(2) {
                    exercise(cluster, &file, seed + run, RUN, Mappings::LeftDirty);
                }
            });
        }
    });
    let file = cluster.root(0).join("file0");
    exercise(&cluster, &file, seed, 300, Mappings::Synced);
}

/// Runs on one file through two mounts in turn; the other sees what each left behind.
fn on_two_mounts(rounds: u64) {
    let cluster = Cluster::with_mounts(2);
    let seed = seed();
    for round in 0..rounds {
        let actor = usize::from(round % 2 == 1);
        let files = [actor, 1 - actor].map(|mount| cluster.root(mount).join("file"));
        let mappings = match round % 10 {
            9 => Mappings::Synced,
            _ => Mappings::LeftDirty,
        };
        exercise(&cluster, &files[0], seed + round, 150, mappings);
        cluster.timed("the other mount's look", || {
            let size = fs::metadata(&files[1]).unwrap().size();
            let [left, seen] = files.each_ref().map(|file| fs::read(file).unwrap());
            assert_eq!((seen.len(), size), (left.len(), left.len() as u64));
            let differs = first_difference(&seen, &left);
            assert_eq!(differs, None, "MODEL_SEED={seed}, round {round}");
        });
    }
}

#[test]
fn fsx_finds_nothing_on_one_mount() {
    on_one_mount(count("MOUNTED_FSX", 100_000));
}

#[test]
fn fsx_on_two_mounts_in_turn_leaves_the_same_bytes() {
    on_two_mounts(count("MOUNTED_FSX_ROUNDS", 60));
}

#[test]
#[ignore = "soak: ten minutes"]
fn soak_fsx_finds_nothing_on_one_mount() {
    on_one_mount(count("MOUNTED_FSX", 1_000_000));
}

#[test]
#[ignore = "soak: ten minutes"]
fn soak_fsx_on_two_mounts_in_turn_leaves_the_same_bytes() {
    on_two_mounts(count("MOUNTED_FSX_ROUNDS", 2_000));
}
