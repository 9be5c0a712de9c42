//! How targets come into a directory: all that one format makes, with their key, or nothing (docs/disk.md, "A
//! directory of targets"). They are made aside; one rename says that they are there; moving them to their
//! places is repeated by the next process that takes the directory.

use std::fs::{self, DirBuilder, DirEntry};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use base::{TargetKind, TargetName};

use super::directory::{
    DATABASE, EXTENTS, EXTENTS_BEGUN, OBJECTS, ObjectBytes, RESERVE, Result, SUPERBLOCK,
    UNFINISHED, dir_name, entries, lock_dir, replace_superblock, reserve, sync_dir, target_of,
};
use super::error::TargetError;
use super::key::{KeyKind, TargetKey};
use super::superblock::Superblock;
use crate::disk::FileDisk;
use crate::error::StorageError;
use crate::extents::{self, StoreId};
use crate::fence::{self, FENCE};
use crate::kv::Kv;

/// Where targets are until all of a format are whole.
const ASIDE: &str = "targets.new";
/// Where they are then, until each is at its place.
const MADE: &str = "targets.made";

/// Puts the first records of a target into its new, empty store, durably.
pub type FirstRecords<'a> =
    &'a mut dyn FnMut(TargetName, FileDisk) -> std::result::Result<(), StorageError>;

/// Makes targets in `dir`, which the caller has locked, and installs `keys` for them; all of it appears
/// in one step, or not at all.
pub(super) fn make(
    dir: &Path,
    targets: (&[Superblock], &ObjectBytes),
    keys: &[(KeyKind, TargetKey)],
    first_records: FirstRecords<'_>,
) -> Result<()> {
    clear(dir)?;
    let aside = dir.join(ASIDE);
    if let Err(error) = make_aside(&aside, targets, keys, first_records) {
        // What cannot be removed either is cleared by the next format.
        let _ = remove(&aside);
        return Err(error);
    }
    let io = |error| TargetError::io(&aside, "finish it", &error);
    fs::rename(&aside, dir.join(MADE)).map_err(io)?;
    sync_dir(dir)?;
    settle(dir)
}

fn make_aside(
    aside: &Path,
    (superblocks, bytes): (&[Superblock], &ObjectBytes),
    keys: &[(KeyKind, TargetKey)],
    first_records: FirstRecords<'_>,
) -> Result<()> {
    make_directory(aside)?;
    for (kind, key) in keys {
        key.install(aside, *kind)?;
    }
    for superblock in superblocks {
        let path = aside.join(dir_name(superblock.target));
        make_target(&path, superblock, bytes, first_records)?;
    }
    sync_dir(aside)
}

fn make_directory(path: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|error| TargetError::io(path, "make it", &error))
}

fn make_target(
    path: &Path,
    superblock: &Superblock,
    bytes: &ObjectBytes,
    first_records: FirstRecords<'_>,
) -> Result<()> {
    let target = superblock.target;
    make_directory(path)?;
    match bytes {
        _ if target.kind != TargetKind::Ost => {}
        ObjectBytes::Usual => {
            let file = path.join(EXTENTS);
            let id = StoreId(superblock.target_uuid.0);
            match extents::make_file(&file, id, None) {
                Err(error) if extents::is_unsupported(&error) => {
                    tracing::warn!("{target}: objects will be files: {error}");
                    fs::remove_file(&file).map_err(|e| TargetError::io(&file, "remove it", &e))?;
                    make_directory(&path.join(OBJECTS))?;
                }
                made => made?,
            }
        }
        ObjectBytes::Files => make_directory(&path.join(OBJECTS))?,
        ObjectBytes::Extents { bytes } => {
            let id = StoreId(superblock.target_uuid.0);
            extents::make_file(&path.join(EXTENTS), id, *bytes)?;
        }
        ObjectBytes::Device {
            path: device,
            bytes,
            erases,
        } => {
            let io = |error| TargetError::io(device, "name it", &error);
            let device = std::path::absolute(device).map_err(io)?;
            symlink(&device, path.join(EXTENTS)).map_err(io)?;
            let id = StoreId(superblock.target_uuid.0);
            extents::make_on_device(&device, id, *bytes, *erases)?;
        }
    }
    let database = path.join(DATABASE);
    Kv::create(FileDisk::create(&database)?)?;
    first_records(target, FileDisk::open(&database)?)?;
    replace_superblock(path, superblock)?;
    fence::make(path)?;
    reserve(path, target.kind)?;
    sync_dir(path)
}

/// Moves what a format had made to its place, if that was interrupted. Where another process does it
/// now, that one is named.
pub(super) fn finish(dir: &Path) -> Result<()> {
    if !is_made(dir) {
        return Ok(());
    }
    let _lock = lock_dir(dir)?;
    settle(dir)
}

