//! Looking at, formatting, opening and erasing a directory of targets.

use std::fs::{self, DirBuilder, DirEntry, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::geteuid;

use base::{BootEpoch, Rng, TargetIndex, TargetKind, TargetName, Timestamp};

use super::error::TargetError;
use super::key::{KeyKind, TargetKey};
use super::lock::{ExclusiveLock, lock_exclusive};
use super::making::{self, FirstRecords};
use super::superblock::{FsName, SUPERBLOCK_BYTES, Superblock, Unreadable, Uuid};
use crate::anchor::Anchor;
use crate::disk::{FileDisk, UnwrittenDisk};
use crate::error::StorageError;
use crate::extents::{self, StoreId};
use crate::fence::{self, Fence, Process};
use crate::kv::{Hole, Kv, KvOptions, TableId, Visit, examine};
use crate::objects::{OPEN_FILES_MAX, ObjectFiles};
use crate::regular;
use crate::room::ReserveFile;

pub(super) type Result<T> = std::result::Result<T, TargetError>;

/// Foreign files are counted up to here.
pub const FOREIGN_MAX: u64 = 100_000;

pub(super) const SUPERBLOCK: &str = "superblock";
pub(super) const DATABASE: &str = "db";
pub(super) const OBJECTS: &str = "objects";
/// The file with the extents of objects, in place of that.
pub(super) const EXTENTS: &str = "extents";
pub(super) const RESERVE: &str = "reserve";
/// The same until the target's objects begin to move there from files.
pub(super) const EXTENTS_BEGUN: &str = "extents.new";
/// What a directory or file is called until it is whole.
pub(super) const UNFINISHED: &str = ".new";

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Nothing, or it does not exist.
    Empty,
    /// No target, but files of someone else.
    NotOurs {
        /// How many, up to `FOREIGN_MAX`.
        files: u64,
    },
    /// Targets of one file system.
    Targets {
        /// Each target's superblock, by name.
        superblocks: Vec<Superblock>,
        /// How many files beside them are not ours.
        foreign: u64,
    },
    /// A superblock is missing, or is not what was written.
    Damaged {
        /// The superblock's file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another version of the program formatted it.
    ForeignVersion {
        /// The superblock's file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

/// What to format.
#[derive(Debug, Clone)]
pub struct FormatRequest {
    /// The file system's name.
    pub fs_name: FsName,
    /// The file system to join; `None`: the one the directory's targets belong to, else a new one.
    pub fs_uuid: Option<Uuid>,
    /// The key of the file system to join; `None`: the one the directory has, else a new one.
    pub key: Option<TargetKey>,
    /// The same of the key of its servers.
    pub server_key: Option<TargetKey>,
    /// The targets to make.
    pub targets: Vec<TargetName>,
    /// The time now.
    pub created: Timestamp,
    /// What is to hold the bytes of objects.
    pub bytes: ObjectBytes,
}

/// What holds the bytes of an OST's objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ObjectBytes {
    /// Extents of one file that has the space of its file system; files where that can take no space for it,
    /// or where no file can be so long.
    #[default]
    Usual,
    /// A file each.
    Files,
    /// Extents of one file.
    Extents {
        /// So long; `None`: as long as there is space.
        bytes: Option<u64>,
    },
    /// Extents of a block device.
    Device {
        /// Where it is.
        path: PathBuf,
        /// So many bytes of it; `None`: all.
        bytes: Option<u64>,
        /// What it holds is lost; else one that holds something is refused.
        erases: bool,
    },
}

/// Every target of a directory, held for this process alone.
#[derive(Debug)]
pub struct TargetDir {
    path: PathBuf,
    key: TargetKey,
    server_key: Option<TargetKey>,
    targets: Vec<Target>,
}

/// One target, held for this process alone until dropped.
#[derive(Debug)]
pub struct Target {
    pub(super) path: PathBuf,
    pub(super) superblock: Superblock,
    /// None where its file system is read-only, and it is only looked at: nobody here can serve it.
    fence: Option<Arc<Fence>>,
    /// None where machines do not see each other's: the fence is all there is.
    lock: Option<ExclusiveLock>,
}

/// The directory of a target inside its DIR: `mgs`, `mdt0`, `ost12`.
pub fn dir_name(target: TargetName) -> String {
    target.to_string().to_lowercase()
}

/// The target whose directory is called `name`.
pub(super) fn target_of(name: &str) -> Option<TargetName> {
    let digits = name.find(|c: char| c.is_ascii_digit());
    let (kind, index) = name.split_at(digits.unwrap_or(name.len()));
    let kind = match kind {
        "mgs" => TargetKind::Mgs,
        "mdt" => TargetKind::Mdt,
        "ost" => TargetKind::Ost,
        _ => return None,
    };
    let index = match (kind, index) {
        (TargetKind::Mgs, "") => 0,
        (_, index) => index.parse().ok()?,
    };
    let target = TargetName {
        kind,
        index: TargetIndex(index),
    };
    // One spelling each: `ost01` is not ours.
    (dir_name(target) == name).then_some(target)
}

pub(super) fn sync_dir(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|dir| dir.sync_all());
    synced.map_err(|e| TargetError::io(path, "sync it", &e))
}

pub(super) fn entries(dir: &Path) -> Result<Vec<DirEntry>> {
    let entries = fs::read_dir(dir).and_then(Iterator::collect);
    entries.map_err(|e| TargetError::io(dir, "list it", &e))
}

/// Counts what is at `entry` and below, following no symlink, until `count` reaches its bound.
fn count_files(entry: &DirEntry, count: &mut u64) {
    *count += 1;
    let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
    if !is_dir || *count >= FOREIGN_MAX {
        return;
    }
    // What cannot be listed counts as one.
    for inner in entries(&entry.path()).unwrap_or_default() {
        count_files(&inner, count);
        if *count >= FOREIGN_MAX {
            return;
        }
    }
}

/// What one entry of a directory is to us.
enum Found {
    /// Ours, but no target: the key, or what an interrupted format or erase left behind.
    Ours,
    Target(Superblock),
    Damaged(String),
    ForeignVersion(u32),
    /// What it is may not be seen.
    Denied(std::io::Error),
    Foreign,
}

fn classify(entry: &DirEntry) -> Found {
    let name = entry.file_name();
    let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
    match name.to_str() {
        Some("lost+found") if is_dir => Found::Ours,
        // Also one whose mode is wrong: loading it says so.
        Some(name)
            if KeyKind::of_file(name).is_some() && !is_dir && TargetKey::is_at(&entry.path()) =>
        {
            Found::Ours
        }
        Some(_) if making::is_leftover(entry) => Found::Ours,
        Some(name) if is_dir => {
            target_of(name).map_or(Found::Foreign, |t| classify_target(&entry.path(), t))
        }
        _ => Found::Foreign,
    }
}

fn classify_target(path: &Path, target: TargetName) -> Found {
    if let Err(error) = regular::open(&path.join(SUPERBLOCK), OpenOptions::new().read(true))
        && error.kind() == ErrorKind::PermissionDenied
    {
        return Found::Denied(error);
    }
    match read_superblock(path) {
        Ok(superblock) if superblock.target == target => Found::Target(superblock),
        Ok(superblock) => Found::Damaged(format!("it is the superblock of {}", superblock.target)),
        Err(Some(Unreadable::ForeignVersion(found))) => Found::ForeignVersion(found),
        Err(Some(Unreadable::Damaged(why))) => Found::Damaged(why),
        Err(None) if path.join(DATABASE).exists() => Found::Damaged("it is missing".to_owned()),
        Err(None) => Found::Foreign,
    }
}

/// The superblock of the target at `path`; the error is `None` where there is none.
fn read_superblock(path: &Path) -> std::result::Result<Superblock, Option<Unreadable>> {
    // One byte more than a superblock has, so that a longer file is noticed.
    match regular::read(&path.join(SUPERBLOCK), SUPERBLOCK_BYTES + 1) {
        Ok(bytes) => Superblock::decode(&bytes).map_err(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(None),
        Err(error) => Err(Some(Unreadable::Damaged(error.to_string()))),
    }
}

/// Writes the superblock of the target at `path`, durably. On a full disk in its place: it is one
/// sector, which a disk writes whole or not at all.
pub(super) fn rewrite_superblock(path: &Path, superblock: &Superblock) -> Result<()> {
    let replaced = replace_superblock(path, superblock);
    let Err(TargetError::Storage(StorageError::NoSpace { .. })) = replaced else {
        return replaced;
    };
    let file = path.join(SUPERBLOCK);
    let io = |error| TargetError::io(&file, "write it in place", &error);
    let mut old = regular::open(&file, OpenOptions::new().write(true)).map_err(io)?;
    old.write_all(&superblock.encode()).map_err(io)?;
    old.sync_data().map_err(io)
}

/// Replaces the superblock of the target at `path`, durably, in one step.
pub(super) fn replace_superblock(path: &Path, superblock: &Superblock) -> Result<()> {
    let file = path.join(SUPERBLOCK);
    let unfinished = path.join(format!("{SUPERBLOCK}{UNFINISHED}"));
    let io = |error| StorageError::from_io(file.display(), "write it", &error);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut new = regular::open(&unfinished, &mut options).map_err(io)?;
    new.write_all(&superblock.encode()).map_err(io)?;
    new.sync_all().map_err(io)?;
    fs::rename(&unfinished, &file).map_err(io)?;
    sync_dir(path)
}

pub(super) fn lock_dir(path: &Path) -> Result<ExclusiveLock> {
    let dir = File::open(path).map_err(|e| TargetError::io(path, "open it", &e))?;
    Ok(lock_exclusive(&dir, path)?)
}

impl TargetDir {
    /// What `dir` holds. Changes nothing.
    pub fn inspect(dir: &Path) -> Result<State> {
        match fs::metadata(dir) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => {
                let path = dir.to_owned();
                return Err(TargetError::NotADirectory { path });
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(State::Empty),
            Err(error) => return Err(TargetError::io(dir, "stat it", &error)),
        }
        let mut superblocks: Vec<Superblock> = Vec::new();
        let mut foreign = 0;
        let mut broken = None;
        for entry in making::contents(dir)? {
            let path = entry.path().join(SUPERBLOCK);
            match classify(&entry) {
                Found::Ours => {}
                Found::Foreign => count_files(&entry, &mut foreign),
                Found::Target(superblock) => superblocks.push(superblock),
                Found::Denied(error) => return Err(TargetError::io(&path, "read it", &error)),
                Found::Damaged(why) => broken = Some(State::Damaged { path, why }),
                Found::ForeignVersion(found) => {
                    broken = Some(State::ForeignVersion { path, found });
                }
            }
        }
        if let Some(broken) = broken {
            return Ok(broken);
        }
        superblocks.sort_by_key(|superblock| superblock.target);
        Ok(summarise(dir, superblocks, foreign))
    }

    /// The superblocks in `dir`, none where it is empty; an error where it may not be touched.
    fn existing(dir: &Path) -> Result<(Vec<Superblock>, u64)> {
        if let Ok(superblock) = read_superblock(dir) {
            let (dir, target) = (dir.to_owned(), superblock.target);
            return Err(TargetError::IsTarget { dir, target });
        }
        match TargetDir::inspect(dir)? {
            State::Empty => Ok((Vec::new(), 0)),
            State::Targets {
                superblocks,
                foreign,
            } => Ok((superblocks, foreign)),
            State::NotOurs { files } => {
                let dir = dir.to_owned();
                Err(TargetError::NotOurs { dir, files })
            }
            State::Damaged { path, why } => Err(TargetError::Damaged { path, why }),
            State::ForeignVersion { path, found } => {
                Err(TargetError::ForeignVersion { path, found })
            }
        }
    }

    /// Makes the targets that `request` names in `dir`, which is created where it is missing.
    /// Refuses a directory that holds anything else, and a target that is there. All of them appear,
    /// whole, or none.
    pub fn format(
        dir: &Path,
        request: &FormatRequest,
        first_records: FirstRecords<'_>,
        rng: &mut dyn Rng,
    ) -> Result<Vec<Superblock>> {
        TargetDir::check_format(dir, request)?;
        let io = |error| TargetError::io(dir, "make it", &error);
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(io)?;
        let _lock = lock_dir(dir)?;
        making::settle(dir)?;
        // Again, now that nobody else formats it.
        let existing = TargetDir::check_format(dir, request)?;
        let keys = keys_for(dir, request)?;
        let known = existing.first().map(|superblock| superblock.fs_uuid);
        let fs_uuid = request.fs_uuid.or(known);
        let fs_uuid = fs_uuid.unwrap_or_else(|| Uuid::random(rng));
        let superblock = |&target: &TargetName| Superblock {
            fs_name: request.fs_name.clone(),
            fs_uuid,
            target,
            target_uuid: Uuid::random(rng),
            created: request.created,
            boot_epoch: BootEpoch(0),
            is_upgrading: false,
        };
        let made: Vec<_> = request.targets.iter().map(superblock).collect();
        making::make(dir, (&made, &request.bytes), &keys, first_records)?;
        Ok(made)
    }

    /// The file system that the targets in `dir` belong to, its key, and that of its servers: what a
    /// target needs to join it.
    pub fn file_system(dir: &Path) -> Result<(Uuid, TargetKey, TargetKey)> {
        let (superblocks, _) = TargetDir::existing(dir)?;
        let Some(first) = superblocks.first() else {
            let dir = dir.to_owned();
            return Err(TargetError::NoTarget { dir });
        };
        let load = |kind| TargetKey::load(&making::key_path(dir, kind));
        let server_key = load(KeyKind::Server).map_err(|error| match error {
            TargetError::KeyMissing { path } => TargetError::ServerKeyMissing { path },
            other => other,
        });
        Ok((first.fs_uuid, load(KeyKind::Client)?, server_key?))
    }

    /// What is in `dir`, if `request` may be carried out there.
    fn check_format(dir: &Path, request: &FormatRequest) -> Result<Vec<Superblock>> {
        let (existing, foreign) = TargetDir::existing(dir)?;
        if foreign > 0 {
            let (dir, files) = (dir.to_owned(), foreign);
            return Err(TargetError::NotOurs { dir, files });
        }
        refuse_twice(&request.targets)?;
        let is_there = |target: &TargetName| existing.iter().any(|known| known.target == *target);
        let mut targets = request.targets.clone();
        targets.retain(is_there);
        if !targets.is_empty() {
            let dir = dir.to_owned();
            return Err(TargetError::Exists { dir, targets });
        }
        let other = existing.iter().find(|known| {
            known.fs_name != request.fs_name
                || request.fs_uuid.is_some_and(|uuid| uuid != known.fs_uuid)
        });
        match other {
            None => Ok(existing),
            Some(other) => Err(TargetError::OtherFileSystem {
                dir: dir.to_owned(),
                found: other.fs_name.clone(),
            }),
        }
    }

    /// The disk of the extents of `target` in `dir`, to look at while another process may serve it. Changes
    /// nothing.
    pub fn extents_to_look_at(dir: &Path, target: TargetName) -> Result<FileDisk> {
        let (superblocks, _) = TargetDir::existing(dir)?;
        let superblock = superblocks.iter().find(|known| known.target == target);
        let Some(superblock) = superblock else {
            let dir = dir.to_owned();
            return Err(TargetError::NotThere { dir, target });
        };
        let file = dir.join(dir_name(target)).join(EXTENTS);
        if file.symlink_metadata().is_err() {
            return Err(TargetError::NoExtents { path: file });
        }
        let disk = FileDisk::open_to_look_at(&file).map_err(or_missing)?;
        check_extents(&disk, superblock)?;
        Ok(disk)
    }

    /// Takes every target in `dir` for this process, and counts a start of each durably.
    pub fn open(dir: &Path) -> Result<TargetDir> {
        TargetDir::open_as(dir, &this_process(dir)?)
    }

    /// The same for `process`. It waits for some seconds where another machine served a target last.
    pub fn open_as(dir: &Path, process: &Process) -> Result<TargetDir> {
        TargetDir::open_checked(dir, process, Access::Change, is_whole(dir))
    }

    /// The same for this process, to look at the targets: also where their file system is read-only, on
    /// which no start is counted.
    pub fn open_to_look_at(dir: &Path) -> Result<TargetDir> {
        match is_read_only(dir) {
            false => TargetDir::open(dir),
            true => TargetDir::open_checked(dir, &this_process(dir)?, Access::Look, is_whole(dir)),
        }
    }

    /// The same for this process, to upgrade the targets: also those of which an upgrade was interrupted.
    pub fn open_to_upgrade(dir: &Path) -> Result<TargetDir> {
        TargetDir::open_checked(dir, &this_process(dir)?, Access::Change, |_| Ok(()))
    }

    fn open_checked(
        dir: &Path,
        process: &Process,
        access: Access,
        check: impl Fn(&Superblock) -> Result<()>,
    ) -> Result<TargetDir> {
        fs::metadata(dir).map_err(|error| match error.kind() {
            ErrorKind::NotFound => TargetError::NoDirectory {
                dir: dir.to_owned(),
            },
            _ => TargetError::io(dir, "open it", &error),
        })?;
        must_be_ours(dir)?;
        making::finish(dir)?;
        let (superblocks, _) = TargetDir::existing(dir)?;
        if superblocks.is_empty() {
            return Err(TargetError::NoTarget {
                dir: dir.to_owned(),
            });
        }
        superblocks.iter().try_for_each(check)?;
        let key = TargetKey::load(&KeyKind::Client.path_in(dir))?;
        let server_key = match TargetKey::load(&KeyKind::Server.path_in(dir)) {
            Err(TargetError::KeyMissing { .. }) => None,
            found => Some(found?),
        };
        let locked = superblocks.into_iter().map(|superblock| {
            let path = dir.join(dir_name(superblock.target));
            must_be_ours(&path)?;
            let lock = hold(&path, process)?;
            Ok((path, lock))
        });
        // All of them before the first is touched.
        let locked: Vec<_> = locked.collect::<Result<_>>()?;
        let paths: Vec<&Path> = locked.iter().map(|(path, _)| path.as_path()).collect();
        let fences: Vec<Option<Arc<Fence>>> = match access {
            Access::Change => {
                let fences = fence::take_all(&paths, process)?;
                fences.into_iter().map(Some).collect()
            }
            Access::Look => paths.iter().map(|_| None).collect(),
        };
        let targets = locked.into_iter().zip(fences);
        let targets = targets.map(|((path, lock), fence)| start(path, fence, lock));
        Ok(TargetDir {
            path: dir.to_owned(),
            key,
            server_key,
            targets: targets.collect::<Result<_>>()?,
        })
    }

    /// The key that peers of these targets prove.
    pub fn key(&self) -> &TargetKey {
        &self.key
    }

    /// The key that servers prove to each other. None: it was formatted before there was one.
    pub fn server_key(&self) -> Option<&TargetKey> {
        self.server_key.as_ref()
    }

    /// Gives a directory that has no key of the servers this one, or a new one, durably.
    pub fn add_server_key(&mut self, key: Option<&TargetKey>) -> Result<TargetKey> {
        let key = match key {
            Some(key) => key.clone(),
            None => TargetKey::random(&self.path)?,
        };
        key.install(&self.path, KeyKind::Server)?;
        self.server_key = Some(key.clone());
        Ok(key)
    }

    /// Its targets, by name.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Its targets, for the caller to run.
    pub fn into_targets(self) -> Vec<Target> {
        self.targets
    }

    /// Removes these targets and all they hold. Only where all are there, their superblocks say that
    /// they are those, and nobody serves one.
    pub fn erase(dir: &Path, targets: &[TargetName]) -> Result<()> {
        refuse_twice(targets)?;
        must_be_ours(dir)?;
        making::finish(dir)?;
        let path = |target: TargetName| dir.join(dir_name(target));
        let is_there = |target| read_superblock(&path(target)).is_ok_and(|s| s.target == target);
        if let Some(&target) = targets.iter().find(|target| !is_there(**target)) {
            let dir = dir.to_owned();
            return Err(TargetError::Unknown { dir, target });
        }
        let process = this_process(dir)?;
        let _dir_lock = lock_dir(dir)?;
        let paths: Vec<PathBuf> = targets.iter().copied().map(path).collect();
        paths.iter().try_for_each(|path| must_be_ours(path))?;
        let locks = paths.iter().map(|path| lock_dir(path));
        let _locks: Vec<ExclusiveLock> = locks.collect::<Result<_>>()?;
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        drop(fence::take_all(&paths, &process)?);
        targets
            .iter()
            .try_for_each(|target| making::unmake(dir, *target))
    }
}

/// The keys to install with new targets in `dir`. A directory with a key and none of the servers is of
/// before there was one: it gets it when it is served.
fn keys_for(dir: &Path, request: &FormatRequest) -> Result<Vec<(KeyKind, TargetKey)>> {
    let is_new = request.key.is_none() && !KeyKind::Client.path_in(dir).exists();
    let mut keys = Vec::new();
    for (kind, wished) in [
        (KeyKind::Client, &request.key),
        (KeyKind::Server, &request.server_key),
    ] {
        match wished {
            Some(key) => keys.push((kind, key.clone())),
            None if is_new => keys.push((kind, TargetKey::random(dir)?)),
            None => {}
        }
    }
    Ok(keys)
}

fn refuse_twice(targets: &[TargetName]) -> Result<()> {
    let mut rest = targets.iter().enumerate();
    match rest.find(|(index, target)| targets[..*index].contains(target)) {
        Some((_, &target)) => Err(TargetError::Twice { target }),
        None => Ok(()),
    }
}

fn summarise(dir: &Path, superblocks: Vec<Superblock>, foreign: u64) -> State {
    let Some(first) = superblocks.first() else {
        return match foreign {
            0 => State::Empty,
            files => State::NotOurs { files },
        };
    };
    let stray = superblocks.iter().find(|s| s.fs_uuid != first.fs_uuid);
    match stray {
        Some(stray) => State::Damaged {
            path: dir.join(dir_name(stray.target)).join(SUPERBLOCK),
            why: format!("it is of another file system than {}", first.target),
        },
        None => State::Targets {
            superblocks,
            foreign,
        },
    }
}

/// The space set aside in the directory of a target at `path`, made where it is missing.
pub(super) fn reserve(path: &Path, kind: TargetKind) -> crate::Result<ReserveFile> {
    let bytes_max = match kind {
        TargetKind::Mgs => 1 << 20,
        TargetKind::Mdt | TargetKind::Ost => 32 << 20,
    };
    let dir = Anchor::open(path)
        .map_err(|error| StorageError::from_io(path.display(), "open it", &error))?;
    Ok(ReserveFile::open(dir, RESERVE, bytes_max))
}

/// Keeps others of this machine from the target at `path`.
fn hold(path: &Path, process: &Process) -> Result<Option<ExclusiveLock>> {
    match process.is_apart() {
        true => Ok(None),
        false => lock_dir(path).map(Some),
    }
}

fn this_process(dir: &Path) -> Result<Process> {
    Process::this()
        .map_err(|error| TargetError::io(dir, "identify the process that serves", &error))
}

/// Refuses a directory of another user than root. Links in it could lead what is written there to any file
/// that this process may write.
fn must_be_ours(dir: &Path) -> Result<()> {
    let found = fs::metadata(dir).map_err(|error| TargetError::io(dir, "stat it", &error))?;
    match [0, geteuid().as_raw()].contains(&found.uid()) {
        true => Ok(()),
        false => Err(TargetError::Others {
            dir: dir.to_owned(),
            owner: found.uid(),
        }),
    }
}

/// What a process does with the targets that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Change,
    /// Nothing is written.
    Look,
}

/// Refuses a target in `dir` whose upgrade was interrupted.
fn is_whole(dir: &Path) -> impl Fn(&Superblock) -> Result<()> {
    move |superblock| match superblock.is_upgrading {
        false => Ok(()),
        true => Err(TargetError::Upgrading {
            dir: dir.to_owned(),
            target: superblock.target,
        }),
    }
}

/// Nothing can be written to the file system of `dir`.
fn is_read_only(dir: &Path) -> bool {
    let found = statvfs(dir);
    found.is_ok_and(|found| found.flags().contains(FsFlags::ST_RDONLY))
}

/// With a fence it counts as a start.
fn start(path: PathBuf, fence: Option<Arc<Fence>>, lock: Option<ExclusiveLock>) -> Result<Target> {
    // Read under the fence: who held it before may have counted its start since.
    let mut superblock = read_superblock(&path).map_err(|_| TargetError::Damaged {
        path: path.join(SUPERBLOCK),
        why: "it changed while it was being opened".to_owned(),
    })?;
    if fence.is_some() {
        superblock.boot_epoch.0 += 1;
        rewrite_superblock(&path, &superblock)?;
    }
    Ok(Target {
        path,
        superblock,
        fence,
        lock,
    })
}

impl Target {
    /// What it is, this start counted if it was not opened to look at.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What keeps other processes from it, on other machines too. None: it is only looked at.
    pub fn fence(&self) -> Option<&Arc<Fence>> {
        self.fence.as_ref()
    }

    /// The store of its records, which falls back on the space set aside for them.
    pub fn kv(
        &self,
        tables: &[(TableId, &str)],
        mut options: KvOptions,
    ) -> std::result::Result<Kv, StorageError> {
        options.room = Some(Arc::new(reserve(&self.path, self.superblock.target.kind)?));
        Kv::open(self.disk()?, tables, options)
    }

    /// The same store to look at: nothing is written, and what is committed goes with it.
    pub fn kv_to_look_at(
        &self,
        tables: &[(TableId, &str)],
        options: KvOptions,
    ) -> std::result::Result<Kv, StorageError> {
        Kv::open(UnwrittenDisk::new(self.disk()?)?, tables, options)
    }

    /// Visits each row of `tables` that can be read, though others cannot; says which part of
    /// which table could not be. For a store that is not open, and writes nothing.
    pub fn examine(
        &self,
        tables: &[(TableId, &str)],
        options: &KvOptions,
        visit: &mut Visit<'_>,
    ) -> std::result::Result<Vec<Hole>, StorageError> {
        examine(|| UnwrittenDisk::new(self.disk()?), tables, options, visit)
    }

    fn disk(&self) -> std::result::Result<FileDisk, StorageError> {
        self.part(DATABASE)
    }

    /// The disk of a part of it, which can be written if the target can.
    fn part(&self, name: &str) -> std::result::Result<FileDisk, StorageError> {
        let (path, locked) = (self.path.join(name), self.lock.is_some());
        let opened = match &self.fence {
            Some(fence) => FileDisk::open_fenced(path, fence.clone(), locked),
            None => FileDisk::open_to_look_at(path),
        };
        opened.map_err(or_missing)
    }

    /// The bytes of its objects are on extents, not in files.
    pub fn has_extents(&self) -> bool {
        // A device that is not there now is still this target's.
        self.path.join(EXTENTS).symlink_metadata().is_ok()
    }

    /// The disk of these extents.
    pub fn extents(&self) -> std::result::Result<FileDisk, StorageError> {
        let disk = self.part(EXTENTS)?;
        check_extents(&disk, &self.superblock)?;
        Ok(disk)
    }

    /// The same disk to look at: nothing is written.
    pub fn extents_to_look_at(&self) -> std::result::Result<UnwrittenDisk<FileDisk>, StorageError> {
        UnwrittenDisk::new(self.extents()?)
    }

    /// The bytes of its objects, for an object storage target with files.
    pub fn objects(&self) -> std::result::Result<ObjectFiles, StorageError> {
        self.objects_keeping(OPEN_FILES_MAX)
    }

    /// The same with about `files` of them kept open.
    pub fn objects_keeping(&self, files: usize) -> std::result::Result<ObjectFiles, StorageError> {
        let dir = self.path.join(OBJECTS);
        let opened = ObjectFiles::open_fenced(dir, self.fence.clone(), files);
        opened.map_err(|error| self.or_neither(or_missing(error)))
    }

    /// Which of the two stores is missing is not known where neither is there.
    fn or_neither(&self, error: StorageError) -> StorageError {
        match error {
            StorageError::Io {
                at,
                action,
                kind: kind @ ErrorKind::NotFound,
                reason,
            } => StorageError::Io {
                at: format!("{at} or {}", self.path.join(EXTENTS).display()),
                action,
                kind,
                reason,
            },
            other => other,
        }
    }
}

/// Refuses the extents of another target, as where the name of a device leads to another one now.
fn check_extents(
    disk: &FileDisk,
    superblock: &Superblock,
) -> std::result::Result<(), StorageError> {
    let id = StoreId(superblock.target_uuid.0);
    extents::check_owner(disk, &disk.path().display().to_string(), id)
}

/// A part of a target that is not there is never made anew: it held all there is.
fn or_missing(error: StorageError) -> StorageError {
    match error {
        StorageError::Io {
            at,
            action,
            kind: kind @ ErrorKind::NotFound,
            ..
        } => StorageError::Io {
            at,
            action,
            kind,
            reason: "it is missing; put it back, or restore the whole target from a copy"
                .to_owned(),
        },
        other => other,
    }
}
