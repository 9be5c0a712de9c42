//! Control sockets of others, and mounts of others: what they say is not believed, and what others may
//! ask they are told.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use rpc::{Refusal, RefusalReason};
use support::{
    Killed, NOBODY, OPEN_DEVICE, Staying, as_nobody, directory_of_nobody, eventually, finish,
    glint, needs_root,
};
use wire::handshake::Handshake;

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

/// A new file system, mounted on `mnt` in its directory.
fn mounted() -> (tempfile::TempDir, Staying) {
    let dir = tempfile::tempdir().unwrap();
    let up = up(dir.path());
    (dir, up)
}

/// Takes the place of a mount's socket, and answers there with what `talk` writes.
fn instead(socket: &Path, talk: impl Fn(&mut dyn Write) -> std::io::Result<()> + Send + 'static) {
    fs::remove_file(socket).unwrap();
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // The process that asked may have gone.
            let _ = stream.read(&mut [0; 1024]).and_then(|_| talk(&mut stream));
        }
    });
}

/// A process of another user's that listens there.
fn stranger_at(socket: &Path) -> Killed {
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
    Killed(child)
}

#[test]
fn an_answer_has_an_end_in_time_and_carries_nothing_out() {
    if needs_root() {
        return;
    }
    let (dir, _up) = mounted();
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
    let _stranger = stranger_at(&socket_of(&dirs[0].path().join("mnt")));
    let ran = glint(dirs[0].path(), &["status", "mnt"]);
    ran.failed_saying(&["a process of uid 65534 listens at", "it is not asked"]);
    let all = glint(dirs[0].path(), &["status"]);
    assert!(all.err.contains("it is not asked"), "{all:?}");
    let other = fs::canonicalize(dirs[1].path().join("mnt")).unwrap();
    assert!(all.worked().contains(other.to_str().unwrap()), "{all:?}");
}

/// A socket of a process that has died.
fn leave_behind(socket: &Path) {
    drop(UnixListener::bind(socket).unwrap());
}

#[test]
fn sockets_of_the_dead_are_removed_by_the_next_process() {
    if needs_root() {
        return;
    }
    fs::create_dir_all("/run/glint").unwrap();
    let numbers = ["9999:1.sock", "9999:1.public.sock", "mount-99999999.sock"];
    let left = numbers.map(|name| Path::new("/run/glint").join(name));
    left.iter().for_each(|socket| leave_behind(socket));
    let (_dir, _up) = mounted();
    for socket in left {
        assert!(!socket.exists(), "{}", socket.display());
    }
}

/// The device number of its mount is that of one which root had once.
#[test]
fn the_mount_of_another_user_is_not_dead_where_an_old_socket_of_roots_is() {
    if needs_root() {
        return;
    }
    let (dir, _copy) = directory_of_nobody();
    let script = format!(
        "{OPEN_DEVICE}\n\
        own() {{ setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$@\"; }}\n\
        own ./glint up --dir D --mount mnt --daemon --log log >&2 || exit 9\n\
        socket=/run/glint/$(own stat -c %Hd:%Ld mnt).sock; mkdir -p /run/glint\n\
        python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' $socket\n\
        ./glint status mnt; code=$?\n\
        rm -f $socket; own ./glint down mnt >&2; exit $code"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let ran = finish(command.current_dir(dir.path()));
    assert!(ran.worked().contains("served by pid"), "{ran:?}");
}

/// As that of a login, which neither root nor the user's timers have.
#[test]
fn a_mount_is_found_whose_socket_another_environment_has_placed() {
    if needs_root() {
        return;
    }
    let (dir, _copy) = directory_of_nobody();
    let script = format!(
        "{OPEN_DEVICE}\n\
        own() {{ setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \"$@\"; }}\n\
        own mkdir login\n\
        own env XDG_RUNTIME_DIR=$PWD/login ./glint up --dir D --mount mnt --daemon --log log >&2 || exit 9\n\
        ls login/glint >&2\n\
        ./glint status mnt && own ./glint status mnt; code=$?\n\
        own ./glint down mnt >&2; exit $code"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]);
    let ran = finish(command.current_dir(dir.path()));
    assert_eq!(ran.worked().matches("served by pid").count(), 2, "{ran:?}");
}

