//! A model against a real directory: everything a program can see, the first difference in words.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base::Fid;

use crate::directory::{get_xattr, list, list_xattrs, stat_of};
use crate::namespace::Model;
use crate::node::{Body, Node};
use crate::process::Process;

/// Model times before this were set by a call and must be equal. Others come from a clock, and the
/// real one shows at least this (2020).
const CLOCK_FLOOR: i64 = 1_577_836_800;

/// Compares everything below `root` with all of `model`; the first difference is the error. Names,
/// kinds, modes, owners, link counts, sizes, bytes, link targets, extended attributes, and times of
/// modification that a call has set.
pub fn compare(model: &Model, root: &Path) -> Result<(), String> {
    let below = compare_file(model, Fid::ROOT, root)?;
    let mut open = below;
    while let Some((fid, path)) = open.pop() {
        open.extend(compare_file(model, fid, &path)?);
    }
    Ok(())
}

/// Compares just the file at `path` (and, of a directory, its names) with what `process` sees there.
pub fn compare_path(process: &Process, root: &Path, path: &str) -> Result<(), String> {
    let real = root.join(path);
    match process.find(path) {
        Ok(fid) => compare_file(&process.model, fid, &real).map(|_| ()),
        Err(_) => match fs::symlink_metadata(&real) {
            Ok(_) => Err(format!("{}: is there, but should not be", real.display())),
            Err(_) => Ok(()),
        },
    }
}

type Below = Vec<(Fid, std::path::PathBuf)>;

/// One file; for a directory also what is in it, returned for a visit of its own.
fn compare_file(model: &Model, fid: Fid, path: &Path) -> Result<Below, String> {
    let node = model
        .get(fid)
        .map_err(|error| format!("{}: the model says {error}", path.display()))?;
    let metadata = read(path, fs::symlink_metadata(path))?;
    same(path, "attributes", &node.stat(), &stat_of(&metadata))?;
    compare_mtime(path, node, &metadata)?;
    let names: Vec<_> = node.xattrs.keys().cloned().collect();
    same(path, "xattr names", &names, &read(path, list_xattrs(path))?)?;
    for (name, value) in &node.xattrs {
        let name = String::from_utf8_lossy(name);
        same(path, &name, value, &read(path, get_xattr(path, &name))?)?;
    }
    match &node.body {
        Body::Bytes(bytes) => {
            let real = read(path, fs::read(path))?;
            same_bytes(path, bytes, &real).map(|()| Vec::new())
        }
        Body::Target(target) => {
            let real = read(path, fs::read_link(path))?;
            let real = real.as_os_str().as_encoded_bytes();
            same(path, "target", &target.as_slice(), &real).map(|()| Vec::new())
        }
        Body::Names { .. } => compare_names(model, fid, path),
        Body::Nothing => Ok(Vec::new()),
    }
}

fn compare_names(model: &Model, dir: Fid, path: &Path) -> Result<Below, String> {
    let listed = model.list(dir).map_err(|error| error.to_string())?;
    let expected: Vec<_> = listed
        .iter()
        .map(|(name, _, kind)| (name.as_bytes().to_vec(), *kind))
        .collect();
    let shown = |names: &[(Vec<u8>, _)]| -> Vec<(String, _)> {
        let text = |name: &Vec<u8>| String::from_utf8_lossy(name).into_owned();
        names
            .iter()
            .map(|(name, kind)| (text(name), *kind))
            .collect()
    };
    let real = read(path, list(path))?;
    same(path, "names", &shown(&expected), &shown(&real))?;
    Ok(listed
        .iter()
        .map(|(name, fid, _)| (*fid, path.join(name.to_string())))
        .collect())
}

fn compare_mtime(path: &Path, node: &Node, metadata: &fs::Metadata) -> Result<(), String> {
    let Some(expected) = node.mtime else {
        return Ok(());
    };
    if expected.secs >= CLOCK_FLOOR {
        return match metadata.mtime() >= CLOCK_FLOOR {
            true => Ok(()),
            false => Err(format!(
                "{}: mtime was not updated: {}",
                path.display(),
                metadata.mtime()
            )),
        };
    }
    let expected = (expected.secs, i64::from(expected.nanos));
    same(
        path,
        "mtime",
        &expected,
        &(metadata.mtime(), metadata.mtime_nsec()),
    )
}

fn read<T>(path: &Path, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|error| format!("{}: should be there, but: {error}", path.display()))
}

fn same<T: PartialEq + Debug>(path: &Path, what: &str, model: &T, real: &T) -> Result<(), String> {
    match model == real {
        true => Ok(()),
        false => Err(format!(
            "{}: {what}:\n  model {model:?}\n  real  {real:?}",
            path.display()
        )),
    }
}

fn same_bytes(path: &Path, model: &[u8], real: &[u8]) -> Result<(), String> {
    let differs = model
        .iter()
        .zip(real)
        .position(|(model, real)| model != real);
    match differs {
        None if model.len() == real.len() => Ok(()),
        None => Err(format!(
            "{}: {} bytes in the model, {} read",
            path.display(),
            model.len(),
            real.len()
        )),
        Some(at) => Err(format!(
            "{}: byte {at} is {:#04x} in the model, {:#04x} read",
            path.display(),
            model[at],
            real[at]
        )),
    }
}
