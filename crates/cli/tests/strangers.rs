//! Control sockets of others, and mounts of others: what they say is not believed, and what others may
//! ask they are told.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::{NOBODY, Staying, as_nobody, directory_of_nobody, finish, glint, needs_root};

/// Where the socket of a mount is (root's).
fn socket_of(point: &Path) -> PathBuf {
    let device = fs::metadata(point).unwrap().dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    PathBuf::from(format!("/run/glint/{major}:{minor}.sock"))
}

fn up(dir: &Path) -> Staying {
    fs::create_dir_all(dir.join("mnt")).unwrap();
    Staying::start(dir, &["up", "--dir", "D", "--mount", "mnt"])
}

/// Takes the place of a mount's socket, and answers there with what `talk` writes.
fn instead(socket: &Path, talk: impl Fn(&mut dyn Write) -> std::io::Result<()> + Send + 'static) {
    fs::remove_file(socket).unwrap();
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // Whoever asked may have gone.
            let _ = stream.read(&mut [0; 1024]).and_then(|_| talk(&mut stream));
        }
    });
}

/// A process of another user's that listens there.
fn stranger_at(socket: &Path) -> Child {
    fs::remove_file(socket).unwrap();
    let dir = socket.parent().unwrap();
    let before = fs::metadata(dir).unwrap().permissions();
    let script = format!(
        "import socket, time\ns = socket.socket(socket.AF_UNIX)\ns.bind({0:?})\n\
         import os; os.chmod({0:?}, 0o666); os.setuid({NOBODY}); s.listen(9)\n\
         print('listens', flush=True)\ntime.sleep(60)",
        socket.to_str().unwrap()
    );
    let mut child = Command::new("python3")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let out = child.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    assert_eq!(line.trim(), "listens");
    fs::set_permissions(dir, before).unwrap();
    child
}

#[test]
fn an_answer_has_an_end_in_time_and_carries_nothing_out() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _up = up(dir.path());
    let socket = socket_of(&dir.path().join("mnt"));
    // A byte every now and then.
    instead(&socket, |out| {
        loop {
            out.write_all(b" ")?;
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let began = Instant::now();
    let ran = glint(dir.path(), &["status", "mnt"]);
    ran.failed_saying(&["has not answered for 5 s"]);
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    // What a terminal would carry out.
    instead(&socket, |out| {
        out.write_all(b"{\"Failed\":\"no\\u001b[2J\\nglint: \\u0007all is well\"}\n")
    });
    let ran = glint(dir.path(), &["status", "mnt"]);
    ran.failed_saying(&["no\\u{1b}[2J\\nglint: \\u{7}all is well"]);
    assert!(!ran.err.contains('\u{1b}'), "{ran:?}");
}

#[test]
fn a_process_of_another_user_is_not_asked_and_hides_no_mount() {
    if needs_root() {
        return;
    }
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let _ups = [up(dirs[0].path()), up(dirs[1].path())];
    let mut stranger = stranger_at(&socket_of(&dirs[0].path().join("mnt")));
    let ran = glint(dirs[0].path(), &["status", "mnt"]);
    ran.failed_saying(&["a process of uid 65534 listens at", "it is not asked"]);
    let all = glint(dirs[0].path(), &["status"]);
    assert!(all.err.contains("it is not asked"), "{all:?}");
    let other = fs::canonicalize(dirs[1].path().join("mnt")).unwrap();
    assert!(all.worked().contains(other.to_str().unwrap()), "{all:?}");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn an_answer_has_an_end_in_bytes() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _up = up(dir.path());
    let socket = socket_of(&dir.path().join("mnt"));
    instead(&socket, |out| {
        let part = vec![b' '; 1 << 20];
        loop {
            out.write_all(&part)?;
        }
    });
    let began = Instant::now();
    let ran = glint(dir.path(), &["status", "mnt"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn other_users_are_told_the_truth_of_a_mount_that_is_for_everybody() {
    if needs_root() {
        return;
    }
    let (dir, copy) = directory_of_nobody();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let point = dir.path().join("mnt");
    chown(&point, Some(0), Some(0)).unwrap();
    let _up = up(dir.path());
    fs::set_permissions(&point, fs::Permissions::from_mode(0o777)).unwrap();
    let theirs = |words: &[&str]| finish(as_nobody(&copy).args(words).current_dir("/"));
    let mnt = point.to_str().unwrap();
    for words in [
        &["status", mnt][..],
        &["stats", mnt],
        &["fs", "df", mnt],
        &["fs", "sync", mnt],
        &["param", "get", "llite.*.statahead_max", "--mount", mnt],
    ] {
        theirs(words).worked();
    }
    // Names, and what costs others something, are not for everybody.
    for words in [
        &["fs", "fid2path", mnt, "[0x1:0x1]"][..],
        &["fs", "prefetch", mnt],
        &["param", "set", "llite.*.statahead_max=0", "--mount", mnt],
    ] {
        theirs(words).failed_saying(&["only root and uid 0 may ask that"]);
    }
    let bare = theirs(&["status"]);
    assert!(bare.worked().contains(mnt), "{bare:?}");
}

#[test]
fn mounts_of_others_that_may_not_be_asked_fail_nothing() {
    if needs_root() {
        return;
    }
    let (dir, copy) = directory_of_nobody();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let _up = up(dir.path());
    let socket = socket_of(&dir.path().join("mnt"));
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
    let theirs = |words: &[&str]| finish(as_nobody(&copy).args(words).current_dir("/"));
    let bare = theirs(&["status"]);
    assert!(
        bare.worked()
            .contains("belongs to uid 0: only that user and root"),
        "{bare:?}"
    );
    assert!(
        !bare.out.contains("died") && !bare.err.contains("died"),
        "{bare:?}"
    );
    let mnt = dir.path().join("mnt");
    let named = theirs(&["status", mnt.to_str().unwrap()]);
    named.failed_saying(&["belongs to uid 0"]);
}
