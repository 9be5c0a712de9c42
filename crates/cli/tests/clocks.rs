//! Machines whose clocks are an hour and more apart. No time that was set is undone, no change goes
//! unseen, nobody is evicted or waited for because of it. Who can mend it is told once.
// SEMANTICS: op.setattr, op.write

#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs::{self, File, FileTimes};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use support::ports::free_address;
use support::{Staying, glint, needs_root, preloaded, program};

/// Wall clocks that are `SKEW` seconds ahead; those that only go forward are left alone.
const SKEWED: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *time)
{
    int failed = syscall(SYS_clock_gettime, clock, time);
    const char *skew = getenv("SKEW");
    if (!failed && skew && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec += atol(skew);
    return failed;
}
"#;

struct Place {
    skewed: PathBuf,
    dir: tempfile::TempDir,
    address: String,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        glint(dir.path(), &["format", "D"]).worked();
        Place {
            skewed: preloaded(dir.path(), SKEWED),
            dir,
            address: free_address(),
        }
    }

    /// A `glint` whose wall clock is that many seconds ahead.
    fn start(&self, skew: i64, words: &[&str]) -> Staying {
        let mut command = Command::new(program());
        command.args(words).env("SKEW", skew.to_string());
        command.env("LD_PRELOAD", &self.skewed);
        Staying::run(&mut command, self.dir.path())
    }

    fn serve(&self, skew: i64) -> Staying {
        self.start(skew, &["serve", "D", "--listen", &self.address])
    }

    fn mount(&self, skew: i64, name: &str) -> (Staying, PathBuf) {
        let point = self.dir.path().join(name);
        fs::create_dir(&point).unwrap();
        let words = ["mount", &self.address, name, "--key", "D/key"];
        (self.start(skew, &words), point)
    }
}

/// What a mount's log says of servers' clocks: how many seconds each is ahead, to ten.
#[track_caller]
fn skews(mount: &Staying) -> Vec<i64> {
    let said = mount.said();
    let parts = said
        .lines()
        .filter_map(|line| line.split_once("the clock of the server at "));
    let skew = |(_, told): (&str, &str)| {
        assert!(told.contains("set both clocks"), "{told}");
        let (_, told) = told.split_once(") is ").unwrap();
        let (seconds, direction) = told.split_once(" s ").unwrap();
        let sign = if direction.starts_with("ahead of this") {
            1
        } else {
            -1
        };
        sign * (seconds.parse::<i64>().unwrap() + 5) / 10 * 10
    };
    parts.map(skew).collect()
}

fn mtime(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Long ago.
fn past() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000)
}

fn set_past(file: &File) {
    file.set_times(FileTimes::new().set_modified(past()))
        .unwrap();
}

/// As `cp -p`, `tar -x` and `rsync -t` do.
fn write_and_set(path: &Path) {
    let mut file = File::create(path).unwrap();
    file.write_all(b"words").unwrap();
    set_past(&file);
}

#[track_caller]
fn all_say_past(roots: &[&Path], name: &str) {
    for root in roots {
        assert_eq!(mtime(&root.join(name)), past(), "{}", root.display());
    }
}

#[test]
fn times_that_were_set_stay_and_changes_are_seen() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    let _server = place.serve(3600);
    let (one, behind) = place.mount(0, "behind");
    let (two, ahead) = place.mount(7200, "ahead");
    let (three, right) = place.mount(3601, "right");
    assert_eq!(fs::read_dir(right).unwrap().count(), 0);
    let roots = [&*behind, &*ahead];
    for (writer, other) in [(&behind, &ahead), (&ahead, &behind)] {
        let name = format!("by-{}", writer.file_name().unwrap().display());
        // A new file, one that is there, and one that the other one made.
        write_and_set(&writer.join(&name));
        all_say_past(&roots, &name);
        write_and_set(&writer.join(&name));
        all_say_past(&roots, &name);
        write_and_set(&other.join(&name));
        all_say_past(&roots, &name);
        write_and_set(&writer.join(&name));
        all_say_past(&roots, &name);
        // What one wrote and closed, the other sets.
        fs::write(writer.join(&name), "other").unwrap();
        set_past(&File::open(other.join(&name)).unwrap());
        all_say_past(&roots, &name);
    }
    // Every change moves the time, the size being the same, no matter which process makes it.
    let mut last = past();
    for round in 0..3 {
        for root in [&behind, &behind, &ahead, &behind] {
            fs::write(root.join("changes"), format!("{round}")).unwrap();
            let now = mtime(&root.join("changes"));
            assert!(now > last, "{now:?} after {last:?} in {}", root.display());
            for root in roots {
                assert_eq!(mtime(&root.join("changes")), now, "{}", root.display());
            }
            last = now;
        }
    }
    // One line for the server, whatever it serves, to those whose clock is another.
    assert_eq!(skews(&one), [3600], "{}", one.said());
    assert_eq!(skews(&two), [-3600], "{}", two.said());
    assert_eq!(skews(&three), [0; 0], "{}", three.said());
}

#[test]
fn nobody_is_waited_for_or_evicted_by_a_wall_clock() {
    if needs_root() {
        return;
    }
    let place = Place::new();
    let mut server = place.serve(3600);
    let (one, behind) = place.mount(0, "behind");
    let (two, ahead) = place.mount(7200, "ahead");
    for (round, skew) in [-3600, 7200, 0].into_iter().enumerate() {
        let names = [
            behind.join(format!("a{round}")),
            ahead.join(format!("b{round}")),
        ];
        for name in &names {
            fs::write(name, "words").unwrap();
            fs::write(name.with_extension("gone"), "words").unwrap();
            fs::remove_file(name.with_extension("gone")).unwrap();
        }
        let open = File::open(&names[0]).unwrap();
        server.signal(Signal::SIGKILL);
        server.ended();
        // The same targets under another clock: nothing of the life before is too old, or to come.
        server = place.serve(skew);
        for name in &names {
            assert_eq!(fs::read_to_string(name).unwrap(), "words");
        }
        assert_eq!(open.metadata().unwrap().len(), 5);
        let said = server.said();
        assert!(said.contains("recovery is over"), "{said}");
        assert!(!said.contains("nobody else writes to it"), "{said}");
        for log in [said, one.said(), two.said()] {
            assert!(!log.contains("evicted"), "{log}");
        }
    }
    // Each is told of every clock that the server had, once however many targets came back.
    assert_eq!(skews(&one), [3600, -3600, 7200], "{}", one.said());
    assert_eq!(skews(&two), [-3600, -10800, -7200], "{}", two.said());
    for point in ["behind", "ahead"] {
        glint(place.dir.path(), &["umount", point]).worked();
    }
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    glint(place.dir.path(), &["fsck", "D"]).worked();
}
