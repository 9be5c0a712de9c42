//! What the kernel says of a thread that has called.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use base::Fid;
use client::Credentials;
use wire::mdt::SetAttr;

/// Bits in a set of capabilities.
const CAP_CHOWN: u64 = 1;
const CAP_FOWNER: u64 = 1 << 3;
const CAP_FSETID: u64 = 1 << 4;
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_SETFCAP: u64 = 1 << 31;

/// A process that changes a file, known by the thread that asks. What a request does not say of it
/// is read when somebody wants to know; nothing is known of a thread in another pid namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    thread: u32,
    uid: u32,
    gid: u32,
    /// The kernel has said whether it lacks CAP_FSETID.
    lacks_fsetid: Option<bool>,
}

impl Process {
    pub fn new(thread: u32, uid: u32, gid: u32) -> Process {
        Process {
            thread,
            uid,
            gid,
            lacks_fsetid: None,
        }
    }

    /// The kernel asks that setuid and setgid go with this request, or that they stay.
    pub fn asked_to_drop(self, drop: bool) -> Process {
        Process {
            lacks_fsetid: Some(drop),
            ..self
        }
    }

    /// The capability counts in the user namespace of the mount.
    fn has_fsetid(&self) -> bool {
        let has = told(self.thread, "status").and_then(|status| capabilities(&status));
        self.is_in_our_user_namespace() && has.is_some_and(|set| set & CAP_FSETID != 0)
    }

    fn is_in_our_user_namespace(&self) -> bool {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).ok();
        let here = namespace("self");
        here.is_some() && here == namespace(&self.thread.to_string())
    }

    /// It may remove a file's capabilities by a call of its own.
    pub fn may_set_capabilities(&self, owner: u32) -> bool {
        self.has_over(CAP_SETFCAP, owner)
    }

    /// It may change this of a file although that is another user's.
    pub fn may_set(&self, change: &SetAttr, owner: u32) -> bool {
        let gives = change.uid.is_some() || change.gid.is_some();
        let others = SetAttr {
            uid: None,
            gid: None,
            ..change.clone()
        };
        let sets = others != SetAttr::default();
        (!gives || self.has_over(CAP_CHOWN, owner)) && (!sets || self.has_over(CAP_FOWNER, owner))
    }

    /// It may see that there are attributes of the namespace `trusted.`.
    pub fn sees_trusted(&self) -> bool {
        self.has_over(CAP_SYS_ADMIN, ROOT)
    }

    /// It has the capability over files of this owner: in the user namespace of the mount, or in one below
    /// that has this user.
    fn has_over(&self, capability: u64, owner: u32) -> bool {
        let Some(status) = told(self.thread, "status") else {
            return self.uid == ROOT;
        };
        // A file system above this one, such as overlayfs, calls with rights that are not the thread's.
        if user(&status) != Some(self.uid) {
            return self.uid == ROOT;
        }
        capabilities(&status).is_some_and(|set| set & capability != 0)
            && (self.is_in_our_user_namespace()
                || told(self.thread, "uid_map").is_some_and(|map| is_mapped(&map, owner)))
    }
}

const ROOT: u32 = 0;

/// The effective set.
fn capabilities(status: &str) -> Option<u64> {
    u64::from_str_radix(line(status, "CapEff:")?, 16).ok()
}

/// The user as whom a thread meets file systems: the last of its four.
fn user(status: &str) -> Option<u32> {
    line(status, "Uid:")?
        .split_whitespace()
        .last()?
        .parse()
        .ok()
}

/// A `uid_map` has the user `outside`. Each line is the first id inside, the first outside, and a count.
fn is_mapped(map: &str, outside: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(_)), Some(Ok(first)), Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        (first..first + count).contains(&u64::from(outside))
    })
}

impl Credentials for Process {
    fn keeps_set_id(&self) -> bool {
        match self.lacks_fsetid {
            Some(lacks) => !lacks,
            None => self.has_fsetid(),
        }
    }

