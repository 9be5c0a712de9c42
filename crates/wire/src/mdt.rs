//! Requests to a metadata target, and their replies.

use base::{BootEpoch, Fid, FsError, LockHandle, Name, SequenceRange, Timestamp, Transno};
use serde::{Deserialize, Serialize};

use crate::attr::{DirState, Grant, Node};
pub use crate::attr::{Lease, NewFile, SizeUpdate};
pub use crate::open::{Access, OpenHandle, WriteTicket};
use crate::operations::operations;
pub use crate::page::{DirEntry, Page};
use crate::update::{Change, LeasedDir, UpdateNote};

/// Who asks: the kernel's view of the calling process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Caller {
    /// File system user id.
    pub uid: u32,
    /// File system group id.
    pub gid: u32,
}

/// Whether a client that opens a file has it open already. On the wire two booleans: whether it has, and
/// whether it wants the exclusive lock back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(bool, bool)", try_from = "(bool, bool)")]
pub enum OpenIntent {
    /// The client does not have it open. Permissions are checked, and a client that holds the file
    /// exclusively gives up its lock first.
    First,
    /// The client has it open already, under a lease or since before a restart, or only keeps the file
    /// alive. The open takes no lock, unless others believe a size that is no longer exact. It is not
    /// checked, it works on files without a name, and it grants no access to the bytes.
    Reopen,
    /// As [`OpenIntent::Reopen`], for writing, by a client that held the file exclusively before the target
    /// restarted. Until the target serves again, the client gets that lock back with the reply.
    ReopenExclusive,
}

impl OpenIntent {
    /// The client has the file open already.
    pub fn is_reopen(self) -> bool {
        self != OpenIntent::First
    }
}

impl From<OpenIntent> for (bool, bool) {
    fn from(intent: OpenIntent) -> (bool, bool) {
        match intent {
            OpenIntent::First => (false, false),
            OpenIntent::Reopen => (true, false),
            OpenIntent::ReopenExclusive => (true, true),
        }
    }
}

impl TryFrom<(bool, bool)> for OpenIntent {
    type Error = &'static str;

    fn try_from(pair: (bool, bool)) -> Result<OpenIntent, &'static str> {
        match pair {
            (false, false) => Ok(OpenIntent::First),
            (true, false) => Ok(OpenIntent::Reopen),
            (true, true) => Ok(OpenIntent::ReopenExclusive),
            (false, true) => Err("a first open cannot ask for an exclusive lock back"),
        }
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This time.
    At(Timestamp),
}

/// What a change takes from a file's mode. Nothing else but [`Privileges::Keep`] changes a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub enum Privileges {
    /// Nothing.
    #[default]
    Keep,
    /// setuid, and setgid where the group may execute.
    Drop,
    /// setuid and setgid: the caller is not of the file's group either.
    DropAll,
}

impl Privileges {
    /// What is left of the permission bits of a file that is no directory.
    pub fn left_of(self, mode: u16) -> u16 {
        let group_executes = mode & 0o010 != 0;
        match self {
            Privileges::Keep => mode,
            Privileges::Drop if !group_executes => mode & !0o4000,
            Privileges::Drop | Privileges::DropAll => mode & !0o6000,
        }
    }
}

/// Attributes to change; `None` leaves them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last content change.
    pub mtime: Option<SetTime>,
    /// Set by a client that changed the file under its own EX lock earlier; else the server's now,
    /// and not before this.
    pub ctime: Option<Timestamp>,
    /// What a truncating or writing client knows of the size.
    pub size: Option<SizeUpdate>,
    /// What a new owner, or a change of the content by another user, takes away.
    pub privileges: Privileges,
}

