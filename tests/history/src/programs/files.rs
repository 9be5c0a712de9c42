//! Files and mappings that a process keeps open from call to call.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use mounted::Mapping;

/// So many are kept.
const KEPT_MAX: usize = 24;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Way {
    /// To be read and written.
    Usual,
    /// The same past the page cache.
    Direct,
    /// At its end.
    Append,
}

/// What is kept open.
#[derive(Default)]
pub struct Files {
    files: HashMap<(PathBuf, Way), File>,
    mappings: HashMap<PathBuf, Mapping>,
}

/// Opens `path`; the second is to be read as well.
pub fn open(path: &Path, way: Way) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    match way {
        Way::Usual => options.write(true),
        Way::Direct => options.write(true).custom_flags(libc::O_DIRECT),
        Way::Append => options.append(true).create(true),
    };
    options.open(path)
}

impl Files {
    /// The file `path`, kept or opened now.
    pub fn get(&mut self, path: &Path, way: Way) -> io::Result<&mut File> {
        if self.files.len() > KEPT_MAX {
            self.files.clear();
        }
        let key = (path.to_owned(), way);
        if !self.files.contains_key(&key) {
            self.files.insert(key.clone(), open(path, way)?);
        }
        Ok(self.files.get_mut(&key).expect("it was just put there"))
    }

    /// The same, mapped.
    pub fn mapping(&mut self, path: &Path, bytes: usize) -> io::Result<&Mapping> {
        if !self.mappings.contains_key(path) {
            let mapping = Mapping::new(path, bytes)?;
            self.mappings.insert(path.to_owned(), mapping);
        }
        Ok(&self.mappings[path])
    }

    /// Closes what is kept of `path`.
    pub fn close(&mut self, path: &Path) {
        self.files.retain(|(kept, _), _| kept != path);
        self.mappings.remove(path);
    }
}