    fn is_in_group(&self, gid: u32) -> bool {
        let status = || told(self.thread, "status");
        let listed = |status: String| {
            let groups = line(&status, "Groups:")?;
            Some(groups.split_whitespace().any(|one| one.parse() == Ok(gid)))
        };
        self.gid == gid || status().and_then(listed).unwrap_or(false)
    }

    fn may_set_mode(&self, owner: u32) -> bool {
        self.uid == owner || self.has_over(CAP_FOWNER, owner)
    }
}

/// What follows `key` in a file with a fact a line.
fn line<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// SIGKILL is pending for the thread: how the kernel marks every signal that will end it.
pub(super) fn is_dying(thread: u32) -> bool {
    const SIGKILL_BIT: u64 = 1 << 8;
    let Some(status) = told(thread, "status") else {
        return true;
    };
    status
        .lines()
        .filter_map(|line| {
            line.strip_prefix("SigPnd:")
                .or_else(|| line.strip_prefix("ShdPnd:"))
        })
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & SIGKILL_BIT != 0)
}

/// Its state as a letter; `None` if it has ended.
pub(super) fn state(thread: u32) -> Option<char> {
    let stat = told(thread, "stat")?;
    let (_, behind_its_name) = stat.rsplit_once(") ")?;
    behind_its_name.chars().next()
}

/// The thread is in a call that looks up its path once more where the kernel cannot move a directory. The
/// calls `mkdir`, `mknod`, `link` and `symlink` do not look again; a call that the kernel does not name
/// counts as one of them.
pub(super) fn looks_again(thread: u32) -> bool {
    let number = Call::of(thread).map(|call| call.number);
    number.is_some_and(|number| LOOK_AGAIN.contains(&number) || LOOK_AGAIN_HERE.contains(&number))
}

/// The thread is in a call on a descriptor of `fid`: `fstat`, or one with an empty path or a path that begins
/// there.
pub(super) fn has_by_descriptor(thread: u32, fid: Fid) -> bool {
    let Some(call) = call(thread).and_then(|call| Call::said(&call)) else {
        return false;
    };
    let descriptor = told(thread, &format!("fdinfo/{}", call.first));
    let inode = descriptor.and_then(|facts| line(&facts, "ino:")?.parse().ok());
    inode == Some(fid.0)
}

/// Whether the thread is in a call that changes owners; none: the kernel does not say.
pub(super) fn is_chown(thread: u32) -> Option<bool> {
    let number = Call::said(&call(thread)?)?.number;
    Some(CHOWNS.contains(&number) || CHOWNS_HERE.contains(&number))
}

/// The thread is in a call that changes attributes of what a path leads to, or of a descriptor where the path
/// is empty.
pub(super) fn changes_by_path(thread: u32) -> bool {
    let number = call(thread).and_then(|call| Some(Call::said(&call)?.number));
    number.is_some_and(|number| CHANGES.contains(&number) || CHANGES_HERE.contains(&number))
}

/// The thread is in a call that looks its path up once more where a check of permissions fails with `ESTALE`.
/// The check is one of a directory on the way, or of the file at the end.
pub(super) fn checks_path(thread: u32, is_directory: bool) -> bool {
    let Some((number, [_, path_at, ..])) = arguments(thread) else {
        return false;
    };
    let is_one = |calls: [&[libc::c_long]; 2]| calls.iter().any(|calls| calls.contains(&number));
    if is_one([CHECKS, CHECKS_HERE]) || (is_directory && is_one([PASSES, PASSES_HERE])) {
        return true;
    }
    // An empty path is the file of a descriptor, which is not looked up.
    let is_by_path = || path(thread, path_at).is_some_and(|path| !path.is_empty());
    let may_be_by_path = is_one([CHECKS_OR_DESCRIPTOR, &[]])
        || (is_directory && is_one([PASSES_OR_DESCRIPTOR, &[]]));
    may_be_by_path && is_by_path()
}

