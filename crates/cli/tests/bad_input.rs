//! Directories and addresses that are not what they should be: one line each, and no harm.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use support::ports::free_address;
use support::stored::store_of;
use support::{Ran, Staying, glint, needs_root, shell};

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    glint(dir.path(), &["format", "D"]).worked();
    dir
}

/// The one line in which it says why it ended, which has all these parts.
#[track_caller]
fn one_line(ran: &Ran, parts: &[&str]) {
    ran.failed_saying(parts);
    let lines: Vec<&str> = ran
        .err
        .lines()
        .filter(|line| line.starts_with("glint: "))
        .collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    for part in parts {
        assert!(lines[0].contains(part), "no {part:?} in {lines:?}");
    }
}

fn serve(dir: &Path, dirs: &[&str]) -> Ran {
    let address = free_address();
    let words = [&["serve"], dirs, &["--listen", &address]].concat();
    glint(dir, &words)
}

/// The files of targets, but for fences, in which each start writes. There are no bytes of objects.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let listed = shell(dir, "find D -type f ! -name fence ! -name extents | sort")
        .worked()
        .to_owned();
    let paths = listed.lines().map(|line| dir.join(line));
    paths
        .map(|path| (path.clone(), fs::read(&path).unwrap()))
        .collect()
}

#[test]
fn a_directory_named_twice() {
    let dir = place();
    let before = contents(dir.path());
    one_line(
        &serve(dir.path(), &["D", "D"]),
        &["D is named twice", "once"],
    );
    std::os::unix::fs::symlink("D", dir.path().join("same")).unwrap();
    one_line(
        &serve(dir.path(), &["D", "same"]),
        &["same is named twice", "D"],
    );
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn a_directory_and_its_copy() {
    let dir = place();
    shell(dir.path(), "cp -a D E && rm -r E/mgs").worked();
    let before = contents(dir.path());
    let parts = ["MDT0 of the file system glint is in ", "/D and in ", "/E"];
    one_line(&serve(dir.path(), &["D", "E"]), &parts);
    let parts = ["MDT0 of the file system glint is in D and in E"];
    one_line(&glint(dir.path(), &["fsck", "D", "E", "--repair"]), &parts);
    assert_eq!(contents(dir.path()), before);
}

#[test]
fn two_directories_that_claim_to_be_one_target() {
    let dir = place();
    for name in ["E", "F"] {
        glint(
            dir.path(),
            &["format", name, "--role", "ost1", "--join", "D"],
        )
        .worked();
    }
    let a = free_address();
    let _mgs = Staying::start(dir.path(), &["serve", "D", "--listen", &a]);
    let listen = free_address();
    let _first = Staying::start(
        dir.path(),
        &["serve", "E", "--mgs", &a, "--listen", &listen],
    );
    let other = free_address();
    let ran = glint(dir.path(), &["serve", "F", "--mgs", &a, "--listen", &other]);
    one_line(
        &ran,
        &[
            "OST1 of this file system is another target",
            &listen,
            "--erase ost1 --role ost2 --join",
        ],
    );
}

/// An empty target never passes for the one that was there, and it is said what can be done.
#[test]
fn a_target_that_was_erased_comes_back_as_a_new_one_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    glint(at, &["format", "D", "--role", "mgs,mdt"]).worked();
    glint(at, &["format", "E", "--role", "ost", "--join", "D"]).worked();
    let address = free_address();
    let serve = ["serve", "D", "E", "--listen", &address];
    drop(Staying::start(at, &serve));
    let erase = ["format", "E", "--erase", "ost0", "--join", "D", "--role"];
    glint(at, &[&erase[..], &["ost0"]].concat()).worked();
    let parts = [
        "OST0 of this",
        "would read as empty",
        "--erase ost0 --role ost1 --join",
    ];
    one_line(&glint(at, &serve), &parts);
    glint(at, &[&erase[..], &["ost1"]].concat()).worked();
    drop(Staying::start(at, &serve));
    glint(
        at,
        &[
            "format", "D", "--erase", "mdt0", "--role", "mdt", "--join", "E",
        ],
    )
    .worked();
    let parts = [
        "MDT0 of this",
        "all files are lost",
        "--erase for each of its targets",
    ];
    one_line(&glint(at, &serve), &parts);
}

#[test]
fn the_directory_of_one_target() {
    let dir = place();
    let parts = ["D/mdt0 is the directory of one target, MDT0", "it is in: /"];
    one_line(&serve(dir.path(), &["D/mdt0"]), &parts);
    one_line(&glint(dir.path(), &["fsck", "D/mdt0"]), &parts);
}

