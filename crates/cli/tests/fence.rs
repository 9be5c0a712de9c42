//! One process at a time serves a target, also where machines share the storage and do not see each
//! other's locks.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use support::ports::free_address;
use support::{Staying, eventually, glint, needs_root};

const WAITED: &str = "s are spent on seeing that nobody else writes to it";

fn served(dir: &Path, words: &[&str]) -> Staying {
    let address = free_address();
    Staying::start(
        dir,
        &[&["serve", "D", "--listen", &address], words].concat(),
    )
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    glint(dir.path(), &["format", "D"]).worked();
    dir
}

/// A fence says whether it is held in its thirteenth byte.
fn is_held(dir: &Path) -> Vec<bool> {
    let targets = ["mgs", "mdt0", "ost0"].iter();
    targets
        .map(|target| fs::read(dir.join("D").join(target).join("fence")).unwrap()[12] == 1)
        .collect()
}

#[test]
fn who_starts_second_on_another_machine_loses_and_says_to_whom() {
    let dir = place();
    let mut first = served(dir.path(), &[]);
    let listen = free_address();
    let second = ["serve", "D", "--machine", "elsewhere", "--listen", &listen];
    let holder = format!("in use by process {} on ", first.pid());
    let ran = glint(dir.path(), &second);
    ran.failed_saying(&["D/", &holder, "stop it there first"]);
    let refused = ran.err.lines().filter(|line| line.starts_with("glint: "));
    assert_eq!(refused.count(), 1, "{ran:?}");
    assert_eq!(is_held(dir.path()), [true; 3], "the first goes on");
    first.signal(Signal::SIGTERM);
    assert_eq!(first.ended(), Some(0), "{}", first.said());
    assert_eq!(is_held(dir.path()), [false; 3], "let go");
    let moved = served(dir.path(), &["--machine", "elsewhere"]);
    assert_eq!(is_held(dir.path()), [true; 3], "{}", moved.said());
}

#[test]
fn a_restart_after_a_kill_does_not_wait_here_and_does_elsewhere() {
    let dir = place();
    for _ in 0..2 {
        let mut server = served(dir.path(), &[]);
        assert!(!server.said().contains(WAITED), "{}", server.said());
        server.signal(Signal::SIGKILL);
        server.ended();
        assert_eq!(is_held(dir.path()), [true; 3]);
    }
    let moved = served(dir.path(), &["--machine", "elsewhere"]);
    assert!(moved.said().contains(WAITED), "{}", moved.said());
}

#[test]
fn who_stood_still_for_too_long_writes_nothing_more_and_ends() {
    if needs_root() {
        return;
    }
    let dir = place();
    let (a, b) = (free_address(), free_address());
    let both = format!("{a},{b}");
    let mut first = Staying::start(dir.path(), &["serve", "D", "--listen", &a]);
    let mount = ["mount", &both, "mnt", "--key", "D/key"];
    let mut mount = Staying::start(dir.path(), &mount);
    let mnt = dir.path().join("mnt");
    fs::write(mnt.join("before"), "words").unwrap();
    first.signal(Signal::SIGSTOP);
    let second = ["serve", "D", "--listen", &b, "--machine", "elsewhere"];
    let mut second = Staying::start(dir.path(), &second);
    // Of programs that use the mount meanwhile one is stopped if all this goes wrong.
    let write = "cat mnt/before && echo more > mnt/after && sync -f mnt/after";
    let ran = support::shell(dir.path(), write);
    assert_eq!(ran.worked(), "words", "{}", mount.said());
    first.signal(Signal::SIGCONT);
    assert_eq!(first.ended(), Some(1), "{}", first.said());
    let said = first.said();
    assert!(said.contains("its fence was taken by process "), "{said}");
    assert!(said.contains("on elsewhere"), "{said}");
    assert_eq!(
        support::shell(dir.path(), "cat mnt/after").worked(),
        "more\n"
    );
    mount.signal(Signal::SIGTERM);
    assert_eq!(mount.ended(), Some(0), "{}", mount.said());
    second.signal(Signal::SIGTERM);
    assert_eq!(second.ended(), Some(0), "{}", second.said());
    glint(dir.path(), &["fsck", "D"]).worked();
}

