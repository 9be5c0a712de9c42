//! `op.rename`: a name moves, in one step: nobody sees both or neither. An existing target is replaced,
//! refused or swapped; a whiteout may stay behind. No directory ever gets into its own subtree, for
//! directories move between parents one at a time.

use base::{Fid, FsError, Name};
use dlm::{Bits, Mode};
use wire::mdt::{Caller, RenameMode, Reply};
use wire::{FileKind, Node};

use super::context::{ALL_BITS, Ctx, Needs, Op, dir_state, node, too_many_links};
use super::create;
use crate::keys::Spot;
use crate::namespace::{self, attach, check_sticky, detach, names_changed};
use crate::records::{Inode, Place};
use crate::txn::{File, Result};

/// See [`wire::mdt::Request::Rename`].
pub struct Rename<'r> {
    pub source_dir: Fid,
    pub source: &'r Name,
    pub target_dir: Fid,
    pub target: &'r Name,
    pub mode: RenameMode,
    pub caller: Caller,
    pub whiteout: Option<Fid>,
}

/// The names as they are now.
struct Found {
    source: (Spot, File),
    target: Option<(Spot, File)>,
}

/// The two directories, which may be one.
struct Dirs {
    source: Fid,
    target: Fid,
    source_inode: Inode,
    /// `None`: the source directory again.
    target_inode: Option<Inode>,
}

impl Op for Rename<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        let mut needs = Needs::default();
        let Some((found, dirs)) = self.find(ctx)? else {
            return Ok(needs);
        };
        // Who has a file to itself may have given it another owner.
        if self.check_owners(&found, &dirs).is_ok() {
            self.check_rest(ctx, &found, &dirs)?;
        }
        let (_, source) = &found.source;
        needs.lost_name(ctx.txn, self.source_dir, self.source, source);
        self.needs_of_moved(source, &mut needs);
        match &found.target {
            None => needs.new_name(ctx.txn, self.target_dir, self.target),
            Some((_, target)) => {
                needs.lost_name(ctx.txn, self.target_dir, self.target, target);
                if self.mode == RenameMode::Exchange {
                    self.needs_of_moved(target, &mut needs);
                } else {
                    needs.lock(target.fid, Mode::EX, ALL_BITS);
                }
            }
        }
        Ok(needs)
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let Some((mut found, mut dirs)) = self.find(ctx)? else {
            return self.nothing(ctx);
        };
        self.check_owners(&found, &dirs)?;
        self.check_rest(ctx, &found, &dirs)?;
        let (spot, source) = &mut found.source;
        source.inode.ctime = ctx.txn.now;
        match (&mut found.target, self.mode) {
            (Some((target_spot, target)), RenameMode::Exchange) => {
                self.exchange(ctx, &mut dirs, (*spot, source), (*target_spot, target))
            }
            (target, _) => self.replace(ctx, &mut dirs, (*spot, source), target.as_mut()),
        }
    }
}

