//! Every failure to start says what to do, with exit code 1; wrong usage has 2; nothing is touched.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::process::Command;

use nix::sys::signal::Signal;
use support::{
    OPEN_DEVICE, Staying, as_nobody, directory_of_nobody, eventually, finish, glint, needs_root,
    program, shell,
};

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    dir
}

const UP: [&str; 5] = ["up", "--dir", "D", "--mount", "mnt"];

#[test]
fn wrong_usage_is_two() {
    let dir = place();
    for words in [
        &["nonsense"][..],
        &["up", "--dir", "D"],
        &["up", "--dir", "D", "--mount", "mnt", "-o", "sotf"],
        &["format", "D", "--role", "mtd"],
        &["format", "D", "--role", "mdt1"],
        &["format", "D", "--name", "a/b"],
        &["format", "D", "--name", ".."],
        &["serve", "D", "--listen", "a b"],
        &["param", "set", "llite.*.statahead_max=many"],
        &["fs", "fid2path", "mnt", "12"],
        &["bench", "walk", "--rtt", "5"],
        &["bench", "link", "--rtt", "5ms"],
        &["mount", "mnt"],
        &["fsck"],
        &["fsck", "D", "--mend"],
    ] {
        let ran = glint(dir.path(), words);
        assert_eq!(ran.code, Some(2), "{words:?}: {ran:?}");
    }
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing was made"
    );
}

/// In one line of its own words, also in a log file; and the program goes on.
#[test]
fn a_level_that_is_none_is_named() {
    let dir = place();
    let at = dir.path();
    let plain = finish(
        Command::new(program())
            .arg("status")
            .current_dir(at)
            .env("GLINT_LOG", "bogus"),
    );
    plain.worked();
    let said = "glint: GLINT_LOG is 'bogus', which says nothing of how much to log: use error, warn, info or debug\n";
    assert_eq!(plain.err, said);
    for level in ["debug", "warn,rpc=debug"] {
        let ran = finish(
            Command::new(program())
                .arg("status")
                .current_dir(at)
                .env("GLINT_LOG", level),
        );
        assert!(!ran.err.contains("GLINT_LOG"), "{ran:?}");
    }
}

#[test]
fn every_verb_has_help() {
    let dir = place();
    for verb in [
        "up", "down", "format", "serve", "mount", "umount", "status", "target", "stats", "param",
        "fs", "fsck", "bench",
    ] {
        let ran = glint(dir.path(), &[verb, "--help"]);
        assert!(ran.worked().contains("Usage: glint"), "{ran:?}");
    }
}

/// A link of another user could lead what is written there anywhere.
#[test]
fn what_belongs_to_another_user_is_left_alone() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    let ours = dir.path().join("ours");
    fs::write(&ours, "words").unwrap();
    let link = dir.path().join("D/ost0/superblock.new");
    std::os::unix::fs::symlink(&ours, link).unwrap();
    for theirs in ["D", "D/ost0"] {
        shell(dir.path(), &format!("chown 61002 {theirs}")).worked();
        for words in [&["serve", "D"][..], &["fsck", "D"], &["upgrade", "D"], &UP] {
            let ran = glint(dir.path(), words);
            ran.failed_saying(&[theirs, " belongs to user 61002", "chown -R"]);
        }
        shell(dir.path(), &format!("chown 0 {theirs}")).worked();
    }
    assert_eq!(fs::read_to_string(&ours).unwrap(), "words");
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let dir = place();
    let other = dir.path().join("D");
    fs::create_dir(&other).unwrap();
    for number in 0..412 {
        fs::write(other.join(format!("precious{number}")), "data").unwrap();
    }
    let said = ["D holds 412 files that are not Glint's; choose an empty directory"];
    glint(dir.path(), &UP).failed_saying(&said);
    glint(dir.path(), &["format", "D"]).failed_saying(&said);
    glint(dir.path(), &["serve", "D"]).failed_saying(&said);
    let said =
        ["D holds 412 files that are not Glint's, and no target; name the directory of a target"];
    for words in [
        &["fsck", "D"][..],
        &["upgrade", "D"],
        &["target", "picture", "D"],
    ] {
        glint(dir.path(), words).failed_saying(&said);
    }
    assert_eq!(fs::read_dir(&other).unwrap().count(), 412);
}

