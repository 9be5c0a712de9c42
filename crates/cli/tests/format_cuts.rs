//! `glint format` killed before each step that changes a disk: all targets are there, or none;
//! those that were there before are as they were. The next format works, or says what to do.

#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::ports::free_address;
use support::{InMemory, Ran, Staying, glint, needs_root, preloaded, program, shell};

/// Ends the process as a kill does before the step after the first `STEPS`. Those that change names
/// or sync, and writes to files that are written once. What is written to a store in between is
/// whole at the sync that follows, and nobody's before.
const STEPS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static atomic_long steps;
static void step(void)
{
    const char *most = getenv("STEPS");
    if (most && atomic_fetch_add(&steps, 1) >= atol(most))
        kill(getpid(), SIGKILL);
}
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define STEP(name, types, values) int name types { step(); return REAL(name) values; }
STEP(mkdir, (const char *path, mode_t mode), (path, mode))
STEP(rename, (const char *from, const char *to), (from, to))
STEP(unlink, (const char *path), (path))
STEP(unlinkat, (int dir, const char *path, int flags), (dir, path, flags))
STEP(rmdir, (const char *path), (path))
STEP(fsync, (int file), (file))
STEP(fdatasync, (int file), (file))
STEP(ftruncate64, (int file, off64_t size), (file, size))
ssize_t write(int file, const void *bytes, size_t count)
{
    if (file > 2)
        step();
    return REAL(write)(file, bytes, count);
}
int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (flags & O_CREAT)
        step();
    return REAL(open64)(path, flags, mode);
}
"#;

/// A store of which copies are soon made. The usual one takes more space before it is used.
const SMALL: &str = "extents:8M";

/// A directory in which a format was killed.
struct Cut {
    at: PathBuf,
    /// No cut before has left the same files.
    is_new: bool,
    steps: usize,
}

/// Runs `glint` with these words from the state in `before`, killed before each step in turn, and looks at
/// the state that is left. Returns the number of steps.
fn cut_each(before: &Path, words: &[&str], mut look: impl FnMut(Cut)) -> usize {
    let place = InMemory::new();
    let library = preloaded(place.path(), STEPS);
    let mut seen = BTreeSet::new();
    for steps in 0.. {
        let at = place.path().join("at");
        copy(before, &at);
        let mut command = Command::new(program());
        command.args(words).current_dir(&at).stdout(Stdio::null());
        command.env("STEPS", steps.to_string());
        command.env("LD_PRELOAD", &library);
        let ended = command.status().unwrap();
        if ended.success() {
            assert!(steps > 20, "it was killed {steps} times only");
            return steps;
        }
        assert_eq!(ended.signal(), Some(9), "{ended:?}");
        let is_new = seen.insert(shell(&at, "find . | sort").out);
        look(Cut {
            at: at.clone(),
            is_new,
            steps,
        });
        fs::remove_dir_all(&at).unwrap();
    }
    unreachable!("it ends at some time")
}

fn copy(from: &Path, to: &Path) {
    let (from, to) = (from.display(), to.display());
    shell(
        Path::new("/"),
        &format!("cp -a --sparse=always {from} {to}"),
    )
    .worked();
}

/// The targets that `dir` has, at their place or not.
fn targets(dir: &Path) -> BTreeSet<String> {
    let there = [dir.to_owned(), dir.join("targets.made")];
    let entries = there.iter().flat_map(fs::read_dir).flatten().flatten();
    let targets = entries.filter(|entry| entry.path().join("superblock").exists());
    let names = targets.map(|target| target.file_name().into_string().unwrap());
    names.filter(|name| !name.ends_with(".new")).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Cut {
    /// Nobody serves what has no target, and is told what to do, in one line.
    #[track_caller]
    fn is_not_served(&self, dir: &str) {
        let ran = glint(&self.at, &["serve", dir, "--listen", &free_address()]);
        ran.failed_saying(&[dir, "glint format"]);
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }

    /// Looks at a copy.
    fn beside(&self, look: impl FnOnce(&Cut)) {
        let at = self.at.with_extension("beside");
        copy(&self.at, &at);
        let beside = Cut { at, ..*self };
        look(&beside);
        fs::remove_dir_all(&beside.at).unwrap();
    }

    /// The same words again work, or those that they ask for.
    #[track_caller]
    fn again(&self, words: &[&str], refused: &[&str], mended: &[&str]) {
        let Cut { at, steps, .. } = self;
        let again: Ran = glint(at, words);
        if again.code != Some(0) {
            assert_eq!(again.err.lines().count(), 1, "{steps}: {again:?}");
            again.failed_saying(refused);
            glint(at, mended).worked();
        }
    }

    /// `glint up` has all of a file system, with what was in it before.
    #[track_caller]
    fn is_whole(&self, dir: &str, before: Option<&str>) {
        let point = self.at.join("mnt");
        fs::create_dir(&point).unwrap();
        let mut up = Staying::start(&self.at, &["up", "--dir", dir, "--mount", "mnt"]);
        if let Some(before) = before {
            assert_eq!(fs::read_to_string(point.join("before")).unwrap(), before);
        }
        fs::write(point.join("file"), "words").unwrap();
        assert_eq!(fs::read_to_string(point.join("file")).unwrap(), "words");
        glint(&self.at, &["down", "mnt"]).worked();
        assert_eq!(up.ended(), Some(0), "{}: {}", self.steps, up.said());
        fs::remove_dir(&point).unwrap();
    }
}

/// A place with a whole file system in `D`, and a file in it.
fn with_a_file_system() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("mnt")).unwrap();
    glint(place.path(), &["format", "D", "--store", SMALL]).worked();
    let words = ["up", "--dir", "D", "--mount", "mnt"];
    let mut up = Staying::start(place.path(), &words);
    fs::write(place.path().join("mnt/before"), "was here").unwrap();
    glint(place.path(), &["down", "mnt"]).worked();
    assert_eq!(up.ended(), Some(0));
    fs::remove_dir(place.path().join("mnt")).unwrap();
    place
}

