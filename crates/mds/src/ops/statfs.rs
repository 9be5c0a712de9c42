//! `op.statfs`: how many files there are and can be. Bytes are the OSTs' to tell.

use wire::mdt::{Reply, Space};

use super::context::{Ctx, Op};
use crate::txn::Result;

/// See [`wire::mdt::Request::StatFs`].
pub struct StatFs;

impl Op for StatFs {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let files_total = ctx.rules.files_max;
        let files_free = match ctx.full {
            true => 0,
            false => files_total.saturating_sub(ctx.txn.state.files),
        };
        Ok(Reply::Space(Space {
            files_total,
            files_free,
            settling: ctx.removing,
            ..Space::default()
        }))
    }
}
