//! Each kind of request, as the call it stands for.

use base::{ByteRange, Fid, FsError};
use client::{
    CAPABILITY, Changed, Client, Entry, HandleId, NewNode, Place, Reached, ReadTo, Stat, Unheard,
    WriteWish,
};
use wire::FileKind;
use wire::mdt::{Caller, RenameMode, SetAttr, XattrMode};
use wire::ost::AllocateMode;

use super::caller::{self, Process};
use super::nodes;
use super::retries::Question;
use super::shape::{change_of, kind_of, name, open_wish};
use super::{Asked, advice, listing, renames};
use crate::kernel::request::{self, FallocateMode, ReleaseRequest, Whence, WriteRequest};
use crate::kernel::{
    Errno, FileSystemStatus, Op, OpenFlags, Opened, Replier, Request, SetAttributes,
};

/// Unit of space in STATFS, in bytes.
const FRAGMENT_BYTES: u64 = 4096;

/// Hands the request to its call.
pub(super) fn dispatch(asked: Asked, request: &Request<'_>) {
    let Some(fid) = asked.file(request.nodeid) else {
        return asked.error(FsError::Stale);
    };
    let caller = Caller {
        uid: request.uid,
        gid: request.gid,
    };
    let place = |bytes: &[u8]| {
        Ok(Place {
            dir: fid,
            name: name(bytes)?,
            caller,
        })
    };
    match request.op {
        Op::Lookup { name } => lookup(asked, fid, name),
        Op::Getattr { handle } => getattr(asked, fid, reached(handle)),
        Op::Statx { handle, .. } => statx(asked, fid, reached(handle)),
        Op::Setattr(set) => setattr(asked, fid, (caller, process(request)), set),
        Op::Readlink => readlink(asked, fid),
        Op::Symlink { name, target } => {
            let new = NewNode {
                kind: FileKind::Symlink,
                mode: 0o777,
                rdev: 0,
                target: target.to_vec(),
            };
            make(asked, place(name), Ok(new));
        }
        Op::Mknod {
            name, mode, rdev, ..
        } => make(asked, place(name), node(mode, rdev)),
        Op::Mkdir { name, mode, .. } => make(asked, place(name), node(0o040000 | mode, 0)),
        Op::Unlink { name } => unlink(asked, place(name), false),
        Op::Rmdir { name } => unlink(asked, place(name), true),
        Op::Rename {
            name,
            new_parent,
            new_name,
            mode,
        } => {
            rename(asked, place(name), new_parent, new_name, mode);
        }
        Op::Link { source, name } => link(asked, source, fid, name),
        Op::Create {
            name,
            mode,
            flags,
            kill_suid_gid,
            ..
        } => {
            let process = process(request).asked_to_drop(kill_suid_gid);
            create(asked, place(name), mode, (flags, process));
        }
        Op::Tmpfile { mode, flags, .. } => create_nameless(asked, (fid, caller), mode, flags),
        _ => dispatch_open(asked, fid, request),
    }
}

fn process(request: &Request<'_>) -> Process {
    Process::new(request.pid, request.uid, request.gid)
}

/// Requests on open files and directories.
fn dispatch_open(asked: Asked, fid: Fid, request: &Request<'_>) {
    match request.op {
        Op::Open { flags, .. } => open(asked, fid, flags),
        Op::Read {
            handle,
            offset,
            size,
            lock_owner,
            ..
        } => {
            // The kernel names an owner of locks where a caller reads past its pages, and only there.
            let to = match lock_owner {
                Some(_) => ReadTo::Caller,
                None => ReadTo::KernelPages,
            };
            read(asked, HandleId(handle), (offset, size), to);
        }
        Op::Write(write_in) => write(asked, fid, process(request), write_in),
        Op::Flush { handle, .. } => flush(asked, HandleId(handle)),
        Op::Release(ReleaseRequest { handle, .. }) => {
            asked.client().release(HandleId(handle));
            asked.done(Ok(()));
        }
        Op::Fsync { handle, .. } => fsync(asked, HandleId(handle)),
        Op::Fsyncdir { .. } => fsyncdir(asked, fid),
        Op::Opendir { .. } => listing::opendir(asked, fid),
        Op::Readdir {
            handle,
            offset,
            size,
        } => {
            listing::readdir(asked, fid, HandleId(handle), offset, size, false);
        }
        Op::Readdirplus {
            handle,
            offset,
            size,
        } => {
            listing::readdir(asked, fid, HandleId(handle), offset, size, true);
        }
        Op::Releasedir(ReleaseRequest { handle, .. }) => {
            asked.client().releasedir(HandleId(handle));
            asked.done(Ok(()));
        }
        Op::Fallocate {
            offset,
            length,
            mode,
            ..
        } => {
            fallocate(
                asked,
                (fid, process(request)),
                ByteRange::at(offset, length),
                mode,
            );
        }
        Op::Lseek { offset, whence, .. } => lseek(asked, fid, offset, whence),
        _ => dispatch_rest(asked, fid, request),
    }
}