/// Calls that check whether what their path leads to may be used.
const CHECKS: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_faccessat,
    libc::SYS_chdir,
    libc::SYS_chroot,
    libc::SYS_truncate,
    libc::SYS_execve,
];

/// The same, where the second argument is a path, or empty.
const CHECKS_OR_DESCRIPTOR: &[libc::c_long] = &[
    libc::SYS_faccessat2,
    libc::SYS_execveat,
    libc::SYS_utimensat,
];

/// Calls that check the directories on the way.
const PASSES: &[libc::c_long] = &[
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_fchmodat,
    libc::SYS_statfs,
];

/// The same, where the second argument is a path, or empty.
const PASSES_OR_DESCRIPTOR: &[libc::c_long] = &[
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_linkat,
    libc::SYS_fchownat,
    SYS_FCHMODAT2,
];

/// Those that only older architectures have.
#[cfg(target_arch = "x86_64")]
const CHECKS_HERE: &[libc::c_long] = &[libc::SYS_open, libc::SYS_creat, libc::SYS_access];
#[cfg(target_arch = "x86_64")]
const PASSES_HERE: &[libc::c_long] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_symlink,
    libc::SYS_link,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
];
#[cfg(not(target_arch = "x86_64"))]
const CHECKS_HERE: &[libc::c_long] = &[];
#[cfg(not(target_arch = "x86_64"))]
const PASSES_HERE: &[libc::c_long] = &[];

/// A call, as [`call`] says it, gives a file one more name.
pub(super) fn is_link(call: &str) -> bool {
    let number = Call::said(call).map(|call| call.number);
    number.is_some_and(|number| number == libc::SYS_linkat || LINK_HERE.contains(&number))
}

/// The call that the thread is in, as the kernel says it: number, arguments and place on the stack. None: the
/// kernel does not say, or the thread is in none.
pub(super) fn call(thread: u32) -> Option<Box<str>> {
    // A caller is not asleep yet while its request is read by another processor. It needs a processor for
    // that, which it may not get for long.
    const PATIENCE: Duration = Duration::from_secs(1);
    const PAUSE: Duration = Duration::from_micros(200);
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let call = told(thread, "syscall")?;
        match call.trim() {
            "running" => std::thread::sleep(PAUSE),
            // A thread of the kernel that does something for others.
            call if call.starts_with('-') => return None,
            call => return Some(call.into()),
        }
    }
    None
}

/// Those that only older architectures have, and those of programs of 32 bits.
#[cfg(target_arch = "x86_64")]
const LINK_HERE: &[libc::c_long] = &[libc::SYS_link, 9, 303];
#[cfg(not(target_arch = "x86_64"))]
const LINK_HERE: &[libc::c_long] = &[];

const CHOWNS: &[libc::c_long] = &[libc::SYS_fchown, libc::SYS_fchownat];

/// Those that only older architectures have. The second line is of programs of 32 bits, whose calls have
/// numbers of their own: `lchown`, `fchown`, `chown`, their three successors, and `fchownat`.
#[cfg(target_arch = "x86_64")]
const CHOWNS_HERE: &[libc::c_long] = &[
    libc::SYS_chown,
    libc::SYS_lchown,
    16,
    95,
    182,
    198,
    207,
    212,
    298,
];
#[cfg(not(target_arch = "x86_64"))]
const CHOWNS_HERE: &[libc::c_long] = &[];

const CHANGES: &[libc::c_long] = &[
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_truncate,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
];
/// Of Linux 6.6 and 6.13, the same on all architectures.
const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_REMOVEXATTRAT: libc::c_long = 466;

/// Those that only older architectures have.
#[cfg(target_arch = "x86_64")]
const CHANGES_HERE: &[libc::c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
];
#[cfg(not(target_arch = "x86_64"))]
const CHANGES_HERE: &[libc::c_long] = &[];

/// The number and the arguments of the call that the thread is in. None: the kernel does not say.
pub(super) fn arguments(thread: u32) -> Option<(libc::c_long, [u64; 6])> {
    let call = call(thread)?;
    let mut fields = call.split_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, arguments))
}

