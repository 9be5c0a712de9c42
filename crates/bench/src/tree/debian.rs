//! The kernel source that Debian packages as linux-source-*.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::source_tree::SourceTree;
use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::process::{output, time};
use crate::progress::{Event, Progress};

const NAME: &str = "linux-source-";
const INSTALLED: &str = "/usr/src";
/// How long a download or an unpacking may take.
const CAP: Duration = Duration::from_secs(1800);

pub(super) fn obtain(cache: &Path, stop: &StopFlag, progress: &mut Progress) -> Result<SourceTree> {
    fs::create_dir_all(cache).during(|| format!("making {}", cache.display()))?;
    let tar = match newest(cache, ".tar") {
        Some(tar) => tar,
        None => make(cache, stop, progress)?,
    };
    let name = tar.file_stem().unwrap_or_default().to_string_lossy();
    SourceTree::from_tar(&tar, format!("Debian's {name}"))
}

/// Puts the tar file into the cache, where it stays.
fn make(cache: &Path, stop: &StopFlag, progress: &mut Progress) -> Result<PathBuf> {
    if let Some(packed) = newest(Path::new(INSTALLED), ".tar.xz") {
        return unpack(&packed, cache, stop, progress);
    }
    let directory = tempfile::Builder::new().prefix(".part-").tempdir_in(cache);
    let directory = directory.during(|| format!("writing in {}", cache.display()))?;
    let package = download(directory.path(), stop, progress)?;
    let mut extract = Command::new("dpkg-deb");
    extract.arg("-x").arg(&package).arg(directory.path());
    run(&mut extract, "taking the package apart", stop, progress)?;
    let inside = directory.path().join("usr/src");
    let packed = newest(&inside, ".tar.xz").ok_or_else(|| {
        BenchError::unavailable(
            "the package linux-source holds no source",
            "install it by hand",
        )
    })?;
    unpack(&packed, cache, stop, progress)
}

/// Fetches the package; nothing is installed.
fn download(directory: &Path, stop: &StopFlag, progress: &mut Progress) -> Result<PathBuf> {
    let package = match package_name() {
        Ok(name) => name,
        Err(_) => {
            let mut update = Command::new("apt-get");
            update.args(["update", "-q"]);
            run(
                &mut update,
                "fetching apt's lists of packages",
                stop,
                progress,
            )?;
            package_name()?
        }
    };
    let mut fetch = Command::new("apt-get");
    fetch
        .args(["download", "-q", &package])
        .current_dir(directory);
    run(
        &mut fetch,
        &format!("downloading {package} (about 140 MB)"),
        stop,
        progress,
    )?;
    newest(directory, ".deb").ok_or_else(|| {
        BenchError::unavailable(
            format!("apt-get did not download {package}"),
            "look at its messages with: apt-get download linux-source",
        )
    })
}

/// What linux-source stands for today, such as linux-source-6.1.
fn package_name() -> Result<String> {
    let depends = output(Command::new("apt-cache").args(["depends", "linux-source"]))?;
    named_dependency(&depends).ok_or_else(|| {
        BenchError::unavailable(
            "apt knows no package linux-source",
            "add a Debian source to apt",
        )
    })
}

fn named_dependency(depends: &str) -> Option<String> {
    let mut lines = depends.lines().map(str::trim);
    let name = lines.find_map(|line| line.strip_prefix("Depends: "))?;
    name.starts_with(NAME).then(|| name.to_string())
}

fn unpack(
    packed: &Path,
    cache: &Path,
    stop: &StopFlag,
    progress: &mut Progress,
) -> Result<PathBuf> {
    let name = packed.file_stem().unwrap_or_default();
    let tar = cache.join(name);
    let part = tempfile::Builder::new().prefix(".part-").tempfile_in(cache);
    let part = part.during(|| format!("writing in {}", cache.display()))?;
    let out: File = part.reopen().during(|| "writing the source's tar file")?;
    let mut unpack = Command::new("xz");
    unpack
        .args(["-dc", "-T0"])
        .arg(packed)
        .stdout(Stdio::from(out));
    let what = format!("decompressing {} (about 1.4 GB)", name.to_string_lossy());
    run_keeping_output(&mut unpack, &what, stop, progress)?;
    part.persist(&tar)
        .map_err(|error| error.error)
        .during(|| format!("writing {}", tar.display()))?;
    Ok(tar)
}

fn run(command: &mut Command, what: &str, stop: &StopFlag, progress: &mut Progress) -> Result<()> {
    run_keeping_output(command.stdout(Stdio::null()), what, stop, progress)
}

fn run_keeping_output(
    command: &mut Command,
    what: &str,
    stop: &StopFlag,
    progress: &mut Progress,
) -> Result<()> {
    progress(Event::Line(what.to_string()));
    let program = command.get_program().to_string_lossy().into_owned();
    let ran = time(command.stdin(Stdio::null()), CAP, stop, &mut |elapsed| {
        progress(Event::Live(format!("{what}: {} s", elapsed.as_secs())));
    })?;
    match ran.expect(&program, &[0])?.ending {
        crate::process::Ending::Capped => Err(BenchError::Failed {
            program,
            ending: format!("did not end within {} minutes", CAP.as_secs() / 60),
            said: String::new(),
        }),
        _ => Ok(()),
    }
}

/// The last by name of the files `linux-source-*<ending>` in a directory.
fn newest(directory: &Path, ending: &str) -> Option<PathBuf> {
    let names = fs::read_dir(directory).ok()?.flatten();
    names
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(NAME) && name.ends_with(ending)
        })
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_the_package_stands_for() {
        let depends = "linux-source\n  Depends: linux-source-6.1\n";
        assert_eq!(
            named_dependency(depends).as_deref(),
            Some("linux-source-6.1")
        );
        assert_eq!(named_dependency("linux-source\n"), None);
        assert_eq!(named_dependency("x\n  Depends: other\n"), None);
    }

    #[test]
    fn a_tree_in_the_cache_is_used_as_it_is() {
        let cache = tempfile::tempdir().unwrap();
        let tree = SourceTree::generated(
            cache.path(),
            1,
            50,
            &StopFlag::new(),
            &mut crate::progress::silent,
        )
        .unwrap();
        fs::rename(tree.tar, cache.path().join("linux-source-9.9.tar")).unwrap();
        let found = obtain(cache.path(), &StopFlag::new(), &mut crate::progress::silent).unwrap();
        assert_eq!(found.origin, "Debian's linux-source-9.9");
        assert_eq!(found.count.entries(), 50);
    }
}