/// The same for a caller that has locked `dir`.
pub(super) fn settle(dir: &Path) -> Result<()> {
    if !is_made(dir) {
        return Ok(());
    }
    let made = dir.join(MADE);
    for entry in entries(&made)? {
        let path = entry.path();
        let moved = fs::rename(&path, dir.join(entry.file_name()));
        unless_gone(moved, &path, "move it to its place")?;
    }
    sync_dir(dir)?;
    unless_gone(fs::remove_dir(&made), &made, "remove it")?;
    sync_dir(dir)
}

/// Another machine, whose locks are not seen here, may be at the same work.
pub(super) fn unless_gone(
    done: std::io::Result<()>,
    path: &Path,
    action: &'static str,
) -> Result<()> {
    match done {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(TargetError::io(path, action, &error))
        }
        _ => Ok(()),
    }
}

/// Targets are there that were not moved to their place.
fn is_made(dir: &Path) -> bool {
    let made = dir.join(MADE);
    made.is_dir() && is_of_made(&made)
}

fn is_of_made(made: &Path) -> bool {
    entries(made).is_ok_and(|entries| {
        entries
            .iter()
            .all(|entry| match entry.file_name().to_str() {
                Some(name) if KeyKind::of_file(name).is_some() => TargetKey::is_at(&entry.path()),
                name => name.and_then(target_of).is_some() && is_directory(entry),
            })
    })
}

/// What is in `dir` by its name, and what a format has made that is not there yet.
pub(super) fn contents(dir: &Path) -> Result<Vec<DirEntry>> {
    let mut found = entries(dir)?;
    if is_made(dir) {
        found.retain(|entry| entry.file_name() != MADE);
        found.extend(entries(&dir.join(MADE))?);
    }
    Ok(found)
}

/// Where the key of that kind is now, of the targets in `dir`.
pub(super) fn key_path(dir: &Path, kind: KeyKind) -> PathBuf {
    let made = kind.path_in(&dir.join(MADE));
    match is_made(dir) && made.exists() {
        true => made,
        false => kind.path_in(dir),
    }
}

/// Left by a format or an erase that was interrupted, and of no use.
pub(super) fn is_leftover(entry: &DirEntry) -> bool {
    let (name, path) = (entry.file_name(), entry.path());
    let Some(name) = name.to_str().filter(|_| is_directory(entry)) else {
        return false;
    };
    if name == ASIDE {
        return is_of_aside(&path);
    }
    let target = name.strip_suffix(UNFINISHED).and_then(target_of);
    target.is_some() && is_of_target(&path)
}

fn is_of_aside(aside: &Path) -> bool {
    entries(aside).is_ok_and(|entries| {
        entries
            .iter()
            .all(|entry| match entry.file_name().to_str() {
                Some(name)
                    if KeyKind::of_file(name)
                        .or(KeyKind::of_unfinished(name))
                        .is_some() =>
                {
                    TargetKey::is_begun_at(&entry.path())
                }
                name => {
                    let is_targets = name.and_then(target_of).is_some() && is_directory(entry);
                    is_targets && is_of_target(&entry.path())
                }
            })
    })
}

/// Holds nothing but what a target has, whole or not.
fn is_of_target(path: &Path) -> bool {
    let begun = format!("{SUPERBLOCK}{UNFINISHED}");
    let known = [
        SUPERBLOCK,
        &begun,
        DATABASE,
        OBJECTS,
        EXTENTS,
        EXTENTS_BEGUN,
        RESERVE,
        FENCE,
    ];
    entries(path).is_ok_and(|entries| {
        let mut names = entries.iter().map(DirEntry::file_name);
        names.all(|name| known.iter().any(|known| name == *known))
    })
}

fn is_directory(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Removes what was left by a format or an erase.
fn clear(dir: &Path) -> Result<()> {
    for entry in entries(dir)?.iter().filter(|entry| is_leftover(entry)) {
        remove(&entry.path())?;
    }
    Ok(())
}

/// Takes the target at `path` out of sight in one step, then removes it: what an interruption leaves
/// is removed by the next format.
pub(super) fn unmake(dir: &Path, target: TargetName) -> Result<()> {
    let path = dir.join(dir_name(target));
    let doomed = dir.join(format!("{}{UNFINISHED}", dir_name(target)));
    remove(&doomed)?;
    fs::rename(&path, &doomed).map_err(|e| TargetError::io(&path, "remove it", &e))?;
    sync_dir(dir)?;
    remove(&doomed)
}

fn remove(path: &Path) -> Result<()> {
    unless_gone(fs::remove_dir_all(path), path, "remove it")
}