fn dispatch_rest(asked: Asked, fid: Fid, request: &Request<'_>) {
    match request.op {
        Op::Getxattr { name, size } => getxattr(asked, fid, name, size),
        Op::Listxattr { size } => listxattr(asked, (fid, process(request)), size),
        Op::Setxattr {
            name, value, mode, ..
        } => setxattr(asked, fid, name, value, mode),
        Op::Removexattr { name } => removexattr(asked, (fid, process(request)), name),
        Op::Statfs => statfs(asked),
        Op::Syncfs => sync(asked),
        // The kernel has checked already (default_permissions).
        Op::Access { .. } => asked.done(Ok(())),
        Op::Ioctl(ioctl) => advice::ioctl(asked, ioctl),
        // The kernel copies by reading and writing instead, keeps locks itself, and so on.
        _ => {
            if let Some(replier) = asked.replier() {
                replier.error(Errno::ENOSYS);
            }
        }
    }
}

fn node(mode: u32, rdev: u32) -> Result<NewNode, FsError> {
    let kind = kind_of(mode)?;
    Ok(NewNode {
        kind,
        mode: (mode & 0o7777) as u16,
        rdev,
        target: Vec::new(),
    })
}

fn lookup(asked: Asked, dir: Fid, bytes: &[u8]) {
    let (client, answer) = (asked.client(), asked.clone());
    match bytes {
        b"." => asked.run(async move { answer.found_unnamed(dir, client.lookup_self(dir).await) }),
        b".." => {
            asked.run(async move { answer.found_unnamed(dir, client.lookup_parent(dir).await) })
        }
        _ => {
            let name = match name(bytes) {
                Ok(name) => name,
                Err(failure) => return asked.error(failure),
            };
            let second = asked.context.retries.is_second(asked.thread);
            asked.run(async move {
                let found = match second {
                    true => client.lookup_pinned(dir, &name).await,
                    false => client.lookup(dir, &name).await,
                };
                renames::answer(&answer, (dir, &name), found).await;
            });
        }
    }
}

/// By an open file, where the kernel says so.
fn reached(handle: Option<u64>) -> Reached {
    match handle {
        Some(_) => Reached::Rightly,
        None => Reached::Stat,
    }
}

/// By a path or a descriptor: the kernel does not tell. It holds the file, and a call by path may have waited
/// for that since it looked the path up.
fn reached_held(asked: &Asked, fid: Fid) -> Reached {
    let is_first = !asked.context.retries.has_looked_up(asked.thread);
    let may_be_astray = is_first && asked.client().has_lost_names(fid);
    match may_be_astray && caller::changes_by_path(asked.thread) {
        true => Reached::HeldFirst,
        false => Reached::Perhaps,
    }
}

fn getattr(asked: Asked, fid: Fid, reached: Reached) {
    let (client, answer) = (asked.client(), asked.clone());
    let asks = (reached, Question::Attributes);
    asked.run_in_attempt(fid, asks, move |attempt| async move {
        let stat = match client.getattr(fid).await {
            // The servers do not hear of a descriptor with O_PATH.
            Err(FsError::Stale) if caller::has_by_descriptor(answer.thread, fid) => {
                client.getattr_removed(fid).ok_or(FsError::Stale)
            }
            stat => stat,
        };
        answer.looked((fid, attempt), stat).await;
    });
}

