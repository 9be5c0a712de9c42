//! A target that was restored from an older copy is known by a mount or server that saw more of it,
//! and is not served.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use support::ports::free_address;
use support::{Ran, Staying, glint, needs_root, shell};

fn empty() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    glint(dir.path(), &["format", "D"]).worked();
    dir
}

/// Served and mounted as often as it takes, each time by others who remember nothing.
struct Place {
    dir: tempfile::TempDir,
    address: String,
}

impl Place {
    fn new() -> Place {
        Place {
            dir: empty(),
            address: free_address(),
        }
    }

    fn serve(&self) -> Staying {
        let serve = ["serve", "D", "--listen", &self.address];
        Staying::start(self.dir.path(), &serve)
    }

    /// Does `what` on a mount, of which nothing is left then.
    fn mounted(&self, what: &str) {
        let mut server = self.serve();
        // The copies know a mount that is no more.
        let end = ["param", "set", "*.recovery_status=end", "--dir", "D"];
        glint(self.dir.path(), &end).worked();
        let mount = ["mount", &self.address, "mnt", "--key", "D/key"];
        let mut mount = Staying::start(self.dir.path(), &mount);
        shell(self.dir.path(), what).worked();
        for process in [&mut mount, &mut server] {
            process.signal(Signal::SIGTERM);
            assert_eq!(process.ended(), Some(0), "{}", process.said());
        }
    }

    fn fsck(&self, more: &[&str]) -> Ran {
        let words = [&["fsck", "D"], more].concat();
        glint(self.dir.path(), &words)
    }

    /// It is not as it should be, and that is told.
    #[track_caller]
    fn is_not_well(&self, parts: &[&str]) {
        let ran = self.fsck(&[]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        for part in parts {
            assert!(ran.out.contains(part), "no {part:?} in {ran:?}");
        }
    }

    #[track_caller]
    fn is_well(&self) {
        let ran = self.fsck(&[]);
        for target in ["MDT0", "OST0"] {
            let line = format!("{target}: 0 errors, 0 warnings");
            assert!(ran.worked().contains(&line), "{ran:?}");
        }
    }
}

/// No client knows of what is lost: the other target does. `target` is older than it was.
fn made_do_with(target: &str) -> Place {
    let place = Place::new();
    // In one life: for a while after a restart the MDT takes nobody's word for a size. Each target is
    // told how far the other has come once a second.
    let late = "echo late | dd status=none conv=fsync";
    let longer = format!("{late},notrunc oflag=append of=mnt/early");
    place.mounted(&format!(
        "echo early | dd status=none conv=fsync of=mnt/early; sync -f mnt; sleep 2; cp -a D copy; \
         {longer}; for n in 1 2 3 4; do {late} of=mnt/late$n; sleep 1; done"
    ));
    let swap = format!("rm -r D/{target} && mv copy/{target} D");
    shell(place.dir.path(), &swap).worked();
    let mut server = place.serve();
    // The other targets of the process serve on.
    support::eventually("the older copy has stopped", || {
        let status = glint(place.dir.path(), &["status", "D"]);
        let mut lines = status.out.lines();
        lines.any(|line| line.contains(": stopped: ") && line.contains("from an older copy"))
            && status.out.contains(": serving")
    });
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(1), "{}", server.said());
    assert!(
        server.said().contains("from an older copy"),
        "{}",
        server.said()
    );
    let older = "is an older copy of what it was";
    place.is_not_well(&[older, "make do with this one"]);
    let ran = place.fsck(&["--repair"]);
    assert!(
        ran.out.contains(older) && ran.out.contains("made do with"),
        "{ran:?}"
    );
    place
}

#[test]
fn an_mdt_that_is_older_than_its_osts_know_is_not_served() {
    if needs_root() {
        return;
    }
    let place = made_do_with("mdt0");
    place.is_not_well(&["is 6 bytes long, and has 11"]);
    let all = "test $(ls mnt) = early && grep early mnt/early && rm mnt/early && echo new > mnt/new \
               && sync -f mnt && grep new mnt/new";
    place.mounted(all);
    place.mounted("grep new mnt/new");
    // What is left of the files that are lost.
    place.fsck(&["--repair"]).worked();
    place.is_well();
}

