//! What is expected of the next entry, from those before it; and how what differs is written.

use base::{Fid, LockHandle, Timestamp};
use layout::Layout;

use super::numbers::{Malformed, Take, folded, put, put_step, unfolded};
use crate::attr::{Attr, Cover, DirState, FileKind, Grant, Node, SizeState};

/// What differs from what is expected, and so follows. The frequent ones are lowest.
mod differs {
    pub const MODE: u16 = 1;
    pub const ATIME: u16 = 1 << 1;
    pub const MTIME: u16 = 1 << 2;
    pub const MTIME_SET: u16 = 1 << 3;
    pub const BLOCKS: u16 = 1 << 4;
    pub const COVER: u16 = 1 << 5;
    pub const NLINK: u16 = 1 << 6;
    pub const OWNER: u16 = 1 << 7;
    pub const LAYOUT: u16 = 1 << 8;
    pub const STATE: u16 = 1 << 9;
    pub const RDEV: u16 = 1 << 10;
    pub const KIND: u16 = 1 << 11;
    pub const FID: u16 = 1 << 12;
    pub const UNUSED: u16 = !(FID << 1).wrapping_sub(1);
}
use differs::*;

const NANOS: i64 = 1_000_000_000;
/// A difference of times from which on the time is written as it is.
const FAR: i64 = 1 << 62;
/// In place of the difference.
const AS_IT_IS: u64 = u64::MAX;
const XATTRS: u8 = 1;
const ASK: u8 = 1 << 1;
const BLOCK_BYTES: u64 = 4096;
const SECTORS: u64 = 8;

const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::CharDevice,
    FileKind::BlockDevice,
];

/// The kind of that number.
pub(super) fn kind(number: u8) -> Result<FileKind, Malformed> {
    let kind = KINDS.get(usize::from(number)).copied();
    kind.ok_or(Malformed("a file of no known kind"))
}

/// What directories have in common, or what others have.
struct Common {
    mode: u16,
    nlink: u32,
    layout: Layout,
}

/// The entries before.
pub(super) struct Prior {
    pub cookie: u64,
    fid: u64,
    version: u64,
    handle: u64,
    owner: (u32, u32),
    mtime: Timestamp,
    btime: Timestamp,
    directories: Common,
    others: Common,
}

impl Prior {
    /// Before the first.
    pub fn new() -> Prior {
        Prior {
            cookie: 0,
            fid: 0,
            version: 0,
            handle: 0,
            owner: (0, 0),
            mtime: Timestamp::default(),
            btime: Timestamp::default(),
            directories: Common {
                mode: 0o755,
                nlink: 2,
                layout: Layout::none(),
            },
            others: Common {
                mode: 0o644,
                nlink: 1,
                layout: Layout::single(base::TargetIndex(0)),
            },
        }
    }

    fn common(&mut self, kind: FileKind) -> &mut Common {
        match kind {
            FileKind::Directory => &mut self.directories,
            _ => &mut self.others,
        }
    }

    pub fn put_dir(&mut self, dir: &DirState, out: &mut Vec<u8>) {
        self.put_fid(dir.fid, out);
        let mask = self.mask(FileKind::Directory, &dir.attr);
        put(out, mask.into());
        self.put_attr(mask, &dir.attr, out);
        put(out, dir.version);
    }

    pub fn take_dir(&mut self, take: &mut Take<'_>) -> Result<DirState, Malformed> {
        let fid = self.take_fid(take)?;
        let mask = take_mask(take)?;
        if mask & (FID | COVER) != 0 {
            return Err(UNKNOWN);
        }
        let attr = self.take_attr(mask, FileKind::Directory, take)?;
        let version = take.number()?;
        Ok(DirState { fid, attr, version })
    }

    pub fn put_fid(&mut self, fid: Fid, out: &mut Vec<u8>) {
        put_step(out, self.fid, fid.0);
        self.fid = fid.0;
    }

    pub fn take_fid(&mut self, take: &mut Take<'_>) -> Result<Fid, Malformed> {
        self.fid = take.step(self.fid)?;
        Ok(Fid(self.fid))
    }

    /// The attributes of `fid`, which is said to be of that kind.
    pub fn put_node(&mut self, fid: Fid, kind: FileKind, node: &Node, out: &mut Vec<u8>) {
        let mut mask = self.mask(kind, &node.attr);
        mask |= when(node.fid != fid, FID);
        mask |= when(node.cover != Cover::Parent, COVER);
        put(out, mask.into());
        self.put_attr(mask, &node.attr, out);
        if mask & FID != 0 {
            put(out, node.fid.0);
        }
        match &node.cover {
            Cover::Parent => {}
            Cover::None => put(out, 0),
            Cover::Own(grant) => {
                put(out, 1);
                self.put_grant(fid, grant, out);
            }
        }
    }

