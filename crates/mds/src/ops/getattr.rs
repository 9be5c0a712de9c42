//! `op.stat` and `op.readlink`: a file by its id, orphans too.

use base::{Fid, FsError};
use wire::FileKind;
use wire::mdt::Reply;

use super::context::{Ctx, Op, node};
use crate::keys::{self, Table};
use crate::records::Bytes;
use crate::store::{Store, missing};
use crate::txn::Result;

/// See [`wire::mdt::Request::GetAttr`].
pub struct GetAttr {
    pub fid: Fid,
}

impl Op for GetAttr {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let file = ctx.txn.file(self.fid)?;
        Ok(Reply::Node(node(self.fid, &file.inode)))
    }
}

/// See [`wire::mdt::Request::ReadLink`].
pub struct ReadLink {
    pub fid: Fid,
}

impl Op for ReadLink {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let file = ctx.txn.file(self.fid)?;
        if file.inode.kind != FileKind::Symlink {
            return Err(FsError::Invalid.into());
        }
        target(ctx.txn.store(), self.fid).map(Reply::Target)
    }
}

/// A symlink's target.
pub fn target(store: &Store, fid: Fid) -> Result<Vec<u8>> {
    let target: Option<Bytes> = store.get(Table::Targets, &keys::fid(fid))?;
    Ok(target.ok_or_else(|| missing("symlink target", fid))?.0)
}