/// It answers whatever keeps the verb waiting, and lives on.
#[test]
fn a_forged_socket_does_not_hold_up_a_forced_end() {
    if needs_root() {
        return;
    }
    let (dir, _up) = mounted();
    let point = dir.path().join("mnt");
    instead(&socket_of(&point), |out| {
        out.write_all(
            b"{\"Status\":{\"fsname\":\"glint\",\"pid\":1,\"mounted_at\":\"/\",\"ending\":false,\
              \"uuid\":\"\",\"serves\":null,\"targets\":{},\"sizes\":[0,0,0,0],\"parked\":0,\
              \"replaced\":null,\"forsaken\":false}}\n",
        )
    });
    let began = Instant::now();
    let ran = glint(dir.path(), &["umount", "--force", "mnt"]);
    ran.failed_saying(&["still writes"]);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0, "it is off");
}

#[test]
fn an_answer_has_an_end_in_bytes() {
    if needs_root() {
        return;
    }
    let (dir, _up) = mounted();
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
        theirs(words).failed_saying(&["only root may ask that"]);
    }
    let all = theirs(&["param", "set", "llite.*.statahead_max=0"]);
    all.failed_saying(&["belong to other users: only these and root may set their parameters"]);
    for verb in ["umount", "down"] {
        theirs(&[verb, mnt]).failed_saying(&["belongs to root: only root may unmount it"]);
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
    let socket = socket_of(&dir.path().join("mnt")).with_extension("public.sock");
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

/// Takes the address of a server that has died, and tells each mount that comes to give up, until it is
/// dropped.
struct Impostor {
    stop: Arc<AtomicBool>,
    address: String,
    thread: Option<JoinHandle<()>>,
}

impl Impostor {
    fn at(address: &str, reason: RefusalReason) -> Impostor {
        let mut listener = None;
        eventually("the port is free", || {
            listener = TcpListener::bind(address).ok();
            listener.is_some()
        });
        let (listener, stop) = (listener.unwrap(), Arc::<AtomicBool>::default());
        let stopped = stop.clone();
        let refusal = Handshake::Refusal(Refusal::new(reason, "give up\nall is lost \x1b[2J"));
        let frame = refusal.to_frame().encode(false).unwrap();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                // The process that asked may have gone.
                let heard = stream.read(&mut [0; 1024]);
                let _ = heard.and_then(|_| stream.write_all(&frame));
            }
        });
        Impostor {
            stop,
            address: address.to_owned(),
            thread: Some(thread),
        }
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(&self.address);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn who_takes_the_port_of_a_dead_server_costs_a_mount_nothing_but_time() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (at, mnt) = (dir.path(), dir.path().join("mnt"));
    fs::create_dir(&mnt).unwrap();
    glint(at, &["format", "D"]).worked();
    let address = support::ports::free_address();
    let serve = || Staying::start(at, &["serve", "D", "--listen", &address]);
    let mount = || {
        let words = ["mount", &address, "mnt", "--key", "D/key", "-o", "hard"];
        Staying::start(at, &words)
    };
    let mut server = serve();
    let mut mounted = mount();
    use RefusalReason::*;
    for reason in [Version, Key, Damaged, Replaced] {
        let [unsynced, waits] = ["unsynced", "waits"].map(|name| format!("{name}-{reason:?}"));
        fs::write(mnt.join(&unsynced), &unsynced).unwrap();
        server.signal(Signal::SIGKILL);
        server.ended();
        let impostor = Impostor::at(&address, reason);
        let (path, words) = (mnt.join(&waits), waits.clone());
        let call = std::thread::spawn(move || fs::write(path, words));
        eventually("it is told", || {
            let status = glint(at, &["status", "mnt"]);
            let told = "a peer at its address says: give up\\nall is lost";
            status.worked().matches(told).count() == 2
        });
        assert!(!call.is_finished(), "{}", mounted.said());
        drop(impostor);
        server = serve();
        call.join().unwrap().unwrap();
        for name in [unsynced, waits] {
            assert_eq!(fs::read_to_string(mnt.join(&name)).unwrap(), name);
        }
    }
    let said = mounted.said();
    assert!(
        said.contains("the peer that answers has not proven its key"),
        "{said}"
    );
    assert!(!said.lines().any(|line| line.starts_with("all is lost")));
    glint(at, &["umount", "mnt"]).worked();
    assert_eq!(mounted.ended(), Some(0), "{said}");
    let mounted = mount();
    for entry in fs::read_dir(&mnt).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), name);
    }
    assert_eq!(fs::read_dir(&mnt).unwrap().count(), 8);
    drop(mounted);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    glint(at, &["fsck", "D"]).worked();
}

