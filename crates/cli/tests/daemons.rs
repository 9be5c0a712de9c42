//! What a daemon keeps of the process that started it: nothing.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Staying, eventually, finish, glint, needs_root, program, shell};

fn place(points: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for point in points {
        fs::create_dir(dir.path().join(point)).unwrap();
    }
    dir
}

/// The number after `pid ` in what a daemon's start has said.
fn pid_in(said: &str) -> u32 {
    let rest = said.rsplit_once("pid ").unwrap().1;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    digits.parse().unwrap()
}

fn children(of: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    let listed = listed.unwrap_or_default();
    listed
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

/// What a process has open.
fn opened(pid: u32) -> Vec<PathBuf> {
    let listed = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    listed
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .collect()
}

#[test]
fn locks_pipes_and_places_of_the_caller_are_not_kept() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt", "here"]);
    // A lock, and a pipe besides the standard streams; `cat` ends when nobody has its other end.
    let script = format!(
        "cd here && exec 9>../lock && flock 9 && {{ {} up --dir ../D --mount ../mnt --daemon \
         --log ../log; }} 8>&1 | cat",
        program()
    );
    let said = shell(dir.path(), &script);
    let supervisor = pid_in(said.worked());
    let free = finish(
        Command::new("flock")
            .args(["-n", "lock", "true"])
            .current_dir(dir.path()),
    );
    free.worked();
    let workers = children(supervisor);
    assert_eq!(workers.len(), 1, "{said:?}");
    for process in [supervisor, workers[0]] {
        let at = fs::read_link(format!("/proc/{process}/cwd")).unwrap();
        assert_eq!(at, Path::new("/"));
        let all = opened(process);
        let lock = fs::canonicalize(dir.path()).unwrap().join("lock");
        assert!(!all.contains(&lock), "{all:?}");
        let is_terminal =
            |path: &PathBuf| path.starts_with("/dev/pts") || path.starts_with("/dev/tty");
        assert!(!all.iter().any(is_terminal), "{all:?}");
    }
    glint(dir.path(), &["down", "mnt"]).worked();
}

#[test]
fn closed_standard_streams_are_no_files_of_the_daemons() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    let up = format!(
        "{} up --dir D --mount mnt --daemon --log log <&- >&- 2>&-",
        program()
    );
    let ran = shell(dir.path(), &up);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    fs::write(dir.path().join("mnt/f"), "words").unwrap();
    assert_eq!(fs::read(dir.path().join("mnt/f")).unwrap(), b"words");
    glint(dir.path(), &["down", "mnt"]).worked();
    glint(dir.path(), &["fsck", "D"]).worked();
}

#[test]
fn paths_that_are_no_text_are_said_as_they_are() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    let _up = Staying::start(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
    let name = OsStr::from_bytes(b"caf\xe9-\xff");
    fs::create_dir(dir.path().join("mnt/d")).unwrap();
    let path = dir.path().join("mnt/d").join(name);
    fs::write(&path, "words").unwrap();
    let fid = finish(Command::new(program()).args(["fs", "path2fid"]).arg(&path));
    let ask = |words: &[&str]| {
        let mut ask = Command::new(program());
        ask.args(["fs", "fid2path"])
            .args(words)
            .current_dir(dir.path());
        ask.output().unwrap()
    };
    let fid = fid.worked().trim();
    assert_eq!(ask(&["mnt", fid]).stdout, b"d/caf\xe9-\xff\n");
    let json = ask(&["mnt", fid, "--json"]).stdout;
    let json = String::from_utf8(json).unwrap();
    assert_eq!(
        json.trim(),
        format!("{{\"path_bytes\":{:?}}}", b"d/caf\xe9-\xff").replace(' ', "")
    );
}

#[test]
fn who_waits_at_its_end_for_servers_that_are_gone_ends_when_it_is_told_to() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    glint(dir.path(), &["format", "D", "--role", "mgs,mdt,ost"]).worked();
    let server = Staying::start(dir.path(), &["serve", "D", "--listen", "unix:sock"]);
    let mount = ["mount", "unix:sock", "mnt", "--daemon", "--log", "log"];
    let supervisor = pid_in(glint(dir.path(), &mount).worked());
    fs::write(dir.path().join("mnt/f"), "words").unwrap();
    let worker = children(supervisor)[0];
    drop(server);
    let said = dir.path().join("said");
    let mut umount = Command::new(program())
        .args(["umount", "mnt"])
        .current_dir(dir.path())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(&said).unwrap();
    eventually("it names the process that is waited for", || {
        said().contains(&format!("process {worker} still writes"))
    });
    let log = || fs::read_to_string(dir.path().join("log")).unwrap();
    eventually("that says what to do", || {
        log().contains("stop it once more")
    });
    kill(Pid::from_raw(worker as i32), Signal::SIGTERM).unwrap();
    assert_eq!(umount.wait().unwrap().code(), Some(1), "{}", said());
    assert!(
        said().contains("mnt is unmounted, but it was forced to end"),
        "{}",
        said()
    );
    let is_gone = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
    eventually("both have ended", || is_gone(worker) && is_gone(supervisor));
    assert!(!log().contains("another goes on"), "{}", log());
}

/// A log that has become too long is kept beside the one that takes its place.
#[test]
fn a_log_does_not_grow_without_end() {
    if needs_root() {
        return;
    }
    let dir = place(&[]);
    let [log, before] = ["log", "log.1"].map(|name| dir.path().join(name));
    let long = 9 << 20;
    fs::write(&log, vec![b'\n'; long]).unwrap();
    glint(dir.path(), &["format", "D"]).worked();
    let serve = ["serve", "D", "--listen", "unix:sock"];
    let serve = [&serve[..], &["--daemon", "--log", "log"]].concat();
    let server = pid_in(glint(dir.path(), &serve).worked());
    eventually("what was logged before is kept", || before.exists());
    assert!(fs::metadata(&before).unwrap().len() >= long as u64);
    let mut stranger = UnixStream::connect(dir.path().join("sock")).unwrap();
    stranger.write_all(&[b'?'; 64]).unwrap();
    eventually("it logs on", || {
        let said = fs::read_to_string(&log).unwrap_or_default();
        said.len() < long && said.contains("disconnected")
    });
    let mode = fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    kill(Pid::from_raw(server as i32), Signal::SIGTERM).unwrap();
    let is_gone = || !Path::new(&format!("/proc/{server}")).exists();
    eventually("it has ended", is_gone);
}
