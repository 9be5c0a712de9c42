//! Random operations on mounts and on the oracle, which must agree after each.
// SEMANTICS: op.lookup, op.readdir, op.create, op.mkdir, op.mknod, op.symlink, op.readlink, op.link
// SEMANTICS: op.unlink, op.rmdir, op.rename, op.stat, op.setattr, op.xattr, op.open, op.close
// SEMANTICS: op.read, op.write, op.append, op.truncate, op.fallocate, cache.names, cache.attributes

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::path::Path;
use std::time::Duration;

use base::Timestamp;
use model::{Generator, Model, Process, Profile, Trial};
use mounted::{Cluster, count, seed};
use wire::mdt::Caller;

const START: Timestamp = Timestamp {
    secs: 2_000_000_000,
    nanos: 0,
};

/// Operations between two looks at the whole tree, which grows to hundreds of files.
const LOOK_AT_ALL_EVERY: usize = 1000;

fn me() -> Caller {
    Caller {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
    }
}

/// Applies `operations` to the mounts in turn; each is looked at through the next mount, and the whole
/// tree through all of them at times.
fn agree(mounts: usize, operations: u64) {
    agree_on(&Cluster::with_mounts(mounts), mounts, operations);
}

fn agree_on(cluster: &Cluster, mounts: usize, operations: u64) {
    agree_from(seed(), cluster, mounts, operations);
}

fn agree_from(seed: u64, cluster: &Cluster, mounts: usize, operations: u64) {
    let profile = Profile {
        root: me().uid == 0,
        xattrs: true,
        zero_range: true,
        nameless: true,
    };
    let roots: Vec<&Path> = (0..mounts).map(|number| cluster.root(number)).collect();
    let process = Process::new(Model::new(START, me()), me());
    let mut trial = Trial::new(process, &roots, LOOK_AT_ALL_EVERY);
    for (number, op) in (1..=operations).zip(Generator::new(seed, profile)) {
        let result = cluster.timed(&format!("{number}: {op:?}"), || trial.step(&op));
        result.unwrap_or_else(|difference| panic!("MODEL_SEED={seed}: {difference}"));
    }
    let all = cluster.timed_for(Duration::from_secs(120), "the last look", || {
        trial.compare_all()
    });
    all.unwrap_or_else(|difference| panic!("MODEL_SEED={seed}: {difference}"));
}

#[test]
fn one_mount_agrees_with_the_oracle() {
    agree(1, count("MOUNTED_OPERATIONS", 30_000));
}

#[test]
fn two_mounts_agree_with_the_oracle() {
    agree(2, count("MOUNTED_OPERATIONS", 50_000));
}

/// Files are made here and told to the MDT later.
#[test]
fn mounts_that_write_names_back_agree_with_the_oracle() {
    let cluster = Cluster::with_mounts(2);
    for mount in 0..2 {
        cluster.set_param(mount, "wbc", 1);
    }
    agree_on(&cluster, 2, count("MOUNTED_OPERATIONS", 10_000));
}

/// Nobody else looks: most files are renamed, linked and removed before they are reported.
#[test]
fn a_mount_that_writes_names_back_alone_agrees_with_the_oracle() {
    let mut cluster = Cluster::with_mounts(1);
    cluster.set_param(0, "wbc", 1);
    cluster.set_param(0, "writeback_age_ms", 300);
    agree_on(&cluster, 1, count("MOUNTED_OPERATIONS", 10_000));
    cluster.unmount(0);
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// The first: a new file is moved away from a name, and gets that name again. The second: a new file has
/// names in two directories, and loses the one that it got last. The third: a new directory gets a name, and
/// then a time. The fourth: a directory that is open gets another group, and goes.
#[test]
fn what_once_failed_of_names_that_are_written_back_agrees_with_the_oracle() {
    let seeds = [
        (160_876_676, 5_700),
        (2_775_259_762, 1_950),
        (3_371_496_772, 6_050),
        (1_855_621_591, 850),
    ];
    for (seed, operations) in seeds {
        let cluster = Cluster::with_mounts(1);
        cluster.set_param(0, "wbc", 1);
        cluster.set_param(0, "writeback_age_ms", 300);
        agree_from(seed, &cluster, 1, operations);
    }
}

#[test]
fn three_mounts_agree_with_the_oracle() {
    agree(3, count("MOUNTED_OPERATIONS", 20_000));
}

/// Requests that wait for tokens run in another order than they came.
#[test]
fn two_mounts_agree_with_the_oracle_on_weak_servers() {
    let cluster = Cluster::with_mounts(2);
    let limit = "each=client rate=1500 burst=1";
    for (target, some) in [
        ("mdt.glint-MDT0", "getattr,open,create"),
        ("ost.glint-OST0", "ost_read,ost_write"),
    ] {
        cluster.rule(target, &format!("start all {limit}"));
        cluster.rule(target, &format!("start some opcode={{{some}}} {limit}"));
    }
    agree_on(&cluster, 2, count("MOUNTED_OPERATIONS", 2000));
}

#[test]
#[ignore = "soak: an hour"]
fn soak_two_mounts_agree_with_the_oracle() {
    agree(2, count("MOUNTED_OPERATIONS", 1_000_000));
}