fn statx(asked: Asked, fid: Fid, reached: Reached) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run_at(fid, (reached, Question::Use), async move {
        match client.getattr(fid).await {
            Ok(stat) => answer.statx(fid, &stat),
            Err(failure) => answer.error(failure),
        }
    });
}

fn setattr(asked: Asked, fid: Fid, (caller, process): (Caller, Process), set: SetAttributes) {
    let (client, answer) = (asked.client(), asked.clone());
    let reached = match set.handle {
        Some(_) => Reached::Rightly,
        None => reached_held(&asked, fid),
    };
    let change = change_of(&set);
    let taken = match (set.size, set.uid.or(set.gid)) {
        (Some(_), _) => Some((Changed::Content, process.asked_to_drop(set.kill_suid_gid))),
        (None, Some(_)) => Some((Changed::Owner, process)),
        (None, None) if change == SetAttr::default() => match caller::is_chown(asked.thread) {
            // `fallocate` and the like announce themselves so, and take privileges when they come.
            Some(false) => None,
            Some(true) => Some((Changed::Owner, process)),
            None => Some((Changed::Unknown, process)),
        },
        (None, None) => None,
    };
    asked.run_at(fid, (reached, Question::Change), async move {
        if let Some((changed, process)) = taken
            && let Err(failure) = client.drop_privileges(fid, changed, &process).await
        {
            return answer.error(failure);
        }
        let done = match client.setattr(caller, fid, change.clone(), set.size).await {
            // Whether it may do this to others' files is looked at only now: mostly it is the owner, or root.
            Err(FsError::NotPermitted) if may_set(&client, (fid, &process), &change).await => {
                client.setattr(ANYBODY, fid, change, set.size).await
            }
            done => done,
        };
        answer.changed_stat(fid, done);
    });
}

/// By a capability.
async fn may_set(client: &Client, (fid, process): (Fid, &Process), change: &SetAttr) -> bool {
    let stat = client.getattr(fid).await;
    stat.is_ok_and(|stat| process.may_set(change, stat.attr.uid))
}

/// Who may change the attributes of every file.
const ANYBODY: Caller = Caller { uid: 0, gid: 0 };

fn readlink(asked: Asked, fid: Fid) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run_at(fid, (Reached::ByPath, Question::Use), async move {
        match client.readlink(fid).await {
            Ok(target) => answer.data(&target),
            Err(failure) => answer.error(failure),
        }
    });
}

fn make(asked: Asked, place: Result<Place, FsError>, new: Result<NewNode, FsError>) {
    let (place, new) = match (place, new) {
        (Ok(place), Ok(new)) => (place, new),
        (Err(failure), _) | (_, Err(failure)) => return asked.error(failure),
    };
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move {
        let (dir, name) = (place.dir, place.name.clone());
        let made = client.make(place, new).await;
        let made = made.map_err(|failure| answer.failed_in(&[dir], failure));
        answer.made(dir, &name, made);
    });
}

fn unlink(asked: Asked, place: Result<Place, FsError>, directory: bool) {
    let place = match place {
        Ok(place) => place,
        Err(failure) => return asked.error(failure),
    };
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move {
        let (dir, name) = (place.dir, place.name.clone());
        match client.unlink(place, directory).await {
            Ok(fid) => answer.changed(|| Unheard::removed(dir, name, fid), Replier::done),
            Err(failure) => answer.error(answer.failed_in(&[dir], failure)),
        }
    });
}

