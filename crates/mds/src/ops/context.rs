//! What operations have in common: what they work with, what they need, and what they answer with.

use std::time::Duration;

use base::{BootEpoch, ClientId, Fid, FsError, Name, TargetIndex};
use dlm::{Bits, Mode, ResourceId, Want};
use wire::mdt::Reply;
use wire::{Cover, DirState, Node};

use crate::keys::{ClientUuid, Spot};
use crate::namespace::InUse;
use crate::opens::Opens;
use crate::records::{Inode, Place};
use crate::txn::{File, Result, Txn};

/// The space of MDT files and directories among lock resources.
pub const SPACE: u8 = 1;
/// The lock for moves of directories to another parent. One runs at a time, so that two moves cannot make a
/// ring.
const RENAME: ResourceId = ResourceId { space: 0, id: 0 };

/// Every inode bit an MDT gives out.
pub const ALL_BITS: Bits = Bits(
    Bits::LOOKUP.0
        | Bits::UPDATE.0
        | Bits::OPEN.0
        | Bits::LAYOUT.0
        | Bits::PERM.0
        | Bits::XATTR.0
        | Bits::DOM.0
        | Bits::NAMES.0
        | Bits::LIST.0
        | Bits::CHILD.0,
);

/// The lock resource of a file.
pub fn resource(fid: Fid) -> ResourceId {
    ResourceId {
        space: SPACE,
        id: fid.0,
    }
}

/// What a target is configured to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Where new files' objects go, in turn.
    pub osts: Vec<TargetIndex>,
    /// Files there can be. Beyond: refused, `NoSpace`.
    pub files_max: u64,
    /// How long a client may take at an OST to give a lock back. Beyond: it is evicted there; here
    /// after [`Rules::patience`].
    pub callback_deadline: Duration,
    /// This boot of the target, as its clients know it. `None`: as often as it was opened.
    pub boot_epoch: Option<BootEpoch>,
    /// How long clients of the boot before are waited for. Beyond: given up.
    pub recovery_window: Duration,
    /// Changes are reported as durable at once, so that no client keeps or waits for anything. Only for
    /// measuring the cost of real durability.
    pub undurable: bool,
}

impl Rules {
    /// How long a client may take to give a lock of an MDT back: half as long again as at an OST. It may
    /// first have to wait there until a client that never answers is evicted.
    pub fn patience(&self) -> Duration {
        self.callback_deadline * 3 / 2
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            osts: vec![TargetIndex(0)],
            files_max: 1 << 32,
            callback_deadline: base::limits::CALLBACK_DEADLINE,
            boot_epoch: None,
            recovery_window: rpc::window::RECOVERY_WINDOW,
            undurable: false,
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who {
    /// The session's client.
    pub client: ClientId,
    /// Its own id.
    pub uuid: ClientUuid,
}

/// What an operation works with.
#[derive(Debug)]
pub struct Ctx<'a, 's> {
    /// The store, and the changes so far.
    pub txn: &'a mut Txn<'s>,
    /// Open files.
    pub opens: &'a mut Opens,
    /// Who asks.
    pub who: Who,
    /// The target's configuration.
    pub rules: &'a Rules,
    /// The disk has space for removals only.
    pub full: bool,
    /// Files were removed whose bytes OSTs have yet to remove.
    pub removing: bool,
    /// Clients may still tell of files they had open before a restart.
    pub grace: bool,
    /// The reply must wait until the change is durable.
    pub durable_first: bool,
    /// A file that is to be made may be there already: the client has not heard of it, and nobody else was
    /// in its directory.
    pub may_be_done: bool,
    /// The answer that the request got in an earlier boot of the target. A replay must have the same result;
    /// clients report uses of files separately.
    pub replay: Option<&'a Reply>,
}

impl Ctx<'_, '_> {
    /// Fails where the disk has no space for what is to come. What was answered before a crash had some
    /// then, and is done again in any case: if there really is none, the store stops, and says so.
    pub(super) fn check_room(&self) -> Result<()> {
        if self.full && self.replay.is_none() {
            return Err(FsError::NoSpace.into());
        }
        Ok(())
    }

    /// Whether a file that loses its last name must be kept.
    pub(super) fn in_use(&self, fid: Fid) -> InUse {
        if self.grace || self.opens.is_open(fid) {
            InUse::Perhaps
        } else {
            InUse::No
        }
    }
}

/// What an operation needs before it may run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// Locks and withdrawals.
    pub wants: Vec<Want>,
    /// What the withdrawals are about, for those that must forget it.
    pub notes: Vec<Note>,
}

/// What the withdrawal of one key from one directory's lease means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The directory.
    pub dir: Fid,
    /// The key.
    pub key: u64,
    /// The name to forget, if any.
    pub name: Option<Name>,
    /// The file to forget, or [`Fid::NONE`].
    pub child: Fid,
}