    pub fn take_node(
        &mut self,
        fid: Fid,
        kind: FileKind,
        take: &mut Take<'_>,
    ) -> Result<Node, Malformed> {
        let mask = take_mask(take)?;
        let attr = self.take_attr(mask, kind, take)?;
        Ok(Node {
            fid: match mask & FID {
                0 => fid,
                _ => Fid(take.number()?),
            },
            attr,
            cover: match mask & COVER {
                0 => Cover::Parent,
                _ => self.take_cover(fid, take)?,
            },
        })
    }

    fn take_cover(&mut self, fid: Fid, take: &mut Take<'_>) -> Result<Cover, Malformed> {
        match take.number()? {
            0 => Ok(Cover::None),
            1 => self.take_grant(fid, take).map(Cover::Own),
            _ => Err(UNKNOWN),
        }
    }

    fn put_grant(&mut self, fid: Fid, grant: &Grant, out: &mut Vec<u8>) {
        put_step(out, self.handle, grant.handle.0);
        self.handle = grant.handle.0;
        put_step(out, fid.0, grant.fid.0);
        out.push(grant.mode);
        put(out, grant.bits.into());
        put(out, grant.version);
    }

    fn take_grant(&mut self, fid: Fid, take: &mut Take<'_>) -> Result<Grant, Malformed> {
        self.handle = take.step(self.handle)?;
        Ok(Grant {
            handle: LockHandle(self.handle),
            fid: Fid(take.step(fid.0)?),
            mode: take.byte()?,
            bits: take.small()?,
            version: take.number()?,
        })
    }

    fn mask(&mut self, kind: FileKind, attr: &Attr) -> u16 {
        let owner = self.owner != (attr.uid, attr.gid);
        let mtime = self.mtime != attr.mtime;
        let common = self.common(attr.kind);
        let state = attr.has_xattrs || attr.size_state != SizeState::Strict;
        when(common.mode != attr.mode, MODE)
            | when(common.nlink != attr.nlink, NLINK)
            | when(common.layout != attr.layout, LAYOUT)
            | when(owner, OWNER)
            | when(attr.atime != attr.btime, ATIME)
            | when(mtime, MTIME)
            | when(attr.mtime_set != attr.ctime, MTIME_SET)
            | when(attr.blocks != blocks_of(attr.size), BLOCKS)
            | when(state, STATE)
            | when(attr.rdev != 0, RDEV)
            | when(attr.kind != kind, KIND)
    }

    fn put_attr(&mut self, mask: u16, attr: &Attr, out: &mut Vec<u8>) {
        put_step(out, self.version, attr.version);
        put_time(out, self.btime, attr.btime);
        put_time(out, attr.btime, attr.ctime);
        put(out, attr.size);
        let mut differing = |bit: u16, put: &mut dyn FnMut(&mut Vec<u8>)| {
            if mask & bit != 0 {
                put(out);
            }
        };
        let state = when(attr.has_xattrs, XATTRS) | when(attr.size_state == SizeState::Ask, ASK);
        differing(KIND, &mut |out| out.push(attr.kind as u8));
        differing(MODE, &mut |out| put(out, attr.mode.into()));
        differing(NLINK, &mut |out| put(out, attr.nlink.into()));
        differing(OWNER, &mut |out| {
            put(out, attr.uid.into());
            put(out, attr.gid.into());
        });
        differing(ATIME, &mut |out| put_time(out, attr.btime, attr.atime));
        differing(MTIME, &mut |out| put_time(out, self.mtime, attr.mtime));
        differing(MTIME_SET, &mut |out| {
            put_time(out, attr.ctime, attr.mtime_set);
        });
        differing(BLOCKS, &mut |out| put(out, attr.blocks));
        differing(STATE, &mut |out| out.push(state));
        differing(RDEV, &mut |out| put(out, attr.rdev.into()));
        differing(LAYOUT, &mut |out| {
            out.extend_from_slice(&crate::encode(&attr.layout));
        });
        self.learn(attr);
    }