/// All files that these have, with their bytes.
fn contents(at: &Path, targets: &str) -> BTreeMap<String, Vec<u8>> {
    let found = shell(at, &format!("find {targets} -type f ! -name reserve"));
    let names = found.worked().lines().map(str::to_owned);
    names
        .map(|name| (name.clone(), fs::read(at.join(name)).unwrap()))
        .collect()
}

#[test]
fn a_new_file_system_is_there_whole_or_not_at_all() {
    if needs_root() {
        return;
    }
    let before = tempfile::tempdir().unwrap();
    let all = ["key", "mdt0", "mgs", "ost0", "server-key"];
    let mut committed = 0;
    cut_each(before.path(), &["format", "D", "--store", SMALL], |cut| {
        let dir = cut.at.join("D");
        let found = targets(&dir);
        if found.is_empty() {
            cut.is_not_served("D");
        } else {
            committed += 1;
            assert_eq!(found, set(&all[1..4]), "{}", cut.steps);
        }
        if cut.is_new {
            cut.beside(|beside| beside.is_whole("D", None));
        }
        let erase = ["--erase", "mgs,mdt0,ost0"];
        let mended = [&["format", "D", "--store", SMALL][..], &erase].concat();
        let refused = ["D has MGS, MDT0, OST0 already", "add --erase mgs,mdt0,ost0"];
        cut.again(&["format", "D", "--store", SMALL], &refused, &mended);
        let names = fs::read_dir(&dir).unwrap().flatten();
        let names: BTreeSet<_> = names.map(|entry| entry.file_name()).collect();
        assert!(names.iter().eq(all.iter()), "{}: {names:?}", cut.steps);
        if cut.is_new {
            cut.is_whole("D", None);
        }
    });
    assert!(committed > 3, "{committed}");
}

#[test]
fn a_target_that_joins_has_the_key_or_is_not_there() {
    if needs_root() {
        return;
    }
    let before = with_a_file_system();
    let mut joined = 0;
    let words = [
        "format", "E", "--role", "ost1", "--join", "D", "--store", SMALL,
    ];
    let key = |dir: &Path, name: &str| fs::read(dir.join(name)).unwrap();
    let keys = ["key", "server-key"].map(|name| key(&before.path().join("D"), name));
    cut_each(before.path(), &words, |cut| {
        let found = targets(&cut.at.join("E"));
        if found.is_empty() {
            cut.is_not_served("E");
        } else {
            joined += 1;
            assert_eq!(found, set(&["ost1"]), "{}", cut.steps);
            cut.beside(serve_both);
        }
        let mended = [&words[..], &["--erase", "ost1"]].concat();
        cut.again(&words, &["E has OST1 already", "add --erase ost1"], &mended);
        let copied = ["key", "server-key"].map(|name| key(&cut.at.join("E"), name));
        assert!(copied == keys, "{}", cut.steps);
        if cut.is_new {
            serve_both(&cut);
        }
    });
    assert!(joined > 1, "{joined}");
}

/// Who serves `E` proves to the MGS in `D` that it belongs there.
#[track_caller]
fn serve_both(cut: &Cut) {
    let address = free_address();
    let _first = Staying::start(&cut.at, &["serve", "D", "--listen", &address]);
    let listen = free_address();
    let words = ["serve", "E", "--listen", &listen, "--mgs", &address];
    let _second = Staying::start(&cut.at, &words);
}

#[test]
fn targets_that_were_there_before_stay_as_they_were() {
    if needs_root() {
        return;
    }
    let before = with_a_file_system();
    let kept = "D/key D/server-key D/mgs D/mdt0 D/ost0";
    let kept_bytes = contents(before.path(), kept);
    let look = |words: &[&str], refused: &[&str], mended: &[&str], cut: &Cut| {
        assert!(contents(&cut.at, kept) == kept_bytes, "{}", cut.steps);
        let found = targets(&cut.at.join("D"));
        let (few, more) = (
            set(&["mdt0", "mgs", "ost0"]),
            set(&["mdt0", "mgs", "ost0", "ost1"]),
        );
        assert!(found == few || found == more, "{}: {found:?}", cut.steps);
        cut.again(words, refused, mended);
        assert!(contents(&cut.at, kept) == kept_bytes, "{}", cut.steps);
        assert_eq!(targets(&cut.at.join("D")), more, "{}", cut.steps);
        if cut.is_new {
            cut.is_whole("D", Some("was here"));
        }
    };
    let one_more = ["format", "D", "--role", "ost1", "--store", SMALL];
    let anew = [&one_more[..], &["--erase", "ost1"]].concat();
    cut_each(before.path(), &one_more, |cut| {
        let refused = ["D has OST1 already", "add --erase ost1"];
        look(&one_more, &refused, &anew, &cut);
    });
    // Once more for one that is erased first.
    glint(before.path(), &one_more).worked();
    cut_each(before.path(), &anew, |cut| {
        let refused = ["D has no OST1 to erase", "leave it out of --erase"];
        look(&anew, &refused, &one_more, &cut);
    });
}