fn rename(
    asked: Asked,
    source: Result<Place, FsError>,
    new_parent: u64,
    target: &[u8],
    mode: request::RenameMode,
) {
    let leaves_whiteout = matches!(mode, request::RenameMode::Whiteout { .. });
    let mode = match mode {
        request::RenameMode::Replace | request::RenameMode::Whiteout { replace: true } => {
            Ok(RenameMode::Replace)
        }
        request::RenameMode::NoReplace | request::RenameMode::Whiteout { replace: false } => {
            Ok(RenameMode::NoReplace)
        }
        request::RenameMode::Exchange => Ok(RenameMode::Exchange),
        request::RenameMode::Other(_) => Err(FsError::Invalid),
    };
    let (source, target, mode) = match (source, name(target), mode) {
        (Ok(source), Ok(target), Ok(mode)) => (source, target, mode),
        (Err(failure), ..) | (_, Err(failure), _) | (_, _, Err(failure)) => {
            return asked.error(failure);
        }
    };
    let Some(target_dir) = asked.file(new_parent) else {
        return asked.error(FsError::Stale);
    };
    let (client, answer, dirs) = (asked.client(), asked.clone(), [source.dir, target_dir]);
    let from = asked.place(&source.name);
    let to = nodes::Place::new(new_parent, target.as_bytes());
    asked.run(async move {
        let names = [source.name.clone(), target.clone()];
        match client
            .rename(source, target_dir, target, mode, leaves_whiteout)
            .await
        {
            Ok(moved) => answer.renamed((from, to), moved, || Unheard::renamed(dirs, names, moved)),
            Err(failure) => {
                // There is no further attempt, but after this one error.
                if failure != FsError::Stale {
                    answer.context.retries.ended(answer.thread);
                }
                answer.error(answer.failed_in(&dirs, failure));
            }
        }
    });
}

fn link(asked: Asked, source: u64, dir: Fid, bytes: &[u8]) {
    let Some(source) = asked.file(source) else {
        return asked.error(FsError::Stale);
    };
    let name = match name(bytes) {
        Ok(name) => name,
        Err(failure) => return asked.error(failure),
    };
    let (client, answer) = (asked.client(), asked.clone());
    // The kernel holds the directory. It may have asked for the file's attributes before, and goes on where
    // it is told to look again then. Threads without a number share their attempts: one could end another's.
    let is_first = asked.thread != 0 && !asked.context.retries.has_looked_up(asked.thread);
    let reached = match is_first {
        true => Reached::HeldFirst,
        false => Reached::Held,
    };
    asked.run_at(source, (reached, Question::Link), async move {
        let linked = client.link(source, dir, name.clone()).await;
        // See `Asked::changed_stat`.
        let linked = linked.map(|entry| Entry {
            attr_valid: false,
            ..entry
        });
        let linked = linked.map_err(|failure| answer.failed_in(&[dir], failure));
        answer.made(dir, &name, linked);
    });
}

/// Writers bypass the kernel's page cache. Their pages would be locked in the kernel while they
/// wait for a lock here, which may wait for those very pages to be forgotten.
fn opened(writes: bool, keep_cache: bool) -> Opened {
    Opened {
        direct_io: writes,
        keep_cache,
        no_flush: !writes,
        ..Opened::default()
    }
}

fn create(
    asked: Asked,
    place: Result<Place, FsError>,
    mode: u32,
    (flags, process): (OpenFlags, Process),
) {
    let place = match place {
        Ok(place) => place,
        Err(failure) => return asked.error(failure),
    };
    let (client, answer, dir) = (asked.client(), asked.clone(), place.dir);
    let wish = open_wish(flags);
    let mode = (mode & 0o7777) as u16;
    let is_second = asked.context.retries.is_second(asked.thread);
    asked.run(async move {
        let name = Some(place.name.clone());
        let made = create_or_open(&client, (place, is_second), mode, (flags, process)).await;
        let made = made.map_err(|failure| answer.failed_in(&[dir], failure));
        answer.created((dir, name), made, opened(wish.access.write, false));
    });
}

fn create_nameless(asked: Asked, (dir, caller): (Fid, Caller), mode: u32, flags: OpenFlags) {
    let (client, answer) = (asked.client(), asked.clone());
    let wish = open_wish(flags);
    let mode = (mode & 0o7777) as u16;
    asked.run(async move {
        let made = client.create_nameless((dir, caller), mode, wish.access, wish.append);
        let made = made
            .await
            .map_err(|failure| answer.failed_in(&[dir], failure));
        let how = opened(wish.access.write, false);
        answer.created((dir, None), made, how);
    });
}

/// How often a name may come and go under a caller who wants it made or opened.
const TRIES: u32 = 100;

