//! A file system whose objects are extents of one file. Its files outlive killed servers, a removal gives
//! their space back, and a check finds nothing.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use nix::sys::signal::Signal;
use support::ports::free_address;
use support::{Staying, eventually, glint, needs_root, shell};

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
    let address = free_address();
    let serve = || Staying::start(at, &["serve", "D", "--listen", &address]);
    let mut server = serve();
    let mount = Staying::start(at, &["mount", &address, "mnt", "--key", "D/key"]);
    let free = || {
        let said = shell(at, "stat -fc %a mnt");
        said.worked().trim().parse::<u64>().unwrap()
    };
    let free_before = free();
    shell(at, "cp -r tree mnt/one && sync mnt/one/large mnt/one/7").worked();
    server.signal(Signal::SIGKILL);
    server.ended();
    server = serve();
    // Those that nobody synced, too: the mount has them, and sends them again.
    shell(at, "diff -r tree mnt/one && cp -r mnt/one mnt/two").worked();
    shell(at, "truncate -s 5000 mnt/two/large && rm -r mnt/one").worked();
    eventually("the space of what was removed is free", || {
        free() + 2500 > free_before
    });
    glint(at, &["umount", "mnt"]).worked();
    drop(mount);
    server.signal(Signal::SIGKILL);
    server.ended();
    let said = glint(at, &["fsck", "D"]);
    assert!(
        said.worked().contains("OST0: 0 errors, 0 warnings"),
        "{}",
        said.worked()
    );
    server = serve();
    let mount = Staying::start(at, &["mount", &address, "mnt", "--key", "D/key"]);
    shell(
        at,
        "cmp -n 5000 tree/large mnt/two/large && diff -r tree/7 mnt/two/7",
    )
    .worked();
    drop((mount, server));
}

/// A mount of `dir/D` on `dir/mnt`, and its server.
fn mounted(at: &std::path::Path) -> (Staying, Staying) {
    let address = free_address();
    let server = Staying::start(at, &["serve", "D", "--listen", &address]);
    let mount = Staying::start(at, &["mount", &address, "mnt", "--key", "D/key"]);
    (mount, server)
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
    let both = mounted(at);
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
    drop(both);
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
    let both = mounted(at);
    shell(at, "echo text > mnt/file").worked();
    let said = glint(at, &["fs", "filefrag", "mnt/file"]);
    assert!(
        said.code != Some(0) && said.err.contains("as files"),
        "{said:?}"
    );
    drop(both);
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

/// A loop device, for as long as the test runs.
struct Loop {
    path: String,
    file: std::path::PathBuf,
}

impl Loop {
    fn new(at: &std::path::Path, name: &str, size: &str) -> Loop {
        let file = at.join(name);
        shell(at, &format!("truncate -s {size} {name}")).worked();
        let made = shell(at, &format!("losetup --find --show {name}"));
        let path = made.worked().trim().to_owned();
        Loop { path, file }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let dir = self.file.parent().unwrap();
        shell(dir, &format!("losetup --detach {}", self.path));
    }
}

#[test]
fn a_target_on_a_block_device_is_served_and_checked_and_a_device_with_something_is_refused() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let device = Loop::new(at, "disk", "200M");
    shell(at, "mkdir mnt && mkfs.ext4 -q disk").worked();
    let format = |more: &[&str]| {
        glint(
            at,
            &[&["format", "D", "--device", &device.path], more].concat(),
        )
    };
    let refused = |more: &[&str], words: &str| {
        let ran = format(more);
        assert!(ran.code != Some(0) && ran.err.contains(words), "{ran:?}");
        assert!(!at.join("D/ost0").exists());
    };
    refused(&[], "it holds something already");
    shell(at, &format!("mount {} mnt", device.path)).worked();
    refused(&["--erase-device"], "it is mounted");
    shell(at, "umount mnt").worked();
    refused(&["--erase-device", "--size", "201M"], "bytes, not");
    refused(&["--erase-device", "--role", "ost1,ost2"], "is for one OST");
    format(&["--erase-device", "--size", "150M"]).worked();
    let again = glint(at, &["format", "E", "--device", &device.path]);
    assert!(
        again.code != Some(0) && again.err.contains("it holds something"),
        "{again:?}"
    );

    let address = free_address();
    let serve = || Staying::start(at, &["serve", "D", "--listen", &address]);
    let mut server = serve();
    let mount = Staying::start(at, &["mount", &address, "mnt", "--key", "D/key"]);
    shell(
        at,
        "head -c 20000000 /dev/urandom > mnt/large && seq 100000 > mnt/seq && sync mnt/*",
    )
    .worked();
    let free = shell(at, "stat -fc %b mnt");
    let bytes = free.worked().trim().parse::<u64>().unwrap() * 4096;
    assert!((130 << 20..150 << 20).contains(&bytes), "{bytes}");
    server.signal(Signal::SIGKILL);
    server.ended();
    server = serve();
    shell(at, "seq 100000 | cmp - mnt/seq").worked();
    glint(at, &["umount", "mnt"]).worked();
    drop(mount);
    server.signal(Signal::SIGTERM);
    server.ended();
    let said = glint(at, &["fsck", "D"]);
    assert!(
        said.worked().contains("OST0: 0 errors, 0 warnings"),
        "{}",
        said.worked()
    );
    // Its file is read as the device was written, and no other target takes it for its own.
    shell(at, &format!("blockdev --flushbufs {0} && dd if=/dev/zero of={0} bs=4096 count=2 conv=notrunc status=none", device.path)).worked();
    let said = glint(at, &["fsck", "D"]);
    assert!(said.code != Some(0), "{said:?}");
}
