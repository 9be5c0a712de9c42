//! `op.lookup`: a name's file, or that there is none; and the directory a directory is in.

use base::{Fid, Name};
use wire::mdt::{Lease, Reply};

use super::context::{Ctx, Op, node};
use crate::txn::Result;

/// See [`wire::mdt::Request::Lookup`].
pub struct Lookup<'r> {
    pub dir: Fid,
    pub name: &'r Name,
}

impl Op for Lookup<'_> {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        ctx.txn.dir(self.dir)?;
        let node = match ctx.txn.find(self.dir, self.name)? {
            None => None,
            Some((_, dirent)) => Some(match &dirent.inode {
                Some(inode) => node(dirent.fid, inode),
                None => node(dirent.fid, &ctx.txn.file(dirent.fid)?.inode),
            }),
        };
        Ok(Reply::Lookup {
            lease: Lease::None,
            node,
        })
    }
}

/// See [`wire::mdt::Request::LookupParent`].
pub struct LookupParent {
    pub dir: Fid,
}

impl Op for LookupParent {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let parent = ctx.txn.parent(self.dir)?;
        Ok(Reply::Node(node(parent, &ctx.txn.dir(parent)?)))
    }
}
