//! The life of a mount as a person sees it: up, down, busy, killed, as root and as an ordinary user.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::stored::stored_objects;
use support::{
    NOBODY, OPEN_DEVICE, Staying, directory_of_nobody, eventually, finish, glint, needs_root, shell,
};

const UP: [&str; 5] = ["up", "--dir", "D", "--mount", "mnt"];

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    dir
}

fn is_mounted(point: &Path) -> bool {
    let point = fs::canonicalize(point).unwrap_or_else(|_| point.to_owned());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == point.to_str())
}

/// The server's own files lead into the mount by their paths then. It looks at its fences every second, and
/// may not write where it could not for four.
#[test]
fn a_mount_above_its_own_store_works() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "mnt/store"]).worked();
    let listen = ["serve", "mnt/store", "--listen", "127.0.0.1:0"];
    let mut server = Staying::start(dir.path(), &listen);
    fs::copy(dir.path().join("mnt/store/key"), dir.path().join("key")).unwrap();
    let mount = ["mount", &server.address(), "mnt", "--key", "key"];
    let mut mount = Staying::start(dir.path(), &mount);
    let work =
        "echo a > mnt/a && sync mnt/a && rm mnt/a && echo b > mnt/b && sync mnt/b && cat mnt/b";
    for _ in 0..3 {
        let ran = shell(dir.path(), &format!("timeout 20 sh -c '{work}'"));
        assert_eq!(ran.worked(), "b\n", "{}", server.said());
        std::thread::sleep(std::time::Duration::from_secs(3));
    }
    mount.signal(Signal::SIGTERM);
    assert_eq!(mount.ended(), Some(0), "{}", mount.said());
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    glint(dir.path(), &["fsck", "mnt/store"]).worked();
}

#[test]
fn up_and_down_keep_everything() {
    if needs_root() {
        return;
    }
    let dir = place();
    let mnt = dir.path().join("mnt");
    for round in 0..3 {
        let mut up = Staying::start(dir.path(), &UP);
        assert_eq!(up.said().lines().count(), 1, "{}", up.said());
        assert!(up.said().starts_with("D mounted at /"), "{}", up.said());
        for before in 0..round {
            assert_eq!(
                fs::read(mnt.join(format!("file{before}"))).unwrap(),
                b"words"
            );
        }
        fs::write(mnt.join(format!("file{round}")), "words").unwrap();
        if round == 1 {
            up.signal(Signal::SIGTERM);
        } else {
            glint(dir.path(), &["down", "mnt"]).worked();
        }
        assert_eq!(up.ended(), Some(0), "{}", up.said());
        assert!(!is_mounted(&mnt));
        glint(dir.path(), &["fsck", "D"]).worked();
    }
}

#[test]
fn space_of_deleted_files_comes_back() {
    if needs_root() {
        return;
    }
    let dir = place();
    let (mnt, store) = (dir.path().join("mnt"), dir.path().join("D"));
    let _up = Staying::start(dir.path(), &UP);
    for number in 0..40 {
        fs::write(mnt.join(format!("file{number}")), vec![7; 10_000]).unwrap();
    }
    glint(dir.path(), &["fs", "sync", "mnt"]).worked();
    assert_eq!(stored_objects(&store, 10_000), 40);
    for number in 0..40 {
        fs::remove_file(mnt.join(format!("file{number}"))).unwrap();
    }
    eventually("objects of removed files are gone", || {
        stored_objects(&store, 10_000) == 0
    });
}

