//! The write lease of a directory: whether it can be had is seen when the answer gets its locks.

use base::Fid;
use wire::mdt::Reply;

use super::context::{Ctx, Op};
use crate::txn::Result;

/// See [`wire::mdt::Request::TakeLease`].
pub struct TakeLease {
    pub dir: Fid,
}

impl Op for TakeLease {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let dir = ctx.txn.live_dir(self.dir)?;
        Ok(Reply::WriteLease {
            grant: None,
            outside: Vec::new(),
            is_empty: dir.entries == 0,
        })
    }
}
