//! The kernel's requests on a [`Tree`]. Each is answered on the thread that read it, and the kernel may
//! believe every answer for ever: nobody else changes these files.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use base::Timestamp;
use fuse::kernel::{
    Attributes, Delivery, DirEntry, DirectoryBuffer, Entry, Errno, FOREVER, FileSystemStatus,
    Handler, Heard, InitOffer, InitWish, Op, Opened, Replier, Request, SetAttributes, SetTime,
};

use super::tree::{NewFile, Result, Tree};

/// Opened so that pages stay, and so that closing asks nothing.
const OPENED: Opened = Opened {
    handle: 0,
    direct_io: false,
    keep_cache: true,
    cache_dir: true,
    nonseekable: false,
    stream: false,
    no_flush: true,
    parallel_direct_writes: false,
};
/// Said to have, and to have free.
const BLOCKS: u64 = 1 << 30;

/// A file system in memory.
pub struct Floor {
    tree: Mutex<Tree>,
}

impl Floor {
    /// With nothing in it.
    pub fn new() -> Floor {
        Floor {
            tree: Mutex::new(Tree::new(now())),
        }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Timestamp {
        secs: since.as_secs() as i64,
        nanos: since.subsec_nanos(),
    }
}

fn entry(attributes: Attributes) -> Entry {
    Entry {
        nodeid: attributes.ino,
        generation: 0,
        entry_valid: FOREVER,
        attributes_valid: FOREVER,
        attributes,
    }
}

fn new_file<'a>(request: &Request<'_>, mode: u32, target: Option<&'a [u8]>) -> NewFile<'a> {
    NewFile {
        mode,
        owner: (request.uid, request.gid),
        rdev: 0,
        target,
    }
}

impl Handler for Floor {
    fn init(&self, _: &InitOffer) -> InitWish {
        InitWish::default()
    }

    fn handle(&self, request: Request<'_>, replier: Replier) {
        let mut tree = self.tree();
        match request.op {
            Op::Lookup { .. }
            | Op::Symlink { .. }
            | Op::Mknod { .. }
            | Op::Mkdir { .. }
            | Op::Link { .. }
            | Op::Create { .. } => answer_entry(&mut tree, &request, replier),
            Op::Unlink { .. } | Op::Rmdir { .. } | Op::Rename { .. } => {
                deliver(replier, change_names(&mut tree, &request), done);
            }
            Op::Readdir { offset, size, .. } => {
                answer_list(&mut tree, request.nodeid, (offset, size), false, replier);
            }
            Op::Readdirplus { offset, size, .. } => {
                answer_list(&mut tree, request.nodeid, (offset, size), true, replier);
            }
            _ => answer_file(&mut tree, &request, replier),
        }
    }

    fn forget(&self, nodeid: u64, lookups: u64) {
        self.tree().forget(nodeid, lookups);
    }

    fn interrupt(&self, _: u64) -> Heard {
        Heard::Noted
    }

