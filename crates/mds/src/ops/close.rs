//! `op.close`: a use of a file ends, and with it what its user changed becomes known. When the last writer
//! says that the OSTs have all of it, the size is exact again, if no other client wrote meanwhile. A file
//! without names goes with its last use.

use base::{Fid, FsError, LockHandle};
use dlm::Bits;
use wire::mdt::{OpenHandle, Reply, SetAttr};

use super::access;
use super::context::{Ctx, Needs, Op, node};
use crate::namespace::end_orphan;
use crate::txn::{File, Result};

/// See [`wire::mdt::Request::Close`].
pub struct Close<'r> {
    pub fid: Fid,
    pub handle: OpenHandle,
    pub change: &'r SetAttr,
    pub under: LockHandle,
}

impl Op for Close<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        access::check_times(self.change)?;
        let file = self.check(ctx)?;
        let mut needs = Needs::default();
        let quiet = access::is_empty(self.change) || self.under != LockHandle::default();
        if !quiet && !file.inode.is_dir() {
            needs.attributes(&file, Bits::PERM | Bits::UPDATE);
        }
        Ok(needs)
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let mut file = self.check(ctx)?;
        if ctx.replay.is_some() {
            self.change(ctx, &mut file, false)?;
            return Ok(Reply::Node(node(self.fid, &file.inode)));
        }
        let open = ctx.opens.get(self.handle, ctx.who.client, self.fid)?;
        if self.change.size.is_some() && !open.access.write {
            return Err(FsError::BadHandle.into());
        }
        if !access::is_empty(self.change) {
            let alone = ctx.opens.knows_bytes(self.fid, self.handle);
            self.change(ctx, &mut file, alone)?;
        }
        let last = !ctx.opens.is_open_beside(self.fid, self.handle);
        if file.inode.nlink == 0 && last && !ctx.grace {
            end_orphan(ctx.txn, ctx.opens, &file);
        }
        ctx.opens.remove(self.handle);
        Ok(Reply::Node(node(self.fid, &file.inode)))
    }
}

impl Close<'_> {
    fn check(&self, ctx: &Ctx<'_, '_>) -> Result<File> {
        if ctx.replay.is_none() {
            ctx.opens.get(self.handle, ctx.who.client, self.fid)?;
        }
        ctx.txn.file(self.fid)
    }

    /// `alone`: nobody else has it open for writing, or had meanwhile.
    fn change(&self, ctx: &mut Ctx<'_, '_>, file: &mut File, alone: bool) -> Result<()> {
        access::apply(ctx, &mut file.inode, self.change, alone)?;
        // A close tells of the past: it is no change of its own, so the clock stays out of it.
        let told = self.change.ctime.unwrap_or(file.inode.ctime);
        let ctime = access::ctime_with_bytes(told, self.change);
        file.inode.ctime = file.inode.ctime.later(ctime);
        ctx.txn.save(file)
    }
}
