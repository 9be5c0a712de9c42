//! Permissions of users for operations on files, and the privileges that these take from a file. A table of
//! users, files, operations and mounts, in which each cell is as on a local ext4.
// SEMANTICS: who.caller, op.write, op.truncate, op.fallocate, op.setattr, op.mmap

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown, lchown, symlink,
};
use std::path::{Path, PathBuf};

use mounted::{Cluster, Mapping, SmallDisk};
use nix::fcntl::{AT_FDCWD, FallocateFlags, fallocate};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, futimens, mknod, utimensat};
use nix::sys::time::TimeSpec;
use rustix::fs::{AtFlags, OFlags, XattrFlags, chownat, copy_file_range};
use rustix::pipe::{SpliceFlags, splice};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, capabilities, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

const OWNER: u32 = 61_001;
const OTHER: u32 = 61_002;
const GROUP: u32 = 61_100;

/// Which of root's capabilities a user has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    /// Those that come with the user id.
    Usual,
    /// Those but CAP_FSETID.
    WithoutFsetid,
    /// These alone, which an ordinary user does not have.
    Only(CapabilitySet),
}

#[derive(Debug, Clone, Copy)]
struct User {
    name: &'static str,
    uid: u32,
    gid: u32,
    groups: &'static [u32],
    power: Power,
}

const fn user(name: &'static str, uid: u32, gid: u32, groups: &'static [u32]) -> User {
    User {
        name,
        uid,
        gid,
        groups,
        power: Power::Usual,
    }
}

const USERS: [User; 8] = [
    user("root", 0, 0, &[]),
    User {
        power: Power::WithoutFsetid,
        ..user("root without CAP_FSETID", 0, 0, &[])
    },
    user("owner", OWNER, OWNER, &[]),
    user("owner of the group", OWNER, OWNER, &[GROUP]),
    user("other", OTHER, OTHER, &[]),
    user("other by group", OTHER, GROUP, &[]),
    user(
        "other by a group among others",
        OTHER,
        OTHER,
        &[1, 2, GROUP],
    ),
    User {
        power: Power::Only(CapabilitySet::FSETID),
        ..user("other with CAP_FSETID", OTHER, OTHER, &[])
    },
];

/// Users with powers over the files of others.
const POWERFUL: [User; 2] = [
    User {
        power: Power::Only(CapabilitySet::FOWNER),
        ..user("other with CAP_FOWNER", OTHER, OTHER, &[])
    },
    User {
        power: Power::Only(CapabilitySet::CHOWN),
        ..user("other with CAP_CHOWN", OTHER, OTHER, &[])
    },
];

/// The owner, the permission bits, and whether it has a capability.
type Kind = (u32, u32, bool);
const KINDS: [Kind; 9] = [
    (0, 0o4777, false),
    (OWNER, 0o4777, false),
    (OWNER, 0o2777, false),
    (OWNER, 0o2767, false),
    (0, 0o6767, false),
    (0, 0o6777, false),
    (OWNER, 0o777, true),
    (0, 0o2777, true),
    (OWNER, 0o4640, false),
];
const KINDS_WITH_OWNERS: [Kind; 5] = [
    (OWNER, 0o755, false),
    (OWNER, 0o4777, false),
    (OWNER, 0o2767, false),
    (OWNER, 0o777, true),
    (OWNER, 0o6777, true),
];

#[derive(Clone, Copy)]
struct Op {
    name: &'static str,
    run: fn(&Path) -> io::Result<()>,
}

macro_rules! ops {
    ($list:ident: $($name:ident),* $(,)?) => {
        const $list: &[Op] = &[$(Op { name: stringify!($name), run: $name }),*];
    };
}

ops! { TO_FILES:
    read_it, write_at, write_nothing, append_it, write_twice, truncate_path, truncate_same,
    truncate_open, open_truncating, create_truncating, allocate, punch, copy_range, splice_in,
    store_mapped, chmod_plain, chmod_setuid, chmod_setgid, chown_same, chown_away, chgrp_group,
    set_times, touch_times, set_attribute, remove_capability, link_it, rename_it, execute,
}

// The kernel asks for all of these, and announces some changes of the content, in the same words.
ops! { TO_OWNERS:
    chown_to_none, lchown_to_none, fchown_to_none, fchownat_to_none, chown_same, chown_away,
    chgrp_group, allocate, punch,
}

