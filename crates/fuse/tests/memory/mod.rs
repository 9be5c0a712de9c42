//! A tiny file system in memory, just enough to drive the layer from real system calls. Some names misbehave
//! on purpose, see [`special`]. Every timeout is endless, so the kernel's view changes only through system
//! calls or notices.

#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use base::Timestamp;
use fuse::kernel::request::{ReleaseRequest, RenameMode, WriteRequest, XattrMode};
use fuse::kernel::{
    Attributes, Delivery, DirEntry, DirectoryBuffer, Entry, Errno, FOREVER, FileSystemStatus,
    Handler, Heard, InitOffer, InitWish, Op, Opened, ROOT_NODEID, Replier, Request, SetAttributes,
    SetTime,
};
use nix::unistd::{getegid, geteuid};

/// Names whose OPEN is answered in an unusual way.
pub mod special {
    /// Reads are parked until interrupted.
    pub const PARKED: &[u8] = b"parked";
    /// Opens are dropped without an answer.
    pub const DROPPED: &[u8] = b"dropped";
    /// Opens are answered by another thread.
    pub const ELSEWHERE: &[u8] = b"elsewhere";
    /// Opens make the handler panic.
    pub const PANICS: &[u8] = b"panics";
    /// Opens are answered ENOSYS.
    pub const UNKNOWN: &[u8] = b"unknown";
}

const DIRECTORY: u32 = libc::S_IFDIR;
const FILE: u32 = libc::S_IFREG;
const SYMLINK: u32 = libc::S_IFLNK;

/// One inode.
#[derive(Default)]
pub struct Node {
    pub attributes: Attributes,
    pub data: Vec<u8>,
    pub children: BTreeMap<Vec<u8>, u64>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub lookups: u64,
}

#[derive(Default)]
pub struct State {
    pub nodes: HashMap<u64, Node>,
    next: u64,
    parked: HashMap<u64, Replier>,
    /// Requests by kind.
    pub counts: HashMap<String, u64>,
    pub interrupted: u64,
    /// Interrupts that are pretended to have come before their request.
    pub deaf: u64,
    pub destroyed: u64,
    pub retrieved: Vec<Vec<u8>>,
    pub bad_deliveries: u64,
}

#[derive(Default)]
pub struct MemoryFs {
    state: Mutex<State>,
    changed: Condvar,
}

type Answer = Result<(), Errno>;

impl MemoryFs {
    pub fn new() -> Arc<MemoryFs> {
        let fs = MemoryFs::default();
        let mut state = fs.lock();
        state.next = ROOT_NODEID;
        let owner = (geteuid().as_raw(), getegid().as_raw());
        state.add(DIRECTORY | 0o755, owner);
        drop(state);
        Arc::new(fs)
    }

    /// The state, to look at or to change behind the kernel's back.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// How often the kernel asked this.
    pub fn count(&self, kind: &str) -> u64 {
        self.lock().counts.get(kind).copied().unwrap_or(0)
    }

    /// Waits until the state is as wanted.
    pub fn wait_for(&self, wanted: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        self.changed
            .wait_while(self.lock(), |state| !wanted(state))
            .unwrap()
    }
}

impl State {
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    pub fn add(&mut self, mode: u32, (uid, gid): (u32, u32)) -> u64 {
        let nodeid = self.next;
        self.next += 1;
        let attributes = Attributes {
            ino: nodeid,
            mode,
            nlink: 1,
            uid,
            gid,
            ..Attributes::default()
        };
        self.nodes.insert(
            nodeid,
            Node {
                attributes,
                ..Node::default()
            },
        );
        nodeid
    }

    /// Adds an empty file without telling the kernel.
    pub fn add_file(&mut self, parent: u64, name: &[u8]) -> u64 {
        let nodeid = self.add(FILE | 0o666, (0, 0));
        self.nodes
            .get_mut(&parent)
            .unwrap()
            .children
            .insert(name.to_vec(), nodeid);
        nodeid
    }

    pub fn child(&self, parent: u64, name: &[u8]) -> Result<u64, Errno> {
        let parent = self.nodes.get(&parent).ok_or(Errno::ESTALE)?;
        parent.children.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn node(&mut self, nodeid: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&nodeid).ok_or(Errno::ESTALE)
    }