#[test]
fn a_fence_that_is_not_there_is_made_and_a_torn_one_is_watched() {
    let dir = place();
    fs::remove_file(dir.path().join("D/mgs/fence")).unwrap();
    let torn = dir.path().join("D/mdt0/fence");
    let mut bytes = fs::read(&torn).unwrap();
    bytes[100] ^= 1;
    fs::write(&torn, bytes).unwrap();
    let server = served(dir.path(), &[]);
    eventually("all are held", || is_held(dir.path()) == [true; 3]);
    assert!(server.said().contains("mdt0: "), "{}", server.said());
}

#[test]
fn who_waits_for_a_fence_ends_when_asked_to() {
    let dir = place();
    let mut first = served(dir.path(), &[]);
    first.signal(Signal::SIGKILL);
    first.ended();
    let (listen, log) = (free_address(), dir.path().join("waiting"));
    let mut waiting = std::process::Command::new(support::program())
        .args(["serve", "D", "--machine", "elsewhere", "--listen", &listen])
        .current_dir(dir.path())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    eventually("it waits", || {
        fs::read_to_string(&log).unwrap().contains(WAITED)
    });
    let pid = nix::unistd::Pid::from_raw(waiting.id() as i32);
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    let asked = std::time::Instant::now();
    assert_eq!(waiting.wait().unwrap().code(), Some(0));
    assert!(asked.elapsed().as_secs() < 3, "{:?}", asked.elapsed());
}

#[test]
fn a_mount_of_up_goes_with_its_targets() {
    if needs_root() {
        return;
    }
    let dir = place();
    let mut up = Staying::start(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
    let mnt = dir.path().join("mnt");
    fs::write(mnt.join("before"), "words").unwrap();
    let open = fs::File::open(mnt.join("before")).unwrap();
    open.sync_all().unwrap();
    up.signal(Signal::SIGSTOP);
    let mut second = served(dir.path(), &["--machine", "elsewhere"]);
    up.signal(Signal::SIGCONT);
    assert_eq!(up.ended(), Some(1), "{}", up.said());
    let said = up.said();
    assert_eq!(said.matches("its fence was taken by").count(), 1, "{said}");
    // The directory below, and not a mount that no process serves.
    assert_eq!(fs::read_dir(&mnt).unwrap().count(), 0, "{said}");
    assert!(open.metadata().is_err(), "no process serves it");
    second.signal(Signal::SIGTERM);
    assert_eq!(second.ended(), Some(0), "{}", second.said());
}

#[test]
fn a_server_whose_directory_was_removed_says_so_and_ends() {
    for is_asked in [true, false] {
        let dir = place();
        let mut server = served(dir.path(), &[]);
        fs::remove_dir_all(dir.path().join("D")).unwrap();
        let began = std::time::Instant::now();
        if is_asked {
            server.signal(Signal::SIGTERM);
        }
        assert_eq!(server.ended(), Some(1), "{}", server.said());
        let (said, took) = (server.said(), began.elapsed());
        assert!(said.contains("/fence: cannot open it: "), "{said}");
        assert!(took.as_secs() < 10, "{took:?}: {said}");
    }
}

#[test]
fn a_rival_on_this_machine_is_not_said_to_be_on_another() {
    let dir = place();
    for fence in ["mgs", "mdt0", "ost0"] {
        fs::remove_file(dir.path().join("D").join(fence).join("fence")).unwrap();
    }
    let mut server = served(dir.path(), &[]);
    let said = server.said();
    assert_eq!(said.matches("it had no fence").count(), 3, "{said}");
    assert!(!said.contains("machine"), "{said}");
    let listen = free_address();
    let second = glint(dir.path(), &["serve", "D", "--listen", &listen]);
    second.failed_saying(&[&format!("in use by process {}", server.pid())]);
    assert!(!second.err.contains(" on "), "{second:?}");
    server.signal(Signal::SIGKILL);
    server.ended();
    // Of a machine of the same name under another kernel it cannot be told which it is.
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    let moved = served(dir.path(), &["--machine", host]);
    let last = format!(
        "process {} on {host}, before this machine was booted",
        server.pid()
    );
    assert!(moved.said().contains(&last), "{}", moved.said());
}