    fn take_attr(
        &mut self,
        mask: u16,
        kind: FileKind,
        take: &mut Take<'_>,
    ) -> Result<Attr, Malformed> {
        let has = |bit: u16| mask & bit != 0;
        let version = take.step(self.version)?;
        let btime = take_time(take, self.btime)?;
        let ctime = take_time(take, btime)?;
        let size = take.number()?;
        let kind = if has(KIND) {
            self::kind(take.byte()?)?
        } else {
            kind
        };
        let (owner, before) = (self.owner, self.mtime);
        let common = self.common(kind);
        let mode = if has(MODE) {
            take.small()?
        } else {
            common.mode
        };
        let nlink = if has(NLINK) {
            take.small()?
        } else {
            common.nlink
        };
        let (uid, gid) = if has(OWNER) {
            (take.small()?, take.small()?)
        } else {
            owner
        };
        let [atime, mtime, mtime_set] = take_times(mask, [btime, before, ctime], take)?;
        let blocks = if has(BLOCKS) {
            take.number()?
        } else {
            blocks_of(size)
        };
        let state = if has(STATE) { take_state(take)? } else { 0 };
        let rdev = if has(RDEV) { take.small()? } else { 0 };
        let layout = if has(LAYOUT) {
            take_layout(take)?
        } else {
            common.layout.clone()
        };
        let attr = Attr {
            kind,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            has_xattrs: state & XATTRS != 0,
            size_state: size_state(state),
            layout,
            atime,
            mtime,
            mtime_set,
            ctime,
            btime,
            size,
            blocks,
            version,
        };
        self.learn(&attr);
        Ok(attr)
    }

    fn learn(&mut self, attr: &Attr) {
        self.version = attr.version;
        self.owner = (attr.uid, attr.gid);
        (self.mtime, self.btime) = (attr.mtime, attr.btime);
        let common = self.common(attr.kind);
        (common.mode, common.nlink) = (attr.mode, attr.nlink);
        if common.layout != attr.layout {
            common.layout = attr.layout.clone();
        }
    }
}

const UNKNOWN: Malformed = Malformed("an entry of no known form");

fn when<T: Default>(differs: bool, bit: T) -> T {
    if differs { bit } else { T::default() }
}

fn take_mask(take: &mut Take<'_>) -> Result<u16, Malformed> {
    let mask = take.small()?;
    match mask & UNUSED {
        0 => Ok(mask),
        _ => Err(UNKNOWN),
    }
}

fn size_state(state: u8) -> SizeState {
    match state & ASK {
        0 => SizeState::Strict,
        _ => SizeState::Ask,
    }
}

fn take_state(take: &mut Take<'_>) -> Result<u8, Malformed> {
    let state = take.byte()?;
    match state & !(XATTRS | ASK) {
        0 => Ok(state),
        _ => Err(UNKNOWN),
    }
}

/// The last access, the last change of the content and when that was set, where they are told; else
/// what is expected.
fn take_times(
    mask: u16,
    mut times: [Timestamp; 3],
    take: &mut Take<'_>,
) -> Result<[Timestamp; 3], Malformed> {
    for (time, bit) in times.iter_mut().zip([ATIME, MTIME, MTIME_SET]) {
        if mask & bit != 0 {
            *time = take_time(take, *time)?;
        }
    }
    Ok(times)
}

fn take_layout(take: &mut Take<'_>) -> Result<Layout, Malformed> {
    let taken = postcard::take_from_bytes(take.0);
    let (layout, rest) = taken.map_err(|_| Malformed("no layout"))?;
    take.0 = rest;
    Ok(layout)
}

/// What a file without holes takes.
fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK_BYTES) * SECTORS
}

/// Nanoseconds from one time to another, where that can be said in one number.
fn nanos_between(from: Timestamp, to: Timestamp) -> Option<i64> {
    let is_whole = |time: Timestamp| i64::from(time.nanos) < NANOS;
    let secs = to.secs.checked_sub(from.secs)?.checked_mul(NANOS)?;
    let nanos = secs.checked_add(i64::from(to.nanos) - i64::from(from.nanos))?;
    let is_near = is_whole(from) && is_whole(to) && (-FAR..FAR).contains(&nanos);
    is_near.then_some(nanos)
}

fn put_time(out: &mut Vec<u8>, from: Timestamp, to: Timestamp) {
    match nanos_between(from, to) {
        Some(nanos) => put(out, folded(nanos)),
        None => {
            put(out, AS_IT_IS);
            put(out, folded(to.secs));
            put(out, to.nanos.into());
        }
    }
}

fn take_time(take: &mut Take<'_>, from: Timestamp) -> Result<Timestamp, Malformed> {
    let nanos = match take.number()? {
        AS_IT_IS => {
            return Ok(Timestamp {
                secs: unfolded(take.number()?),
                nanos: take.small()?,
            });
        }
        nanos => unfolded(nanos),
    };
    let out_of_range = Malformed("a time out of range");
    let nanos = nanos.checked_add(from.nanos.into()).ok_or(out_of_range)?;
    let secs = from.secs.checked_add(nanos.div_euclid(NANOS));
    Ok(Timestamp {
        secs: secs.ok_or(out_of_range)?,
        nanos: nanos.rem_euclid(NANOS) as u32,
    })
}
