//! `op.create`, `op.mkdir`, `op.mknod`, `op.symlink`: a new file of any kind appears under a free name,
//! whole or not at all. With `open` a regular file is opened by the same step, so nobody can come
//! between; one without a name is an orphan from the beginning (`op.tmpfile`).

use base::limits::SYMLINK_BYTES_MAX;
use base::{Fid, FsError, Name, TargetIndex};
use layout::Layout;
use wire::attr::inherited;
use wire::mdt::{Access, Caller, NewFile, OpenHandle, Reply, WriteTicket};
use wire::{FileKind, SizeState};

use super::context::{Ctx, Needs, Op, dir_state, node, too_many_links};
use crate::keys;
use crate::keys::Table;
use crate::mutation::Mutation;
use crate::namespace::{attach, born_nameless, names_changed};
use crate::opens::Open;
use crate::records::{DIRECTORY_BYTES, Inode, Place, SequenceOwner};
use crate::txn::{File, Result};

/// See [`wire::mdt::Request::Create`] and [`wire::mdt::Request::CreateNameless`].
pub struct Create<'r> {
    pub dir: Fid,
    pub name: Option<&'r Name>,
    pub file: &'r NewFile,
    pub caller: Caller,
    pub open: Option<Access>,
}

impl Op for Create<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        self.check(ctx)?;
        let mut needs = Needs::default();
        if let Some(name) = self.name {
            needs.new_name(ctx.txn, self.dir, name);
        }
        Ok(needs)
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        self.check(ctx)?;
        let mut dir = ctx.txn.live_dir(self.dir)?;
        let inode = self.inode(ctx, &dir)?;
        let mut file = File {
            fid: self.file.fid,
            place: Place::Own,
            inode,
        };
        let (handle, ticket) = self.open(ctx, &mut file)?;
        let cookie = match self.name {
            Some(name) => self.name_it(ctx, &mut dir, name, &mut file)?,
            None => {
                file.inode.nlink = 0;
                born_nameless(ctx.txn, &mut file);
                0
            }
        };
        ctx.txn.state.files += 1;
        Ok(Reply::Created {
            node: node(self.file.fid, &file.inode),
            cookie,
            dir: dir_state(self.dir, &dir),
            handle,
            ticket,
        })
    }
}

/// The id can be that of a new file: it is of a sequence granted to the client, and no file's yet.
pub fn check_new(ctx: &Ctx<'_, '_>, fid: Fid) -> Result<()> {
    if !owns(ctx, fid)? || ctx.txn.place(fid)?.is_some() {
        return Err(FsError::Invalid.into());
    }
    if ctx.txn.state.files >= ctx.rules.files_max {
        return Err(FsError::NoSpace.into());
    }
    ctx.check_room()
}

/// The id is of a sequence granted to the client.
pub fn owns(ctx: &Ctx<'_, '_>, fid: Fid) -> Result<bool> {
    let key = keys::sequence(fid.sequence());
    let owner: Option<SequenceOwner> = ctx.txn.store().get(Table::Sequences, &key)?;
    Ok(owner.is_some_and(|owner| owner.client == ctx.who.uuid))
}

