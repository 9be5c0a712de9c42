//! Where a path leads, found out with `readlink` alone.

use std::io;
use std::path::{Component, Path, PathBuf};

use super::error::MountError;

/// As many symbolic links as the kernel follows.
const LINKS_MAX: usize = 40;

/// The path made absolute, without symbolic links. What does not exist is taken as written.
pub fn resolve(path: &Path) -> Result<PathBuf, MountError> {
    walk(path, |_| false)
}

/// Whether `path` is `dir` or leads through it. Nothing below `dir` is touched.
pub fn is_same_or_below(path: &Path, dir: &Path) -> Result<bool, MountError> {
    let dir = resolve(dir)?;
    let end = walk(path, |reached| reached == dir)?;
    Ok(end == dir)
}

/// Follows `path` until `stop` says so, or to its end. A `readlink` of a mount point asks its file system
/// nothing, so a dead or slow mount at the end of a path is not touched.
fn walk(path: &Path, stop: impl Fn(&Path) -> bool) -> Result<PathBuf, MountError> {
    let failed = |path: &Path, error| MountError::Io {
        what: "resolve",
        path: path.into(),
        error,
    };
    let absolute = std::path::absolute(path).map_err(|error| failed(path, error))?;
    let mut reached = PathBuf::from("/");
    let mut ahead: Vec<PathBuf> = components_back_to_front(&absolute);
    let mut links = 0;
    while !stop(&reached)
        && let Some(component) = ahead.pop()
    {
        match component.components().next() {
            Some(Component::Normal(name)) => reached.push(name),
            Some(Component::ParentDir) => {
                reached.pop();
                continue;
            }
            Some(Component::RootDir) => {
                reached = PathBuf::from("/");
                continue;
            }
            _ => continue,
        }
        let Some(target) = link_target(&reached).map_err(|error| failed(&reached, error))? else {
            continue;
        };
        links += 1;
        if links > LINKS_MAX {
            return Err(failed(path, io::Error::from_raw_os_error(libc::ELOOP)));
        }
        reached.pop();
        ahead.extend(components_back_to_front(&target));
    }
    Ok(reached)
}

fn components_back_to_front(path: &Path) -> Vec<PathBuf> {
    path.components()
        .rev()
        .map(|component| PathBuf::from(component.as_os_str()))
        .collect()
}

/// `None` for what is no symbolic link, or is not there.
fn link_target(path: &Path) -> io::Result<Option<PathBuf>> {
    match std::fs::read_link(path) {
        Ok(target) => Ok(Some(target)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINVAL | libc::ENOENT | libc::ENOTDIR) => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn follows_links_and_dots() {
        let root = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(root.path()).unwrap();
        fs::create_dir_all(root.join("mnt/in/deep")).unwrap();
        fs::create_dir(root.join("beside")).unwrap();
        symlink(root.join("mnt"), root.join("absolute")).unwrap();
        symlink("../mnt/in", root.join("beside/relative")).unwrap();
        let mnt = root.join("mnt");
        let below = |path: &str| is_same_or_below(&root.join(path), &mnt).unwrap();
        for inside in [
            "mnt",
            "mnt/",
            "mnt/in/deep",
            "absolute/in",
            "beside/relative/deep",
        ] {
            assert!(below(inside), "{inside}");
        }
        for outside in ["beside", "mnt2", ".", "beside/../beside"] {
            assert!(!below(outside), "{outside}");
        }
        assert!(below("mnt/not/there/yet"), "what will be created counts");
        assert!(is_same_or_below(&mnt.join("x"), &root.join("absolute")).unwrap());
        assert_eq!(
            resolve(&root.join("beside/relative")).unwrap(),
            mnt.join("in")
        );
    }

    #[test]
    fn gives_up_on_loops() {
        let root = tempfile::tempdir().unwrap();
        symlink("loop", root.path().join("loop")).unwrap();
        assert!(resolve(&root.path().join("loop")).is_err());
    }
}