#[test]
fn a_directory_of_another_user() {
    if needs_root() {
        return;
    }
    let (home, program) = support::directory_of_nobody();
    let at = home.path();
    glint(at, &["format", "D"]).worked();
    shell(at, "chmod 755 . D").worked();
    let mut command = support::as_nobody(&program);
    let ran = support::finish(command.args(["fsck", "D"]).current_dir(at));
    one_line(
        &ran,
        &["superblock: cannot read it", "uid 65534", "chown -R"],
    );
    assert!(!ran.err.contains("damaged"), "{ran:?}");
}

#[test]
fn a_mount_whose_process_is_dead() {
    if needs_root() {
        return;
    }
    let dir = place();
    let mut up = Staying::start(dir.path(), &["up", "--dir", "D", "--mount", "mnt"]);
    up.signal(Signal::SIGKILL);
    up.ended();
    for words in [
        &["fs", "sync", "mnt"][..],
        &["status", "mnt"],
        &["fs", "df", "mnt"],
    ] {
        let parts = ["mount at ", "mnt", "glint umount takes it off"];
        one_line(&glint(dir.path(), words), &parts);
    }
    glint(dir.path(), &["umount", "mnt"]).worked();
}

#[test]
fn another_version() {
    let dir = place();
    let path = dir.path().join("D/mdt0/superblock");
    // A superblock of version 9, sealed as it should be.
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 9;
    let crc = castagnoli(&bytes[..508]);
    bytes[508..].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let before = contents(dir.path());
    one_line(
        &serve(dir.path(), &["D"]),
        &["mdt0/superblock", "version 9", "this program has 1"],
    );
    assert_eq!(contents(dir.path()), before);
}

/// The records of another version are sound: nothing is to be restored.
#[test]
fn records_of_another_version() {
    let dir = place();
    let path = dir.path().join("D/mdt0/db");
    let mut bytes = fs::read(&path).unwrap();
    // The four copies of the head.
    for head in bytes.chunks_mut(4_096).take(4) {
        head[8] = 9;
        let crc = castagnoli(&head[..4_092]);
        head[4_092..].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(&path, &bytes).unwrap();
    let parts = [
        "mdt0/db",
        "format version 9",
        "use the program that wrote it",
    ];
    one_line(&serve(dir.path(), &["D"]), &parts);
    let checked = glint(dir.path(), &["fsck", "D"]);
    let of_mdt: Vec<_> = checked
        .out
        .lines()
        .filter(|line| line.contains("version 9"))
        .collect();
    assert_eq!((checked.code, of_mdt.len()), (Some(1), 1), "{checked:?}");
    assert!(!checked.out.contains("restore"), "{checked:?}");
}

/// CRC-32C, bit by bit.
fn castagnoli(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    !crc
}

#[test]
fn a_file_that_is_missing() {
    for (file, parts) in [
        ("D/mdt0/superblock", &["mdt0/superblock", "missing"][..]),
        ("D/mgs/superblock", &["mgs/superblock", "missing"]),
        ("D/key", &["D/key is missing", "copy it from"]),
        (
            "D/mgs/db",
            &["MGS in ", "/mgs/db", "is missing; put it back"],
        ),
        (
            "D/mdt0/db",
            &["MDT0 in ", "/mdt0/db", "is missing; put it back"],
        ),
        (
            "D/ost0/db",
            &["OST0 in ", "/ost0/db", "is missing; put it back"],
        ),
        (
            "D/ost0/STORE",
            &["OST0 in ", "/ost0/STORE", "is missing; put it back"],
        ),
    ] {
        let dir = place();
        let store = store_of(&dir.path().join("D"));
        let named = parts.iter().map(|part| part.replace("ost0/STORE", store));
        let named: Vec<String> = named.collect();
        let parts: Vec<&str> = named.iter().map(String::as_str).collect();
        let gone = dir.path().join(file.replace("ost0/STORE", store));
        fs::rename(&gone, dir.path().join("kept")).unwrap();
        one_line(&serve(dir.path(), &["D"]), &parts);
        assert!(!gone.exists(), "{file} is not made anew");
        fs::rename(dir.path().join("kept"), &gone).unwrap();
        let address = free_address();
        Staying::start(dir.path(), &["serve", "D", "--listen", &address]);
    }
}

/// Such a path would make its reader wait, or read without end.
#[test]
fn a_file_in_whose_place_is_a_fifo_or_a_device() {
    let key: &[&[&str]] = &[
        &["mount", "127.0.0.1:1", "mnt", "--key", "D/key"],
        &["fsck", "D"],
        &["serve", "D", "--listen", "127.0.0.1:0"],
    ];
    for (file, calls) in [
        ("D/key", key),
        ("D/mdt0/superblock", &[&["fsck", "D"], &["format", "D"]]),
        ("D/mdt0/fence", &[&["fsck", "D"]]),
    ] {
        for (make, is) in [("mkfifo -m 600", "FIFO"), ("ln -s /dev/zero", "device")] {
            let dir = place();
            shell(dir.path(), &format!("rm {file} && {make} {file}")).worked();
            let is = format!("it is a {is}, not a regular file");
            for call in calls {
                one_line(&glint(dir.path(), call), &[file, &is]);
            }
            glint(dir.path(), &["status", "D"]).failed_saying(&["D"]);
        }
    }
}

#[test]
fn a_mount_says_once_what_it_waits_for() {
    if needs_root() {
        return;
    }
    let dir = place();
    let address = free_address();
    let words = ["mount", &address, "mnt", "--key", "D/key", "--timeout", "2"];
    let ran = glint(dir.path(), &words);
    ran.failed_saying(&["no server has it at ", &address, "start glint serve"]);
    let waiting = format!("waiting for the management service: no server has it at {address}");
    assert_eq!(ran.err.matches(&waiting).count(), 1, "{ran:?}");
    // Without an end it waits until there is somebody.
    let script = format!(
        "{} mount {address} mnt --key D/key 2>waiting >waiting & while ! grep -q waiting waiting; \
         do sleep 0.1; done; echo $!",
        support::program()
    );
    let pid = shell(dir.path(), &script).worked().trim().to_owned();
    let mut server = Staying::start(dir.path(), &["serve", "D", "--listen", &address]);
    support::eventually("it is mounted", || {
        fs::read_to_string(dir.path().join("waiting"))
            .unwrap()
            .contains("mounted at ")
    });
    glint(dir.path(), &["umount", "mnt"]).worked();
    support::eventually("it has ended", || !Path::new("/proc").join(&pid).exists());
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0));
}