/// Processes of another user that keep the sockets of a mount as full as they can.
fn hogs_at(point: &Path) -> Vec<Killed> {
    let own = socket_of(point);
    let script = "import socket, sys\nheld = []\nwhile True:\n for path in sys.argv[1:]:\n  try:\n   \
                  s = socket.socket(socket.AF_UNIX)\n   s.setblocking(False)\n   s.connect(path)\n   \
                  held.append(s)\n   if len(held) > 400: held.pop(0).close()\n  except OSError:\n   \
                  held and held.pop(0).close()\n";
    let public = own.with_extension("public.sock");
    let hog = || {
        let mut command = as_nobody(Path::new("python3"));
        command.args(["-c", script]).args([&public, &own]);
        Killed(command.current_dir("/").spawn().unwrap())
    };
    let hogs = (0..3).map(|_| hog()).collect();
    // They have begun, and have all that they can get.
    std::thread::sleep(Duration::from_secs(1));
    hogs
}

#[test]
fn another_user_who_asks_all_the_time_keeps_root_from_nothing() {
    if needs_root() {
        return;
    }
    let (dir, _up) = mounted();
    let hogs = hogs_at(&dir.path().join("mnt"));
    for _ in 0..20 {
        glint(dir.path(), &["status", "mnt"]).worked();
    }
    drop(hogs);
}

#[test]
fn an_unmount_that_another_user_disturbs_waits_for_what_is_left() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (at, mnt) = (dir.path(), dir.path().join("mnt"));
    fs::create_dir(&mnt).unwrap();
    glint(at, &["format", "D"]).worked();
    let address = support::ports::free_address();
    let serve = || Staying::start(at, &["serve", "D", "--listen", &address]);
    let mut server = serve();
    let mount = ["mount", &address, "mnt", "--key", "D/key"];
    let mut mounted = Staying::start(at, &mount);
    fs::write(mnt.join("file"), "words").unwrap();
    server.signal(Signal::SIGKILL);
    server.ended();
    let hogs = hogs_at(&mnt);
    std::thread::scope(|scope| {
        let unmount = scope.spawn(|| glint(at, &["umount", "mnt"]));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!unmount.is_finished(), "{:?}", unmount.join());
        let _server = serve();
        unmount.join().unwrap().worked();
        assert_eq!(mounted.ended(), Some(0), "{}", mounted.said());
        drop(hogs);
        let _again = Staying::start(at, &mount);
        assert_eq!(fs::read_to_string(mnt.join("file")).unwrap(), "words");
    });
}

#[test]
fn an_unmount_that_nobody_answers_does_not_say_that_all_is_well() {
    if needs_root() {
        return;
    }
    let (dir, up) = mounted();
    up.signal(Signal::SIGSTOP);
    let ran = glint(dir.path(), &["umount", "--force", "mnt"]);
    ran.failed_saying(&["is unmounted, but", "is not known", "stands still"]);
}

/// A user's processes find each other wherever somebody else has not been before.
#[test]
fn a_directory_that_somebody_made_first_locks_nobody_out() {
    if needs_root() {
        return;
    }
    let (dir, copy) = directory_of_nobody();
    let made = |name: &str, owner| {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        path
    };
    let (session, temporary) = (made("session", NOBODY), made("tmp", NOBODY));
    let squatted = made(&format!("tmp/glint-{NOBODY}"), 1);
    let (others, free) = (made("others", 1), made("free", NOBODY));
    for (number, runtime, temporary) in [(0, &session, &temporary), (1, &others, &free)] {
        let user = || {
            let mut command = as_nobody(&copy);
            command.current_dir(dir.path());
            command
                .env("XDG_RUNTIME_DIR", runtime)
                .env("TMPDIR", temporary);
            command
        };
        let store = format!("D{number}");
        finish(user().args(["format", &store])).worked();
        let listen = format!("unix:sock{number}");
        let serve = ["serve", &store, "--listen", &listen];
        let server = Staying::run(user().args(serve), dir.path());
        let status = finish(user().args(["status", &store]));
        assert!(status.worked().contains("OST0: serving"), "{status:?}");
        drop(server);
    }
    assert_eq!(fs::read_dir(squatted).unwrap().count(), 0);
    assert_eq!(fs::read_dir(others).unwrap().count(), 0);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(session.join("glint")), 0o700);
    assert_eq!(mode(free.join(format!("glint-{NOBODY}"))), 0o700);
}
