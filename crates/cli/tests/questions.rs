//! Small questions and their answers, and what is taken off by force.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::Command;

use support::{
    NOBODY, OPEN_DEVICE, Staying, directory_of_nobody, finish, glint, needs_root, program, shell,
};

fn place(points: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for point in points {
        fs::create_dir(dir.path().join(point)).unwrap();
    }
    dir
}

fn up(dir: &tempfile::TempDir, store: &str, point: &str) -> Staying {
    Staying::start(dir.path(), &["up", "--dir", store, "--mount", point])
}

#[test]
fn what_is_too_large_to_be_fetched_is_said() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    let _up = up(&dir, "D", "mnt");
    let mnt = dir.path().join("mnt");
    File::create(mnt.join("large"))
        .unwrap()
        .set_len((16 << 20) + 1)
        .unwrap();
    fs::write(mnt.join("small"), "words").unwrap();
    symlink("small", mnt.join("link")).unwrap();
    let ran = glint(
        dir.path(),
        &["fs", "prefetch", "mnt/large", "mnt/small", "mnt/link"],
    );
    ran.failed_saying(&[
        "mnt/large: 16777217 bytes, and only files of up to 16 MiB are fetched",
        "mnt/link: neither a file nor a directory",
        "not everything was fetched",
    ]);
    glint(dir.path(), &["fs", "prefetch", "mnt/small"]).worked();
    let refused = glint(dir.path(), &["fs", "prefetch", "mnt/large"]);
    refused.failed_saying(&["mnt/large: ", "not everything was fetched"]);
    assert_eq!(refused.out, "fetched nothing\n");
    let again = glint(dir.path(), &["fs", "prefetch", "mnt/small"]);
    let here = "fetched nothing: all of it is here already\n";
    assert_eq!(again.worked(), here);
}

#[test]
fn what_cannot_be_written_fails_and_who_reads_no_more_does_not() {
    let dir = place(&[]);
    glint(dir.path(), &["format", "D"]).worked();
    for call in ["fsck D --json", "fsck D", "format E"] {
        let ran = shell(dir.path(), &format!("{} {call} >/dev/full", program()));
        ran.failed_saying(&["glint: cannot write to standard output: No space left on device"]);
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
    let closed = format!("set -o pipefail; {} fsck D | true", program());
    let ran = finish(Command::new("bash").args(["-c", &closed]).current_dir(&dir));
    assert_eq!((ran.worked(), &*ran.err), ("", ""));
    // Nor does an error that nobody can read end it otherwise.
    for call in ["stats none", "fsck none", "serve D --listen 8.8.8.8:1"] {
        let line = format!("{} {call} 2>/dev/full", program());
        assert_eq!(shell(dir.path(), &line).code, Some(1), "{call}");
    }
}

/// A name of a file that would make a line of its own, turn it, and clear the screen.
const FORGED: &str = "a\nroot# FAKE\u{202e}\u{1b}[2J";
const SHOWN: &str = "a\\nroot# FAKE\\u{202e}\\u{1b}[2J";

#[test]
fn names_make_no_lines_in_what_is_said_to_people() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    glint(dir.path(), &["fsck", FORGED]).failed_saying(&[SHOWN]);
    let _up = up(&dir, "D", "mnt");
    let path = format!("mnt/{FORGED}");
    glint(dir.path(), &["fs", "stat", &path]).failed_saying(&[SHOWN]);
    fs::create_dir(dir.path().join(&path)).unwrap();
    let stat = glint(dir.path(), &["fs", "stat", &path]);
    let first = stat.worked().lines().next().unwrap();
    assert_eq!(first, format!("path   /{SHOWN}"));
    let fid = glint(dir.path(), &["fs", "path2fid", &path]);
    // Other programs get the name itself.
    let named = glint(dir.path(), &["fs", "fid2path", "mnt", fid.worked().trim()]);
    assert_eq!(named.worked(), format!("{FORGED}\n"));
    let mut user = Command::new("sleep");
    let mut user = user
        .arg("60")
        .current_dir(dir.path().join(&path))
        .spawn()
        .unwrap();
    let busy = glint(dir.path(), &["umount", "mnt"]);
    user.kill().unwrap();
    user.wait().unwrap();
    busy.failed_saying(&["mnt is in use by:\n  pid ", SHOWN, "\nglint: end these"]);
    assert_eq!(busy.err.lines().count(), 3, "{busy:?}");
}