impl SetAttr {
    /// `uid` may change this of a file of this owner and mode. What is not said here the kernel of the mount
    /// has looked at.
    pub fn may_be_made_by(&self, uid: u32, (owner, mode): (u32, u16)) -> bool {
        const ROOT: u32 = 0;
        const SET_ID: u16 = 0o6000;
        let sets = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
        // A kernel that does not leave it to servers takes these bits where others write.
        let changes_mode = self
            .mode
            .is_some_and(|new| new | SET_ID != mode | SET_ID || new & !mode != 0);
        let is_for_owner = changes_mode
            || self.uid.is_some()
            || self.gid.is_some()
            || sets(self.atime)
            || sets(self.mtime);
        !is_for_owner || uid == ROOT || uid == owner
    }
}

/// How [`Request::Rename`] treats an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Fails with `Exists`.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// How [`Request::SetXattr`] treats an existing value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum XattrMode {
    /// Makes or replaces.
    Set,
    /// Fails with `Exists`.
    Create,
    /// Fails with `NoAttribute` where there is none.
    Replace,
}

/// What a client asks of an MDT. One per sub-message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// A range of FID sequences of one's own -> [`Reply::Sequences`].
    AllocSequences,
    /// Attributes by id -> [`Reply::Node`]. `dir` is where the client last saw it (zero if nowhere).
    GetAttr {
        /// The file.
        fid: Fid,
        /// A directory whose lease could cover it.
        dir: Fid,
    },
    /// A name -> [`Reply::Lookup`].
    Lookup {
        /// Where.
        dir: Fid,
        /// What.
        name: Name,
    },
    /// The directory in which `dir` is -> [`Reply::Node`].
    LookupParent {
        /// A directory.
        dir: Fid,
    },
    /// A page of a directory, in cookie order -> [`Reply::Page`].
    ReadDir {
        /// The directory.
        dir: Fid,
        /// Entries after this one; zero for the first.
        cookie: u64,
        /// Entries that shall carry attributes; the others come as names only.
        attrs_max: u32,
        /// Entries at most.
        entries_max: u32,
        /// Bytes of reply at most.
        bytes_max: u32,
    },
    /// A symlink's target -> [`Reply::Target`].
    ReadLink {
        /// The symlink.
        fid: Fid,
    },
    /// A new file of any kind -> [`Reply::Created`]. With `open` a regular file is opened too.
    Create {
        /// Where.
        dir: Fid,
        /// Its name.
        name: Name,
        /// What to make.
        file: NewFile,
        /// Who makes it.
        caller: Caller,
        /// Open it.
        open: Option<Access>,
    },
    /// One more name -> [`Reply::Linked`].
    Link {
        /// The file; not a directory.
        fid: Fid,
        /// Where.
        dir: Fid,
        /// The new name.
        name: Name,
    },
    /// Removes a name -> [`Reply::Unlinked`].
    Unlink {
        /// Where.
        dir: Fid,
        /// The name.
        name: Name,
        /// It must be an empty directory; else it must be none.
        directory: bool,
        /// Who.
        caller: Caller,
    },
    /// Moves a name -> [`Reply::Renamed`].
    Rename {
        /// From where.
        source_dir: Fid,
        /// The old name.
        source: Name,
        /// To where.
        target_dir: Fid,
        /// The new name.
        target: Name,
        /// What if the new name exists.
        mode: RenameMode,
        /// Who.
        caller: Caller,
        /// The id of a whiteout, a character device with number 0, to be left under the old name;
        /// minted by the client. Not with [`RenameMode::Exchange`].
        whiteout: Option<Fid>,
    },
    /// Changes attributes -> [`Reply::Node`].
    SetAttr {
        /// The file.
        fid: Fid,
        /// A directory whose lease could cover it.
        dir: Fid,
        /// What.
        change: SetAttr,
        /// Who.
        caller: Caller,
        /// The EX lock under which it was changed before; zero for a plain request. Refused with
        /// `Stale` when the client holds it no more. [`LockHandle::ENDED`]: one of a boot of the
        /// target that is over; such a change is made also while nobody is served yet.
        under: LockHandle,
    },
    /// Opens -> [`Reply::Opened`].
    Open {
        /// The file.
        fid: Fid,
        /// A directory whose lease could cover it.
        dir: Fid,
        /// For what.
        access: Access,
        /// Whether the client has it open already.
        intent: OpenIntent,
    },
    /// Closes -> [`Reply::Node`].
    Close {
        /// The file.
        fid: Fid,
        /// A directory whose lease could cover it.
        dir: Fid,
        /// Its handle.
        handle: OpenHandle,
        /// Attributes changed while it was open.
        change: SetAttr,
        /// The EX lock under which it was changed, given up with this; or zero.
        under: LockHandle,
    },
    /// All extended attributes -> [`Reply::Xattrs`].
    GetXattrs {
        /// The file.
        fid: Fid,
    },
    /// Sets one -> [`Reply::Node`].
    SetXattr {
        /// The file.
        fid: Fid,
        /// A directory whose lease could cover it.
        dir: Fid,
        /// Full name with prefix.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
        /// What if it exists.
        mode: XattrMode,
    },
    /// Removes one -> [`Reply::Node`].
    RemoveXattr {
        /// The file.
        fid: Fid,
        /// A directory whose lease could cover it.
        dir: Fid,
        /// Full name with prefix.
        name: Vec<u8>,
    },
    /// Gives locks back -> [`Reply::Done`].
    Cancel {
        /// Which.
        handles: Vec<LockHandle>,
    },
    /// Keeps only some bits, or a weaker mode, of a lock -> [`Reply::Done`].
    Convert {
        /// Which.
        handle: LockHandle,
        /// The mode to keep, as `dlm::Mode` numbers it.
        mode: u8,
        /// The bits to keep.
        bits: u32,
    },
    /// Answers when all the target has done so far is durable -> [`Reply::Done`].
    Sync,
    /// All that was open or changed here in earlier boots of the target is told -> [`Reply::Done`].
    Join {
        /// The target's boot that this is said to. An older one: nothing is done.
        boot_epoch: BootEpoch,
    },
    /// Space and files -> [`Reply::Space`].
    StatFs,
    /// A path of the file from the root -> [`Reply::Path`].
    PathOf {
        /// The file.
        fid: Fid,
    },
    /// Directories below each other, as a walker in this order reads them -> [`Reply::Walked`]. Each is
    /// listed whole, in cookie order, before its first subdirectory is entered.
    Walk {
        /// The client's name for the walk; zero: it has none, and nothing follows.
        walk: u64,
        /// Where the walk is: see [`WalkLevel`]. At most `base::limits::WALK_DEPTH_MAX`. Empty: where
        /// the answer before in the walk of this name ends, be it on its way yet; `TryAgain` where
        /// that is not known.
        levels: Vec<WalkLevel>,
        /// In which order subdirectories are entered. Where `levels` is empty the walk keeps its own.
        order: WalkOrder,
        /// Bytes of reply at most, but for the first page.
        bytes_max: u32,
        /// A walk that is not wanted any more; zero: none. What was asked of it is answered at once.
        instead_of: u64,
    },
    /// A new regular file without a name, open; it goes with its last use unless it is given a name
    /// before -> [`Reply::Created`] with cookie zero.
    CreateNameless {
        /// Whose group it may get, and where the client is allowed to make it.
        dir: Fid,
        /// What to make.
        file: NewFile,
        /// Who makes it.
        caller: Caller,
        /// For what it is open.
        open: Access,
    },
    /// Changes made under the write leases of directories, all or none -> [`Reply::Updated`], or
    /// [`Reply::UpdateRefused`].
    Update {
        /// The directories: one, or two.
        dirs: Vec<LeasedDir>,
        /// The changes, at most `base::limits::UPDATE_CHANGES_MAX`. Their order means nothing.
        changes: Vec<Change>,
    },
    /// The write lease of a directory, if no other client uses that -> [`Reply::WriteLease`].
    TakeLease {
        /// The directory.
        dir: Fid,
    },
    /// The write lease that the client had of a directory in the boot of the target before. It is asked for
    /// before the client is ready, while nobody is served yet -> [`Reply::WriteLease`].
    ReclaimLease {
        /// The directory. What was sent under the lease of that boot, and is sent again, counts as done under
        /// the new one.
        dir: Fid,
    },
}