/// All bytes that the call of the thread writes. None: it is in no call that writes, or the kernel does not
/// say.
pub(super) fn bytes_to_write(thread: u32) -> Option<u64> {
    let (number, [_, memory, count, ..]) = arguments(thread)?;
    match number {
        libc::SYS_write | libc::SYS_pwrite64 => Some(count),
        libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => {
            let parts = usize::try_from(count)
                .ok()
                .filter(|count| *count <= PARTS_MAX)?;
            let mut words = vec![0; parts * PART_BYTES];
            let of_process = File::open(format!("/proc/{thread}/mem")).ok()?;
            of_process.read_exact_at(&mut words, memory).ok()?;
            // Each is an address and a length (readv(2)).
            let (words, _) = words.as_chunks();
            let words = words.iter().copied().map(u64::from_ne_bytes);
            words.skip(1).step_by(2).try_fold(0, u64::checked_add)
        }
        _ => None,
    }
}

/// The thread may be in a call that writes. While it has a processor, or waits for one, the kernel does not
/// say in which.
pub(super) fn may_be_writing(thread: u32) -> bool {
    let call = told(thread, "syscall");
    let number = call
        .as_deref()
        .and_then(|call| call.split_whitespace().next());
    number.is_some_and(|number| match number {
        "running" => true,
        number => number.parse().is_ok_and(|number| WRITES.contains(&number)),
    })
}

const WRITES: [libc::c_long; 5] = [
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
];

/// Parts of one call's memory: the kernel takes no more.
const PARTS_MAX: usize = 1024;
const PART_BYTES: usize = 16;

/// The path at `address` in the memory of the thread's process, which it has given to a call. A process that
/// may know the call's arguments may read that.
pub(super) fn path(thread: u32, address: u64) -> Option<Vec<u8>> {
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    let mut path = vec![0; libc::PATH_MAX as usize];
    // Less where the memory ends.
    let read = memory.read_at(&mut path, address).ok()?;
    let length = path.get(..read)?.iter().position(|byte| *byte == 0)?;
    path.truncate(length);
    Some(path)
}

/// The call that a thread is in.
struct Call {
    number: libc::c_long,
    /// The first argument: a descriptor, or what no descriptor can be.
    first: u64,
}

impl Call {
    /// None: the kernel does not say.
    fn of(thread: u32) -> Option<Call> {
        Call::said(&told(thread, "syscall")?)
    }

    fn said(call: &str) -> Option<Call> {
        let mut fields = call.split_whitespace();
        let number = fields.next()?.parse().ok()?;
        let first = fields.next()?.strip_prefix("0x")?;
        let first = u64::from_str_radix(first, 16).ok()?;
        Some(Call { number, first })
    }
}

const LOOK_AGAIN: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_chdir,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_execve,
];

/// Those that only older architectures have.
#[cfg(target_arch = "x86_64")]
const LOOK_AGAIN_HERE: &[libc::c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rmdir,
    libc::SYS_rename,
];
#[cfg(not(target_arch = "x86_64"))]
const LOOK_AGAIN_HERE: &[libc::c_long] = &[];

/// For how long it has run.
pub(super) fn ran(thread: u32) -> Option<Duration> {
    let counts = told(thread, "schedstat")?;
    let nanoseconds = counts.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn told(thread: u32, what: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{thread}/{what}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_the_users_of_its_map() {
        let map = "         0       1000          1\n         1     100000      65536\n";
        let has = |uid| is_mapped(map, uid);
        assert!(has(1000) && has(100_000) && has(165_535));
        assert!(!has(0) && !has(1001) && !has(165_536));
        assert!(!is_mapped("", 0) && !is_mapped("0 1000", 1000));
    }

    #[test]
    fn a_thread_meets_file_systems_as_the_last_of_its_users() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nCapEff:\t0000000000000009\n";
        assert_eq!(user(status), Some(4));
        assert_eq!(capabilities(status), Some(9));
    }
}