/// Makes the file, or opens it where another mount was faster and the caller allows that. For anything but a
/// regular file it fails with `Stale`: the kernel then looks it up anew. In its second attempt it does not.
/// The name led nowhere a moment ago, and so it may again.
async fn create_or_open(
    client: &Client,
    (place, is_second): (Place, bool),
    mode: u16,
    (flags, process): (OpenFlags, Process),
) -> Result<(Entry, HandleId), FsError> {
    let wish = open_wish(flags);
    for _ in 0..TRIES {
        match client
            .create(place.clone(), mode, wish.access, wish.append)
            .await
        {
            Err(FsError::Exists) if !flags.exclusive() => {}
            made => return made,
        }
        match open_existing(client, &place, (flags, &process)).await {
            Err(FsError::NotFound) => {}
            Err(FsError::Stale) if is_second => {}
            opened => return opened,
        }
    }
    Err(FsError::TryAgain)
}

/// Opens what the name leads to; `NotFound` if it went meanwhile.
async fn open_existing(
    client: &Client,
    place: &Place,
    (flags, process): (OpenFlags, &Process),
) -> Result<(Entry, HandleId), FsError> {
    let found = client.lookup(place.dir, &place.name).await;
    let mut entry = found.map_err(gone)?;
    if entry.attr.kind != FileKind::Regular {
        client.forget(entry.fid, 1);
        // Anything else but a directory is for the kernel to open: it looks again.
        return Err(match entry.attr.kind {
            FileKind::Directory => FsError::IsDirectory,
            _ => FsError::Stale,
        });
    }
    let handle = match client.open(entry.fid, open_wish(flags)).await {
        Ok(open) => open.handle,
        Err(failure) => {
            client.forget(entry.fid, 1);
            return Err(gone(failure));
        }
    };
    if flags.truncates() {
        match empty(client, (entry.fid, place.caller), process).await {
            Ok(stat) => {
                (entry.attr, entry.attr_valid, entry.stamp) = (stat.attr, stat.valid, stat.stamp)
            }
            Err(failure) => {
                client.release(handle);
                client.forget(entry.fid, 1);
                return Err(failure);
            }
        }
    }
    Ok((entry, handle))
}

/// Truncates to nothing, as an open does.
async fn empty(
    client: &Client,
    (fid, caller): (Fid, Caller),
    process: &Process,
) -> Result<Stat, FsError> {
    client
        .drop_privileges(fid, Changed::Content, process)
        .await?;
    client
        .setattr(caller, fid, SetAttr::default(), Some(0))
        .await
}

/// What a name led to went meanwhile, and the name with it.
fn gone(failure: FsError) -> FsError {
    match failure {
        FsError::Stale => FsError::NotFound,
        failure => failure,
    }
}

fn open(asked: Asked, fid: Fid, flags: OpenFlags) {
    let (client, answer) = (asked.client(), asked.clone());
    let wish = open_wish(flags);
    asked.run_at(fid, (Reached::ByPath, Question::Open), async move {
        let open = match client.open(fid, wish).await {
            Ok(open) => open,
            Err(failure) => return answer.error(failure),
        };
        let how = opened(wish.access.write, open.keep_cache);
        if !answer.opened(Opened {
            handle: open.handle.0,
            ..how
        }) {
            client.release(open.handle);
        }
    });
}

fn read(asked: Asked, handle: HandleId, (offset, size): (u64, u32), to: ReadTo) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move {
        match client.read(handle, offset, u64::from(size), to).await {
            Ok(data) => {
                let _answering = answer.context.gate.reading.begin();
                // The data keeps its lock until it is with the kernel.
                answer.data_parts(&data.pieces);
                drop(data);
            }
            Err(failure) => answer.error(failure),
        }
    });
}

fn write(asked: Asked, fid: Fid, process: Process, write: WriteRequest<'_>) {
    let (client, answer) = (asked.client(), asked.clone());
    let append = write.flags.appends() && !write.from_cache;
    let goes_on = append && asked.append_goes_on(fid, write.data.len());
    let wish = WriteWish {
        append,
        goes_on,
        write_back: write.from_cache,
        durable: write.flags.data_sync() && !write.from_cache,
    };
    // A store into a mapping takes nothing, on a local disk either.
    let process = (!write.from_cache).then(|| process.asked_to_drop(write.kill_suid_gid));
    let handle = (!write.from_cache).then_some(HandleId(write.handle));
    let (offset, data) = (write.offset, write.data.to_vec());
    asked.run(async move {
        if let Some(process) = process
            && let Err(failure) = client
                .drop_privileges(fid, Changed::Content, &process)
                .await
        {
            return answer.error(failure);
        }
        let written = client.write_what_fits(fid, handle, offset, &data, wish);
        match written.await {
            Ok(length) => answer.written(fid, length as u64),
            Err(failure) => {
                answer.context.gate.appending.ended(answer.thread);
                answer.error(failure);
            }
        }
    });
}