/// Where a walk is in one directory. The levels of a walk are below each other, outermost first;
/// the walk goes on at the last, and when that is done at the one before (a walk is
/// named by directories, not by paths).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkLevel {
    /// The directory.
    pub dir: Fid,
    /// Entries up to this one are done with: listed, or, once it is listed, entered.
    pub cookie: u64,
    /// All of it is listed; its subdirectories are being entered.
    pub listed: bool,
}

/// In which order a walk enters the subdirectories of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WalkOrder {
    /// As they are listed: find, du, tar.
    Cookie,
    /// By the bytes of their names: ls, rsync.
    Name,
    /// Those nearer to the walk's first directory before those farther from it: bfs, and the caller
    /// that has a queue. One depth is gone through after the other, each from that first directory
    /// on; so what comes below a directory is in the order of its parents, and then as it is
    /// listed.
    Breadth {
        /// Of the directories that are listed now; the walk's first one is at zero. Less than
        /// `base::limits::WALK_DEPTH_MAX`.
        depth: u8,
        /// At this depth a directory was listed that has others below it: the next one is gone
        /// through too.
        deeper: bool,
    },
}

/// Space and files of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Space {
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes free.
    pub bytes_free: u64,
    /// Bytes free for ordinary users.
    pub bytes_available: u64,
    /// Files (or objects) there can be.
    pub files_total: u64,
    /// Of these free.
    pub files_free: u64,
    /// Of an OST: one past the last byte that an object can have there.
    pub object_bytes_max: u64,
    /// Of an OST: the same for those whose objects are on one disk. Zero: it has one of its own.
    pub disk: u64,
    /// Of an OST: with so many bytes that the client has written and not sent, all clients together find
    /// space there.
    pub unsent_max: u64,
    /// Files were removed whose space comes free in a moment: the numbers change by themselves.
    pub settling: bool,
}

