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
    files: HashMap<(PathBuf, Way), (u64, File)>,
    mappings: HashMap<PathBuf, (u64, Mapping)>,
    opened: u64,
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
        self.numbered(path, way, &mut 0)
    }

    /// The same, with a number that no other open file of the process has.
    pub fn numbered(&mut self, path: &Path, way: Way, number: &mut u64) -> io::Result<&mut File> {
        if self.files.len() > KEPT_MAX {
            self.files.clear();
        }
        let key = (path.to_owned(), way);
        if !self.files.contains_key(&key) {
            let file = open(path, way)?;
            self.opened += 1;
            self.files.insert(key.clone(), (self.opened, file));
        }
        let (its, file) = self.files.get_mut(&key).expect("it was just put there");
        *number = *its;
        Ok(file)
    }

    /// The file `path`, mapped, and its number.
    pub fn mapping(&mut self, path: &Path, bytes: usize) -> io::Result<(u64, &Mapping)> {
        if !self.mappings.contains_key(path) {
            let mapping = Mapping::new(path, bytes)?;
            self.opened += 1;
            self.mappings
                .insert(path.to_owned(), (self.opened, mapping));
        }
        let (number, mapping) = &self.mappings[path];
        Ok((*number, mapping))
    }

    /// Closes what is kept of `path`.
    pub fn close(&mut self, path: &Path) {
        self.files.retain(|(kept, _), _| kept != path);
        self.mappings.remove(path);
    }
}
