//! Few open files, or little address space, allowed: enough, or said at the start.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use support::{Staying, eventually, finish, glint, needs_root, program};

/// Files of a test: more than objects are kept open.
const FILES: usize = 700;

/// `glint` under limits of the shell's.
fn limited(limit: &str, words: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limit} && exec {} {words}", program())]);
    command
}

fn place(points: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for point in points {
        fs::create_dir(dir.path().join(point)).unwrap();
    }
    dir
}

/// Each of them with its number in it.
fn write_files(dir: &Path) {
    for number in 0..FILES {
        fs::write(dir.join(format!("f{number}")), number.to_string()).unwrap();
    }
}

#[track_caller]
fn check_files(dir: &Path) {
    for number in 0..FILES {
        let found = fs::read_to_string(dir.join(format!("f{number}"))).unwrap();
        assert_eq!(found, number.to_string());
    }
}

#[test]
fn a_low_soft_limit_is_raised() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    let mut up = limited("ulimit -S -n 64", "up --dir D --mount mnt");
    let up = Staying::run(&mut up, dir.path());
    let limits = fs::read_to_string(format!("/proc/{}/limits", up.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    assert_eq!(words[3], words[4], "soft and hard");
    write_files(&dir.path().join("mnt"));
    check_files(&dir.path().join("mnt"));
    glint(dir.path(), &["down", "mnt"]).worked();
}

#[test]
fn too_low_a_hard_limit_is_said_before_anything_is_served() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    let up = finish(limited("ulimit -n 40", "up --dir D --mount mnt").current_dir(dir.path()));
    up.failed_saying(&["144 open files are needed", "may have 40", "ulimit -Hn"]);
    glint(dir.path(), &["format", "E", "--role", "mgs,mdt,ost0,ost1"]).worked();
    let serve = "serve E --listen 127.0.0.1:0";
    let ran = finish(limited("ulimit -n 100", serve).current_dir(dir.path()));
    ran.failed_saying(&[
        "to serve 4 targets",
        "open files are needed",
        "may have 100",
    ]);
    let server = Staying::start(dir.path(), &["serve", "E", "--listen", "127.0.0.1:0"]);
    let mount = format!("mount {} mnt --key E/key", server.address());
    let ran = finish(limited("ulimit -n 60", &mount).current_dir(dir.path()));
    ran.failed_saying(&["to mount 4 targets", "may have 60"]);
}

/// Below, the allocator would end the process at its first large write.
#[test]
fn too_few_addresses_are_said_before_anything_is_served_and_enough_are_enough() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    glint(dir.path(), &["format", "E"]).worked();
    let needed = [
        "MiB of address space are needed",
        "may have 390",
        "ulimit -v",
    ];
    let serve = "serve E --listen 127.0.0.1:0";
    for words in ["up --dir D --mount mnt", serve] {
        let ran = finish(limited("ulimit -v 400000", words).current_dir(dir.path()));
        ran.failed_saying(&needed);
    }
    let mut enough = limited("ulimit -v 4194304", serve);
    let server = Staying::run(&mut enough, dir.path());
    let mount = format!("mount {} mnt --key E/key", server.address());
    let ran = finish(limited("ulimit -v 400000", &mount).current_dir(dir.path()));
    ran.failed_saying(&needed);
    let mut mount = Staying::run(&mut limited("ulimit -v 4194304", &mount), dir.path());
    let bytes = vec![7; 200 << 20];
    fs::write(dir.path().join("mnt/large"), &bytes).unwrap();
    assert!(fs::read(dir.path().join("mnt/large")).unwrap() == bytes);
    glint(dir.path(), &["umount", "mnt"]).worked();
    assert_eq!(mount.ended(), Some(0), "{}", mount.said());
}

#[test]
fn a_low_hard_limit_is_enough_for_many_files_and_strangers_do_not_use_it_up() {
    if needs_root() {
        return;
    }
    let dir = place(&["m0", "m1"]);
    glint(dir.path(), &["format", "D", "--role", "mgs,mdt,ost0,ost1"]).worked();
    let mut serve = limited("ulimit -n 256", "serve D --listen 127.0.0.1:0");
    let server = Staying::run(&mut serve, dir.path());
    let address = server.address();
    let mount = |point| ["mount", &address, point, "--key", "D/key"].map(str::to_owned);
    let words = mount("m0");
    let first = Staying::start(dir.path(), &words.each_ref().map(String::as_str));
    write_files(&dir.path().join("m0"));
    // More than it may have open.
    let strangers: Vec<TcpStream> = (0..300)
        .filter_map(|_| TcpStream::connect(&address).ok())
        .collect();
    eventually("the server says that it is busy", || {
        server.said().contains("busy")
    });
    fs::write(dir.path().join("m0/one-more"), "words").unwrap();
    glint(dir.path(), &["fs", "sync", "m0"]).worked();
    drop(strangers);
    let words = mount("m1");
    let second = Staying::start(dir.path(), &words.each_ref().map(String::as_str));
    check_files(&dir.path().join("m1"));
    assert_eq!(fs::read(dir.path().join("m1/one-more")).unwrap(), b"words");
    assert!(
        !server.said().contains("Too many open files"),
        "{}",
        server.said()
    );
    for (point, mut mount) in [("m0", first), ("m1", second)] {
        glint(dir.path(), &["umount", point]).worked();
        assert_eq!(mount.ended(), Some(0), "{}", mount.said());
    }
}