    fn destroy(&self) {}
}

/// What is answered with a name's file.
fn answer_entry(tree: &mut Tree, request: &Request<'_>, replier: Replier) {
    let (dir, now) = (request.nodeid, now());
    let found = match request.op {
        Op::Lookup { name } => tree.look_up(dir, name),
        Op::Symlink { name, target } => {
            let new = new_file(request, 0o120_777, Some(target));
            tree.make(dir, name, &new, now)
        }
        Op::Mknod {
            name, mode, rdev, ..
        } => {
            let new = new_file(request, mode, None);
            tree.make(dir, name, &NewFile { rdev, ..new }, now)
        }
        Op::Mkdir { name, mode, .. } => {
            tree.make(dir, name, &new_file(request, mode | 0o040_000, None), now)
        }
        Op::Link { source, name } => tree.link(source, dir, name, now),
        Op::Create { name, mode, .. } => tree.make(dir, name, &new_file(request, mode, None), now),
        _ => Err(Errno::ENOSYS),
    };
    let is_lookup = matches!(request.op, Op::Lookup { .. });
    let found = match found {
        Err(Errno::ENOENT) if is_lookup => Ok(Entry::negative(FOREVER)),
        found => found.map(entry),
    };
    deliver(replier, found, |replier, found| match request.op {
        Op::Create { .. } => replier.created(&found, &OPENED),
        _ => replier.entry(&found),
    });
}

fn change_names(tree: &mut Tree, request: &Request<'_>) -> Result<()> {
    let (dir, now) = (request.nodeid, now());
    match request.op {
        Op::Unlink { name } => tree.remove(dir, name, false, now),
        Op::Rmdir { name } => tree.remove(dir, name, true, now),
        Op::Rename {
            name,
            new_parent,
            new_name,
            ..
        } => tree.rename((dir, name), (new_parent, new_name), now),
        _ => Err(Errno::ENOSYS),
    }
}

fn answer_list(
    tree: &mut Tree,
    dir: u64,
    (offset, size): (u64, u32),
    with_attributes: bool,
    replier: Replier,
) {
    let mut buffer = DirectoryBuffer::new(size);
    let mut known = Vec::new();
    let Ok(list) = tree.list(dir, offset) else {
        replier.error(Errno::ENOTDIR);
        return;
    };
    for (next, name, attributes) in list {
        let dirent = DirEntry {
            ino: attributes.ino,
            next,
            kind: DirEntry::kind_of(attributes.mode),
            name,
        };
        let fits = match with_attributes {
            true => buffer.push_plus(&dirent, &entry(attributes)),
            false => buffer.push(&dirent),
        };
        if !fits {
            break;
        }
        known.push(attributes.ino);
    }
    if with_attributes {
        for nodeid in known {
            // It was listed under the same lock.
            let _ = tree.remember(nodeid);
        }
    }
    replier.directory(&buffer);
}

/// What is asked of one file.
fn answer_file(tree: &mut Tree, request: &Request<'_>, replier: Replier) {
    let nodeid = request.nodeid;
    let attributes = |replier: Replier, found| replier.attributes(FOREVER, &found);
    match request.op {
        Op::Getattr { .. } => deliver(replier, tree.attributes(nodeid), attributes),
        Op::Setattr(change) => deliver(replier, set_attributes(tree, nodeid, &change), attributes),
        Op::Read { offset, size, .. } => {
            let bytes = tree.read(nodeid, offset..offset + u64::from(size));
            deliver(replier, bytes, Replier::data);
        }
        Op::Write(write) => {
            let written = tree.write(nodeid, write.offset, write.data, now());
            deliver(replier, written, |replier, ()| {
                replier.written(write.data.len() as u64)
            });
        }
        Op::Readlink => deliver(replier, tree.target(nodeid), Replier::data),
        Op::Statfs => deliver(replier, Ok(status()), |replier, status| {
            replier.status(&status)
        }),
        Op::Open { .. } | Op::Opendir { .. } => {
            deliver(replier, Ok(()), |replier, ()| replier.opened(&OPENED));
        }
        Op::Release(_)
        | Op::Releasedir(_)
        | Op::Flush { .. }
        | Op::Fsync { .. }
        | Op::Fsyncdir { .. }
        | Op::Syncfs => deliver(replier, Ok(()), done),
        _ => deliver(replier, Err(Errno::ENOSYS), done),
    }
}

fn done(replier: Replier, (): ()) -> Delivery {
    replier.done()
}

/// Answers with what was found, or with why not. A mount that is gone meanwhile needs no answer.
fn deliver<T>(replier: Replier, found: Result<T>, answer: impl FnOnce(Replier, T) -> Delivery) {
    match found {
        Ok(found) => answer(replier, found),
        Err(errno) => replier.error(errno),
    };
}

fn set_attributes(tree: &mut Tree, nodeid: u64, change: &SetAttributes) -> Result<Attributes> {
    let now = now();
    let time = |wanted, old| match wanted {
        None => old,
        Some(SetTime::Now) => now,
        Some(SetTime::At(time)) => time,
    };
    tree.change(nodeid, now, |attributes| {
        let kind = attributes.mode & 0o170_000;
        let mode = change.mode.unwrap_or(attributes.mode);
        attributes.mode = kind | (mode & 0o7777);
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.atime = time(change.atime, attributes.atime);
        attributes.mtime = time(change.mtime, attributes.mtime);
        if let Some(size) = change.size {
            (attributes.size, attributes.mtime) = (size, now);
        }
    })
}

fn status() -> FileSystemStatus {
    FileSystemStatus {
        blocks: BLOCKS,
        blocks_free: BLOCKS,
        blocks_available: BLOCKS,
        files: BLOCKS,
        files_free: BLOCKS,
        block_size: 4096,
        name_max: 255,
        fragment_size: 4096,
    }
}