impl Asked {
    /// The call whose request this is appends more to the file than these bytes.
    fn append_goes_on(&self, fid: Fid, bytes: usize) -> bool {
        let most = self.context.granted.get().map(|granted| granted.max_write);
        let piece = (bytes as u64, most.map_or(u64::MAX, u64::from));
        self.context.gate.appending.goes_on(self.thread, fid, piece)
    }
}

fn flush(asked: Asked, handle: HandleId) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move { answer.done(client.flush(handle).await) });
}

fn fsync(asked: Asked, handle: HandleId) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move { answer.done(client.fsync(handle).await) });
}

fn fsyncdir(asked: Asked, dir: Fid) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move { answer.done(client.fsyncdir(dir).await) });
}

fn sync(asked: Asked) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move { answer.done(client.sync().await) });
}

fn fallocate(
    asked: Asked,
    (fid, process): (Fid, Process),
    range: Option<ByteRange>,
    mode: FallocateMode,
) {
    let mode = match mode {
        FallocateMode::Allocate { keep_size: false } => AllocateMode::Extend,
        FallocateMode::Allocate { keep_size: true } => AllocateMode::KeepSize,
        FallocateMode::PunchHole => AllocateMode::PunchHole,
        FallocateMode::ZeroRange { keep_size: false } => AllocateMode::Zero,
        FallocateMode::ZeroRange { keep_size: true } => AllocateMode::ZeroKeepSize,
        FallocateMode::Other(_) => return asked.error(FsError::NotSupported),
    };
    let Some(range) = range else {
        return asked.error(FsError::FileTooBig);
    };
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move {
        let dropped = client
            .drop_privileges(fid, Changed::Content, &process)
            .await;
        match dropped {
            Ok(()) => answer.changed_file(fid, client.allocate(fid, range, mode).await),
            Err(failure) => answer.error(failure),
        }
    });
}

fn lseek(asked: Asked, fid: Fid, offset: u64, whence: Whence) {
    let hole = match whence {
        Whence::Data => false,
        Whence::Hole => true,
        Whence::Other(_) => return asked.error(FsError::Invalid),
    };
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move {
        match client.seek(fid, offset, hole).await {
            Ok(found) => answer.offset(found),
            Err(failure) => answer.error(failure),
        }
    });
}

/// Attributes the file system does not keep (the kernel and coreutils stop asking for
/// these for the whole mount once they hear so).
fn is_foreign(asked: &Asked, name: &[u8]) -> bool {
    let known: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    (name == b"security.selinux" && !asked.context.selinux)
        || !known.iter().any(|prefix| name.starts_with(prefix))
}

/// Why the attribute cannot be there, if it can't: its namespace is none of ours, or it has no name
/// in that.
fn refuse(asked: &Asked, name: &[u8]) -> Option<FsError> {
    let is_nameless =
        name.ends_with(b".") && name.iter().filter(|byte| **byte == b'.').count() == 1;
    match is_foreign(asked, name) {
        true => Some(FsError::NotSupported),
        false => is_nameless.then_some(FsError::Invalid),
    }
}

fn getxattr(asked: Asked, fid: Fid, name: &[u8], size: u32) {
    if let Some(failure) = refuse(&asked, name) {
        return asked.error(failure);
    }
    let (client, answer, name) = (asked.client(), asked.clone(), name.to_vec());
    let question = match name == client::CAPABILITY {
        true => Question::Capability,
        false => Question::Use,
    };
    asked.run_at(fid, (Reached::Perhaps, question), async move {
        match client.getxattr(fid, &name).await {
            Ok(value) => answer.sized_data(&value, size),
            Err(failure) => answer.error(failure),
        }
    });
}