#[test]
fn a_tunable_of_two_mounts_says_whose_it_is() {
    if needs_root() {
        return;
    }
    let dir = place(&["m0", "m1"]);
    glint(dir.path(), &["format", "D", "--role", "mgs,mdt,ost"]).worked();
    let server = Staying::start(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]);
    let mount = |point| {
        let words = ["mount", &*server.address(), point, "--key", "D/key"];
        Staying::start(dir.path(), &words)
    };
    let _mounts = [mount("m0"), mount("m1")];
    let at = fs::canonicalize(dir.path()).unwrap();
    let name = "llite.glint.statahead_max";
    glint(
        dir.path(),
        &["param", "set", &format!("{name}=17"), "--mount", "m0"],
    )
    .worked();
    // Other tests' mounts have such a tunable, too, and may end meanwhile.
    let all = glint(dir.path(), &["param", "get", name]);
    let line = |point: &str, value: &str| format!("{}: {name}={value}\n", at.join(point).display());
    assert!(all.out.contains(&line("m0", "17")), "{all:?}");
    let other = glint(dir.path(), &["param", "get", name, "--mount", "m1"]);
    let other = other.worked().trim().to_owned();
    let (_, value) = other.split_once('=').unwrap();
    assert!(
        all.out.contains(&line("m1", value)) && value != "17",
        "{all:?}"
    );
    let json = glint(
        dir.path(),
        &["param", "get", name, "--json", "--mount", "m0"],
    );
    let json: serde_json::Value = serde_json::from_str(json.worked()).unwrap();
    assert_eq!(
        (json[0]["at"].as_str(), json[0]["value"].as_u64()),
        (Some("m0"), Some(17))
    );
}

#[test]
fn the_fid_of_a_symbolic_link_is_its_own() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    let _up = up(&dir, "D", "mnt");
    let mnt = dir.path().join("mnt");
    fs::write(mnt.join("file"), "words").unwrap();
    symlink("/etc/passwd", mnt.join("out")).unwrap();
    symlink("file", mnt.join("within")).unwrap();
    symlink(mnt.join("file"), dir.path().join("in")).unwrap();
    let fid = |path: &str| glint(dir.path(), &["fs", "path2fid", path]);
    let path = |fid: &str| glint(dir.path(), &["fs", "fid2path", "mnt", fid.trim()]);
    for name in ["out", "within", "file"] {
        let found = fid(&format!("mnt/{name}"));
        assert_eq!(path(found.worked()).worked().trim(), name);
    }
    fid("in").failed_saying(&["in is not on a Glint mount"]);
    for root in ["mnt", "mnt/", "mnt/."] {
        assert_eq!(fid(root).worked(), fid("mnt").worked());
    }
    assert_eq!(path(fid("mnt").worked()).worked(), "/\n");
}

#[test]
fn up_hides_nothing() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    fs::write(dir.path().join("mnt/there"), "words").unwrap();
    let ran = glint(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
    ran.failed_saying(&["mnt is not empty", "choose an empty directory"]);
    assert!(!dir.path().join("D").exists(), "nothing was formatted");
}

#[test]
fn a_mount_that_nobody_uses_is_taken_off_by_force() {
    if needs_root() {
        return;
    }
    let dir = place(&["mnt"]);
    let mut up = up(&dir, "D", "mnt");
    fs::write(dir.path().join("mnt/file"), "words").unwrap();
    let ran = glint(dir.path(), &["umount", "--force", "mnt"]);
    assert!(ran.worked().contains("mnt unmounted"), "{ran:?}");
    assert_eq!(up.ended(), Some(0), "{}", up.said());
    assert!(!dir.path().join("mnt/file").exists());
}

#[test]
fn an_ordinary_user_takes_a_mount_off_by_force_though_it_is_in_use() {
    if needs_root() {
        return;
    }
    let (dir, _copy) = directory_of_nobody();
    let script = "set -e\n\
        ./glint up --dir D --mount mnt --daemon --log log >&2\n\
        echo words > mnt/file; sleep 600 < mnt/file & \n\
        ./glint umount --force mnt; kill $!; ! test -e mnt/file; \n\
        ./glint up --dir D --mount mnt --daemon --log log >&2\n\
        cat mnt/file; ./glint umount --force mnt";
    fs::write(dir.path().join("user"), script).unwrap();
    let all = format!(
        "{OPEN_DEVICE} && exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sh user"
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &all])
        .current_dir(dir.path());
    let ran = finish(&mut command);
    let said = ran.worked();
    assert!(
        said.contains("mnt unmounted") && said.contains("words"),
        "{ran:?}"
    );
}