impl Needs {
    /// To enter these directories.
    pub(crate) fn entry(dirs: &[Fid]) -> Needs {
        let enter = |dir: &Fid| Want::bits(resource(*dir), Mode::CR, Bits::LOOKUP);
        Needs {
            wants: dirs.iter().map(enter).collect(),
            notes: Vec::new(),
        }
    }

    pub(super) fn lock(&mut self, fid: Fid, mode: Mode, bits: Bits) {
        self.wants.push(Want::bits(resource(fid), mode, bits));
    }

    pub(super) fn rename_lock(&mut self) {
        self.wants.push(Want::bits(RENAME, Mode::EX, Bits::LOOKUP));
    }

    pub(super) fn name(&mut self, dir: Fid, hash: u64) {
        self.wants.push(Want::Name {
            resource: resource(dir),
            hash,
            mode: Mode::PW,
        });
    }

    pub(super) fn withdraw(&mut self, bits: Bits, note: Note) {
        let resource = resource(note.dir);
        self.wants.push(Want::Withdraw {
            resource,
            bits,
            key: note.key,
        });
        self.notes.push(note);
    }

    /// A name that comes to be.
    pub(super) fn new_name(&mut self, txn: &Txn<'_>, dir: Fid, name: &Name) {
        let key = txn.lease_key(name);
        self.name(dir, txn.hash(name));
        let note = Note {
            dir,
            key,
            name: Some(name.clone()),
            child: Fid::NONE,
        };
        self.withdraw(Bits::LIST | Bits::NAMES, note);
    }

    /// A name that loses its file. The key is the file, so that one withdrawal is for name and
    /// attributes; of several names of one file each has its own, and no lease covers attributes.
    pub(super) fn lost_name(&mut self, txn: &Txn<'_>, dir: Fid, name: &Name, file: &File) {
        let (key, bits) = match file.place {
            Place::Own => (txn.lease_key(name), Bits::NAMES | Bits::LIST),
            Place::Entry(_) | Place::Directory(_) => (file.fid.0, Bits::LEASE),
        };
        self.name(dir, txn.hash(name));
        let (name, child) = (Some(name.clone()), file.fid);
        self.withdraw(
            bits,
            Note {
                dir,
                key,
                name,
                child,
            },
        );
    }

    /// Attributes of a file that change, apart from its names.
    pub(super) fn attributes(&mut self, file: &File, bits: Bits) {
        if let Place::Entry(Spot { dir, .. }) = file.place {
            let note = Note {
                dir,
                key: file.fid.0,
                name: None,
                child: file.fid,
            };
            self.withdraw(Bits::CHILD, note);
        }
        self.lock(file.fid, Mode::EX, bits);
    }
}

/// One request, as its operation sees it.
pub trait Op {
    /// What it needs, found by looking names up; an error where it is already clear that it fails.
    fn needs(&self, _ctx: &Ctx<'_, '_>) -> Result<Needs> {
        Ok(Needs::default())
    }

    /// Does it, with all of that held. It looks names up again: had that a different answer, `needs` would
    /// have been asked once more. The reply carries no locks yet.
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply>;
}

pub(super) fn node(fid: Fid, inode: &Inode) -> Node {
    Node {
        fid,
        attr: inode.attr(),
        cover: Cover::None,
    }
}

pub(super) fn dir_state(fid: Fid, inode: &Inode) -> DirState {
    DirState {
        fid,
        attr: inode.attr(),
        version: 0,
    }
}

pub(super) fn too_many_links(dir: &Inode) -> Result<()> {
    let full = dir.nlink >= base::limits::LINKS_MAX;
    if full {
        Err(FsError::TooManyLinks.into())
    } else {
        Ok(())
    }
}