#[test]
fn an_ost_that_is_older_than_its_mdt_knows_is_not_served() {
    if needs_root() {
        return;
    }
    let place = made_do_with("ost0");
    let short = "is 11 bytes long, and has 6";
    place.is_not_well(&["the bytes of file", "are missing", short]);
    let all = "grep early mnt/early && rm mnt/* && echo new > mnt/new && sync -f mnt";
    place.mounted(all);
    place.mounted("grep new mnt/new && test ! -e mnt/late1");
    place.is_well();
}

#[test]
fn a_mount_waits_for_what_a_target_restored_from_an_old_copy_lacks() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    let (dir, address) = (&place.dir, &place.address);
    let serve = ["serve", "D", "--listen", address];
    let mut server = Staying::start(dir.path(), &serve);
    let mut mount = Staying::start(dir.path(), &["mount", address, "mnt", "--key", "D/key"]);
    shell(dir.path(), "mkdir mnt/early && sync -f mnt/early").worked();
    server.signal(Signal::SIGTERM);
    server.ended();
    shell(dir.path(), "cp -a D copy").worked();
    let mut server = Staying::start(dir.path(), &serve);
    // Durable, and told to the mount.
    shell(dir.path(), "mkdir mnt/late && sync -f mnt/late").worked();
    shell(dir.path(), "mkdir mnt/later && sync -f mnt/later").worked();
    server.signal(Signal::SIGTERM);
    server.ended();
    shell(dir.path(), "mv D lost && mv copy D").worked();
    let mut restored = Staying::start(dir.path(), &serve);
    support::eventually("the mount is refused", || mount.said().contains("restored"));
    // One mount may say what it likes: others are served.
    shell(dir.path(), "mkdir other").worked();
    let mut other = Staying::start(dir.path(), &["mount", address, "other", "--key", "D/key"]);
    let end = ["param", "set", "*.recovery_status=end", "--dir", "D"];
    glint(dir.path(), &end).worked();
    let old = shell(dir.path(), "ls other");
    assert_eq!(old.worked(), "early\n");
    other.signal(Signal::SIGTERM);
    assert_eq!(other.ended(), Some(0), "{}", other.said());
    restored.signal(Signal::SIGTERM);
    assert_eq!(restored.ended(), Some(0), "{}", restored.said());
    assert!(restored.said().contains("restored"), "{}", restored.said());
    // Nothing was given up: with what the mount saw there again it goes on.
    let waits = dir.path().to_owned();
    let waits = thread::spawn(move || shell(&waits, "mkdir mnt/waits"));
    shell(dir.path(), "sleep 1; mv D copy && mv lost D").worked();
    let _server = Staying::start(dir.path(), &serve);
    waits.join().unwrap().worked();
    shell(dir.path(), "rmdir mnt/early mnt/late mnt/later mnt/waits").worked();
    mount.signal(Signal::SIGTERM);
    assert_eq!(mount.ended(), Some(0), "{}", mount.said());
}

/// What was restored says where the other targets were, and their server has told it so in a life that
/// is forgotten.
#[test]
fn an_mgs_that_is_older_is_told_where_targets_are() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(at, "mkdir mnt").worked();
    glint(at, &["format", "D", "--role", "mgs"]).worked();
    let others = ["format", "E", "--role", "mdt,ost", "--join", "D"];
    glint(at, &others).worked();
    let [mgs_at, before, now] = [(); 3].map(|()| free_address());
    let serve_mgs = || Staying::start(at, &["serve", "D", "--listen", &mgs_at]);
    let serve = |here: &str| {
        let serve = ["serve", "E", "--listen", here, "--mgs", &mgs_at];
        Staying::start(at, &serve)
    };
    let mgs = serve_mgs();
    stop(serve(&before));
    stop(mgs);
    shell(at, "cp -a D/mgs older").worked();
    let mgs = serve_mgs();
    let _others = serve(&now);
    stop(mgs);
    shell(at, "rm -r D/mgs && mv older D/mgs").worked();
    let _mgs = serve_mgs();
    let restored = Instant::now();
    let mount = Staying::start(at, &["mount", &mgs_at, "mnt", "--key", "D/key"]);
    let used = "echo new > mnt/new && sync -f mnt && cat mnt/new";
    assert_eq!(shell(at, used).worked(), "new\n", "{}", mount.said());
    assert!(restored.elapsed() < Duration::from_secs(30));
}

fn stop(mut server: Staying) {
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
}
