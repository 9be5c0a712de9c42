//! A FUSE file system that does nothing, as fast as our layer can: the floor for the cost of a
//! request of the kernel.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bench::{BenchError, Cold, Result, StopFlag, System};
use clap::Args;
use fuse::kernel::mount::{Unmount, unmount};
use fuse::kernel::{
    Attributes, DirectoryBuffer, Entry, Errno, Handler, Heard, InitOffer, InitWish, MountOptions,
    Op, Opened, ROOT_NODEID, Replier, Request, Session, SessionConfig, mount,
};

use super::served::Child;
use crate::foreground::Stop;
use crate::output::say_lines;

const FILE_NODEID: u64 = 2;
/// What is said when it is mounted; the mount point follows.
const READY: &str = "mounted at ";

/// Mount a file system with one empty file, called `file`, until told to stop.
#[derive(Args)]
pub struct EmptyVerb {
    /// Where to mount.
    point: PathBuf,
    /// End when standard input ends.
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl EmptyVerb {
    /// Does it.
    pub fn run(self) -> std::result::Result<(), String> {
        let stop = Stop::on_signals()?;
        let (mounted, device) =
            mount(&self.point, &MountOptions::default()).map_err(|error| error.to_string())?;
        let session = Session::start(device, Arc::new(Empty), SessionConfig::default())
            .map_err(|error| error.to_string())?;
        let point = mounted.point().to_owned();
        if self.with_parent {
            let point = point.clone();
            stop.with_parent(move || drop(unmount(&point, Unmount::Abort)))?;
        }
        say_lines(format!("{READY}{}\n", point.display()));
        stop.wait(|| false);
        mounted
            .unmount(Unmount::Lazy)
            .map_err(|error| error.to_string())?;
        session.join();
        Ok(())
    }
}

/// No answer may be cached, and none takes any work.
struct Empty;

fn attributes(nodeid: u64) -> Attributes {
    let directory = nodeid == ROOT_NODEID;
    Attributes {
        ino: nodeid,
        mode: if directory { 0o040_755 } else { 0o100_644 },
        nlink: if directory { 2 } else { 1 },
        block_size: 4096,
        ..Attributes::default()
    }
}

impl Handler for Empty {
    fn init(&self, _: &InitOffer) -> InitWish {
        InitWish::default()
    }

    fn handle(&self, request: Request<'_>, replier: Replier) {
        match request.op {
            Op::Getattr { .. } => replier.attributes(Duration::ZERO, &attributes(request.nodeid)),
            Op::Lookup { name: b"file" } => replier.entry(&Entry {
                nodeid: FILE_NODEID,
                generation: 0,
                entry_valid: Duration::ZERO,
                attributes_valid: Duration::ZERO,
                attributes: attributes(FILE_NODEID),
            }),
            Op::Lookup { .. } => replier.error(Errno::ENOENT),
            Op::Open { .. } | Op::Opendir { .. } => replier.opened(&Opened::default()),
            Op::Readdir { .. } | Op::Readdirplus { .. } => {
                replier.directory(&DirectoryBuffer::new(0))
            }
            Op::Release(_) | Op::Releasedir(_) | Op::Flush { .. } => replier.done(),
            _ => replier.error(Errno::ENOSYS),
        };
    }

    fn forget(&self, _: u64, _: u64) {}

    fn interrupt(&self, _: u64) -> Heard {
        Heard::Noted
    }

    fn destroy(&self) {}
}

/// It as a system to be measured.
pub struct EmptyFs {
    point: PathBuf,
    child: Child,
}

impl EmptyFs {
    /// Mounts it in `dir`, an empty directory.
    pub fn create(dir: &Path, stop: &StopFlag) -> Result<EmptyFs> {
        let point = dir.join("mnt");
        std::fs::create_dir(&point).map_err(|source| BenchError::Io {
            doing: format!("making {}", point.display()),
            source,
        })?;
        // The path of a running program is known.
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "glint".into()));
        command.args(["bench", "empty"]).arg(&point);
        let log = dir.join("empty.log");
        let started = Child::start(&mut command, "bench empty", log, READY, stop);
        match started {
            Ok((child, _)) => Ok(EmptyFs { point, child }),
            Err(said) => Err(BenchError::Failed {
                program: "glint bench empty".to_owned(),
                ending: "could not be started".to_owned(),
                said,
            }),
        }
    }
}

impl System for EmptyFs {
    fn name(&self) -> &str {
        "empty FUSE"
    }

    fn root(&self) -> &Path {
        &self.point
    }

    fn make_cold(&mut self) -> Result<Cold> {
        Ok(Cold::Impossible("it caches nothing".to_owned()))
    }

    fn is_throwaway(&self) -> bool {
        true
    }
}

impl Drop for EmptyFs {
    fn drop(&mut self) {
        // It is in use by nobody, and holds nothing.
        let _ = unmount(&self.point, Unmount::Abort);
        self.child.terminate(Duration::from_secs(5));
    }
}
