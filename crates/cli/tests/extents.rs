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