/// There can be such a file. With `is_open` it is to be opened, too.
pub fn check_kind(file: &NewFile, is_open: bool) -> Result<()> {
    let target = &file.target;
    let symlink = file.kind == FileKind::Symlink;
    let refused = if symlink && target.is_empty() {
        Some(FsError::NotFound)
    } else if symlink && target.len() > SYMLINK_BYTES_MAX {
        Some(FsError::NameTooLong)
    } else if symlink == target.is_empty()
        || target.contains(&0)
        || (is_open && file.kind != FileKind::Regular)
    {
        Some(FsError::Invalid)
    } else {
        None
    };
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// A new file in `dir` that has neither bytes nor names in it. A directory with the set-group-id bit
/// gives its group, and to directories the bit, to what is made in it.
pub fn plain_inode(
    ctx: &Ctx<'_, '_>,
    dir: &Inode,
    (kind, mode): (FileKind, u16),
    caller: Caller,
) -> Inode {
    let now = ctx.txn.now;
    let is_directory = kind == FileKind::Directory;
    let (mode, gid) = inherited((dir.mode, dir.gid), kind, (mode, caller.gid));
    Inode {
        kind,
        mode,
        uid: caller.uid,
        gid,
        nlink: if is_directory { 2 } else { 1 },
        rdev: 0,
        has_xattrs: false,
        size_state: SizeState::Strict,
        written: false,
        layout: Layout::none(),
        atime: now,
        mtime: now,
        mtime_set: now,
        ctime: now,
        btime: now,
        size: if is_directory { DIRECTORY_BYTES } else { 0 },
        blocks: if is_directory {
            DIRECTORY_BYTES / 512
        } else {
            0
        },
        version: ctx.txn.transno.0,
        entries: 0,
    }
}

impl Create<'_> {
    /// What forbids it, as far as that can be seen without locks.
    fn check(&self, ctx: &Ctx<'_, '_>) -> Result<()> {
        ctx.txn.live_dir(self.dir)?;
        if let Some(name) = self.name
            && ctx.txn.find(self.dir, name)?.is_some()
        {
            return Err(FsError::Exists.into());
        }
        check_kind(self.file, self.open.is_some())?;
        check_new(ctx, self.file.fid)
    }

    /// Puts it under its name; the name's cookie.
    fn name_it(
        &self,
        ctx: &mut Ctx<'_, '_>,
        dir: &mut Inode,
        name: &Name,
        file: &mut File,
    ) -> Result<u64> {
        let spot = ctx.txn.free_spot(self.dir, name)?;
        let is_dir = file.inode.is_dir();
        if is_dir {
            too_many_links(dir)?;
        }
        attach(ctx.txn, spot, name.clone(), file);
        if self.file.kind == FileKind::Symlink {
            let target = self.file.target.clone();
            ctx.txn.change(Mutation::PutTarget(self.file.fid, target));
        }
        names_changed(ctx.txn, dir, 1, i32::from(is_dir));
        ctx.txn.save_dir(self.dir, dir);
        Ok(spot.cookie)
    }

    fn inode(&self, ctx: &Ctx<'_, '_>, dir: &Inode) -> Result<Inode> {
        let kind = self.file.kind;
        let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let mut inode = plain_inode(ctx, dir, (kind, self.file.mode), self.caller);
        if kind != FileKind::Directory {
            inode.size = self.file.target.len() as u64;
        }
        inode.rdev = if device { self.file.rdev } else { 0 };
        inode.layout = self.layout(ctx)?;
        Ok(inode)
    }

    fn layout(&self, ctx: &Ctx<'_, '_>) -> Result<Layout> {
        if self.file.kind != FileKind::Regular {
            return Ok(Layout::none());
        }
        if let Some(Reply::Created { node, .. }) = ctx.replay {
            // Bytes may be there already.
            return Ok(node.attr.layout.clone());
        }
        let osts = &ctx.rules.osts;
        let turn = ctx
            .txn
            .transno
            .0
            .checked_rem(osts.len() as u64)
            .ok_or(FsError::NoSpace)?;
        let ost: TargetIndex = osts[turn as usize];
        Ok(Layout::single(ost))
    }

    fn open(&self, ctx: &mut Ctx<'_, '_>, file: &mut File) -> Result<(OpenHandle, WriteTicket)> {
        let Some(access) = self.open else {
            return Ok((OpenHandle::default(), WriteTicket::default()));
        };
        if access.write {
            file.inode.size_state = SizeState::Ask;
            file.inode.written = true;
        }
        if ctx.replay.is_some() {
            return Ok((OpenHandle::default(), WriteTicket::default()));
        }
        let client = ctx.who.client;
        let handle = ctx.opens.add(Open {
            fid: file.fid,
            client,
            access,
        })?;
        let ticket = match access.write {
            true => ctx.opens.ticket(file.inode.layout.generation),
            false => WriteTicket::default(),
        };
        Ok((handle, ticket))
    }
}
