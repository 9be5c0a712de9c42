//! How much memory this process may use, what keeps it alive when there is little, and who gives back
//! what it no longer needs.
#![allow(unsafe_code, reason = "the allocator's own call has no safe wrapper")]

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use base::limits::{REPLIES_BYTES_MIN, REPLIES_MEMORY_SHARE};
use fuse::kernel::flusher::{become_io_flusher, is_io_flusher};
use fuse::kernel::mount::Mount;
use nix::libc::RLIM_INFINITY;
use nix::sys::resource::{Resource, getrlimit};

/// Where control groups are: with one hierarchy for all, and with one for memory alone.
const HIERARCHIES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup", "memory.max"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
];

/// With less than this, what is freed goes back at once. The allocator keeps it for a second, which
/// at the pace of write-back is as much as there is.
const LITTLE: u64 = 1 << 30;
/// `mi_option_purge_delay` of mimalloc.h, in milliseconds; the crate does not name it.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Dirty bytes of writable mappings where write-back may wait for itself.
const DIRTY_BYTES_MAX: u32 = 2 << 20;

/// Address space without which no process begins.
const ADDRESSES_MIN: u64 = 4 << 30;
/// Of it, what is not for what the process keeps: the allocator reserves a GiB, and threads have stacks.
const ADDRESSES_APART: u64 = 3 << 30;

/// How often free memory is given back that was not used again in the meantime.
const GIVING_BACK: Duration = Duration::from_secs(1);

/// Prepares the process before any other thread is started.
pub fn prepare() {
    serve_write_back();
    if limit().is_some_and(|bytes| bytes < LITTLE) {
        // SAFETY: sets a number that the allocator reads when it frees; no other thread runs yet.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, 0) };
    }
    let thread = thread::Builder::new().name("memory".to_owned());
    if let Err(error) = thread.spawn(give_back) {
        tracing::debug!("free memory stays with the process: {error}");
    }
}

/// The allocator gives memory back when it is asked for more, which may be long after a walk through a
/// large tree.
fn give_back() {
    loop {
        thread::sleep(GIVING_BACK);
        // SAFETY: may be called at any time from any thread; takes and keeps no pointer.
        unsafe { libmimalloc_sys::mi_collect(false) };
    }
}

/// Lets write-back never wait for itself: what serves a mount's pages must not, for memory, wait
/// until they are written. All threads started afterwards follow suit.
fn serve_write_back() {
    if !become_io_flusher() {
        tracing::debug!(
            "memory pressure may hold up writable mappings: CAP_SYS_RESOURCE is missing"
        );
    }
}

/// Bounds the mount's dirty pages where a process may not become an I/O flusher (in a container, as a rule).
/// A control group of the first version can hold the mount's process and programs that store into mappings.
/// When the process needs memory there, the kernel has it wait for the mount's own dirty pages. The fewer
/// these are, the rarer that is: with 2 MiB no run hung, without a bound one in ten.
pub fn spare_write_back(mount: &Mount) {
    if is_io_flusher() {
        return;
    }
    if let Err(error) = mount.bound_dirty_pages(DIRTY_BYTES_MAX) {
        tracing::debug!("dirty pages of writable mappings have no bound of ours: {error}");
    }
}

/// Refuses to begin where the process may not have the addresses that it needs: the allocator would end it
/// in the midst of its work.
pub fn check_addresses() -> Result<(), String> {
    match addresses() {
        Some(limit) => enough(limit),
        None => Ok(()),
    }
}

/// Bytes of address space this process may have (RLIMIT_AS). None: any.
fn addresses() -> Option<u64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    (soft != RLIM_INFINITY).then_some(soft)
}

fn enough(limit: u64) -> Result<(), String> {
    if limit >= ADDRESSES_MIN {
        return Ok(());
    }
    Err(format!(
        "{} MiB of address space are needed, and this process may have {}: raise the limit (ulimit -v, or \
         LimitAS= of a service)",
        ADDRESSES_MIN >> 20,
        limit >> 20
    ))
}

/// Bytes of memory this process may use: the machine's, or the least limit of its control groups. Addresses
/// that the process may have count, too.
pub fn limit() -> Option<u64> {
    let machine = machine(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = HIERARCHIES
        .iter()
        .flat_map(|(root, file)| limit_files(&groups, Path::new(root), file))
        .filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    let left = addresses().map(|bytes| bytes.saturating_sub(ADDRESSES_APART));
    Some(limits.chain(left).fold(machine, u64::min))
}

/// Bytes of replies that a server keeps for all its clients.
pub fn replies_bytes_max() -> usize {
    let share = limit().unwrap_or(0) / REPLIES_MEMORY_SHARE;
    usize::try_from(share).map_or(usize::MAX, |share| share.max(REPLIES_BYTES_MIN))
}

fn machine(info: &str) -> Option<u64> {
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The file called `name` of each group that one of `groups` is below, itself included. In a
/// container a group's path may be its host's and not be there: then those above it count.
fn limit_files(groups: &str, root: &Path, name: &str) -> Vec<PathBuf> {
    let of_memory = |controllers: &str| controllers.split(',').any(|one| one == "memory");
    let paths = groups.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let counts = controllers.is_empty() || of_memory(controllers);
        counts.then(|| path.trim_start_matches('/'))
    });
    paths
        .flat_map(|path| Path::new(path).ancestors())
        .map(|group| root.join(group).join(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_of_all_groups_above_are_looked_at() {
        let groups = "4:cpu,memory:/a/b\n3:cpuset:/c\n0::/d\n";
        let files = limit_files(groups, Path::new("/root"), "limit");
        let expected = ["a/b/limit", "a/limit", "limit", "d/limit", "limit"];
        let expected = expected.map(|file| Path::new("/root").join(file));
        assert_eq!(files, expected);
        assert!(limit_files("nonsense\n", Path::new("/"), "x").is_empty());
    }

    #[test]
    fn few_addresses_are_refused_with_what_there_is() {
        let said = enough(390 << 20).unwrap_err();
        assert!(
            said.contains("4096 MiB of address space are needed"),
            "{said}"
        );
        assert!(said.contains("may have 390") && said.contains("LimitAS"));
        assert!(enough(ADDRESSES_MIN).is_ok() && enough(ADDRESSES_MIN - 1).is_err());
    }

    #[test]
    fn a_machine_has_what_it_says() {
        let info = "MemFree:   1 kB\nMemTotal:       24576 kB\n";
        assert_eq!(machine("MemFree: 1 kB\n"), None);
        assert_eq!(machine(info), Some(24 << 20));
        let here = limit().expect("this is Linux");
        assert!(here > 16 << 20, "{here}");
    }
}
