//! Every change through one mount, seen by every kind of look through another that had everything
//! cached before.
// SEMANTICS: cache.names, cache.attributes, cache.pages, op.setattr, op.xattr, op.mmap, op.rename

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use mounted::{Cluster, Mapping};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags};
use nix::sys::time::TimeSpec;
use rustix::fs::XattrFlags;

/// Names that cases use; also the absence of each is looked at.
const PATHS: [&str; 12] = [
    ".", "f", "g", "l", "p", "d", "d/f", "d/g", "e", "e/d", "e/d/f", "e/f",
];

/// What both mounts know when a case begins.
fn prepare(root: &Path) {
    fs::write(root.join("f"), "first file").unwrap();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/f"), "file in d").unwrap();
    fs::create_dir(root.join("e")).unwrap();
    symlink("nowhere", root.join("l")).unwrap();
    rustix::fs::setxattr(root.join("f"), "user.old", b"old", XattrFlags::empty()).unwrap();
}

type Look = fn(&Path) -> String;

/// Ways to see.
const LOOKS: [(&str, Look); 5] = [
    ("stat", |path| match fs::symlink_metadata(path) {
        Ok(stat) => format!(
            "{:o} ino {} nlink {} {}:{} rdev {} size {} mtime {}.{} ctime {}.{}",
            stat.mode(),
            stat.ino(),
            stat.nlink(),
            stat.uid(),
            stat.gid(),
            stat.rdev(),
            stat.size(),
            stat.mtime(),
            stat.mtime_nsec(),
            stat.ctime(),
            stat.ctime_nsec(),
        ),
        Err(error) => error.to_string(),
    }),
    ("read", |path| match fs::symlink_metadata(path) {
        Ok(stat) if stat.file_type().is_fifo() => "fifo".to_owned(),
        _ => format!(
            "{:?}",
            fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        ),
    }),
    ("list", |path| match fs::read_dir(path) {
        Ok(entries) => {
            let entries = entries.map(|entry| entry.unwrap());
            let mut names: Vec<_> = entries
                .map(|entry| format!("{:?} {:?}", entry.file_name(), entry.file_type().unwrap()))
                .collect();
            names.sort();
            names.join(", ")
        }
        Err(error) => error.to_string(),
    }),
    ("xattr", |path| {
        let get = |name: &str| {
            let mut value = [0; 100];
            rustix::fs::lgetxattr(path, name, &mut value[..])
                .map(|len| String::from_utf8_lossy(&value[..len]).into_owned())
        };
        format!("{:?} {:?}", get("user.old"), get("user.new"))
    }),
    ("readlink", |path| format!("{:?}", fs::read_link(path))),
];

/// Everything that one kind of look shows.
fn look_all(root: &Path, look: Look) -> Vec<String> {
    PATHS
        .iter()
        .map(|path| format!("{path}: {}", look(&root.join(path))))
        .collect()
}

struct Case {
    name: &'static str,
    act: fn(&Path),
    /// On the other mount afterwards.
    holds: fn(&Path) -> bool,
}

