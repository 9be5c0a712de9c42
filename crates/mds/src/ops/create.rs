//! `op.create`, `op.mkdir`, `op.mknod`, `op.symlink`: a new file of any kind appears under a free name, whole or not at all.
//!
//! A directory with the set-group-id bit gives its group, and to directories the bit, to what is
//! made in it. With `open` a regular file is opened by the same step, so nobody can come between.

use base::limits::SYMLINK_BYTES_MAX;
use base::{Fid, FsError, Name, TargetIndex};
use layout::Layout;
use wire::mdt::{Access, Caller, NewFile, OpenHandle, Reply, WriteTicket};
use wire::{FileKind, SizeState};

use super::{Ctx, Needs, Op, dir_state, node, too_many_links};
use crate::keys;
use crate::keys::Table;
use crate::mutation::Mutation;
use crate::namespace::{S_ISGID, attach, names_changed};
use crate::opens::Open;
use crate::records::{DIRECTORY_BYTES, Inode, Place, SequenceOwner};
use crate::txn::{File, Result};

/// See [`wire::mdt::Request::Create`].
pub struct Create<'r> {
    pub dir: Fid,
    pub name: &'r Name,
    pub file: &'r NewFile,
    pub caller: Caller,
    pub open: Option<Access>,
}

impl Op for Create<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        self.check(ctx)?;
        let mut needs = Needs::default();
        needs.new_name(ctx.txn, self.dir, self.name);
        Ok(needs)
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        self.check(ctx)?;
        let mut dir = ctx.txn.live_dir(self.dir)?;
        let spot = ctx.txn.free_spot(self.dir, self.name)?;
        let inode = self.inode(ctx, &dir)?;
        let is_dir = inode.is_dir();
        if is_dir {
            too_many_links(&dir)?;
        }
        let mut file = File {
            fid: self.file.fid,
            place: Place::Own,
            inode,
        };
        let (handle, ticket) = self.open(ctx, &mut file)?;
        attach(ctx.txn, spot, self.name.clone(), &mut file);
        if self.file.kind == FileKind::Symlink {
            let target = self.file.target.clone();
            ctx.txn.change(Mutation::PutTarget(self.file.fid, target));
        }
        names_changed(ctx.txn, &mut dir, 1, i32::from(is_dir));
        ctx.txn.save_dir(self.dir, &mut dir);
        ctx.txn.state.files += 1;
        Ok(Reply::Created {
            node: node(self.file.fid, &file.inode),
            cookie: spot.cookie,
            dir: dir_state(self.dir, &dir),
            handle,
            ticket,
        })
    }
}

impl Create<'_> {
    /// What forbids it, as far as that can be seen without locks.
    fn check(&self, ctx: &Ctx<'_, '_>) -> Result<()> {
        ctx.txn.live_dir(self.dir)?;
        if ctx.txn.find(self.dir, self.name)?.is_some() {
            return Err(FsError::Exists.into());
        }
        self.check_kind()?;
        self.check_fid(ctx)?;
        if ctx.txn.state.files >= ctx.rules.files_max {
            return Err(FsError::NoSpace.into());
        }
        ctx.check_room()
    }

    fn check_kind(&self) -> Result<()> {
        let target = &self.file.target;
        let symlink = self.file.kind == FileKind::Symlink;
        let refused = if symlink && target.is_empty() {
            Some(FsError::NotFound)
        } else if symlink && target.len() > SYMLINK_BYTES_MAX {
            Some(FsError::NameTooLong)
        } else if symlink == target.is_empty()
            || target.contains(&0)
            || (self.open.is_some() && self.file.kind != FileKind::Regular)
        {
            Some(FsError::Invalid)
        } else {
            None
        };
        refused.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The FID is of a sequence granted to this client, and no file's yet.
    fn check_fid(&self, ctx: &Ctx<'_, '_>) -> Result<()> {
        let fid = self.file.fid;
        let key = keys::sequence(fid.sequence());
        let owner: Option<SequenceOwner> = ctx.txn.store().get(Table::Sequences, &key)?;
        let owned = owner.is_some_and(|owner| owner.client == ctx.who.uuid);
        if !owned || ctx.txn.place(fid)?.is_some() {
            return Err(FsError::Invalid.into());
        }
        Ok(())
    }

    fn inode(&self, ctx: &Ctx<'_, '_>, dir: &Inode) -> Result<Inode> {
        let (now, kind) = (ctx.txn.now, self.file.kind);
        let inherits = dir.mode & S_ISGID != 0;
        let inherited = if inherits && kind == FileKind::Directory {
            S_ISGID
        } else {
            0
        };
        let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let (size, blocks) = match kind {
            FileKind::Directory => (DIRECTORY_BYTES, DIRECTORY_BYTES / 512),
            _ => (self.file.target.len() as u64, 0),
        };
        Ok(Inode {
            kind,
            mode: (self.file.mode & 0o7777) | inherited,
            uid: self.caller.uid,
            gid: if inherits { dir.gid } else { self.caller.gid },
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            rdev: if device { self.file.rdev } else { 0 },
            has_xattrs: false,
            size_state: SizeState::Strict,
            written: false,
            layout: self.layout(ctx)?,
            atime: now,
            mtime: now,
            mtime_set: now,
            ctime: now,
            btime: now,
            size,
            blocks,
            version: ctx.txn.transno.0,
            entries: 0,
        })
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
