//! File systems of this machine to compare with: ext4 on a file, tmpfs, and any directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use tempfile::TempDir;

use crate::caches::drop_caches;
use crate::error::{BenchError, During, Result};
use crate::mount_point::MountPoint;
use crate::process::output;
use crate::scratch::own_directory;
use crate::workload::{Cold, System};

/// A new ext4 on a sparse file, mounted through a loop device. Cold means unmounted and mounted; the
/// file itself stays in the page cache, so cold reads come from memory, unless the machine's caches
/// are dropped too.
#[derive(Debug)]
pub struct Ext4 {
    // Unmounted before the directory with the file goes.
    point: MountPoint,
    image: PathBuf,
    drop_caches: bool,
    directory: TempDir,
}

impl Ext4 {
    /// Needs root, and mkfs.ext4 (e2fsprogs). `base` is a directory on the disk to measure; up to
    /// `bytes` of it are used.
    pub fn create(base: &Path, bytes: u64, inodes: u64) -> Result<Ext4> {
        need_root("mount ext4")?;
        let directory = own_directory(base)?;
        let image = directory.path().join("image");
        File::create(&image)
            .and_then(|file| file.set_len(bytes))
            .during(|| format!("making {}", image.display()))?;
        let mut format = Command::new("mkfs.ext4");
        format.args(["-q", "-F", "-N"]).arg(inodes.to_string());
        output(format.arg(&image))?;
        let ext4 = Ext4 {
            point: MountPoint::create(directory.path().join("mnt"))?,
            image,
            drop_caches: false,
            directory,
        };
        ext4.mount()?;
        Ok(ext4)
    }

    /// Cold is as after a start of the machine from now on.
    pub fn dropping_caches(mut self) -> Ext4 {
        self.drop_caches = true;
        self
    }

    fn mount(&self) -> Result<()> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop,noatime"]);
        output(mount.arg(&self.image).arg(self.point.path())).map(|_| ())
    }
}

impl System for Ext4 {
    fn name(&self) -> &str {
        "ext4"
    }

    fn root(&self) -> &Path {
        self.point.path()
    }

    fn make_cold(&mut self) -> Result<Cold> {
        self.point.unmount()?;
        if self.drop_caches {
            drop_caches(self.directory.path())?;
        }
        self.mount()?;
        Ok(Cold::Done)
    }

    fn is_throwaway(&self) -> bool {
        true
    }
}

/// A new tmpfs.
#[derive(Debug)]
pub struct Tmpfs {
    point: MountPoint,
    _directory: TempDir,
}

impl Tmpfs {
    /// Needs root. Up to `bytes` of memory are used.
    pub fn create(base: &Path, bytes: u64) -> Result<Tmpfs> {
        need_root("mount tmpfs")?;
        let directory = own_directory(base)?;
        let point = MountPoint::create(directory.path().join("mnt"))?;
        let options = format!("size={bytes},mode=755");
        mount(
            Some("glint-bench"),
            point.path(),
            Some("tmpfs"),
            MsFlags::MS_NOATIME,
            Some(options.as_str()),
        )
        .map_err(|error| refused(error, "mount tmpfs"))?;
        Ok(Tmpfs {
            point,
            _directory: directory,
        })
    }
}

impl System for Tmpfs {
    fn name(&self) -> &str {
        "tmpfs"
    }

    fn root(&self) -> &Path {
        self.point.path()
    }

    fn make_cold(&mut self) -> Result<Cold> {
        Ok(Cold::Impossible("it is in memory".into()))
    }

    fn is_throwaway(&self) -> bool {
        true
    }
}

/// A directory as it is, of whatever file system.
#[derive(Debug)]
pub struct Directory {
    name: String,
    path: PathBuf,
    throwaway: bool,
}

impl Directory {
    /// Measurements make one subdirectory in it and remove it again.
    pub fn new(name: impl Into<String>, path: impl Into<PathBuf>) -> Directory {
        Directory {
            name: name.into(),
            path: path.into(),
            throwaway: false,
        }
    }

    /// The caller removes it with all that is in it.
    pub fn throwaway(mut self) -> Directory {
        self.throwaway = true;
        self
    }
}

impl System for Directory {
    fn name(&self) -> &str {
        &self.name
    }

    fn root(&self) -> &Path {
        &self.path
    }

    fn make_cold(&mut self) -> Result<Cold> {
        Ok(Cold::Impossible(
            "a directory cannot be unmounted and mounted again".into(),
        ))
    }

    fn is_throwaway(&self) -> bool {
        self.throwaway
    }
}

fn need_root(to_do: &str) -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(refused(Errno::EPERM, to_do))
}

fn refused(error: Errno, to_do: &str) -> BenchError {
    match error {
        Errno::EPERM | Errno::EACCES => {
            BenchError::unavailable(format!("no permission to {to_do}"), "run as root")
        }
        _ => BenchError::Io {
            doing: to_do.to_string(),
            source: error.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// None where this machine cannot have it.
    fn made<T>(result: Result<T>) -> Option<T> {
        match result {
            Ok(system) => Some(system),
            Err(error) => {
                assert!(!nix::unistd::geteuid().is_root(), "{error}");
                assert!(error.to_string().contains("run as root"), "{error}");
                None
            }
        }
    }

    fn entries(path: &Path) -> usize {
        std::fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn ext4_keeps_files_over_a_cold_start_and_leaves_nothing() {
        let base = tempfile::tempdir().unwrap();
        let Some(mut ext4) = made(Ext4::create(base.path(), 64 << 20, 1000)) else {
            return;
        };
        let root = ext4.root().to_path_buf();
        std::fs::write(root.join("file"), "data").unwrap();
        assert_eq!(ext4.make_cold().unwrap(), Cold::Done);
        assert_eq!(std::fs::read_to_string(root.join("file")).unwrap(), "data");
        assert!(ext4.point.is_mounted());
        drop(ext4);
        assert_eq!(entries(base.path()), 0);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(root.to_str().unwrap()));
    }

    #[test]
    fn a_busy_file_system_is_detached_all_the_same() {
        let base = tempfile::tempdir().unwrap();
        let Some(tmpfs) = made(Tmpfs::create(base.path(), 1 << 20)) else {
            return;
        };
        let held = File::create(tmpfs.root().join("file")).unwrap();
        drop(tmpfs);
        assert_eq!(entries(base.path()), 0);
        drop(held);
    }
}
