//! A FUSE file system whose files are in memory: the floor under the figures of a file system in user
//! space. It sends nothing, stores nothing and has one user.

mod handler;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bench::{BenchError, Cold, Result, StopFlag, System};
use clap::Args;
use fuse::kernel::mount::{Unmount, unmount};
use fuse::kernel::{MountOptions, Session, SessionConfig, mount};

use self::handler::Floor;
use super::served::Child;
use crate::foreground::Stop;
use crate::output::say_lines;

/// What is said when it is mounted; the mount point follows.
const READY: &str = "mounted at ";

/// Mount a file system whose files are in memory, until told to stop.
#[derive(Args)]
pub struct FloorVerb {
    /// Where to mount.
    point: PathBuf,
    /// End when standard input ends.
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl FloorVerb {
    /// Does it.
    pub fn run(self) -> std::result::Result<(), String> {
        let stop = Stop::on_signals()?;
        let (mounted, device) =
            mount(&self.point, &MountOptions::default()).map_err(|error| error.to_string())?;
        let session = Session::start(device, Arc::new(Floor::new()), SessionConfig::default())
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

/// It as a system to be measured.
pub struct FloorFs {
    point: PathBuf,
    child: Child,
}

impl FloorFs {
    /// Mounts it in `dir`, an empty directory.
    pub fn create(dir: &Path, stop: &StopFlag) -> Result<FloorFs> {
        let point = dir.join("mnt");
        std::fs::create_dir(&point).map_err(|source| BenchError::Io {
            doing: format!("making {}", point.display()),
            source,
        })?;
        // The path of a running program is known.
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "glint".into()));
        command.args(["bench", "floor"]).arg(&point);
        let log = dir.join("floor.log");
        let started = Child::start(&mut command, "bench floor", log, READY, stop);
        match started {
            Ok((child, _)) => Ok(FloorFs { point, child }),
            Err(said) => Err(BenchError::Failed {
                program: "glint bench floor".to_owned(),
                ending: "could not be started".to_owned(),
                said,
            }),
        }
    }
}

impl System for FloorFs {
    fn name(&self) -> &str {
        "FUSE floor"
    }

    fn root(&self) -> &Path {
        &self.point
    }

    fn make_cold(&mut self) -> Result<Cold> {
        Ok(Cold::Impossible("it is in memory".to_owned()))
    }

    fn is_throwaway(&self) -> bool {
        true
    }
}

impl Drop for FloorFs {
    fn drop(&mut self) {
        // It is in use by nobody, and holds nothing.
        let _ = unmount(&self.point, Unmount::Abort);
        self.child.terminate(Duration::from_secs(5));
    }
}