    fn entry(&self, nodeid: u64) -> Entry {
        Entry {
            nodeid,
            generation: 0,
            entry_valid: FOREVER,
            attributes_valid: FOREVER,
            attributes: self.nodes[&nodeid].attributes,
        }
    }

    fn tell(&mut self, nodeid: u64, replier: Replier) -> Answer {
        let entry = self.entry(nodeid);
        self.told(nodeid, replier.entry(&entry));
        Ok(())
    }

    fn told(&mut self, nodeid: u64, delivery: Delivery) {
        match delivery {
            Delivery::Taken => self.nodes.get_mut(&nodeid).unwrap().lookups += 1,
            Delivery::Refused => self.bad_deliveries += 1,
        }
    }

    fn create(&mut self, request: &Request<'_>, name: &[u8], mode: u32) -> Result<u64, Errno> {
        if self.child(request.nodeid, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let nodeid = self.add(mode, (request.uid, request.gid));
        self.node(request.nodeid)?
            .children
            .insert(name.to_vec(), nodeid);
        Ok(nodeid)
    }

    fn remove(&mut self, parent: u64, name: &[u8]) -> Answer {
        let nodeid = self.child(parent, name)?;
        if !self.nodes[&nodeid].children.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.node(parent)?.children.remove(name);
        self.node(nodeid)?.attributes.nlink -= 1;
        Ok(())
    }

    fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Answer {
        let moved = self.child(from.0, from.1)?;
        let replaced = self.child(to.0, to.1).ok();
        match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EEXIST),
            (RenameMode::Exchange, None) => return Err(Errno::ENOENT),
            (RenameMode::Other(_), _) => return Err(Errno::EINVAL),
            _ => {}
        }
        self.node(from.0)?.children.remove(from.1);
        self.node(to.0)?.children.insert(to.1.to_vec(), moved);
        if let (RenameMode::Exchange, Some(other)) = (mode, replaced) {
            self.node(from.0)?.children.insert(from.1.to_vec(), other);
        }
        Ok(())
    }

    fn set(&mut self, nodeid: u64, set: &SetAttributes) -> Result<Attributes, Errno> {
        let node = self.node(nodeid)?;
        let attributes = &mut node.attributes;
        attributes.mode = set.mode.unwrap_or(attributes.mode);
        attributes.uid = set.uid.unwrap_or(attributes.uid);
        attributes.gid = set.gid.unwrap_or(attributes.gid);
        if let Some(size) = set.size {
            node.data.resize(size as usize, 0);
            attributes.size = size;
        }
        let time = |time| match time {
            SetTime::Now => Timestamp { secs: 1, nanos: 0 },
            SetTime::At(at) => at,
        };
        attributes.atime = set.atime.map_or(attributes.atime, time);
        attributes.mtime = set.mtime.map_or(attributes.mtime, time);
        Ok(*attributes)
    }

    fn write(&mut self, nodeid: u64, write: &WriteRequest<'_>) -> Answer {
        let node = self.node(nodeid)?;
        let end = write.offset as usize + write.data.len();
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[write.offset as usize..end].copy_from_slice(write.data);
        node.attributes.size = node.data.len() as u64;
        Ok(())
    }

    fn list(&self, nodeid: u64, offset: u64, size: u32, plus: bool) -> (DirectoryBuffer, Vec<u64>) {
        let mut buffer = DirectoryBuffer::new(size);
        let mut told = Vec::new();
        let children = self.nodes[&nodeid]
            .children
            .iter()
            .enumerate()
            .skip(offset as usize);
        for (index, (name, child)) in children {
            let entry = self.entry(*child);
            let dirent = DirEntry {
                ino: *child,
                next: index as u64 + 1,
                kind: DirEntry::kind_of(entry.attributes.mode),
                name,
            };
            let fits = match plus {
                true => buffer.push_plus(&dirent, &entry),
                false => buffer.push(&dirent),
            };
            if !fits {
                break;
            }
            told.push(*child);
        }
        (buffer, told)
    }

    fn name_of(&self, nodeid: u64) -> Vec<u8> {
        let mut all = self.nodes.values().flat_map(|node| &node.children);
        all.find(|(_, child)| **child == nodeid)
            .map(|(name, _)| name.clone())
            .unwrap_or_default()
    }
}

