//! The records of a metadata target: one version byte, then a postcard body (docs/disk.md, "MDT records").

use base::{Damage, Fid, Name, Timestamp, Transno, Xid};
use layout::Layout;
use serde::{Deserialize, Serialize};
use wire::{Attr, FileKind, SizeState};

use crate::keys::{ClientUuid, Spot};

/// Something stored under a key. A record of another shape gets a new version byte, and the decoder of the
/// old one stays.
pub trait Record: Serialize + for<'a> Deserialize<'a> {
    /// What it is called in reports of damage.
    const NAME: &'static str;
    /// The version byte written now.
    const VERSION: u8 = 1;

    /// Its bytes.
    fn to_bytes(&self) -> Vec<u8> {
        self.append_to(Vec::with_capacity(160))
    }

    /// `bytes` with its own behind them.
    fn append_to(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.push(Self::VERSION);
        postcard::to_extend(self, bytes).expect("records hold no maps of unknown length")
    }

    /// The record in `bytes`; `key` is for the report.
    fn from_bytes(key: &[u8], bytes: &[u8]) -> Result<Self, Damage> {
        let damage = |reason: String| Damage {
            record: format!("{} {}", Self::NAME, hex(key)),
            reason,
        };
        match bytes.split_first() {
            None => Err(damage("it is empty".into())),
            Some((version, _)) if *version != Self::VERSION => {
                Err(damage(format!("version {version} is not known here")))
            }
            Some((_, body)) => match postcard::take_from_bytes(body) {
                Ok((record, [])) => Ok(record),
                Ok((_, rest)) => Err(damage(format!("{} bytes left over", rest.len()))),
                Err(cause) => Err(damage(cause.to_string())),
            },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A file's attributes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// What kind of file.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: 0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names; for a directory two plus its subdirectories; zero for an orphan.
    pub nlink: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// There are extended attributes.
    pub has_xattrs: bool,
    /// How far `size`, `blocks` and `mtime` can be trusted.
    pub size_state: SizeState,
    /// A write ticket was given: there may be objects.
    pub written: bool,
    /// Where the bytes are.
    pub layout: Layout,
    /// Last access.
    pub atime: Timestamp,
    /// Last content change.
    pub mtime: Timestamp,
    /// When `mtime` was last set; writes after this count.
    pub mtime_set: Timestamp,
    /// Last attribute change.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// The transno of its last change.
    pub version: u64,
    /// Names in a directory, `.` and `..` not counted.
    pub entries: u64,
}

/// What `stat` shows as a directory's size: names cost records, not bytes of it.
pub const DIRECTORY_BYTES: u64 = 4096;

impl Inode {
    /// A directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// As replies carry it.
    pub fn attr(&self) -> Attr {
        self.clone().into_attr()
    }

    /// As replies carry it, without a copy.
    pub fn into_attr(self) -> Attr {
        Attr {
            kind: self.kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            rdev: self.rdev,
            has_xattrs: self.has_xattrs,
            size_state: self.size_state,
            layout: self.layout,
            atime: self.atime,
            mtime: self.mtime,
            mtime_set: self.mtime_set,
            ctime: self.ctime,
            btime: self.btime,
            size: self.size,
            blocks: self.blocks,
            version: self.version,
        }
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dirent {
    /// The name.
    pub name: Name,
    /// The file.
    pub fid: Fid,
    /// Its kind.
    pub kind: FileKind,
    /// Its attributes, when it is no directory and this is its only name.
    pub inode: Option<Inode>,
}

/// Where a file's attributes and name are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the directory entry there: its only name.
    Entry(Spot),
    /// In a record of its own; a directory, named there. The root names itself at cookie zero.
    Directory(Spot),
    /// In a record of its own; several names (see [`crate::keys::Table::Links`]) or none.
    Own,
}

/// A file without a name that is, or may be, open somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// When it lost its last name; [`Orphan::NEVER_NAMED`]: it had none yet.
    pub since: Timestamp,
}

impl Orphan {
    /// It was made without a name, and may get one.
    pub const NEVER_NAMED: Orphan = Orphan {
        since: Timestamp {
            secs: i64::MIN,
            nanos: 0,
        },
    };
}

/// An object to be removed on an OST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destroy {
    /// The highest open epoch that may still write it.
    pub open_epoch: u64,
    /// The change that removed the file: the OST is told once that is durable.
    pub transno: Transno,
}

/// The answer a client was given, for a resend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredReply {
    /// To which request of that slot.
    pub xid: Xid,
    /// The change it made.
    pub transno: Transno,
    /// The boot of the target it was given in: locks and handles in it ended with that.
    pub boot: u32,
    /// The encoded [`wire::mdt::Reply`].
    pub body: Vec<u8>,
}

/// The owner, that never comes, of a sequence of which objects may be all that is left of files: a
/// repair found so.
pub const NO_CLIENT: ClientUuid = [0; 16];

/// To whom a sequence was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceOwner {
    /// The client.
    pub client: ClientUuid,
}

/// A client that changes the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownClient {
    /// When the target gave up on it, if it did: what it has not seen durable is lost.
    pub given_up: Option<Timestamp>,
}

/// Where a boot of the target began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootBegun {
    /// The last change of the boots before.
    pub committed: Transno,
}

/// How far an OST has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenOst {
    /// It told that everything up to here is durable.
    pub committed: Transno,
}

/// What is known of the target as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Keys the name hash.
    pub hash_key: u64,
    /// How often the target was opened; the high half of open epochs.
    pub boots: u32,
    /// The last change.
    pub transno: Transno,
    /// The next sequence to grant.
    pub next_sequence: u64,
    /// Files of any kind, orphans and the root included.
    pub files: u64,
}

/// An extended attribute's value, a symlink's target, or nothing at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes(pub Vec<u8>);

impl Record for Inode {
    const NAME: &'static str = "inode";
}
impl Record for Dirent {
    const NAME: &'static str = "directory entry";
}
impl Record for Place {
    const NAME: &'static str = "place";
}
impl Record for Orphan {
    const NAME: &'static str = "orphan";
}
impl Record for Destroy {
    const NAME: &'static str = "destroy";
}
impl Record for StoredReply {
    const NAME: &'static str = "reply";
}
impl Record for SequenceOwner {
    const NAME: &'static str = "sequence";
}
impl Record for KnownClient {
    const NAME: &'static str = "client";
}
impl Record for BootBegun {
    const NAME: &'static str = "boot";
}
impl Record for SeenOst {
    const NAME: &'static str = "OST";
}
impl Record for State {
    const NAME: &'static str = "target state";
}
impl Record for Bytes {
    const NAME: &'static str = "value";
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
