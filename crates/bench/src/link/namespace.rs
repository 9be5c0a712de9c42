//! Network namespaces with names, as `ip netns` knows them.
#![allow(unsafe_code)] // Command::pre_exec has no safe form.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use super::interface::bring_up;
use crate::error::{BenchError, During, Result};
use crate::leftovers::left_behind;

const DIRECTORY: &str = "/run/netns";
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";
/// Before the process id in the names made here.
const PREFIX: &str = "glint-";

/// A network namespace; one that was made here is removed on drop.
#[derive(Debug)]
pub struct Namespace {
    file: Arc<File>,
    bound: Option<Bound>,
}

impl Namespace {
    /// The namespace of the calling thread.
    pub fn current() -> Result<Namespace> {
        let file = File::open(OWN_NAMESPACE).during(|| format!("opening {OWN_NAMESPACE}"))?;
        Ok(Namespace {
            file: Arc::new(file),
            bound: None,
        })
    }

    /// A new one with only a loopback interface, named `glint-<pid>-<suffix>`.
    pub(crate) fn create(suffix: &str) -> Result<Namespace> {
        let name = format!("{PREFIX}{}-{suffix}", std::process::id());
        // The thread moves into the new namespace and ends there; nobody else sees it move.
        on_own_thread(move || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(unavailable)?;
            let bound = Bound::create(&name)?;
            bring_up("lo")?;
            Ok(Namespace {
                bound: Some(bound),
                ..Namespace::current()?
            })
        })
    }

    /// Its name under /run/netns, if it was made here: `ip netns exec NAME …` enters it.
    pub fn name(&self) -> Option<&str> {
        self.bound.as_ref()?.path.file_name()?.to_str()
    }

    /// Runs `work` inside, on a thread of its own. Threads and child processes that `work` starts are
    /// inside too, and may outlive the call.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_own_thread(|| {
            setns(&*self.file, CloneFlags::CLONE_NEWNET)
                .during(|| "entering a network namespace")?;
            Ok(work())
        })
    }

    /// A command whose process will be inside. It keeps the caller's mount namespace, unlike `ip
    /// netns exec`: what it mounts is seen by everyone.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let file = Arc::clone(&self.file);
        let mut command = Command::new(program);
        // SAFETY: between fork and exec this makes one system call on a descriptor that the closure
        // owns, and allocates nothing.
        unsafe {
            command.pre_exec(move || Ok(setns(&*file, CloneFlags::CLONE_NEWNET)?));
        }
        command
    }
}

/// A name under /run/netns: a bind mount that keeps the namespace alive.
#[derive(Debug)]
struct Bound {
    path: PathBuf,
}

impl Bound {
    /// Of the calling thread's namespace.
    fn create(name: &str) -> Result<Bound> {
        let bound = Bound {
            path: Path::new(DIRECTORY).join(name),
        };
        fs::create_dir_all(DIRECTORY).during(|| format!("making {DIRECTORY}"))?;
        File::create_new(&bound.path).during(|| format!("making {}", bound.path.display()))?;
        let (none, flags) = (None::<&str>, MsFlags::MS_BIND);
        mount(Some(OWN_NAMESPACE), &bound.path, none, flags, none)
            .map_err(unavailable)
            .map(|()| bound)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the names that processes which were killed have left. Their devices and threads are
/// already gone: the kernel removed them with the process.
pub(crate) fn remove_stale() {
    for path in left_behind(Path::new(DIRECTORY), PREFIX) {
        remove(&path);
    }
}

fn remove(path: &Path) {
    // Neither can be mended here; what is left is found by `remove_stale` of a later process.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    let _ = fs::remove_file(path);
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("glint-netns".into());
        let thread = thread
            .spawn_scoped(scope, work)
            .during(|| "starting a thread")?;
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn unavailable(error: Errno) -> BenchError {
    match error {
        Errno::EPERM => BenchError::unavailable(
            "no permission to make a network namespace",
            "run as root, or with CAP_SYS_ADMIN and CAP_NET_ADMIN",
        ),
        Errno::EINVAL => BenchError::unavailable(
            "this kernel has no network namespaces",
            "use a kernel with CONFIG_NET_NS",
        ),
        _ => BenchError::Io {
            doing: "making a network namespace".into(),
            source: error.into(),
        },
    }
}