impl Handler for MemoryFs {
    fn init(&self, _: &InitOffer) -> InitWish {
        InitWish::default()
    }

    fn handle(&self, request: Request<'_>, replier: Replier) {
        let mut state = self.lock();
        *state
            .counts
            .entry(format!("{:?}", request.opcode))
            .or_default() += 1;
        if let Op::Open { .. } = request.op {
            let name = state.name_of(request.nodeid);
            drop(state);
            return open(&name, replier);
        }
        if matches!(request.op, Op::Read { .. }) && state.name_of(request.nodeid) == special::PARKED
        {
            state.parked.insert(request.unique, replier);
            self.changed.notify_all();
            return;
        }
        serve(&mut state, &request, replier);
        self.changed.notify_all();
    }

    fn forget(&self, nodeid: u64, lookups: u64) {
        let mut state = self.lock();
        if let Some(node) = state.nodes.get_mut(&nodeid) {
            node.lookups -= lookups;
        }
        self.changed.notify_all();
    }

    fn interrupt(&self, unique: u64) -> Heard {
        let mut state = self.lock();
        if state.deaf > 0 {
            state.deaf -= 1;
            return Heard::Unknown;
        }
        let Some(replier) = state.parked.remove(&unique) else {
            return Heard::Unknown;
        };
        replier.error(Errno::EINTR);
        state.interrupted += 1;
        self.changed.notify_all();
        Heard::Noted
    }

    fn retrieved(&self, _: u64, _: u64, data: &[u8]) {
        self.lock().retrieved.push(data.to_vec());
        self.changed.notify_all();
    }

    fn destroy(&self) {
        self.lock().destroyed += 1;
        self.changed.notify_all();
    }
}

fn open(name: &[u8], replier: Replier) {
    let opened = Opened {
        handle: 1,
        keep_cache: true,
        ..Opened::default()
    };
    match name {
        special::DROPPED => {}
        special::PANICS => panic!("on purpose"),
        special::UNKNOWN => drop(replier.error(Errno::ENOSYS)),
        special::ELSEWHERE => {
            thread::spawn(move || replier.opened(&opened));
        }
        special::PARKED => drop(replier.opened(&Opened {
            direct_io: true,
            ..opened
        })),
        _ => drop(replier.opened(&opened)),
    }
}

/// Answers the request, or fails it: whichever consumed the replier.
fn serve(state: &mut State, request: &Request<'_>, replier: Replier) {
    let mut replier = Some(replier);
    if let Err(errno) = try_serve(state, request, &mut replier)
        && let Some(replier) = replier
    {
        replier.error(errno);
    }
}

