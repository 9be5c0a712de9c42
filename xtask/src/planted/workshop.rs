//! The copy of the workspace that bugs are planted in. It lies in the target directory, with build
//! results of its own that all bugs share: only what a bug touches is built anew.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::metadata;

use super::catalogue::Bug;

/// What the build does not need, and what is not the project's.
const LEFT_OUT: [&str; 3] = ["target", "demo-data", "node_modules"];
/// Hidden folders that the build does need: its settings, and the program that they name.
const HIDDEN_NEEDED: [&str; 2] = [".cargo", ".ci"];

/// The copy.
#[derive(Debug)]
pub struct Workshop {
    root: PathBuf,
    tree: PathBuf,
    results: PathBuf,
    /// Held as long as the copy is in use.
    _lock: File,
}

impl Workshop {
    /// The one of the workspace in `root`; refused while another process uses it.
    pub fn open(root: &Path) -> Result<Workshop, String> {
        let folder = metadata::target_directory(root)?.join("planted");
        let failed = |error: io::Error| format!("cannot use {}: {error}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|_| {
            let folder = folder.display();
            format!("another `cargo xtask planted` works in {folder}; wait for its end")
        })?;
        Ok(Workshop {
            root: root.to_owned(),
            tree: folder.join("tree"),
            results: folder.join("build"),
            _lock: lock,
        })
    }

    /// The simulator, as built last.
    pub fn simulator(&self) -> PathBuf {
        self.results.join("debug/glint-sim")
    }

    /// Builds the simulator of the workspace with `bug` in it, or of the workspace as it is.
    pub fn build(&self, bug: Option<&Bug>) -> Result<(), String> {
        let planted = match bug {
            None => None,
            Some(bug) => {
                let source = fs::read_to_string(self.root.join(&bug.path));
                let source =
                    source.map_err(|error| format!("cannot read {}: {error}", bug.path))?;
                Some((bug.path.as_str(), bug.plant(&source)?))
            }
        };
        mirror(&self.root, &self.tree, planted)
            .map_err(|error| format!("cannot copy the workspace: {error}"))?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["build", "--quiet", "--profile", "test"])
            .args(["--package", "sim", "--bin", "glint-sim"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.results)
            .env("CARGO_INCREMENTAL", "1")
            .output()
            .map_err(|error| format!("cannot run cargo build: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let (name, said) = (bug.map_or("the tree", |bug| &bug.name), output.stderr);
                let said = String::from_utf8_lossy(&said);
                Err(format!("{name} does not build: {}", said.trim()))
            }
        }
    }
}

/// Makes `to` hold what `from` holds, with another text in one file. What is the same already stays
/// untouched, so that it is not built anew.
fn mirror(from: &Path, to: &Path, planted: Option<(&str, String)>) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let (wanted, there) = (files_below(from)?, files_below(to)?);
    for path in there.difference(&wanted) {
        fs::remove_file(to.join(path))?;
    }
    for path in &wanted {
        let text = match &planted {
            Some((other, text)) if path == Path::new(other) => text.clone().into_bytes(),
            _ => fs::read(from.join(path))?,
        };
        let copy = to.join(path);
        if there.contains(path) && fs::read(&copy)? == text {
            continue;
        }
        if let Some(folder) = copy.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&copy, text)?;
        // Programs stay programs.
        fs::set_permissions(copy, fs::metadata(from.join(path))?.permissions())?;
    }
    Ok(())
}

/// Every file of the workspace in `root`, relative to that.
fn files_below(root: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let (mut files, mut folders) = (BTreeSet::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            let name = name.to_string_lossy();
            let is_hidden = name.starts_with('.') && !HIDDEN_NEEDED.contains(&&*name);
            let is_top = folder.as_os_str().is_empty();
            if is_hidden || (is_top && LEFT_OUT.contains(&&*name)) {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => folders.push(path),
                false => drop(files.insert(path)),
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_copy_is_brought_up_to_date_and_what_is_the_same_stays_untouched() {
        let folder = std::env::temp_dir().join(format!("workshop-{}", std::process::id()));
        let (from, to) = (folder.join("from"), folder.join("to"));
        let write = |path: &str, text: &str| {
            let path = from.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let read = |path: &str| fs::read_to_string(to.join(path)).ok();
        let changed = |path: &str| fs::metadata(to.join(path)).unwrap().modified().unwrap();
        write("a/src/target/x.rs", "x");
        write("a/y.rs", "y");
        write("gone.rs", "z");
        write("target/debug", "left out");
        write(".git/HEAD", "left out");
        write(".ci/rustc", "a program");
        let program = Permissions::from_mode(0o755);
        fs::set_permissions(from.join(".ci/rustc"), program.clone()).unwrap();
        mirror(&from, &to, Some(("a/y.rs", "bug".to_owned()))).unwrap();
        assert_eq!(read("a/src/target/x.rs").as_deref(), Some("x"));
        assert_eq!(read("a/y.rs").as_deref(), Some("bug"));
        assert_eq!((read("target/debug"), read(".git/HEAD")), (None, None));
        let copied = fs::metadata(to.join(".ci/rustc")).unwrap().permissions();
        assert_eq!(copied.mode() & 0o777, program.mode());
        let before = changed("a/src/target/x.rs");
        fs::remove_file(from.join("gone.rs")).unwrap();
        mirror(&from, &to, None).unwrap();
        assert_eq!(
            (read("a/y.rs").as_deref(), read("gone.rs")),
            (Some("y"), None)
        );
        assert_eq!(changed("a/src/target/x.rs"), before);
        fs::remove_dir_all(&folder).unwrap();
    }
}