/// What an MDT answers. Failures travel in the sub-message's status instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::large_enum_variant,
    reason = "replies are made once and encoded at once"
)]
pub enum Reply {
    /// Nothing to tell.
    Done,
    /// To [`Request::AllocSequences`].
    Sequences {
        /// The sequences.
        range: SequenceRange,
        /// The key by which names hash to their cookies (docs/disk.md).
        name_key: u64,
    },
    /// A file's attributes now.
    Node(Node),
    /// To [`Request::Lookup`].
    Lookup {
        /// What covers the name, or its absence.
        lease: Lease,
        /// The file; `None`: there is no such name (not an error, so that the lease can travel).
        node: Option<Node>,
    },
    /// To [`Request::ReadDir`].
    Page(Page),
    /// To [`Request::ReadLink`].
    Target(Vec<u8>),
    /// To [`Request::Create`] and [`Request::CreateNameless`].
    Created {
        /// The new file.
        node: Node,
        /// The new name's cookie.
        cookie: u64,
        /// The directory now.
        dir: DirState,
        /// The open file, or zero.
        handle: OpenHandle,
        /// For writing its objects.
        ticket: WriteTicket,
    },
    /// To [`Request::Link`].
    Linked {
        /// The file now; its own lock covers it from here on.
        node: Node,
        /// The new name's cookie.
        cookie: u64,
        /// The directory now.
        dir: DirState,
    },
    /// To [`Request::Unlink`].
    Unlinked {
        /// The directory now.
        dir: DirState,
        /// The file that had the name, with the links it has left.
        node: Node,
    },
    /// To [`Request::Rename`].
    Renamed {
        /// The directory it left, now.
        source_dir: DirState,
        /// The directory it came to, now.
        target_dir: DirState,
        /// What moved.
        node: Node,
        /// Its new name's cookie.
        cookie: u64,
        /// What had the name before, with the links it has left; for an exchange, what moved back.
        replaced: Option<Node>,
        /// For an exchange, the other's new cookie; that of the whiteout where there is one.
        replaced_cookie: u64,
        /// What has the old name now, if that was asked for.
        whiteout: Option<Node>,
    },
    /// To [`Request::Open`].
    Opened {
        /// The file.
        node: Node,
        /// Names the open file from now on.
        handle: OpenHandle,
        /// For writing its objects.
        ticket: WriteTicket,
    },
    /// To [`Request::GetXattrs`].
    Xattrs {
        /// Name and value, in name order.
        values: Vec<(Vec<u8>, Vec<u8>)>,
        /// The lock that covers them, if any.
        cover: Option<Grant>,
    },
    /// To [`Request::StatFs`].
    Space(Space),
    /// To [`Request::PathOf`]: relative to the root, components joined by `/`.
    Path(Vec<u8>),
    /// To [`Request::Walk`]. Directories that are gone, or that nothing may cover now, are left out.
    Walked {
        /// Each with the cookie that its first entry comes after.
        pages: Vec<(u64, Page)>,
        /// Of the symlinks among them; a target never changes.
        targets: Vec<(Fid, Vec<u8>)>,
        /// Where the walk goes on; empty at its end. There may be no pages and still more to come.
        next: Vec<WalkLevel>,
        /// In which order: that which was asked for, at its depth by now.
        order: WalkOrder,
    },
    /// To [`Request::Update`].
    Updated {
        /// The change's number, which is the version of all files in it.
        transno: Transno,
        /// The server's clock. No time that the client's clock gave is later.
        at: Timestamp,
        /// The version of leases from then on.
        version: u64,
        /// What the client does not know already, in the order of the changes.
        notes: Vec<UpdateNote>,
    },
    /// To [`Request::Update`]: nothing was changed.
    UpdateRefused {
        /// The place of the change that cannot be made.
        change: u16,
        /// Why.
        error: FsError,
    },
    /// To [`Request::TakeLease`] and [`Request::ReclaimLease`].
    WriteLease {
        /// The lock; `None`: others use the directory, or it is contended.
        grant: Option<Grant>,
        /// Files in it that other clients use: the lease does not cover these.
        outside: Vec<Fid>,
        /// There is no name in it.
        is_empty: bool,
    },
}