#[test]
fn neither_directory_may_be_inside_the_other() {
    let dir = place();
    glint(dir.path(), &["up", "--dir", "mnt/D", "--mount", "mnt"])
        .failed_saying(&["mnt/D is inside mnt", "choose another --dir"]);
    fs::create_dir_all(dir.path().join("D/mnt")).unwrap();
    glint(dir.path(), &["up", "--dir", "D", "--mount", "D/mnt"])
        .failed_saying(&["D/mnt is inside D", "choose another --mount"]);
    assert!(!dir.path().join("D/mgs").exists(), "nothing was formatted");
}

#[test]
fn a_mount_point_must_be_there() {
    let dir = place();
    let ran = glint(dir.path(), &["up", "--dir", "D", "--mount", "nowhere"]);
    ran.failed_saying(&["nowhere does not exist", "mkdir -p"]);
    fs::write(dir.path().join("file"), "").unwrap();
    let ran = glint(dir.path(), &["up", "--dir", "D", "--mount", "file"]);
    ran.failed_saying(&["is not a directory"]);
    assert!(!dir.path().join("D").exists(), "nothing was formatted");
}

#[test]
fn a_directory_in_use_and_a_port_held_are_named() {
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    let server = Staying::start(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]);
    glint(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]).failed_saying(&["in use"]);
    glint(dir.path(), &["fsck", "D"]).failed_saying(&["in use"]);
    glint(dir.path(), &UP).failed_saying(&["in use"]);
    glint(dir.path(), &["format", "E"]).worked();
    let ran = glint(dir.path(), &["serve", "E", "--listen", &server.address()]);
    let pid = format!("held by pid {} (glint)", server.pid());
    ran.failed_saying(&[&pid, "--listen"]);
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = own.local_addr().unwrap().to_string();
    let ran = glint(dir.path(), &["serve", "E", "--listen", &address]);
    ran.failed_saying(&[&format!("held by pid {}", std::process::id())]);
}

#[test]
fn beyond_loopback_needs_a_word() {
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    let ran = glint(dir.path(), &["serve", "D", "--listen", "0.0.0.0:0"]);
    ran.failed_saying(&["--insecure"]);
}

