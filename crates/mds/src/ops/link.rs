//! `op.link`: one more name of a file that is no directory. From then on until one name is left,
//! its attributes are covered by a lock of its own, never by a directory's lease.

use base::limits::LINKS_MAX;
use base::{Fid, FsError, Name};
use dlm::Bits;
use wire::mdt::Reply;

use super::context::{Ctx, Needs, Op, dir_state, node};
use crate::namespace::{attach, may_be_named, move_out, names_changed, stop_being_nameless};
use crate::txn::{File, Result};

/// See [`wire::mdt::Request::Link`].
pub struct Link<'r> {
    pub fid: Fid,
    pub dir: Fid,
    pub name: &'r Name,
}

impl Op for Link<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        let file = self.check(ctx)?;
        let mut needs = Needs::default();
        needs.attributes(&file, Bits::PERM | Bits::UPDATE);
        needs.new_name(ctx.txn, self.dir, self.name);
        Ok(needs)
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let mut file = self.check(ctx)?;
        let mut dir = ctx.txn.live_dir(self.dir)?;
        move_out(ctx.txn, &mut file)?;
        let spot = ctx.txn.free_spot(self.dir, self.name)?;
        if file.inode.nlink == 0 {
            stop_being_nameless(ctx.txn, &file);
        }
        file.inode.nlink += 1;
        file.inode.ctime = ctx.txn.now;
        attach(ctx.txn, spot, self.name.clone(), &mut file);
        names_changed(ctx.txn, &mut dir, 1, 0);
        ctx.txn.save_dir(self.dir, &mut dir);
        Ok(Reply::Linked {
            node: node(self.fid, &file.inode),
            cookie: spot.cookie,
            dir: dir_state(self.dir, &dir),
        })
    }
}

impl Link<'_> {
    fn check(&self, ctx: &Ctx<'_, '_>) -> Result<File> {
        let file = ctx.txn.file(self.fid)?;
        ctx.txn.live_dir(self.dir)?;
        if ctx.txn.find(self.dir, self.name)?.is_some() {
            return Err(FsError::Exists.into());
        }
        match &file.inode {
            inode if inode.is_dir() => Err(FsError::NotPermitted.into()),
            // Where its last name went while it was open, it cannot come back.
            inode if inode.nlink == 0 && !may_be_named(ctx.txn, self.fid)? => {
                Err(FsError::NotFound.into())
            }
            inode if inode.nlink >= LINKS_MAX => Err(FsError::TooManyLinks.into()),
            _ => ctx.check_room().map(|()| file),
        }
    }
}
