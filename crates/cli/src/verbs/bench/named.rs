//! A directory that somebody named, of whatever file system.

use std::path::{Path, PathBuf};

use bench::{BenchError, Cold, Result, System};

use super::glint::rpcs_sent;
use crate::control::mount_of;

/// Writing 3 drops clean pages, dentries and inodes of all file systems (proc_sys_vm(5)).
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// A directory; its requests are counted if it is on a Glint mount.
pub struct Named {
    name: String,
    path: PathBuf,
    is_glint: bool,
    drop_caches: bool,
}

impl Named {
    /// `drop_caches`: the machine's caches may be dropped before a cold step.
    pub fn new(path: &Path, drop_caches: bool) -> Named {
        Named {
            name: path.display().to_string(),
            path: path.to_owned(),
            is_glint: mount_of(path).is_ok(),
            drop_caches,
        }
    }
}

impl System for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn root(&self) -> &Path {
        &self.path
    }

    fn make_cold(&mut self) -> Result<Cold> {
        if !self.drop_caches {
            let why = "caches are dropped only with --drop-caches, as root";
            return Ok(Cold::Impossible(why.to_owned()));
        }
        nix::unistd::sync();
        std::fs::write(DROP_CACHES, "3").map_err(|source| BenchError::Io {
            doing: format!("writing {DROP_CACHES} (run as root, or leave out --drop-caches)"),
            source,
        })?;
        Ok(Cold::Done)
    }

    fn rpcs_sent(&mut self) -> Option<u64> {
        self.is_glint.then(|| rpcs_sent(&self.path))?
    }
}
