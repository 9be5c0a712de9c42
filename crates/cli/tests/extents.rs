//! A file system whose objects are extents of one file. Its files outlive killed servers, a removal gives
//! their space back, and a check finds nothing.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use nix::sys::signal::Signal;
use support::served::Mounted;
use support::{eventually, glint, needs_root, shell};

#[test]
fn a_file_system_on_extents_outlives_killed_servers_and_gives_space_back() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(at, "mkdir mnt tree").worked();
    shell(at, "for n in $(seq 300); do echo $n$n > tree/$n; done").worked();
    shell(at, "head -c 20000000 /dev/urandom > tree/large").worked();
    glint(at, &["format", "D", "--store", "extents:128M"]).worked();
    assert!(!at.join("D/ost0/objects").exists());
    let mut mounted = Mounted::start(at);
    let free = || {
        let said = shell(at, "stat -fc %a mnt");
        said.worked().trim().parse::<u64>().unwrap()
    };
    let free_before = free();
    shell(at, "cp -r tree mnt/one && sync mnt/one/large mnt/one/7").worked();
    mounted.restart_killed();
    // Those that nobody synced, too: the mount has them, and sends them again.
    shell(at, "diff -r tree mnt/one && cp -r mnt/one mnt/two").worked();
    shell(at, "truncate -s 5000 mnt/two/large && rm -r mnt/one").worked();
    eventually("the space of what was removed is free", || {
        free() + 2500 > free_before
    });
    mounted.end_with(Signal::SIGKILL);
    let said = glint(at, &["fsck", "D"]);
    assert!(
        said.worked().contains("OST0: 0 errors, 0 warnings"),
        "{}",
        said.worked()
    );
    let mounted = Mounted::start(at);
    shell(
        at,
        "cmp -n 5000 tree/large mnt/two/large && diff -r tree/7 mnt/two/7",
    )
    .worked();
    drop(mounted);
}

#[test]
fn filefrag_says_where_a_file_lies() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(at, "mkdir mnt").worked();
    glint(at, &["format", "D", "--store", "extents:256M"]).worked();
    let mounted = Mounted::start(at);
    shell(
        at,
        "head -c 9000000 /dev/urandom > mnt/whole && : > mnt/empty",
    )
    .worked();
    shell(
        at,
        "head -c 5000 /dev/zero > mnt/sparse && truncate -s 1M mnt/sparse",
    )
    .worked();
    shell(at, "fallocate -o 512K -l 8K mnt/sparse").worked();
    let frags = |file: &str| -> serde_json::Value {
        let said = glint(at, &["fs", "filefrag", "--json", file]);
        serde_json::from_str(said.worked()).unwrap()
    };
    // A piece of a record is no longer than 4 MiB: those that lie in a row are one extent.
    let whole = &frags("mnt/whole")["extents"];
    let whole = whole.as_array().unwrap();
    let bytes = whole.iter().map(|extent| extent["bytes"].as_u64().unwrap());
    assert!(whole.len() < 3, "{whole:?}");
    assert_eq!(bytes.sum::<u64>(), 9_003_008, "whole blocks");
    let sparse = &frags("mnt/sparse")["extents"];
    let [written, reserved] = &sparse.as_array().unwrap()[..] else {
        panic!("{sparse}")
    };
    assert_eq!(
        (&written["offset"], &written["bytes"]),
        (&0.into(), &8192.into())
    );
    let at_half = (&(512 << 10).into(), &8192.into(), &false.into());
    assert_eq!(
        (
            &reserved["offset"],
            &reserved["bytes"],
            &reserved["written"]
        ),
        at_half
    );
    let said = glint(
        at,
        &["fs", "filefrag", "-v", "mnt/empty", "mnt/sparse", "mnt"],
    );
    let expected = [
        "mnt/empty: 0 extents on OST0",
        "mnt/sparse: 2 extents on OST0",
        "524288",
    ];
    expected
        .iter()
        .for_each(|part| assert!(said.out.contains(part), "{said:?}"));
    assert!(
        said.code != Some(0) && said.err.contains("only files have bytes"),
        "{said:?}"
    );
    drop(mounted);
}

#[test]
fn filefrag_over_files_says_who_knows() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(at, "mkdir mnt").worked();
    glint(at, &["format", "D", "--store", "files"]).worked();
    let mounted = Mounted::start(at);
    shell(at, "echo text > mnt/file").worked();
    let said = glint(at, &["fs", "filefrag", "mnt/file"]);
    assert!(
        said.code != Some(0) && said.err.contains("as files"),
        "{said:?}"
    );
    drop(mounted);
}

#[test]
fn a_size_that_is_none_or_too_small_is_refused_and_nothing_is_made() {
    let dir = tempfile::tempdir().unwrap();
    for store in [
        "extents:",
        "extents:1Z",
        "extents:9G9",
        "blocks",
        "extents:1M",
    ] {
        let ran = glint(dir.path(), &["format", "D", "--store", store]);
        let part = match store {
            "extents:1M" => "no room for data",
            "blocks" => "no store",
            _ => "no size",
        };
        assert!(ran.code != Some(0) && ran.err.contains(part), "{ran:?}");
        assert!(!dir.path().join("D/ost0").exists());
    }
}

/// As on ext2. Who asks for extents there is told why not.
#[test]
fn where_no_space_is_taken_beforehand_objects_are_files() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(
        at,
        "truncate -s 64M disk && mkfs.ext2 -q disk && mkdir small",
    )
    .worked();
    shell(at, "mount -o loop disk small").worked();
    let made = glint(at, &["format", "small/D"]);
    let store = support::stored::store_of(&at.join("small/D"));
    let refused = glint(at, &["format", "small/E", "--store", "extents"]);
    let left = shell(at, "ls small/D/ost0 small/E");
    shell(at, "umount small").worked();
    made.worked();
    assert_eq!(store, "ost0/objects");
    assert!(refused.err.contains("take space for it"), "{refused:?}");
    assert!(!left.out.contains("extents"), "{left:?}");
}

/// The numbers of cells of a picture that are free, and of others.
fn cells(svg: &str) -> (usize, usize) {
    let all = svg.matches("<rect").count() - 1;
    let free = svg.matches("#E2E8EC").count();
    (free, all - free)
}

#[test]
fn a_picture_shows_what_is_in_use_of_a_served_target_and_of_another() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(at, "mkdir mnt").worked();
    glint(at, &["format", "D", "--store", "extents:512M"]).worked();
    let picture = || glint(at, &["target", "picture", "D"]);
    let empty = picture().worked().to_owned();
    assert_eq!(cells(&empty), (1, 0), "{empty}");
    let mounted = Mounted::start(at);
    shell(at, "head -c 100M /dev/zero > mnt/file && sync mnt/file").worked();
    let served = picture().worked().to_owned();
    assert!(
        cells(&served).1 > 0 && served.contains("OST0: groups 0 to"),
        "{served}"
    );
    mounted.end();
    let files = "sha256sum D/ost0/superblock D/ost0/db; stat -c %Y D/ost0/extents";
    let before = shell(at, files).worked().to_owned();
    assert_eq!(cells(picture().worked()), cells(&served));
    assert_eq!(shell(at, files).worked(), before, "nothing is written");
    glint(at, &["target", "picture", "D", "--target", "ost3"]).failed_saying(&["D has no OST3"]);
    glint(at, &["format", "F", "--store", "files"]).worked();
    glint(at, &["target", "picture", "F"]).failed_saying(&["objects are files"]);
}