#[test]
fn a_damaged_superblock_is_reported() {
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    let path = dir.path().join("D/mdt0/superblock");
    let mut bytes = fs::read(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(&path, &bytes).unwrap();
    for words in [
        &["serve", "D"][..],
        &UP,
        &["fsck", "D"],
        &["format", "D", "--role", "ost7"],
    ] {
        glint(dir.path(), words).failed_saying(&["mdt0/superblock is damaged"]);
    }
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn nothing_is_formatted_twice_unless_it_is_named() {
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    glint(dir.path(), &["format", "D"])
        .failed_saying(&["has MGS, MDT0, OST0 already", "--erase mgs,mdt0,ost0"]);
    glint(
        dir.path(),
        &["format", "D", "--role", "ost0", "--erase", "ost0"],
    )
    .worked();
}

#[test]
fn a_wrong_key_is_refused() {
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    glint(dir.path(), &["format", "E"]).worked();
    let server = Staying::start(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]);
    let address = server.address();
    let mount = |key: &[&str]| {
        let words = [&["mount", &address, "mnt"], key].concat();
        glint(dir.path(), &words)
    };
    mount(&["--key", "E/key"]).failed_saying(&["key"]);
    mount(&[]).failed_saying(&["key"]);
    mount(&["--key", "nowhere"])
        .failed_saying(&["nowhere is missing", "the key of the file system"]);
    fs::set_permissions(
        dir.path().join("E/key"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    mount(&["--key", "E/key"]).failed_saying(&["chmod 600"]);
}

#[test]
fn a_dead_mount_is_replaced() {
    if needs_root() {
        return;
    }
    let dir = place();
    let mut up = Staying::start(dir.path(), &UP);
    up.signal(Signal::SIGKILL);
    up.ended();
    fs::metadata(dir.path().join("mnt")).unwrap_err();
    let mut up = Staying::start(dir.path(), &UP);
    fs::write(dir.path().join("mnt/file"), "there").unwrap();
    assert!(up.said().contains("took off a dead mount"), "{}", up.said());
    up.signal(Signal::SIGTERM);
    assert_eq!(up.ended(), Some(0), "{}", up.said());
}

#[test]
fn a_second_mount_at_the_same_place_is_refused() {
    if needs_root() {
        return;
    }
    let dir = place();
    let _up = Staying::start(dir.path(), &UP);
    let ran = glint(dir.path(), &["up", "--dir", "E", "--mount", "mnt"]);
    ran.failed_saying(&["is mounted already"]);
    assert!(!dir.path().join("E").exists(), "nothing was formatted");
}

#[test]
fn a_missing_device_is_explained() {
    if needs_root() {
        return;
    }
    let dir = place();
    // An empty /dev but for the source of randomness, seen by nobody else.
    let script = format!(
        "touch random && mount --bind /dev/urandom random && mount -t tmpfs none /dev && \
         touch /dev/urandom && mount --bind random /dev/urandom && exec {} {}",
        program(),
        UP.join(" ")
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &script])
        .current_dir(dir.path());
    finish(&mut command).failed_saying(&["/dev/fuse is missing", "modprobe fuse"]);
}

#[test]
fn a_missing_fusermount_is_explained() {
    if needs_root() {
        return;
    }
    let (dir, copy) = directory_of_nobody();
    let mut command = as_nobody(&copy);
    command
        .args(UP)
        .current_dir(dir.path())
        .env("PATH", "/nowhere");
    finish(&mut command).failed_saying(&["fusermount3 is missing", "install the package fuse3"]);
}

#[test]
fn a_refused_allow_other_is_explained() {
    if needs_root() {
        return;
    }
    let (dir, copy) = directory_of_nobody();
    fs::write(dir.path().join("empty"), "").unwrap();
    // The machine's own settings and device are hidden, not changed.
    let script = format!(
        "{OPEN_DEVICE} && mount --bind empty /etc/fuse.conf && exec setpriv --reuid 65534 --regid 65534 \
         --clear-groups {} {} -o allow_other",
        copy.display(),
        UP.join(" ")
    );
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", &script])
        .current_dir(dir.path());
    finish(&mut command).failed_saying(&["allow_other is refused", "user_allow_other"]);
}

#[test]
fn questions_about_what_is_no_mount_are_refused() {
    let dir = place();
    for words in [
        &["stats", "mnt"][..],
        &["fs", "df", "mnt"],
        &["fs", "sync", "mnt"],
        &["status", "mnt"],
        &["param", "list", "--mount", "mnt"],
    ] {
        glint(dir.path(), words).failed_saying(&["mnt is not on a Glint mount"]);
    }
    // Somebody works in one of them.
    let mut user = Command::new("sleep");
    let mut user = user.arg("600").current_dir(dir.path()).spawn().unwrap();
    let refused = [&["down", "mnt"][..], &["umount", "."]].map(|words| glint(dir.path(), words));
    user.kill().unwrap();
    user.wait().unwrap();
    for ran in refused {
        ran.failed_saying(&["nothing of Glint is mounted on"]);
        assert!(!ran.err.contains("in use"), "{ran:?}");
    }
}

/// Of the targets of a process that serves and mounts one stops: the others serve on, and so does its mount.
/// What only that one could take is lost at the end, and nobody waits for it.
#[test]
fn a_target_that_stops_takes_neither_others_nor_the_mount_along() {
    if needs_root() {
        return;
    }
    const NAME: &str = "a name to be found on the disk";
    let dir = place();
    let mut up = Staying::start(dir.path(), &UP);
    // Between the records of the root and those of `dir` stand pages of others: where in `dir` the name is
    // stored goes by a random key.
    let made = format!(
        "mkdir mnt/between mnt/dir && touch mnt/between/$(seq -s ' mnt/between/' 300) \
         mnt/dir/$(seq -s ' mnt/dir/' 300) 'mnt/dir/{NAME}' mnt/open"
    );
    shell(dir.path(), &made).worked();
    glint(dir.path(), &["down", "mnt"]).worked();
    assert_eq!(up.ended(), Some(0), "{}", up.said());
    let db = dir.path().join("D/mdt0/db");
    let mut bytes = fs::read(&db).unwrap();
    let is_it = |at: &usize| bytes[*at..].starts_with(NAME.as_bytes());
    let places: Vec<usize> = (0..bytes.len()).filter(is_it).collect();
    assert!(!places.is_empty(), "the name is not stored");
    places.into_iter().for_each(|at| bytes[at] ^= 4);
    fs::write(&db, bytes).unwrap();

    let mut up = Staying::start(dir.path(), &UP);
    let mnt = dir.path().join("mnt");
    let mut open = fs::OpenOptions::new();
    let open = open.read(true).write(true).open(mnt.join("open")).unwrap();
    open.write_all_at(b"words", 0).unwrap();
    fs::metadata(mnt.join("dir").join(NAME)).unwrap_err();
    eventually("it is told", || {
        up.said()
            .contains("MDT0 has stopped, other targets here serve on: ")
    });
    let status = glint(dir.path(), &["status", "mnt"]);
    for part in ["MDT0: stopped: ", "MDT0: waiting for it", "OST0: serving"] {
        assert!(status.worked().contains(part), "no {part:?} in {status:?}");
    }
    let mut read = [0; 5];
    open.read_exact_at(&mut read, 0).unwrap();
    assert_eq!(&read, b"words");
    drop(open);
    glint(dir.path(), &["down", "mnt"]);
    assert_eq!(up.ended(), Some(1), "{}", up.said());
    let said = up.said();
    assert!(said.contains("glint: MDT0 has stopped: "), "{said}");
}

// SEMANTICS: crash.damage

#[test]
fn a_target_that_is_damaged_at_the_start_does_not_keep_others_from_serving() {
    if needs_root() {
        return;
    }
    let dir = place();
    let roles = ["format", "D", "--role", "mgs,mdt,ost0,ost1"];
    glint(dir.path(), &roles).worked();
    let of = |target: &str| dir.path().join("D").join(target).join("db");
    let damage = |target: &str| {
        let len = fs::metadata(of(target)).unwrap().len();
        let file = fs::OpenOptions::new().write(true).open(of(target)).unwrap();
        file.write_all_at(&vec![0; len as usize], 0).unwrap();
    };
    damage("ost1");
    let serve = ["serve", "D", "--listen", "127.0.0.1:0"];
    let mut server = Staying::start(dir.path(), &serve);
    let said = server.said();
    for part in [
        "OST1 has stopped, other targets here serve on: ",
        "D/ost1/db",
        "glint fsck",
    ] {
        eventually("it is told", || server.said().contains(part));
    }
    assert!(said.contains("serving glint at "), "{said}");
    let status = glint(dir.path(), &["status", "D"]);
    for part in ["OST1: stopped: OST1 in ", "MDT0: serving", "OST0: serving"] {
        assert!(status.worked().contains(part), "no {part:?} in {status:?}");
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(1), "{}", server.said());
    assert!(
        server.said().contains("glint: OST1 has stopped: "),
        "{}",
        server.said()
    );

    // A mount of the same process reads what is elsewhere.
    let mut up = Staying::start(dir.path(), &UP);
    shell(dir.path(), "mkdir mnt/dir && ls mnt").worked();
    glint(dir.path(), &["down", "mnt"]);
    assert_eq!(up.ended(), Some(1), "{}", up.said());

    // Without the MGS nobody finds the others.
    damage("mgs");
    glint(dir.path(), &serve).failed_saying(&["MGS in ", "D/mgs/db", "glint fsck"]);
}