#[test]
fn a_busy_mount_stays_and_its_user_is_named() {
    if needs_root() {
        return;
    }
    let dir = place();
    let mnt = dir.path().join("mnt");
    let mut up = Staying::start(dir.path(), &UP);
    fs::write(mnt.join("open"), "words").unwrap();
    let file = File::open(mnt.join("open")).unwrap();
    let mut sleeper = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::from(file))
        .spawn()
        .unwrap();
    let pid = sleeper.id().to_string();
    for verb in ["umount", "down"] {
        let ran = glint(dir.path(), &[verb, "mnt"]);
        ran.failed_saying(&[&pid, "sleep", "mnt/open", "nothing was changed"]);
    }
    up.signal(Signal::SIGTERM);
    eventually("it says why it stays", || {
        up.said().contains("still mounted")
    });
    assert_eq!(fs::read(mnt.join("open")).unwrap(), b"words");
    let forced = glint(dir.path(), &["umount", "--force", "mnt"]);
    assert!(forced.worked().contains("lost"), "{forced:?}");
    assert!(!is_mounted(&mnt));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(up.ended(), Some(0), "{}", up.said());
}

/// Takes a daemon's mount off when a test ends early; the daemon ends with it.
struct TakenOff(std::path::PathBuf);

impl Drop for TakenOff {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = finish(Command::new("umount").arg("-l").arg(&self.0));
        }
    }
}

#[test]
fn a_daemon_says_its_pid_and_ends_with_down() {
    if needs_root() {
        return;
    }
    let dir = place();
    let log = dir.path().join("log");
    let _off = TakenOff(dir.path().join("mnt"));
    let ran = glint(
        dir.path(),
        &[&UP[..], &["--daemon", "--log", "log"]].concat(),
    );
    let said = ran.worked().to_owned();
    let pid = said
        .split("(pid ")
        .nth(1)
        .and_then(|rest| rest.split([',', ')']).next())
        .unwrap();
    assert!(Path::new("/proc").join(pid).exists(), "{said}");
    let status = || {
        let ran = glint(dir.path(), &["status", "mnt", "--json"]);
        serde_json::from_str::<serde_json::Value>(ran.worked()).unwrap()
    };
    assert_eq!(parent_of(&status()[0]["pid"]), pid, "its supervisor");
    eventually("it is connected", || {
        status()[0]["targets"]["MDT0"] == "connected"
    });
    let again = glint(
        dir.path(),
        &[&UP[..], &["--daemon", "--log", "log"]].concat(),
    );
    again.failed_saying(&["is mounted already"]);
    glint(dir.path(), &["down", "mnt"]).worked();
    // It may still wait for its new parent to ask how it ended.
    eventually("the daemon is gone", || {
        !Path::new("/proc").join(pid).exists()
    });
    assert!(
        !fs::read_to_string(log).unwrap().contains("\x1b["),
        "no colours in a log"
    );
}

/// Of a process.
fn parent_of(pid: &serde_json::Value) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.unwrap().trim().to_owned()
}

/// What serves and what is mounted are one process: another takes its place as both, and has what
/// neither had made durable.
#[test]
fn a_daemon_that_is_killed_goes_on_with_targets_and_mount() {
    if needs_root() {
        return;
    }
    let dir = place();
    let mnt = dir.path().join("mnt");
    let _off = TakenOff(mnt.clone());
    let up = [&UP[..], &["--daemon", "--log", "log"]].concat();
    glint(dir.path(), &up).worked();
    let server = || {
        let ran = glint(dir.path(), &["status", "mnt", "--json"]);
        let status = serde_json::from_str::<serde_json::Value>(ran.worked()).unwrap();
        status[0]["pid"].as_i64().unwrap() as i32
    };
    for what in ["mdt.*.commit_ms=60000", "ost.*.commit_ms=60000"] {
        glint(dir.path(), &["param", "--dir", "D", "set", what]).worked();
    }
    let mut open = File::create(mnt.join("open")).unwrap();
    for round in 0..3 {
        fs::create_dir(mnt.join(format!("dir{round}"))).unwrap();
        fs::write(mnt.join(format!("dir{round}/file")), "words").unwrap();
        open.write_all(b"line ").unwrap();
        let before = server();
        kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
        // Waits for the process that goes on.
        open.write_all(b"end\n").unwrap();
        for earlier in 0..=round {
            let file = mnt.join(format!("dir{earlier}/file"));
            assert_eq!(fs::read(file).unwrap(), b"words", "round {round}");
        }
        eventually("another serves", || server() != before);
    }
    drop(open);
    let lines = fs::read(mnt.join("open")).unwrap();
    assert_eq!(lines, b"line end\n".repeat(3));
    glint(dir.path(), &["down", "mnt"]).worked();
    assert!(!is_mounted(&mnt));
    glint(dir.path(), &["fsck", "D"]).worked();
    let mut up = Staying::start(dir.path(), &UP);
    assert_eq!(fs::read(mnt.join("dir2/file")).unwrap(), b"words");
    assert_eq!(fs::read(mnt.join("open")).unwrap(), lines);
    glint(dir.path(), &["down", "mnt"]).worked();
    assert_eq!(up.ended(), Some(0), "{}", up.said());
}