// What the file is like is of no concern.
ops! { TO_NAMES:
    unlink_it, unlink_sticky, rename_sticky, create_in_setgid, mkdir_in_setgid, make_fifo,
    make_symlink,
}

fn writing(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

fn read_it(path: &Path) -> io::Result<()> {
    fs::read(path).map(drop)
}

fn write_at(path: &Path) -> io::Result<()> {
    writing(path)?.write_all_at(b"changed", 3)
}

fn write_nothing(path: &Path) -> io::Result<()> {
    writing(path)?.write(b"").map(drop)
}

fn append_it(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .open(path)?
        .write_all(b"more")
}

fn write_twice(path: &Path) -> io::Result<()> {
    let (mut first, second) = (writing(path)?, writing(path)?);
    first.write_all(b"a")?;
    second.write_all_at(b"b", 9)?;
    first.sync_all()
}

fn truncate_path(path: &Path) -> io::Result<()> {
    Ok(nix::unistd::truncate(path, 2)?)
}

fn truncate_same(path: &Path) -> io::Result<()> {
    Ok(nix::unistd::truncate(path, 16)?)
}

fn truncate_open(path: &Path) -> io::Result<()> {
    writing(path)?.set_len(2)
}

fn open_truncating(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .map(drop)
}

fn create_truncating(path: &Path) -> io::Result<()> {
    File::create(path).map(drop)
}

fn allocate(path: &Path) -> io::Result<()> {
    Ok(fallocate(writing(path)?, FallocateFlags::empty(), 0, 8192)?)
}

fn punch(path: &Path) -> io::Result<()> {
    let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    Ok(fallocate(writing(path)?, hole, 0, 8)?)
}

fn copy_range(path: &Path) -> io::Result<()> {
    let source = File::open(path.with_file_name("source"))?;
    copy_file_range(source, None, writing(path)?, None, 4)?;
    Ok(())
}

fn splice_in(path: &Path) -> io::Result<()> {
    let (end, mut begin) = io::pipe()?;
    begin.write_all(b"through a pipe")?;
    splice(end, None, writing(path)?, None, 14, SpliceFlags::empty())?;
    Ok(())
}

fn store_mapped(path: &Path) -> io::Result<()> {
    let mapping = Mapping::new(path, 8)?;
    mapping.store(0, b"stored");
    mapping.sync()
}

fn chmod(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn chmod_plain(path: &Path) -> io::Result<()> {
    chmod(path, 0o640)
}

fn chmod_setuid(path: &Path) -> io::Result<()> {
    chmod(path, 0o4711)
}

fn chmod_setgid(path: &Path) -> io::Result<()> {
    chmod(path, 0o2771)
}

fn chown_same(path: &Path) -> io::Result<()> {
    let owner = fs::metadata(path)?;
    lchown(path, Some(owner.uid()), Some(owner.gid()))
}

fn chown_away(path: &Path) -> io::Result<()> {
    chown(path, Some(OTHER), None)
}

fn chgrp_group(path: &Path) -> io::Result<()> {
    chown(path, None, Some(OWNER))
}

fn chown_to_none(path: &Path) -> io::Result<()> {
    chown(path, None, None)
}

fn lchown_to_none(path: &Path) -> io::Result<()> {
    lchown(path, None, None)
}

fn fchown_to_none(path: &Path) -> io::Result<()> {
    fchown(File::open(path)?, None, None)
}

/// By a descriptor for which a caller needs no rights on the file.
fn fchownat_to_none(path: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, rustix::fs::Mode::empty())?;
    Ok(chownat(file, "", None, None, AtFlags::EMPTY_PATH)?)
}

fn times(path: &Path, time: TimeSpec) -> io::Result<()> {
    let follow = UtimensatFlags::FollowSymlink;
    Ok(utimensat(AT_FDCWD, path, &time, &time, follow)?)
}

fn set_times(path: &Path) -> io::Result<()> {
    times(path, TimeSpec::new(1_000, 7))
}

fn touch_times(path: &Path) -> io::Result<()> {
    times(path, TimeSpec::UTIME_NOW)
}

fn set_attribute(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::setxattr(
        path,
        "user.a",
        b"b",
        XattrFlags::empty(),
    )?)
}

fn remove_capability(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::removexattr(path, "security.capability")?)
}

fn link_it(path: &Path) -> io::Result<()> {
    fs::hard_link(path, path.with_file_name("linked"))
}

