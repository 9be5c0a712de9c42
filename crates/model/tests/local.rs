//! The oracle is right: random operations on it and on local file systems give the same results and,
//! after every operation, the same tree.

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeMap;
use std::path::Path;

use base::Timestamp;
use model::{Generator, Model, Op, Process, Profile, Seen, Trial};
use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use wire::mdt::Caller;

const START: Timestamp = Timestamp {
    secs: 2_000_000_000,
    nanos: 0,
};

fn me() -> Caller {
    Caller {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
    }
}

fn profile(root: &Path) -> Profile {
    let probe = rustix::fs::setxattr(root, "user.probe", b"1", rustix::fs::XattrFlags::empty());
    if probe.is_ok() {
        rustix::fs::removexattr(root, "user.probe").unwrap();
    }
    Profile {
        root: me().uid == 0,
        xattrs: probe.is_ok(),
        zero_range: is(root, "ext4"),
        nameless: true,
    }
}

fn is(path: &Path, name: &str) -> bool {
    let magic = statfs(path).unwrap().filesystem_type();
    match name {
        "tmpfs" => magic == TMPFS_MAGIC,
        _ => magic == FsType(0xef53),
    }
}

fn fresh(at: &Path) -> (tempfile::TempDir, Process) {
    let dir = tempfile::tempdir_in(at).unwrap();
    std::fs::set_permissions(
        dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    (dir, Process::new(Model::new(START, me()), me()))
}

/// Runs `count` operations through two runners in one directory, comparing everything after each.
fn run(at: &Path, seed: u64, count: usize) {
    let (dir, process) = fresh(at);
    let mut trial = Trial::new(process, &[dir.path(), dir.path()], 1);
    for op in Generator::new(seed, profile(dir.path())).take(count) {
        if let Err(difference) = trial.step(&op) {
            panic!("seed {seed}: {difference}");
        }
    }
}

fn shared_memory() -> Option<&'static Path> {
    let path = Path::new("/dev/shm");
    (path.is_dir() && is(path, "tmpfs")).then_some(path)
}

#[test]
fn the_oracle_agrees_with_tmpfs() {
    let Some(tmpfs) = shared_memory() else {
        panic!("/dev/shm is no tmpfs here: mount one, the oracle's proof needs it");
    };
    for seed in 0..20 {
        run(tmpfs, seed, 1000);
    }
}

#[test]
fn the_oracle_agrees_with_the_local_disk() {
    let dir = std::env::temp_dir();
    if is(&dir, "ext4") || is(&dir, "tmpfs") {
        for seed in 100..110 {
            run(&dir, seed, 500);
        }
    }
}

#[test]
fn the_generator_reaches_every_call_and_both_ends_of_it() {
    let mut counts = BTreeMap::<String, (u32, u32)>::new();
    let (dir, mut process) = fresh(&std::env::temp_dir());
    for op in Generator::new(7, profile(dir.path())).take(6000) {
        let name = format!("{op:?}");
        let name = name.split([' ', '{']).next().unwrap().to_owned();
        let count = counts.entry(name).or_default();
        match process.apply(&op) {
            Ok(Seen::Skipped) => {}
            Ok(_) => count.0 += 1,
            Err(_) => count.1 += 1,
        }
    }
    let never_fail = ["Close", "Fstat", "Fsync"];
    assert!(counts.len() >= 20, "{counts:?}");
    for (name, (good, bad)) in counts {
        assert!(good >= 1, "{name} never succeeded");
        assert!(bad >= 1 || never_fail.contains(&name.as_str()), "{name}");
    }
}

#[test]
fn a_wrong_file_system_is_found() {
    let (dir, process) = fresh(&std::env::temp_dir());
    let mut trial = Trial::new(process, &[dir.path()], 1000);
    for op in Generator::new(1, profile(dir.path())).take(300) {
        trial.step(&op).unwrap();
    }
    trial.compare_all().unwrap();
    std::fs::write(dir.path().join("planted"), "x").unwrap();
    assert!(trial.compare_all().unwrap_err().contains("planted"));
    let path = "planted".to_owned();
    assert!(
        trial
            .step(&Op::Stat { path })
            .unwrap_err()
            .contains("oracle Err(NotFound)")
    );
}
