//! Calls that are interrupted while their server stands still, and done when it goes on.
// SEMANTICS: wait.interrupt

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeMap;
use std::fs::{self, File, hard_link};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mounted::{Cluster, PATIENCE, Signalled};
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};

/// What a call does to the file `old` in a directory of its own. Some of `std` begin again where they are
/// interrupted.
type Call = fn(&Path) -> std::io::Result<()>;

const CALLS: [(&str, Call); 6] = [
    ("mkdir", |dir| fs::create_dir(dir.join("new"))),
    ("create", |dir| {
        let (flags, mode) = (OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRUSR);
        Ok(open(&dir.join("new"), flags, mode).map(drop)?)
    }),
    ("unlink", |dir| fs::remove_file(dir.join("old"))),
    ("rename", |dir| fs::rename(dir.join("old"), dir.join("new"))),
    ("link", |dir| hard_link(dir.join("old"), dir.join("new"))),
    ("chmod", |dir| {
        let (path, follow) = (dir.join("old"), FchmodatFlags::FollowSymlink);
        Ok(fchmodat(AT_FDCWD, &path, Mode::S_IRUSR, follow)?)
    }),
];

/// Link count, mode and size.
type Seen = (u64, u32, u64);

fn seen(path: &Path) -> Option<Seen> {
    let found = fs::symlink_metadata(path).ok()?;
    Some((found.nlink(), found.mode(), found.size()))
}

/// A directory, and all that its list and its names lead to.
fn look(dir: &Path) -> (Option<Seen>, BTreeMap<String, Option<Seen>>) {
    let listed = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let listed = listed.map(|name| name.into_string().unwrap());
    let asked = ["old", "new"].map(str::to_owned);
    let names: Vec<String> = listed.chain(asked).collect();
    let names = names.into_iter().map(|name| {
        let seen = seen(&dir.join(&name));
        (name, seen)
    });
    (seen(dir), names.collect())
}

/// The kernel goes by what a call returns, and that was not what became of it.
#[test]
fn a_change_that_is_made_after_its_call_was_interrupted_is_seen_on_its_own_mount() {
    let mut cluster = Cluster::with_mounts(2);
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).to_owned());
    let before = cluster.timed("preparing", || {
        CALLS.map(|(name, _)| {
            let dir = there.join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("old"), "old").unwrap();
            File::open(&dir).unwrap().sync_all().unwrap();
            look(&here.join(name))
        })
    });
    cluster.freeze_server();
    let calls = CALLS.map(|(name, call)| {
        let dir = here.join(name);
        Signalled::start(move || call(&dir).map_err(|error| error.raw_os_error()))
    });
    thread::sleep(Duration::from_millis(500));
    cluster.timed("interrupted calls", || {
        calls.iter().for_each(Signalled::interrupt);
        for (call, (name, _)) in calls.into_iter().zip(CALLS) {
            assert_eq!(call.end(), Err(Some(libc::EINTR)), "{name}");
        }
    });
    cluster.thaw_server();
    for ((name, _), before) in CALLS.iter().zip(before) {
        let began = Instant::now();
        let done = cluster.timed(name, || {
            loop {
                // All that is cached here is asked for, and cached, while the call is under way.
                look(&here.join(name));
                if look(&there.join(name)) != before {
                    // The change may have come between the steps of that look.
                    break look(&there.join(name));
                }
                assert!(began.elapsed() < PATIENCE, "{name} is never done");
            }
        });
        // Its answer is on its way to this mount yet.
        thread::sleep(Duration::from_millis(200));
        let here = cluster.timed(name, || look(&here.join(name)));
        assert_eq!(here, done, "{name}");
    }
}