fn rename_it(path: &Path) -> io::Result<()> {
    let away = path.with_file_name("renamed");
    fs::rename(path, &away)?;
    fs::rename(away, path)
}

fn unlink_it(path: &Path) -> io::Result<()> {
    fs::remove_file(path.with_file_name("victim"))
}

fn sticky(path: &Path) -> PathBuf {
    path.with_file_name("sticky")
}

fn unlink_sticky(path: &Path) -> io::Result<()> {
    fs::remove_file(sticky(path).join("victim"))
}

fn rename_sticky(path: &Path) -> io::Result<()> {
    fs::rename(sticky(path).join("victim"), path.with_file_name("moved"))
}

/// In a directory of a group that gives it to what is made there; then the path is what was made.
fn made(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    make(&path.with_file_name("setgid").join("new"))
}

fn create_in_setgid(path: &Path) -> io::Result<()> {
    let make = |at: &Path| {
        let mut new = OpenOptions::new();
        new.write(true).create_new(true).mode(0o2775);
        new.open(at)?.write_all(b"new")
    };
    made(path, make)
}

fn mkdir_in_setgid(path: &Path) -> io::Result<()> {
    made(path, |at| fs::create_dir(at))
}

fn make_fifo(path: &Path) -> io::Result<()> {
    made(path, |at| {
        Ok(mknod(
            at,
            SFlag::S_IFIFO,
            Mode::from_bits_truncate(0o2755),
            0,
        )?)
    })
}

fn make_symlink(path: &Path) -> io::Result<()> {
    made(path, |at| symlink("nowhere", at))
}

fn execute(path: &Path) -> io::Result<()> {
    Ok(nix::unistd::access(path, nix::unistd::AccessFlags::X_OK)?)
}

/// What one sees of a file: type and mode, owner, group, whether it has a capability.
type Looks = Option<(u32, u32, u32, bool)>;

/// What came of an operation: its error, and what the directory it was done in holds.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    error: Option<i32>,
    left: Vec<(&'static str, Looks)>,
}

const NAMES: [&str; 7] = [
    "file",
    "linked",
    "renamed",
    "victim",
    "sticky/victim",
    "moved",
    "setgid/new",
];

fn looks(path: &Path) -> Looks {
    let stat = fs::symlink_metadata(path).ok()?;
    let mut value = [0; 64];
    let capability = rustix::fs::lgetxattr(path, "security.capability", &mut value[..]);
    Some((stat.mode(), stat.uid(), stat.gid(), capability.is_ok()))
}

fn left(dir: &Path) -> Vec<(&'static str, Looks)> {
    NAMES.map(|name| (name, looks(&dir.join(name)))).to_vec()
}

/// Makes a directory with a file of this kind, and what operations need beside it.
fn furnish(dir: &Path, (owner, mode, capability): Kind, with_names: bool) {
    let make = |name: &str, owner, group, mode| {
        let path = dir.join(name);
        match name {
            "sticky" | "setgid" => fs::create_dir(&path).unwrap(),
            _ => fs::write(&path, "sixteen bytes...").unwrap(),
        }
        chown(&path, Some(owner), Some(group)).unwrap();
        chmod(&path, mode).unwrap();
        path
    };
    fs::create_dir(dir).unwrap();
    chmod(dir, 0o777).unwrap();
    make("source", 0, 0, 0o644);
    if with_names {
        make("victim", OWNER, GROUP, 0o600);
        make("sticky", 0, 0, 0o1777);
        make("sticky/victim", OWNER, GROUP, 0o600);
        make("setgid", 0, GROUP, 0o2777);
    }
    let file = make("file", owner, GROUP, mode);
    if capability {
        // Version 2, effective: CAP_SETUID is permitted.
        let mut value = [0_u8; 20];
        value[..4].copy_from_slice(&0x0200_0001_u32.to_le_bytes());
        value[4..8].copy_from_slice(&(1_u32 << 7).to_le_bytes());
        rustix::fs::setxattr(&file, "security.capability", &value, XattrFlags::empty()).unwrap();
    }
}