/// What `glint mount --daemon` makes outlives its process, unless it is told not to.
#[test]
fn a_mount_in_the_background_is_supervised() {
    if needs_root() {
        return;
    }
    let dir = place();
    let mnt = dir.path().join("mnt");
    let _off = TakenOff(mnt.clone());
    glint(dir.path(), &["format", "D"]).worked();
    let mut server = Staying::start(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]);
    let address = server.address();
    let daemon = ["mount", &address, "mnt", "--key", "D/key", "--daemon"];
    let status = || {
        let ran = glint(dir.path(), &["status", "mnt", "--json"]);
        let status = serde_json::from_str::<serde_json::Value>(ran.worked()).unwrap();
        status[0]["pid"].as_i64().unwrap() as i32
    };
    glint(dir.path(), &[&daemon[..], &["--log", "log"]].concat()).worked();
    let mut open = File::create(mnt.join("open")).unwrap();
    open.write_all(b"before, ").unwrap();
    let before = status();
    kill(Pid::from_raw(before), Signal::SIGKILL).unwrap();
    open.write_all(b"after").unwrap();
    eventually("another serves", || status() != before);
    drop(open);
    assert_eq!(fs::read(mnt.join("open")).unwrap(), b"before, after");
    glint(dir.path(), &["umount", "mnt"]).worked();
    let alone = [&daemon[..], &["--no-supervisor", "--log", "log"]].concat();
    glint(dir.path(), &alone).worked();
    kill(Pid::from_raw(status()), Signal::SIGKILL).unwrap();
    eventually("no process serves it", || {
        let error = fs::read(mnt.join("open")).map_err(|error| error.raw_os_error());
        error == Err(Some(nix::errno::Errno::ENOTCONN as i32))
    });
    // A new mount takes the dead one's place.
    glint(dir.path(), &[&daemon[..], &["--log", "log"]].concat()).worked();
    assert_eq!(fs::read(mnt.join("open")).unwrap(), b"before, after");
    glint(dir.path(), &["umount", "mnt"]).worked();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
}

/// The kernel gives the number of a mount again to the next one.
#[test]
fn a_mount_that_is_taken_off_leaves_the_next_one_at_its_place_alone() {
    if needs_root() {
        return;
    }
    let dir = place();
    let _off = TakenOff(dir.path().join("mnt"));
    glint(dir.path(), &["format", "D"]).worked();
    let mut server = Staying::start(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]);
    let address = server.address();
    let mount = || {
        let words = [
            "mount", &address, "mnt", "--key", "D/key", "--daemon", "--log", "log",
        ];
        glint(dir.path(), &words).worked();
    };
    mount();
    shell(dir.path(), "echo kept > mnt/file && umount mnt").worked();
    mount();
    // The first one looks now and then whether it is mounted still.
    shell(
        dir.path(),
        "sleep 1; mountpoint -q mnt && grep kept mnt/file",
    )
    .worked();
    glint(dir.path(), &["umount", "mnt"]).worked();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
}