/// What an MDT asks of a client, on the control lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Callback {
    /// Give the lock back, or at least these bits. Acknowledged at once; a Cancel or Convert
    /// follows when what it covered is written and forgotten.
    Blocking {
        /// Which lock.
        handle: LockHandle,
        /// On what.
        fid: Fid,
        /// The bits somebody wants.
        bits: u32,
    },
    /// Forget one name or child of a leased directory; the lease stays. Acknowledged when the
    /// kernel has forgotten it too.
    Withdraw {
        /// The lease.
        handle: LockHandle,
        /// The directory.
        dir: Fid,
        /// What is withdrawn: NAMES, LIST, CHILD.
        bits: u32,
        /// The name, for NAMES.
        name: Option<Name>,
        /// The file behind the name, for CHILD and for names that lose their file; or zero.
        child: Fid,
        /// The lease's version from now on.
        version: u64,
    },
    /// What are the file's attributes under your EX lock? -> [`CallbackReply::Glimpse`].
    Glimpse {
        /// The EX lock.
        handle: LockHandle,
        /// The file.
        fid: Fid,
    },
    /// You hold too many locks: cancel the oldest.
    Shrink {
        /// How many to give back.
        locks: u32,
    },
    /// Somebody wants to open the file in a way that your use of it, to write or to execute, excludes.
    /// Where no process has it open so any more, its Close comes before the answer; else the answer
    /// comes soon, alone.
    EndIdleUse {
        /// The file.
        fid: Fid,
    },
}

/// What a client answers to a callback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallbackReply {
    /// Heard; for a withdrawal, and the end of a use: done.
    Done,
    /// The attributes as they are under the lock; `None`: held no more.
    Glimpse(Option<Glimpsed>),
}

/// A file's attributes as a holder of its EX lock has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glimpsed {
    /// The whole of it; `version` is the one it was changed from.
    pub attr: crate::attr::Attr,
}