fn try_serve(state: &mut State, request: &Request<'_>, slot: &mut Option<Replier>) -> Answer {
    let nodeid = request.nodeid;
    macro_rules! replier {
        () => {
            slot.take().expect("one answer")
        };
    }
    match request.op {
        Op::Lookup { name } => {
            let child = state.child(nodeid, name)?;
            state.tell(child, replier!())?;
        }
        Op::Getattr { .. } => {
            let attributes = state.node(nodeid)?.attributes;
            replier!().attributes(FOREVER, &attributes);
        }
        Op::Setattr(set) => {
            let attributes = state.set(nodeid, &set)?;
            replier!().attributes(FOREVER, &attributes);
        }
        Op::Mkdir { name, mode, .. } => {
            let child = state.create(request, name, DIRECTORY | mode)?;
            state.tell(child, replier!())?;
        }
        Op::Mknod {
            name, mode, rdev, ..
        } => {
            let child = state.create(request, name, mode)?;
            state.node(child)?.attributes.rdev = rdev;
            state.tell(child, replier!())?;
        }
        Op::Symlink { name, target } => {
            let child = state.create(request, name, SYMLINK | 0o777)?;
            state.node(child)?.data = target.to_vec();
            state.tell(child, replier!())?;
        }
        Op::Link { source, name } => {
            state.node(nodeid)?.children.insert(name.to_vec(), source);
            state.node(source)?.attributes.nlink += 1;
            state.tell(source, replier!())?;
        }
        Op::Create { name, mode, .. } => {
            let child = state.create(request, name, FILE | (mode & 0o7777))?;
            let entry = state.entry(child);
            let opened = Opened {
                handle: 1,
                keep_cache: true,
                ..Opened::default()
            };
            state.told(child, replier!().created(&entry, &opened));
        }
        Op::Unlink { name } | Op::Rmdir { name } => {
            state.remove(nodeid, name)?;
            replier!().done();
        }
        Op::Rename {
            name,
            new_parent,
            new_name,
            mode,
        } => {
            state.rename((nodeid, name), (new_parent, new_name), mode)?;
            replier!().done();
        }
        Op::Readlink => drop(replier!().data(&state.node(nodeid)?.data)),
        Op::Read { offset, size, .. } => {
            let data = &state.node(nodeid)?.data;
            let start = data.len().min(offset as usize);
            let end = data.len().min(start + size as usize);
            let (head, tail) = data[start..end].split_at((end - start) / 2);
            replier!().data_parts(&[head, tail]);
        }
        Op::Write(write) => {
            state.write(nodeid, &write)?;
            replier!().written(write.data.len() as u64);
        }
        Op::Readdir { offset, size, .. } => {
            replier!().directory(&state.list(nodeid, offset, size, false).0);
        }
        Op::Readdirplus { offset, size, .. } => {
            let (buffer, told) = state.list(nodeid, offset, size, true);
            let delivery = replier!().directory(&buffer);
            told.into_iter()
                .for_each(|child| state.told(child, delivery));
        }
        _ => serve_rest(state, request, slot)?,
    }
    Ok(())
}

fn serve_rest(state: &mut State, request: &Request<'_>, slot: &mut Option<Replier>) -> Answer {
    let node = state.node(request.nodeid)?;
    let mut replier = || slot.take().expect("one answer");
    match request.op {
        Op::Setxattr {
            name, value, mode, ..
        } => {
            let there = node.xattrs.contains_key(name);
            match mode {
                XattrMode::Create if there => return Err(Errno::EEXIST),
                XattrMode::Replace if !there => return Err(Errno::ENODATA),
                _ => drop(node.xattrs.insert(name.to_vec(), value.to_vec())),
            }
            replier().done();
        }
        Op::Getxattr { name, size } => {
            let value = node.xattrs.get(name).ok_or(Errno::ENODATA)?;
            sized(value, size, replier)?;
        }
        Op::Listxattr { size } => {
            let names: Vec<u8> = node
                .xattrs
                .keys()
                .flat_map(|name| [name.as_slice(), b"\0"].concat())
                .collect();
            sized(&names, size, replier)?;
        }
        Op::Removexattr { name } => {
            node.xattrs.remove(name).ok_or(Errno::ENODATA)?;
            replier().done();
        }
        Op::Statfs => {
            replier().status(&FileSystemStatus {
                blocks: 1000,
                blocks_free: 900,
                blocks_available: 800,
                block_size: 4096,
                fragment_size: 4096,
                name_max: 255,
                ..FileSystemStatus::default()
            });
        }
        Op::Lseek { offset, .. } => drop(replier().offset(offset)),
        Op::Opendir { .. } => drop(replier().opened(&Opened {
            handle: 2,
            ..Opened::default()
        })),
        Op::Release(ReleaseRequest { .. })
        | Op::Releasedir(_)
        | Op::Flush { .. }
        | Op::Fsync { .. }
        | Op::Fsyncdir { .. } => drop(replier().done()),
        _ => return Err(Errno::ENOSYS),
    }
    Ok(())
}

fn sized(value: &[u8], size: u32, replier: impl FnOnce() -> Replier) -> Answer {
    match size {
        0 => drop(replier().xattr_size(value.len() as u32)),
        _ if (size as usize) < value.len() => return Err(Errno::ERANGE),
        _ => drop(replier().data(value)),
    }
    Ok(())
}