#[test]
fn a_server_and_a_mount_apart() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    let mut server = Staying::start(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]);
    let address = server.address();
    let mut mount = Staying::start(dir.path(), &["mount", &address, "mnt", "--key", "D/key"]);
    let mnt = dir.path().join("mnt");
    fs::create_dir(mnt.join("dir")).unwrap();
    fs::write(mnt.join("dir/file"), "words").unwrap();
    let fid = glint(dir.path(), &["fs", "path2fid", "mnt/dir/file"]);
    let path = glint(dir.path(), &["fs", "fid2path", "mnt", fid.worked().trim()]);
    assert_eq!(path.worked().trim(), "dir/file");
    let stat = glint(dir.path(), &["fs", "stat", "--json", "mnt/dir/file"]);
    let stat: serde_json::Value = serde_json::from_str(stat.worked()).unwrap();
    assert_eq!(
        (stat["bytes"].clone(), stat["path"].clone()),
        (5.into(), "/dir/file".into())
    );
    assert_eq!(stat["fid"], fid.worked().trim());
    assert!(
        glint(dir.path(), &["fs", "df", "mnt"])
            .worked()
            .contains("available")
    );
    glint(
        dir.path(),
        &["param", "set", "llite.*.statahead_max=0", "--mount", "mnt"],
    )
    .worked();
    let got = glint(
        dir.path(),
        &["param", "get", "llite.*.statahead_max", "--mount", "mnt"],
    );
    assert_eq!(got.worked().trim(), "llite.glint.statahead_max=0");
    mount.signal(Signal::SIGTERM);
    assert_eq!(mount.ended(), Some(0), "{}", mount.said());
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    glint(dir.path(), &["fsck", "D"]).worked();
}

#[test]
fn how_a_server_commits_is_set_and_seen_while_it_runs() {
    let dir = place();
    glint(dir.path(), &["format", "D", "--role", "mgs,mdt,ost"]).worked();
    let mut server = Staying::start(dir.path(), &["serve", "D", "--listen", "127.0.0.1:0"]);
    let param = |words: &[&str]| glint(dir.path(), &[&["param", "--dir", "D"], words].concat());
    let told = "mdt.glint-MDT0.commit_ms=1000\nost.glint-OST0.commit_ms=1000\n";
    assert_eq!(param(&["get", "*.commit_ms"]).worked(), told);
    param(&["set", "mdt.*.commit_ms=20"]).worked();
    param(&["set", "ost.*.commit_bytes=65536"]).worked();
    let told = "mdt.glint-MDT0.commit_ms=20\nost.glint-OST0.commit_ms=1000\n";
    assert_eq!(param(&["get", "*.commit_ms"]).worked(), told);
    for (wrong, why) in [
        ("mdt.*.commit_ms=0", "0 is not from 1 to 60000"),
        ("ost.*.commit_bytes=1", "1 is not from 4096 to"),
        ("mdt.*.commit_ms=soon", "\"soon\" is not a number"),
        ("mdt.*.commit_stats=0", "can only be read"),
    ] {
        let said = param(&["set", wrong]);
        assert_eq!(said.code, Some(1), "{wrong}: {said:?}");
        assert!(said.err.contains(why), "{wrong}: {said:?}");
    }
    let kept = param(&["get", "mdt.*.stored_replies"]);
    let kept = kept.worked();
    assert!(
        kept.starts_with("mdt.glint-MDT0.stored_replies=answers=0 bytes=0"),
        "{kept}"
    );
    let stats = param(&["get", "mdt.*.commit_stats"]);
    let stats = stats.worked();
    assert!(
        stats.starts_with("mdt.glint-MDT0.commit_stats=commits="),
        "{stats}"
    );
    assert!(
        stats.contains(" ms_p99=") && stats.contains(" bytes="),
        "{stats}"
    );
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
}

