//! A directory that stays where it was found: reached by its descriptor, whatever is mounted later on the
//! way to it. That may be the very file system that the directory is a part of, which would wait for itself.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// A directory, held.
#[derive(Debug)]
pub(crate) struct Anchor {
    dir: File,
    path: PathBuf,
}

impl Anchor {
    /// The existing directory `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Anchor> {
        Ok(Anchor {
            dir: File::open(path)?,
            path: path.to_owned(),
        })
    }

    /// The directory itself.
    pub(crate) fn dir(&self) -> &File {
        &self.dir
    }

    /// Where it was found, for people.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path by which this process reaches `name` in it.
    pub(crate) fn reach(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_reached_wherever_its_path_leads() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (root.path().join("old"), root.path().join("new"));
        std::fs::create_dir(&old).unwrap();
        let anchor = Anchor::open(&old).unwrap();
        std::fs::rename(&old, &new).unwrap();
        std::fs::write(anchor.reach("file"), "words").unwrap();
        assert_eq!(std::fs::read(new.join("file")).unwrap(), b"words");
        assert_eq!(anchor.path(), old);
    }
}