/// Runs `work` in a thread that is `user`'s.
fn as_user<T: Send>(user: &User, work: impl FnOnce() -> T + Send) -> T {
    let become_user = move || {
        let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        set_thread_groups(&groups).unwrap();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_keep_capabilities(matches!(user.power, Power::Only(_))).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
        let mut sets = capabilities(None).unwrap();
        match user.power {
            Power::Usual => return,
            Power::WithoutFsetid => sets.effective.remove(CapabilitySet::FSETID),
            Power::Only(powers) => {
                sets.effective = powers;
                sets.permitted = powers;
            }
        }
        set_capabilities(None, sets).unwrap();
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            become_user();
            work()
        });
        thread.join().unwrap()
    })
}

/// Does each of `ops` as `user` to a new file of the kind, by way of `there`. Looks at the result in all
/// `views` of the same directory.
fn column(
    (user, kind): (&User, Kind),
    ops: &[Op],
    (here, there): (&Path, &Path),
    views: &[&Path],
) -> Vec<Outcome> {
    let dir_of = |root: &Path, op: &Op| root.join(op.name);
    let outcome = |op: &Op| {
        let with_names = TO_NAMES.iter().any(|named| named.name == op.name);
        furnish(&dir_of(here, op), kind, with_names);
        // What it was like is known there before.
        let before = left(&dir_of(there, op));
        assert_eq!(before, left(&dir_of(here, op)));
        let path = dir_of(there, op).join("file");
        let error = as_user(user, || (op.run)(&path).err());
        let seen = left(&dir_of(there, op));
        for view in views {
            let what = format!("{}, {kind:?}, {}", user.name, op.name);
            assert_eq!(seen, left(&dir_of(view, op)), "{what}");
        }
        fs::remove_dir_all(dir_of(here, op)).unwrap();
        Outcome {
            error: error.map(|error| error.raw_os_error().unwrap_or(0)),
            left: seen,
        }
    };
    ops.iter().map(outcome).collect()
}

/// Columns of a table: a user, a kind of file, and what that user does to it.
type Columns<'a> = Vec<(&'a User, Kind, &'a [Op])>;

fn columns<'a>(
    users: impl IntoIterator<Item = &'a User>,
    files: &[(Kind, &'a [Op])],
) -> Columns<'a> {
    let of = |user| files.iter().map(move |(kind, ops)| (user, *kind, *ops));
    users.into_iter().flat_map(of).collect()
}

/// Each cell is as on a local ext4, by way of the mount that made the file and by way of another.
fn compare(columns: &Columns<'_>) {
    assert!(
        nix::unistd::geteuid().is_root(),
        "needs root: takes on other users"
    );
    let disk = SmallDisk::ext4(64 << 20);
    chmod(disk.path(), 0o755).unwrap();
    let cluster = Cluster::with_mounts(2);
    chmod(cluster.root(0), 0o755).unwrap();
    let roots = [cluster.root(0), cluster.root(1)];
    let mut wrong = Vec::new();
    cluster.timed_for(std::time::Duration::from_secs(600), "who may", || {
        for (user, kind, ops) in columns {
            let local = column((user, *kind), ops, (disk.path(), disk.path()), &[]);
            for (name, there) in [("same", roots[0]), ("other", roots[1])] {
                let cells = column((user, *kind), ops, (roots[0], there), &roots);
                for ((op, cell), local) in ops.iter().zip(cells).zip(&local) {
                    if cell != *local {
                        let (user, op) = (user.name, op.name);
                        wrong.push(format!(
                            "{user}, {kind:?}, {op}, {name} mount: {cell:?}\n  local: {local:?}"
                        ));
                    }
                }
            }
        }
    });
    assert!(
        wrong.is_empty(),
        "{} cells differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn everybody_may_do_what_they_may_on_a_local_disk() {
    let files = KINDS.map(|kind| (kind, TO_FILES));
    let files: Vec<_> = files.into_iter().chain([(KINDS[0], TO_NAMES)]).collect();
    compare(&columns(&USERS, &files));
}

#[test]
fn everybody_takes_privileges_by_chown_as_on_a_local_disk() {
    let files = KINDS_WITH_OWNERS.map(|kind| (kind, TO_OWNERS));
    let users = [&USERS[0], &USERS[2], &USERS[4], &POWERFUL[0], &POWERFUL[1]];
    compare(&columns(users, &files));
}

/// The owner of a file looks at it on one mount. On another root takes the file; then the former owner tries,
/// by its name and by a descriptor.
#[test]
fn a_former_owner_may_change_nothing() {
    let cluster = Cluster::with_mounts(2);
    let user = &USERS[2];
    chmod(cluster.root(0), 0o777).unwrap();
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("file"));
    let time = TimeSpec::new(1, 0);
    let open = || fs::File::open(&there).unwrap();
    let ops: [(&str, &(dyn Fn() -> io::Result<()> + Sync)); 5] = [
        ("chmod", &|| chmod(&there, 0o4755)),
        ("fchmod", &|| {
            open().set_permissions(Permissions::from_mode(0o4755))
        }),
        ("chgrp", &|| lchown(&there, None, Some(user.gid))),
        ("utimes", &|| {
            let follow = UtimensatFlags::NoFollowSymlink;
            Ok(utimensat(AT_FDCWD, &there, &time, &time, follow)?)
        }),
        ("futimes", &|| Ok(futimens(open(), &time, &time)?)),
    ];
    cluster.timed("who may", || {
        for (name, op) in ops {
            fs::write(&here, name).unwrap();
            chmod(&here, 0o644).unwrap();
            lchown(&here, Some(user.uid), Some(0)).unwrap();
            let known = as_user(user, || fs::metadata(&there).unwrap().uid());
            assert_eq!(known, user.uid);
            lchown(&here, Some(0), Some(0)).unwrap();
            let before = looks(&here);
            let refused = as_user(user, || op().err().and_then(|error| error.raw_os_error()));
            assert_eq!(refused, Some(libc::EPERM), "{name}");
            assert_eq!(looks(&here), before, "{name}");
            fs::remove_file(&here).unwrap();
        }
    });
}

