//! Random operations through two mounts that use no more of the kernel than older ones have.
// SEMANTICS: cache.kernels, cache.names, cache.attributes

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs;
use std::path::Path;

use base::Timestamp;
use model::{Generator, Model, Process, Profile, Trial};
use mounted::{Cluster, Mapping, count, seed};
use nix::unistd::{getegid, geteuid};
use wire::mdt::Caller;

/// The oracle's time; what tests compare does not depend on it.
const START: Timestamp = Timestamp {
    secs: 2_000_000_000,
    nanos: 0,
};

/// Two mounts with `option` agree with the oracle after each operation.
fn agree(option: &str) {
    let cluster = Cluster::with_mounts_of(2, &["-o", option]);
    let (seed, operations) = (seed(), count("MOUNTED_OPERATIONS", 1000));
    let me = Caller {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
    };
    let profile = Profile {
        root: me.uid == 0,
        xattrs: true,
        zero_range: true,
        nameless: option != "kernel=5.14",
    };
    let roots: Vec<&Path> = (0..2).map(|number| cluster.root(number)).collect();
    let mut trial = Trial::new(Process::new(Model::new(START, me), me), &roots, 100);
    for (number, op) in (1..=operations).zip(Generator::new(seed, profile)) {
        let result = cluster.timed(&format!("{number}: {op:?}"), || trial.step(&op));
        result.unwrap_or_else(|difference| panic!("MODEL_SEED={seed}: {difference}"));
    }
    let all = cluster.timed("the last look", || trial.compare_all());
    all.unwrap_or_else(|difference| panic!("MODEL_SEED={seed}: {difference}"));
}

#[test]
fn two_mounts_agree_with_what_linux_5_14_has() {
    agree("kernel=5.14");
}

#[test]
fn two_mounts_agree_with_what_linux_6_1_has() {
    agree("kernel=6.1");
}

/// Writers bypass the kernel's pages, and before Linux 6.6 that excludes a shared mapping: refused, never
/// stale.
#[test]
fn before_linux_6_6_a_file_open_for_writing_is_not_mapped_shared() {
    let cluster = Cluster::with_mounts_of(1, &["-o", "kernel=6.1"]);
    let path = cluster.root(0).join("file");
    fs::write(&path, "text").unwrap();
    let refused = Mapping::new(&path, 4).err().unwrap();
    assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
}