#[test]
fn what_an_fsync_makes_durable_is_counted_by_both_its_targets() {
    if needs_root() {
        return;
    }
    let dir = place();
    let words = [&UP[..], &["--listen", "127.0.0.1:0"]].concat();
    let mut up = Staying::start(dir.path(), &words);
    let commits = |target: &str| {
        let name = format!("{target}.*.commit_stats");
        let ran = glint(dir.path(), &["param", "--dir", "D", "get", &name]);
        let (_, said) = ran.worked().split_once("commits=").expect("they are told");
        let count = said.split_whitespace().next().unwrap_or_default();
        count.parse::<u64>().expect("a number")
    };
    let before = ["mdt", "ost"].map(commits);
    shell(dir.path(), "echo words > mnt/f && sync mnt/f").worked();
    let after = ["mdt", "ost"].map(commits);
    assert!(
        before < after && before[1] < after[1],
        "{before:?}, {after:?}"
    );
    up.signal(Signal::SIGTERM);
    assert_eq!(up.ended(), Some(0), "{}", up.said());
}

#[test]
fn rules_of_a_server_are_set_and_seen_while_it_runs() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D", "--role", "mgs,mdt"]).worked();
    glint(
        dir.path(),
        &["format", "E", "--role", "ost3", "--join", "D"],
    )
    .worked();
    let mut server = Staying::start(dir.path(), &["serve", "D", "E", "--listen", "127.0.0.1:0"]);
    let param = |words: &[&str]| glint(dir.path(), &[&["param", "--dir", "E"], words].concat());
    let set = |value: &str| param(&["set", value]);
    let rule = "start slow opcode={getattr,lookup} rate=1017";
    let ran = set(&format!("mdt.*.nrs_tbf_rule={rule}"));
    assert_eq!(
        ran.worked(),
        format!("mdt.glint-MDT0.nrs_tbf_rule={rule}\n")
    );
    set("*.nrs_tbf_rule=start all each=client rate=9 burst=7").worked();
    let told = "\
        mdt.glint-MDT0.nrs_tbf_rule=start all each=client rate=9 burst=7\n\
        mdt.glint-MDT0.nrs_tbf_rule=start slow opcode={getattr,lookup} rate=1017 burst=3\n\
        ost.glint-OST3.nrs_tbf_rule=start all each=client rate=9 burst=7\n";
    assert_eq!(param(&["get", "*.nrs_tbf_rule"]).worked(), told);
    // Whichever of its directories is named, and where none is.
    let words = ["param", "get", "*.nrs_tbf_rule", "--dir", "D"];
    assert_eq!(glint(dir.path(), &words).worked(), told);
    eventually("it is found where none is named, and once", || {
        // Mounts of other tests may end while they are asked.
        let everywhere = glint(dir.path(), &["param", "get", "*.nrs_tbf_rule"]);
        everywhere
            .out
            .matches(&format!("={rule} burst=3\n"))
            .count()
            == 1
    });
    let stats = param(&["get", "mdt.*.nrs_tbf_stats"]);
    let first = "stats=all requests=0 held=0 waiting=0 overdue=0 owed=0";
    assert!(stats.worked().contains(first), "{stats:?}");
    let listed = param(&["list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(listed.worked()).unwrap();
    assert!(
        listed[0]["value"]
            .as_str()
            .unwrap()
            .contains("\nstart slow")
    );

    let wrong = set("mdt.*.nrs_tbf_rule=start more opcode={getatr} rate=1");
    wrong.failed_saying(&["mdt.glint-MDT0.nrs_tbf_rule: character 20", "getattr"]);
    set("ost.*.nrs_tbf_rule=stop slow").failed_saying(&["there is no rule slow; there are all"]);
    set("ost.*.nrs_tbf_stats=0").failed_saying(&["can only be read"]);
    param(&["get", "mdt.*.nrs"]).failed_saying(&["no parameter matches mdt.*.nrs"]);
    set("*.nrs_tbf_rule=stop all").worked();
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    param(&["list"]).failed_saying(&["no server of this user has E", "glint serve"]);
    let mut server = Staying::start(dir.path(), &["serve", "D", "E", "--listen", "127.0.0.1:0"]);
    assert_eq!(
        param(&["get", "mdt.*.nrs_tbf_rule"]).worked(),
        "mdt.glint-MDT0.nrs_tbf_rule=\n",
        "rules end with the server"
    );
    // Of a server that was killed nothing is asked.
    server.signal(Signal::SIGKILL);
    server.ended();
    param(&["list"]).failed_saying(&["no server of this user has E"]);
}

#[test]
fn one_process_answers_for_its_mount_and_its_targets() {
    if needs_root() {
        return;
    }
    let dir = place();
    let up = Staying::start(dir.path(), &UP);
    let rule = "mdt.*.nrs_tbf_rule=start slow rate=1000";
    glint(dir.path(), &["param", "set", rule, "--mount", "mnt"]).worked();
    let all = glint(dir.path(), &["param", "get", "*", "--dir", "D"]);
    let said = all.worked();
    assert!(said.contains("llite.glint.statahead_max=8192"), "{said}");
    assert!(said.contains("MDT0.nrs_tbf_rule=start slow rate=1000 burst=3"));
    eventually("both its mount and its MDT are clients of its OST", || {
        let clients = ["param", "get", "ost.*.exports", "--dir", "D"];
        let clients = glint(dir.path(), &clients);
        clients.worked().matches(" mem:here\n").count() == 2
    });
    fs::write(dir.path().join("mnt/file"), "words").unwrap();
    let stats = ["param", "get", "mdt.*.nrs_tbf_stats", "--dir", "D"];
    let stats = glint(dir.path(), &stats);
    assert!(!stats.worked().contains("requests=0"), "{stats:?}");
    glint(dir.path(), &["down", "mnt"]).worked();
    drop(up);
    let gone = glint(dir.path(), &["param", "list", "--dir", "D"]);
    gone.failed_saying(&["no server of this user has D"]);
}

#[test]
fn several_server_processes_make_one_file_system() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D", "--role", "mgs,mdt,ost0"]).worked();
    glint(
        dir.path(),
        &["format", "E", "--role", "ost1", "--join", "D"],
    )
    .worked();
    let serve = ["serve", "D", "--listen", "127.0.0.1:0"];
    let first = Staying::start(dir.path(), &serve);
    let (address, listen) = (first.address(), "127.0.0.1:0");
    let words = ["serve", "E", "--listen", listen, "--mgs", &address];
    let _second = Staying::start(dir.path(), &words);
    let _mount = Staying::start(dir.path(), &["mount", &address, "mnt", "--key", "E/key"]);
    let status = || glint(dir.path(), &["status", "mnt"]).worked().to_owned();
    eventually("it is connected", || status().contains("OST1: connected"));
    let file = dir.path().join("mnt/file");
    fs::write(&file, "words").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"words");
}