/// What a user lists, and what comes of both flags for a name that is there and for one that is not.
fn attributes(dir: &Path, user: &User) -> (Vec<u8>, [Option<i32>; 2]) {
    let path = dir.join(format!("attributes of {}", user.name));
    fs::write(&path, "").unwrap();
    chown(&path, Some(user.uid), None).unwrap();
    for name in ["user.a", "trusted.a"] {
        rustix::fs::setxattr(&path, name, b"b", XattrFlags::empty()).unwrap();
    }
    as_user(user, || {
        let mut names = [0; 256];
        let length = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
        let both = XattrFlags::CREATE | XattrFlags::REPLACE;
        let set = |name| rustix::fs::setxattr(&path, name, b"c", both).err();
        let refused = ["user.a", "user.none"].map(|name| set(name).map(|e| e.raw_os_error()));
        let mut names: Vec<_> = names[..length].split_inclusive(|byte| *byte == 0).collect();
        names.sort_unstable();
        (names.concat(), refused)
    })
}

// SEMANTICS: op.xattr
#[test]
fn attributes_are_listed_and_refused_as_on_a_local_disk() {
    let disk = SmallDisk::ext4(64 << 20);
    chmod(disk.path(), 0o755).unwrap();
    let cluster = Cluster::with_mounts(1);
    chmod(cluster.root(0), 0o755).unwrap();
    cluster.timed("attributes", || {
        for user in [&USERS[0], &USERS[2]] {
            let local = attributes(disk.path(), user);
            assert_eq!(attributes(cluster.root(0), user), local, "{}", user.name);
        }
    });
}

/// Held open across a change of mode: the writer's own mount has the old mode in its kernel.
#[test]
fn a_writer_takes_what_was_given_after_it_opened() {
    let cluster = Cluster::with_mounts(2);
    chmod(cluster.root(0), 0o755).unwrap();
    let (here, there) = (cluster.root(0).join("f"), cluster.root(1).join("f"));
    let other = &USERS[4];
    cluster.timed("set after open", || {
        for round in 0..20 {
            fs::write(&here, "program").unwrap();
            chmod(&here, 0o777).unwrap();
            let path = if round % 2 == 0 { &here } else { &there };
            let mut open = as_user(other, || writing(path)).unwrap();
            as_user(other, || open.write_all(b"x")).unwrap();
            chmod(if round % 4 < 2 { &there } else { &here }, 0o6777).unwrap();
            assert_eq!(looks(path).unwrap().0 & 0o7777, 0o6777);
            as_user(other, || {
                open.seek(SeekFrom::Start(3))?;
                open.write_all(b"evil")
            })
            .unwrap();
            for path in [&here, &there] {
                assert_eq!(looks(path).unwrap().0 & 0o7777, 0o777, "round {round}");
            }
            fs::remove_file(&here).unwrap();
        }
    });
}