fn listxattr(asked: Asked, (fid, process): (Fid, Process), size: u32) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run_at(fid, (Reached::Perhaps, Question::Use), async move {
        match client.listxattr(fid).await {
            Ok(mut names) => {
                let is_trusted = |name: &Vec<u8>| name.starts_with(b"trusted.");
                if names.iter().any(is_trusted) && !process.sees_trusted() {
                    names.retain(|name| !is_trusted(name));
                }
                let terminated = names.into_iter().flat_map(|mut name| {
                    name.push(0);
                    name
                });
                answer.sized_data(&terminated.collect::<Vec<u8>>(), size);
            }
            Err(failure) => answer.error(failure),
        }
    });
}

fn setxattr(asked: Asked, fid: Fid, name: &[u8], value: &[u8], mode: request::XattrMode) {
    if let Some(failure) = refuse(&asked, name) {
        return asked.error(failure);
    }
    let mode = match mode {
        request::XattrMode::Any => XattrMode::Set,
        request::XattrMode::Create => XattrMode::Create,
        request::XattrMode::Replace => XattrMode::Replace,
        // No attribute is both there and not there.
        request::XattrMode::Other(BOTH) => return set_neither(asked, fid, name),
        request::XattrMode::Other(_) => return asked.error(FsError::Invalid),
    };
    let reached = reached_held(&asked, fid);
    let (client, answer) = (asked.client(), asked.clone());
    let (name, value) = (name.to_vec(), value.to_vec());
    asked.run_at(fid, (reached, Question::Use), async move {
        answer.changed_file(fid, client.setxattr(fid, name, value, mode).await);
    });
}

/// The flags `XATTR_CREATE` and `XATTR_REPLACE` in one call.
const BOTH: u32 = (libc::XATTR_CREATE | libc::XATTR_REPLACE) as u32;

/// Says which of the two flags is wrong here.
fn set_neither(asked: Asked, fid: Fid, name: &[u8]) {
    let (client, answer, name) = (asked.client(), asked.clone(), name.to_vec());
    asked.run_at(fid, (Reached::Perhaps, Question::Use), async move {
        let there = client.getxattr(fid, &name).await;
        answer.error(there.err().unwrap_or(FsError::Exists));
    });
}

fn removexattr(asked: Asked, (fid, process): (Fid, Process), name: &[u8]) {
    if let Some(failure) = refuse(&asked, name) {
        return asked.error(failure);
    }
    let reached = reached_held(&asked, fid);
    let (client, answer, name) = (asked.client(), asked.clone(), name.to_vec());
    let question = match name == CAPABILITY {
        true => Question::NoCapability,
        false => Question::Use,
    };
    asked.run_at(fid, (reached, question), async move {
        match is_early(&client, (fid, &process), &name).await {
            Ok(true) => answer.done(Ok(())),
            Ok(false) => answer.changed_file(fid, client.removexattr(fid, name).await),
            Err(failure) => answer.error(failure),
        }
    });
}

/// The kernel removes capabilities before it asks for the change that takes them, which this caller may not
/// be allowed. If it is allowed, then it takes them itself.
async fn is_early(
    client: &Client,
    (fid, process): (Fid, &Process),
    name: &[u8],
) -> Result<bool, FsError> {
    if name != CAPABILITY {
        return Ok(false);
    }
    let refused_by = client.owner_who_refuses(fid, process).await?;
    Ok(refused_by.is_some_and(|owner| !process.may_set_capabilities(owner)))
}

fn statfs(asked: Asked) {
    let (client, answer) = (asked.client(), asked.clone());
    asked.run(async move {
        let space = match client.statfs().await {
            Ok(space) => space,
            Err(failure) => return answer.error(failure),
        };
        answer.status(&FileSystemStatus {
            blocks: space.bytes_total / FRAGMENT_BYTES,
            blocks_free: space.bytes_free / FRAGMENT_BYTES,
            blocks_available: space.bytes_available / FRAGMENT_BYTES,
            files: space.files_total,
            files_free: space.files_free,
            block_size: 1 << 20,
            name_max: base::limits::NAME_BYTES_MAX as u32,
            fragment_size: FRAGMENT_BYTES as u32,
        });
    });
}