impl Request {
    /// Changes the target: its reply carries a transno and is remembered for a resend.
    pub fn is_modification(&self) -> bool {
        !matches!(
            self,
            Request::GetAttr { .. }
                | Request::Lookup { .. }
                | Request::LookupParent { .. }
                | Request::ReadDir { .. }
                | Request::Walk { .. }
                | Request::ReadLink { .. }
                | Request::GetXattrs { .. }
                | Request::Cancel { .. }
                | Request::Convert { .. }
                | Request::Sync
                | Request::Join { .. }
                | Request::StatFs
                | Request::PathOf { .. }
                | Request::TakeLease { .. }
                | Request::ReclaimLease { .. }
        )
    }

    /// The files and directories of which it says or asks anything. Not those where a file was seen.
    pub fn fids(&self) -> Vec<Fid> {
        match self {
            Request::GetAttr { fid, .. }
            | Request::ReadLink { fid }
            | Request::SetAttr { fid, .. }
            | Request::Open { fid, .. }
            | Request::Close { fid, .. }
            | Request::GetXattrs { fid }
            | Request::SetXattr { fid, .. }
            | Request::RemoveXattr { fid, .. }
            | Request::PathOf { fid } => vec![*fid],
            Request::Lookup { dir, .. }
            | Request::LookupParent { dir }
            | Request::ReadDir { dir, .. }
            | Request::Create { dir, .. }
            | Request::CreateNameless { dir, .. }
            | Request::Unlink { dir, .. }
            | Request::TakeLease { dir }
            | Request::ReclaimLease { dir } => vec![*dir],
            Request::Link { fid, dir, .. } => vec![*fid, *dir],
            Request::Rename {
                source_dir,
                target_dir,
                ..
            } => vec![*source_dir, *target_dir],
            Request::Walk { levels, .. } => levels.iter().map(|level| level.dir).collect(),
            Request::Update { dirs, .. } => dirs.iter().map(|leased| leased.dir).collect(),
            Request::AllocSequences
            | Request::Cancel { .. }
            | Request::Convert { .. }
            | Request::Sync
            | Request::Join { .. }
            | Request::StatFs => Vec::new(),
        }
    }

    /// Gives back what others may wait for, or tells again, after a restart, what the target had
    /// known. No rule holds it: who waits for it would wait for longer, and who is held would be
    /// evicted.
    pub fn is_urgent(&self) -> bool {
        match self {
            Request::Cancel { .. } | Request::Convert { .. } => true,
            Request::Close { .. } | Request::Join { .. } | Request::Update { .. } => true,
            Request::ReclaimLease { .. } => true,
            Request::SetAttr { under, .. } => *under != LockHandle(0),
            Request::Open { intent, .. } => intent.is_reopen(),
            _ => false,
        }
    }

    /// Who asks, where the request says so.
    pub fn caller(&self) -> Option<Caller> {
        match self {
            Request::Create { caller, .. }
            | Request::CreateNameless { caller, .. }
            | Request::Unlink { caller, .. }
            | Request::Rename { caller, .. }
            | Request::SetAttr { caller, .. } => Some(*caller),
            _ => None,
        }
    }
}

operations! { Request:
    AllocSequences = "seq_alloc",
    GetAttr = "getattr",
    Lookup = "lookup",
    LookupParent = "lookup_parent",
    ReadDir = "readpage",
    ReadLink = "readlink",
    Create = "create",
    Link = "link",
    Unlink = "unlink",
    Rename = "rename",
    SetAttr = "setattr",
    Open = "open",
    Close = "close",
    GetXattrs = "getxattr",
    SetXattr = "setxattr",
    RemoveXattr = "removexattr",
    Cancel = "cancel",
    Convert = "convert",
    Sync = "sync",
    Join = "mdt_join",
    StatFs = "statfs",
    PathOf = "fid2path",
    Walk = "walk",
    CreateNameless = "create_nameless",
    Update = "update",
    TakeLease = "take_lease",
    ReclaimLease = "reclaim_lease",
}
