//! What the kernel says of a thread that has called.

use std::fs;
use std::time::Duration;

use base::Fid;
use client::Credentials;

/// The bit of CAP_FSETID in a set of capabilities.
const CAP_FSETID: u64 = 1 << 4;

/// A process that changes a file, known by the thread that asks. What a request does not say of it
/// is read when somebody wants to know; nothing is known of a thread in another pid namespace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    thread: u32,
    gid: u32,
    /// The kernel has said whether it lacks CAP_FSETID.
    lacks_fsetid: Option<bool>,
}

impl Process {
    pub fn new(thread: u32, gid: u32) -> Process {
        Process {
            thread,
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
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/user")).ok();
        let has = told(self.thread, "status").and_then(|status| {
            let set = line(&status, "CapEff:")?;
            u64::from_str_radix(set, 16).ok()
        });
        let here = namespace("self");
        here.is_some()
            && here == namespace(&self.thread.to_string())
            && has.is_some_and(|set| set & CAP_FSETID != 0)
    }
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

/// It is in a call that looks up every name of its path once more where the kernel cannot take a directory to
/// one of them. Making things (`mkdir`, `mknod`, `link`, `symlink`) does not; where the kernel does not say
/// which call it is, neither.
pub(super) fn looks_again(thread: u32) -> bool {
    let number = Call::of(thread).map(|call| call.number);
    number.is_some_and(|number| LOOK_AGAIN.contains(&number) || LOOK_AGAIN_HERE.contains(&number))
}

/// It is in a call on a descriptor of `fid`, which no name has led to: `fstat`, or one with an empty path, or
/// with a path that begins there.
pub(super) fn has_by_descriptor(thread: u32, fid: Fid) -> bool {
    let Some(call) = Call::of(thread) else {
        return false;
    };
    let descriptor = told(thread, &format!("fdinfo/{}", call.first));
    let inode = descriptor.and_then(|facts| line(&facts, "ino:")?.parse().ok());
    inode == Some(fid.0)
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
        let call = told(thread, "syscall")?;
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