#[test]
fn an_ordinary_user_may_do_it_too() {
    if needs_root() {
        return;
    }
    let (dir, copy) = directory_of_nobody();
    let user = dir.path().join("user");
    let script = "set -e\n\
        ./glint up --dir D --mount mnt --daemon --log log >&2\n\
        echo words > mnt/file; cat mnt/file; stat -c %u mnt/file\n\
        ./glint status mnt; ./glint down mnt";
    fs::write(&user, script).unwrap();
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
        said.starts_with("words\n65534\n") && said.contains("MDT0: "),
        "{ran:?}"
    );
    assert!(said.contains("mnt unmounted") && copy.exists());
}

#[test]
fn a_mount_whose_device_number_is_taken_again_ends_all_the_same() {
    if needs_root() {
        return;
    }
    let dir = place();
    for name in ["m0", "m1"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let up = |number: usize| {
        let (store, point) = (format!("D{number}"), format!("m{number}"));
        Staying::start(dir.path(), &["up", "--dir", &store, "--mount", &point])
    };
    for _ in 0..5 {
        let mut first = up(0);
        // Taken off behind the process's back, and the number given to the next mount at once.
        let mut umount = Command::new("umount");
        finish(umount.arg(dir.path().join("m0"))).worked();
        let mut second = up(1);
        assert_eq!(first.ended(), Some(0), "{}", first.said());
        glint(dir.path(), &["stats", "m1"]).worked();
        glint(dir.path(), &["down", "m1"]).worked();
        assert_eq!(second.ended(), Some(0), "{}", second.said());
    }
}