const fn case(name: &'static str, act: fn(&Path), holds: fn(&Path) -> bool) -> Case {
    Case { name, act, holds }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn is(path: &Path, text: &str) -> bool {
    fs::read(path).unwrap() == text.as_bytes()
}

fn gone(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

fn moves(root: &Path, from: &str, to: &str, flags: RenameFlags) {
    renameat2(AT_FDCWD, &root.join(from), AT_FDCWD, &root.join(to), flags).unwrap();
}

fn write_at(path: &Path, offset: u64, text: &str) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(text.as_bytes(), offset).unwrap();
}

static CASES: [Case; 29] = [
    case(
        "chmod",
        |root| fs::set_permissions(root.join("f"), fs::Permissions::from_mode(0o640)).unwrap(),
        |root| mode(&root.join("f")) == 0o640,
    ),
    case(
        "chmod of a directory",
        |root| fs::set_permissions(root.join("d"), fs::Permissions::from_mode(0o1777)).unwrap(),
        |root| mode(&root.join("d")) == 0o1777,
    ),
    case(
        "chown",
        |root| {
            let group = nix::unistd::getegid().as_raw();
            let user = if group == 0 { Some(1234) } else { None };
            std::os::unix::fs::chown(root.join("f"), user, Some(group)).unwrap();
        },
        |root| {
            let uid = fs::metadata(root.join("f")).unwrap().uid();
            uid == if nix::unistd::getegid().as_raw() == 0 {
                1234
            } else {
                nix::unistd::geteuid().as_raw()
            }
        },
    ),
    case(
        "utimensat",
        |root| {
            let (atime, mtime) = (
                TimeSpec::new(-5, 7),
                TimeSpec::new(1_000_000_000, 123_456_789),
            );
            let flags = UtimensatFlags::NoFollowSymlink;
            nix::sys::stat::utimensat(AT_FDCWD, &root.join("f"), &atime, &mtime, flags).unwrap();
        },
        |root| {
            let stat = fs::metadata(root.join("f")).unwrap();
            (stat.mtime(), stat.mtime_nsec()) == (1_000_000_000, 123_456_789)
        },
    ),
    case(
        "truncate, shorter",
        |root| nix::unistd::truncate(&root.join("f"), 5).unwrap(),
        |root| is(&root.join("f"), "first"),
    ),
    case(
        "truncate, longer",
        |root| nix::unistd::truncate(&root.join("f"), 12).unwrap(),
        |root| is(&root.join("f"), "first file\0\0"),
    ),
    case(
        "write",
        |root| write_at(&root.join("f"), 0, "FIRST"),
        |root| is(&root.join("f"), "FIRST file"),
    ),
    case(
        "write past the end",
        |root| write_at(&root.join("f"), 12, "!"),
        |root| is(&root.join("f"), "first file\0\0!"),
    ),
    case(
        "O_TRUNC",
        |root| fs::write(root.join("f"), "new").unwrap(),
        |root| is(&root.join("f"), "new"),
    ),
    case(
        "append",
        |root| {
            let mut file = OpenOptions::new()
                .append(true)
                .open(root.join("f"))
                .unwrap();
            file.write_all(b", longer").unwrap();
        },
        |root| is(&root.join("f"), "first file, longer"),
    ),
    case(
        "a store into a mapping, synced",
        |root| {
            let mapping = Mapping::new(&root.join("f"), 10).unwrap();
            mapping.store(6, b"FILE");
            mapping.sync().unwrap();
        },
        |root| is(&root.join("f"), "first FILE"),
    ),
    case(
        "a store into a mapping, not synced",
        |root| Mapping::new(&root.join("f"), 10).unwrap().store(6, b"FILE"),
        |root| is(&root.join("f"), "first FILE"),
    ),
    case(
        "create",
        |root| fs::write(root.join("g"), "new").unwrap(),
        |root| is(&root.join("g"), "new"),
    ),
    case(
        "create in a directory",
        |root| fs::write(root.join("d/g"), "new").unwrap(),
        |root| is(&root.join("d/g"), "new"),
    ),
    case(
        "mkdir",
        |root| fs::create_dir(root.join("g")).unwrap(),
        |root| root.join("g").is_dir() && fs::read_dir(root.join("g")).unwrap().count() == 0,
    ),
    case(
        "unlink",
        |root| fs::remove_file(root.join("f")).unwrap(),
        |root| gone(&root.join("f")),
    ),
    case(
        "rmdir",
        |root| fs::remove_dir(root.join("e")).unwrap(),
        |root| gone(&root.join("e")),
    ),
    case(
        "unlink and create again",
        |root| {
            fs::remove_file(root.join("f")).unwrap();
            fs::write(root.join("f"), "another").unwrap();
        },
        |root| is(&root.join("f"), "another"),
    ),
    case(
        "rename",
        |root| fs::rename(root.join("f"), root.join("g")).unwrap(),
        |root| gone(&root.join("f")) && is(&root.join("g"), "first file"),
    ),
    case(
        "rename that replaces, across directories",
        |root| fs::rename(root.join("f"), root.join("d/f")).unwrap(),
        |root| gone(&root.join("f")) && is(&root.join("d/f"), "first file"),
    ),
    case(
        "rename without replacing",
        |root| {
            moves(root, "f", "d/g", RenameFlags::RENAME_NOREPLACE);
            let flags = RenameFlags::RENAME_NOREPLACE;
            let again = renameat2(
                AT_FDCWD,
                &root.join("d/g"),
                AT_FDCWD,
                &root.join("d/f"),
                flags,
            );
            assert_eq!(again, Err(nix::errno::Errno::EEXIST));
        },
        |root| gone(&root.join("f")) && is(&root.join("d/g"), "first file"),
    ),
    case(
        "exchange of files across directories",
        |root| moves(root, "f", "d/f", RenameFlags::RENAME_EXCHANGE),
        |root| is(&root.join("f"), "file in d") && is(&root.join("d/f"), "first file"),
    ),
    case(
        "exchange of directories",
        |root| moves(root, "d", "e", RenameFlags::RENAME_EXCHANGE),
        |root| gone(&root.join("d/f")) && is(&root.join("e/f"), "file in d"),
    ),
    case(
        "rename of a directory into another",
        |root| fs::rename(root.join("d"), root.join("e/d")).unwrap(),
        |root| gone(&root.join("d")) && is(&root.join("e/d/f"), "file in d"),
    ),
    case(
        "link",
        |root| fs::hard_link(root.join("f"), root.join("d/g")).unwrap(),
        |root| {
            fs::metadata(root.join("f")).unwrap().nlink() == 2
                && is(&root.join("d/g"), "first file")
        },
    ),
    case(
        "symlink",
        |root| symlink("f", root.join("g")).unwrap(),
        |root| is(&root.join("g"), "first file"),
    ),
    case(
        "a symlink replaced",
        |root| {
            fs::remove_file(root.join("l")).unwrap();
            symlink("f", root.join("l")).unwrap();
        },
        |root| is(&root.join("l"), "first file"),
    ),
    case(
        "setxattr and removexattr",
        |root| {
            rustix::fs::setxattr(root.join("f"), "user.new", b"new", XattrFlags::CREATE).unwrap();
            rustix::fs::removexattr(root.join("f"), "user.old").unwrap();
        },
        |root| {
            let mut names = [0; 100];
            let len = rustix::fs::listxattr(root.join("f"), &mut names[..]).unwrap();
            &names[..len] == b"user.new\0"
        },
    ),
    case(
        "mknod",
        |root| {
            let mode = Mode::from_bits_truncate(0o600);
            nix::sys::stat::mknod(&root.join("p"), SFlag::S_IFIFO, mode, 0).unwrap();
        },
        |root| {
            fs::symlink_metadata(root.join("p"))
                .unwrap()
                .file_type()
                .is_fifo()
        },
    ),
];

/// One case, with everything cached on both before; `first` is the look that comes first after it.
fn try_case(case: &Case, acting: &Path, looking: &Path, first: usize) -> Vec<String> {
    for root in [acting, looking] {
        for (_, look) in LOOKS {
            look_all(root, look);
        }
    }
    (case.act)(acting);
    let mut wrong = Vec::new();
    for step in 0..LOOKS.len() {
        let (name, look) = LOOKS[(first + step) % LOOKS.len()];
        let (seen, truth) = (look_all(looking, look), look_all(acting, look));
        for (seen, truth) in seen
            .iter()
            .zip(&truth)
            .filter(|(seen, truth)| seen != truth)
        {
            wrong.push(format!(
                "{} by {name}:\n  actor  {truth}\n  looker {seen}",
                case.name
            ));
        }
    }
    if !(case.holds)(looking) {
        wrong.push(format!(
            "{}: did not happen on the looker's mount",
            case.name
        ));
    }
    if !(case.holds)(acting) {
        wrong.push(format!(
            "{}: did not happen on the actor's mount",
            case.name
        ));
    }
    wrong
}

/// All cases; without mappings where the kernel refuses them for files open for writing.
fn cases(mappings: bool) -> impl Iterator<Item = (usize, &'static Case)> {
    let usual = move |case: &Case| mappings || !case.name.contains("mapping");
    CASES
        .iter()
        .enumerate()
        .filter(move |(_, case)| usual(case))
}

/// Tries every case; `looker_prepares`: the looker holds locks on all of it, written and not yet flushed.
fn try_all(options: &[&str], actors: &[usize], looker_prepares: bool) {
    let cluster = Cluster::with_mounts_of(2, options);
    let mut wrong = Vec::new();
    for (number, case) in cases(options.is_empty()) {
        let ways = actors
            .iter()
            .flat_map(|actor| (0..LOOKS.len()).map(move |look| (*actor, look)));
        for (actor, first) in ways {
            let dir = format!("case-{number}-{actor}-{first}");
            let what = format!(
                "{}, actor {actor}, first look {}",
                case.name, LOOKS[first].0
            );
            cluster.timed(&what, || {
                let [acting, looking] =
                    [actor, 1 - actor].map(|mount| cluster.root(mount).join(&dir));
                let preparing = if looker_prepares { &looking } else { &acting };
                fs::create_dir(preparing).unwrap();
                prepare(preparing);
                let found = try_case(case, &acting, &looking, first);
                wrong.extend(found.into_iter().map(|found| format!("[{what}] {found}")));
            });
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
}

#[test]
fn every_change_is_seen_by_every_look_through_the_other_mount() {
    try_all(&[], &[0, 1], false);
}

#[test]
fn every_change_is_seen_by_the_one_who_made_what_was_changed() {
    try_all(&[], &[0], true);
}

// SEMANTICS: cache.kernels
#[test]
fn every_change_is_seen_with_what_linux_5_14_has() {
    try_all(&["-o", "kernel=5.14"], &[0], true);
}

#[test]
fn every_change_is_seen_with_what_linux_6_1_has() {
    try_all(&["-o", "kernel=6.1"], &[0], false);
}
