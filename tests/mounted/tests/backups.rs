//! Programs that copy files just after those were written, and look at their space to find holes.
//! No bytes are taken for a hole, and space is what it will be.
// SEMANTICS: op.stat, op.lseek, op.fallocate

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use mounted::{Cluster, Mapping, run};
use nix::unistd::{Whence, lseek};

/// What is not asked for is not sent in a test's time.
const NEVER_MS: u64 = 60_000;
const MIB: u64 = 1 << 20;

/// Each makes `copy` of `hot`, which is beside it, in `$TO`.
const TOOLS: [(&str, &str); 8] = [
    (
        "tar -S",
        "tar cSf - hot | tar xSf - -C \"$TO\" && mv \"$TO/hot\" \"$TO/copy\"",
    ),
    ("cp", "cp hot \"$TO/copy\""),
    ("cp --sparse=always", "cp --sparse=always hot \"$TO/copy\""),
    ("cp --sparse=never", "cp --sparse=never hot \"$TO/copy\""),
    ("rsync -S", "rsync -S hot \"$TO/copy\""),
    (
        "rsync --inplace",
        "cp hot \"$TO/copy\" && head -c 9000 /dev/urandom >>hot && rsync --inplace --no-whole-file hot \"$TO/copy\"",
    ),
    (
        "cpio",
        "echo hot | cpio -o -H newc | (cd \"$TO\" && cpio -i --sparse) && mv \"$TO/hot\" \"$TO/copy\"",
    ),
    (
        "dd conv=sparse",
        "dd if=hot of=\"$TO/copy\" bs=4k conv=sparse",
    ),
];

/// Ways in which a file was just written.
const WRITTEN: [(&str, &str); 4] = [
    ("whole", "head -c 300000 /dev/urandom >hot"),
    (
        "in pieces",
        "head -c 100000 /dev/urandom >hot; for at in 90 60 70; do head -c 4096 /dev/urandom | dd of=hot bs=4096 seek=$at conv=notrunc; done",
    ),
    (
        "with holes",
        "truncate -s 4M hot; for at in 3 500 900; do head -c 4096 /dev/urandom | dd of=hot bs=4096 seek=$at conv=notrunc; done",
    ),
    (
        "anew",
        "head -c 200000 /dev/urandom >hot; sync hot; head -c 150000 /dev/urandom >hot",
    ),
];

/// Copies of what was written in `here` made by each tool through `there`, to the mount and to the
/// local disk. Each of them is the first for every other tool.
fn copies_are_equal(cluster: &Cluster, here: usize, there: usize) {
    let local = tempfile::tempdir().unwrap();
    let on_mount = cluster.root(there).join("copies");
    fs::create_dir(&on_mount).unwrap();
    let mut places = [local.path(), on_mount.as_path()];
    for (how, write) in WRITTEN {
        for (tool, copy) in TOOLS {
            println!("{tool} of a file that was written {how}");
            run(cluster.root(here), &format!("rm -f hot; {write}"));
            for to in places {
                let to = to.display();
                let script = format!("TO='{to}'; {copy}; cmp hot \"$TO/copy\"; rm \"$TO/copy\"");
                run(cluster.root(there), &script);
            }
            places.reverse();
        }
        places.reverse();
    }
}

#[test]
fn backup_tools_copy_what_was_just_written_on_the_mount() {
    let cluster = Cluster::with_mounts(1);
    cluster.set_param(0, "dirty_age_ms", NEVER_MS);
    copies_are_equal(&cluster, 0, 0);
}

#[test]
fn backup_tools_copy_what_was_just_written_on_another_mount() {
    let cluster = Cluster::with_mounts(2);
    cluster.set_param(0, "dirty_age_ms", NEVER_MS);
    copies_are_equal(&cluster, 0, 1);
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks()
}

#[test]
fn bytes_that_were_not_sent_take_space_on_every_mount_and_their_osts_count_replaces_that() {
    const BYTES: usize = 100_000;
    let full = BYTES.div_ceil(4096) as u64 * 8;
    let cluster = Cluster::with_mounts(2);
    cluster.set_param(0, "dirty_age_ms", NEVER_MS);
    let [one, two] = [0, 1].map(|number| cluster.root(number).join("file"));
    let file = File::create(&one).unwrap();
    assert_eq!(blocks(&one), 0);
    file.write_all_at(&[7; BYTES], 0).unwrap();
    for path in [&one, &two, &one] {
        assert_eq!(blocks(path), full, "{}", path.display());
    }
    file.sync_all().unwrap();
    let object = blocks(&one);
    assert!(object >= full, "{object}");
    assert_eq!(blocks(&two), object);
    // Written once more it takes no more.
    file.write_all_at(&[8; BYTES], 0).unwrap();
    assert_eq!(blocks(&one), object);
    assert_eq!(blocks(&two), object);
    file.set_len(0).unwrap();
    for path in [&one, &two] {
        assert_eq!(blocks(path), 0, "{}", path.display());
    }
}

#[test]
fn holes_are_holes_before_and_after_bytes_are_sent() {
    let cluster = Cluster::with_mounts(2);
    cluster.set_param(0, "dirty_age_ms", NEVER_MS);
    let [one, two] = [0, 1].map(|number| cluster.root(number).join("file"));
    let file = File::create(&one).unwrap();
    file.set_len(8 * MIB).unwrap();
    let data = [0, 4 * MIB, 8 * MIB - 4096];
    for at in data {
        file.write_all_at(&[9; 4096], at).unwrap();
    }
    for path in [&one, &two] {
        assert_eq!(blocks(path), 3 * 8, "{}", path.display());
    }
    let reader = File::open(&two).unwrap();
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(start) = lseek(&reader, at, Whence::SeekData) {
        found.push(start as u64);
        at = lseek(&reader, start, Whence::SeekHole).unwrap();
    }
    assert_eq!(found, data, "{}", reader.as_raw_fd());
    assert!(blocks(&one) >= 3 * 8 && blocks(&one) < 100);
}

/// Stores into a mapping that stays, which no call has told the file system of.
#[test]
fn what_was_just_stored_into_a_mapping_is_no_hole() {
    let cluster = Cluster::with_mounts(2);
    let hot = cluster.root(0).join("hot");
    File::create(&hot).unwrap().set_len(4 * MIB).unwrap();
    let mapping = Mapping::new(&hot, 4 * MIB as usize).unwrap();
    for (number, (tool, copy)) in TOOLS.into_iter().enumerate() {
        for mount in [0, 1] {
            println!("{tool} of a mapped file on mount {mount}");
            let at = number * 2 + mount;
            mapping.store(at * 200_000, &[at as u8 + 1; 5000]);
            let local = tempfile::tempdir().unwrap();
            let to = local.path().display();
            // One that adds to the file leaves the mapping behind.
            if tool != "rsync --inplace" {
                let script = format!("TO='{to}'; {copy}; cmp hot \"$TO/copy\"");
                run(cluster.root(mount), &script);
            }
        }
    }
    let file = File::open(&hot).unwrap();
    mapping.store(2 * MIB as usize, b"data");
    let found = lseek(&file, 2 * MIB as i64, Whence::SeekData).unwrap();
    assert_eq!(found, 2 * MIB as i64);
}