impl Rename<'_> {
    fn crosses(&self) -> bool {
        self.source_dir != self.target_dir
    }

    /// Attributes and, of a directory, the parent change with the name.
    fn needs_of_moved(&self, file: &File, needs: &mut Needs) {
        if file.inode.is_dir() {
            needs.lock(file.fid, Mode::EX, Bits::LIST | Bits::PERM);
            if self.crosses() {
                needs.rename_lock();
            }
        } else {
            needs.lock(file.fid, Mode::EX, Bits::PERM | Bits::UPDATE);
        }
    }

    /// The names, if the rename is possible by the names alone; `None`: both name one file, and nothing
    /// happens.
    fn find(&self, ctx: &Ctx<'_, '_>) -> Result<Option<(Found, Dirs)>> {
        let txn = &ctx.txn;
        txn.dir(self.source_dir)?;
        let (spot, dirent) = txn.find_some(self.source_dir, self.source)?;
        let dirs = self.dirs(ctx)?;
        let target = txn.find(self.target_dir, self.target)?;
        match (&target, self.mode) {
            (Some(_), RenameMode::NoReplace) => return Err(FsError::Exists.into()),
            (None, RenameMode::Exchange) => return Err(FsError::NotFound.into()),
            // A removed directory takes no names, and has no parents to look for a ring in.
            (None, _) if dirs.target_ref().nlink == 0 => return Err(FsError::NotFound.into()),
            (Some((_, target)), _) if target.fid == dirent.fid => return Ok(None),
            _ => {}
        }
        let source = (spot, txn.file(dirent.fid)?);
        let target = match target {
            Some((spot, dirent)) => Some((spot, txn.file(dirent.fid)?)),
            None => None,
        };
        let found = Found { source, target };
        self.check_ring(ctx, &found)?;
        Ok(Some((found, dirs)))
    }

    /// What is looked at after the owners.
    fn check_rest(&self, ctx: &Ctx<'_, '_>, found: &Found, dirs: &Dirs) -> Result<()> {
        self.check_kinds(found, dirs)?;
        if found.target.is_none() {
            ctx.check_room()?;
        }
        if let Some(fid) = self.whiteout {
            if self.mode == RenameMode::Exchange {
                return Err(FsError::Invalid.into());
            }
            create::check_new(ctx, fid)?;
        }
        Ok(())
    }

    fn dirs(&self, ctx: &Ctx<'_, '_>) -> Result<Dirs> {
        let source_inode = ctx.txn.dir(self.source_dir)?;
        let target_inode = if self.crosses() {
            Some(ctx.txn.dir(self.target_dir)?)
        } else {
            None
        };
        Ok(Dirs {
            source: self.source_dir,
            target: self.target_dir,
            source_inode,
            target_inode,
        })
    }

    fn check_ring(&self, ctx: &Ctx<'_, '_>, found: &Found) -> Result<()> {
        let inside = |dir: Fid, file: &File| -> Result<bool> {
            Ok(file.inode.is_dir() && self.crosses() && ctx.txn.is_inside(dir, file.fid)?)
        };
        if inside(self.target_dir, &found.source.1)? {
            return Err(FsError::Invalid.into());
        }
        let error = match self.mode {
            RenameMode::Exchange => FsError::Invalid,
            // What holds the source is not empty, whatever kind the source is.
            _ => FsError::NotEmpty,
        };
        match &found.target {
            Some((_, target)) if inside(self.source_dir, target)? => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn check_owners(&self, found: &Found, dirs: &Dirs) -> Result<()> {
        check_sticky(&dirs.source_inode, &found.source.1.inode, self.caller.uid)?;
        if let Some((_, target)) = &found.target {
            check_sticky(dirs.target_ref(), &target.inode, self.caller.uid)?;
        }
        Ok(())
    }

    fn check_kinds(&self, found: &Found, dirs: &Dirs) -> Result<()> {
        let source_is_dir = found.source.1.inode.is_dir();
        let target = found.target.as_ref().map(|(_, file)| &file.inode);
        let target_is_dir = target.is_some_and(Inode::is_dir);
        if self.mode != RenameMode::Exchange {
            match (source_is_dir, target) {
                (true, Some(target)) if !target.is_dir() => {
                    return Err(FsError::NotDirectory.into());
                }
                (false, Some(target)) if target.is_dir() => {
                    return Err(FsError::IsDirectory.into());
                }
                (true, Some(target)) if target.entries > 0 => {
                    return Err(FsError::NotEmpty.into());
                }
                _ => {}
            }
        }
        if self.crosses() && source_is_dir && !target_is_dir {
            too_many_links(dirs.target_ref())?;
        }
        let back = self.mode == RenameMode::Exchange && target_is_dir && !source_is_dir;
        if self.crosses() && back {
            too_many_links(&dirs.source_inode)?;
        }
        Ok(())
    }

    /// Both names are one file's already.
    fn nothing(&self, ctx: &Ctx<'_, '_>) -> Result<Reply> {
        let dirs = self.dirs(ctx)?;
        let (_, dirent) = ctx.txn.find_some(self.source_dir, self.source)?;
        let (spot, _) = ctx.txn.find_some(self.target_dir, self.target)?;
        let file = ctx.txn.file(dirent.fid)?;
        Ok(Reply::Renamed {
            source_dir: dir_state(dirs.source, &dirs.source_inode),
            target_dir: dir_state(dirs.target, dirs.target_ref()),
            node: node(file.fid, &file.inode),
            cookie: spot.cookie,
            replaced: None,
            replaced_cookie: 0,
            whiteout: None,
        })
    }

    fn replace(
        &self,
        ctx: &mut Ctx<'_, '_>,
        dirs: &mut Dirs,
        (spot, source): (Spot, &mut File),
        target: Option<&mut (Spot, File)>,
    ) -> Result<Reply> {
        detach(ctx.txn, spot, source);
        // Before the new name could take the place of the old one.
        let whiteout = self.leave_whiteout(ctx, &dirs.source_inode, spot);
        let (mut replaced, mut entries, mut subdirs) = (None, 1, i32::from(source.inode.is_dir()));
        let new_spot = match target {
            None => ctx.txn.free_spot(self.target_dir, self.target)?,
            Some((target_spot, target)) => {
                entries -= 1;
                subdirs -= i32::from(target.inode.is_dir());
                let in_use = ctx.in_use(target.fid);
                namespace::unlink(ctx.txn, ctx.opens, *target_spot, target, in_use)?;
                replaced = Some(node(target.fid, &target.inode));
                *target_spot
            }
        };
        attach(ctx.txn, new_spot, self.target.clone(), source);
        names_changed(
            ctx.txn,
            &mut dirs.source_inode,
            i64::from(whiteout.is_some()) - 1,
            -i32::from(source.inode.is_dir()),
        );
        names_changed(ctx.txn, dirs.target_mut(), entries, subdirs);
        dirs.save(ctx);
        let back = whiteout.as_ref().map_or(0, |_| spot.cookie);
        Ok(dirs.reply(source, new_spot.cookie, (replaced, back), whiteout))
    }

    /// What is asked for in the place of the old name. It has no permissions, and is nobody's device.
    fn leave_whiteout(&self, ctx: &mut Ctx<'_, '_>, dir: &Inode, spot: Spot) -> Option<Node> {
        let fid = self.whiteout?;
        let inode = create::plain_inode(ctx, dir, (FileKind::CharDevice, 0), self.caller);
        let mut file = File {
            fid,
            place: Place::Own,
            inode,
        };
        attach(ctx.txn, spot, self.source.clone(), &mut file);
        ctx.txn.state.files += 1;
        Some(node(fid, &file.inode))
    }

    fn exchange(
        &self,
        ctx: &mut Ctx<'_, '_>,
        dirs: &mut Dirs,
        (spot, source): (Spot, &mut File),
        (target_spot, target): (Spot, &mut File),
    ) -> Result<Reply> {
        target.inode.ctime = ctx.txn.now;
        detach(ctx.txn, spot, source);
        detach(ctx.txn, target_spot, target);
        attach(ctx.txn, target_spot, self.target.clone(), source);
        attach(ctx.txn, spot, self.source.clone(), target);
        let subdirs = i32::from(source.inode.is_dir()) - i32::from(target.inode.is_dir());
        names_changed(ctx.txn, &mut dirs.source_inode, 0, -subdirs);
        names_changed(ctx.txn, dirs.target_mut(), 0, subdirs);
        dirs.save(ctx);
        let back = Some(node(target.fid, &target.inode));
        Ok(dirs.reply(source, target_spot.cookie, (back, spot.cookie), None))
    }
}

impl Dirs {
    fn target_ref(&self) -> &Inode {
        self.target_inode.as_ref().unwrap_or(&self.source_inode)
    }

    fn target_mut(&mut self) -> &mut Inode {
        self.target_inode.as_mut().unwrap_or(&mut self.source_inode)
    }

    fn save(&mut self, ctx: &mut Ctx<'_, '_>) {
        ctx.txn.save_dir(self.source, &mut self.source_inode);
        if let Some(inode) = &mut self.target_inode {
            ctx.txn.save_dir(self.target, inode);
        }
    }

    fn reply(
        &self,
        moved: &File,
        cookie: u64,
        (replaced, replaced_cookie): (Option<Node>, u64),
        whiteout: Option<Node>,
    ) -> Reply {
        Reply::Renamed {
            source_dir: dir_state(self.source, &self.source_inode),
            target_dir: dir_state(self.target, self.target_ref()),
            node: node(moved.fid, &moved.inode),
            cookie,
            replaced,
            replaced_cookie,
            whiteout,
        }
    }
}
