//! `op.unlink`, `op.rmdir`: a name goes. A file without names lives on while somebody has it open; else it is
//! gone, and the same change orders its objects to be removed. A directory must be empty.

use base::{Fid, FsError, Name};
use dlm::Mode;
use wire::mdt::{Caller, Reply};

use super::context::{ALL_BITS, Ctx, Needs, Op, dir_state, node};
use crate::keys::Spot;
use crate::namespace::{self, check_sticky, names_changed};
use crate::records::Inode;
use crate::txn::{File, Result};

/// See [`wire::mdt::Request::Unlink`].
pub struct Unlink<'r> {
    pub dir: Fid,
    pub name: &'r Name,
    pub directory: bool,
    pub caller: Caller,
}

impl Op for Unlink<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        let (dir, _, file) = self.find(ctx)?;
        // Who has the file to itself may have given it another owner.
        if check_sticky(&dir, &file.inode, self.caller.uid).is_ok() {
            self.check_kind(&file)?;
        }
        let mut needs = Needs::default();
        needs.lost_name(ctx.txn, self.dir, self.name, &file);
        needs.lock(file.fid, Mode::EX, ALL_BITS);
        Ok(needs)
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let (mut dir, spot, mut file) = self.find(ctx)?;
        check_sticky(&dir, &file.inode, self.caller.uid)?;
        self.check_kind(&file)?;
        let in_use = ctx.in_use(file.fid);
        namespace::unlink(ctx.txn, ctx.opens, spot, &mut file, in_use)?;
        names_changed(ctx.txn, &mut dir, -1, -i32::from(self.directory));
        ctx.txn.save_dir(self.dir, &mut dir);
        Ok(Reply::Unlinked {
            dir: dir_state(self.dir, &dir),
            node: node(file.fid, &file.inode),
        })
    }
}

impl Unlink<'_> {
    fn find(&self, ctx: &Ctx<'_, '_>) -> Result<(Inode, Spot, File)> {
        let dir = ctx.txn.dir(self.dir)?;
        let (spot, dirent) = ctx.txn.find_some(self.dir, self.name)?;
        let file = ctx.txn.file(dirent.fid)?;
        Ok((dir, spot, file))
    }

    fn check_kind(&self, file: &File) -> Result<()> {
        match (self.directory, file.inode.is_dir()) {
            (true, false) => Err(FsError::NotDirectory.into()),
            (false, true) => Err(FsError::IsDirectory.into()),
            (true, true) if file.inode.entries > 0 => Err(FsError::NotEmpty.into()),
            _ => Ok(()),
        }
    }
}
