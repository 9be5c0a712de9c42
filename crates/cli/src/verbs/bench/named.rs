//! A directory that somebody named, of whatever file system.

use std::path::{Path, PathBuf};

use bench::caches::drop_caches;
use bench::{Cold, Result, System};

use super::glint::rpcs_sent;
use crate::control::mount_of;

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
        drop_caches(&self.path)?;
        Ok(Cold::Done)
    }

    fn rpcs_sent(&mut self) -> Option<u64> {
        self.is_glint.then(|| rpcs_sent(&self.path))?
    }
}