#[test]
fn a_mount_whose_metadata_server_is_away_says_so() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    glint(dir.path(), &["format", "A", "--role", "mgs"]).worked();
    let join = ["format", "B", "--role", "mdt,ost", "--join", "A"];
    glint(dir.path(), &join).worked();
    let address = free_address();
    let _mgs = Staying::start(dir.path(), &["serve", "A", "--listen", &address]);
    let other = free_address();
    let serve = ["serve", "B", "--mgs", &address, "--listen", &other];
    let mut server = Staying::start(dir.path(), &serve);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    let words = ["mount", &address, "mnt", "--key", "A/key"];
    let impatient: Vec<&str> = words.into_iter().chain(["--timeout", "1"]).collect();
    let ran = glint(dir.path(), &impatient);
    one_line(
        &ran,
        &["mdt0 has not answered for 1 s", "start glint serve"],
    );
    // Without an end it is mounted, and waits.
    let mut mount = Staying::start(dir.path(), &words);
    let said = mount.said();
    assert!(
        said.contains("mdt0 has not answered for 5 s; mounted"),
        "{said}"
    );
    let _server = Staying::start(dir.path(), &serve);
    let made = shell(dir.path(), "echo words > mnt/f && cat mnt/f");
    assert_eq!(made.worked(), "words\n");
    mount.signal(Signal::SIGTERM);
    assert_eq!(mount.ended(), Some(0), "{}", mount.said());
}

#[test]
fn a_key_that_is_another_or_not_given_and_a_directory_that_is_not_there() {
    let dir = place();
    glint(dir.path(), &["format", "E"]).worked();
    let address = free_address();
    let _server = Staying::start(dir.path(), &["serve", "D", "--listen", &address]);
    let mount = |words: &[&str]| glint(dir.path(), &[&["mount", &*address, "mnt"], words].concat());
    let refuses = "the management service refuses: ";
    one_line(&mount(&[]), &[refuses, "--key FILE"]);
    one_line(&mount(&["--key", "E/key"]), &[refuses, "another key"]);
    one_line(&mount(&["--key", "E/none"]), &["E/none is missing"]);
    for words in [&["serve", "nowhere"][..], &["fsck", "nowhere"]] {
        let parts = ["nowhere is not there", "glint format"];
        one_line(&glint(dir.path(), words), &parts);
    }
    assert!(!dir.path().join("nowhere").exists());
}
