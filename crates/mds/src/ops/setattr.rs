//! `op.setattr`: mode, owner, times, and what a writer knows of the size. A change of the owner
//! takes set-user-id and set-group-id away. With `under` it tells what was done earlier under an
//! exclusive lock, which the core has checked is still held, or which ended with a boot of the target.

use std::borrow::Cow;

use base::{Fid, FsError, LockHandle};
use dlm::{Bits, Mode};
use wire::mdt::{Caller, Reply, SetAttr};

use super::access;
use super::context::{Ctx, Needs, Op, node};
use crate::records::Inode;
use crate::txn::Result;

/// See [`wire::mdt::Request::SetAttr`].
pub struct SetAttrOp<'r> {
    pub fid: Fid,
    pub change: &'r SetAttr,
    pub under: LockHandle,
    pub caller: Caller,
}

impl Op for SetAttrOp<'_> {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        access::check_times(self.change)?;
        let file = ctx.txn.file(self.fid)?;
        let mut needs = Needs::default();
        if self.holds_lock() {
            // Nobody else relies on anything of this file; and who waits for the lock waits for us.
        } else if file.inode.is_dir() {
            let times = self.change.atime.is_some() || self.change.mtime.is_some();
            let bits = if times {
                Bits::PERM | Bits::LIST
            } else {
                Bits::PERM
            };
            needs.lock(self.fid, Mode::EX, bits);
        } else {
            needs.attributes(&file, Bits::PERM | Bits::UPDATE);
        }
        Ok(needs)
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let mut file = ctx.txn.file(self.fid)?;
        self.check_caller(&file.inode)?;
        let may_tell_size = self.holds_lock() || ctx.opens.is_writer(self.fid, ctx.who.client);
        let mut change = Cow::Borrowed(self.change);
        if change.size.is_some() && !may_tell_size && !file.inode.is_dir() {
            if !ctx.grace {
                return Err(FsError::Invalid.into());
            }
            // A writer that has yet to tell of itself after a restart: the file's size is asked of
            // the OSTs until its last writer has closed it.
            change.to_mut().size = None;
        }
        if self.under == LockHandle::default()
            && let Some(written) = change.ctime
        {
            // The change is made now: not before the bytes that the client knows of.
            change.to_mut().ctime = Some(written.later(ctx.txn.now));
        }
        let alone = !ctx.opens.has_writer(self.fid);
        access::apply(ctx, &mut file.inode, &change, alone)?;
        let ctime = match self.is_of_bytes() {
            true => file.inode.ctime,
            false => change.ctime.unwrap_or(ctx.txn.now),
        };
        // It may have been made before another change of the same client, of which the MDT was told at once.
        let ctime = ctime.later(file.inode.ctime);
        let ctime = match change.mtime {
            Some(_) => ctime.later(file.inode.mtime_set),
            None => ctime,
        };
        file.inode.ctime = access::ctime_with_bytes(ctime, &change);
        ctx.txn.save(&mut file)?;
        Ok(Reply::Node(node(self.fid, &file.inode)))
    }
}

impl SetAttrOp<'_> {
    /// It says nothing but what became of the file's bytes: that was when they were written, and is no
    /// change of now.
    fn is_of_bytes(&self) -> bool {
        let size = self.change.size;
        let bytes = SetAttr {
            size,
            ..SetAttr::default()
        };
        size.is_some() && *self.change == bytes
    }

    /// The kernel of the mount has let the caller do it. Since then the file may have got another owner.
    fn check_caller(&self, inode: &Inode) -> Result<()> {
        let may = self
            .change
            .may_be_made_by(self.caller.uid, (inode.uid, inode.mode));
        match self.under != LockHandle::default() || may {
            true => Ok(()),
            false => Err(FsError::NotPermitted.into()),
        }
    }

    /// It was done under a lock that this boot of the target has given, and not taken back.
    fn holds_lock(&self) -> bool {
        self.under != LockHandle::default() && self.under != LockHandle::ENDED
    }
}
