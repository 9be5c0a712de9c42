//! Files that came and went before the server knew of them: their objects are to be removed.

use std::collections::HashSet;

use base::FsError;
use wire::update::Change;

use super::Set;
use super::wrong::{Checked, Of, refuse};
use crate::mutation::Mutation;
use crate::ops::context::Ctx;
use crate::records::Destroy;

impl Set<'_> {
    pub(super) fn note_gone(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        let mut seen = HashSet::new();
        for (change, one) in self.changes.iter().enumerate() {
            let Change::Gone {
                fid,
                ost,
                open_epoch,
            } = one
            else {
                continue;
            };
            self.check_own(ctx, *fid, change)?;
            self.check_ost(ctx, *ost, change)?;
            let is_file =
                self.files.get(*fid).is_some() || ctx.txn.place(*fid).of(change)?.is_some();
            let is_granted = *open_epoch <= ctx.opens.last_epoch();
            if is_file || !is_granted || !seen.insert(*fid) {
                return refuse(change, FsError::Invalid);
            }
            // No ticket has a higher epoch: nothing that was sent with one comes after the removal.
            let destroy = Destroy {
                open_epoch: ctx.opens.last_epoch(),
                transno: ctx.txn.transno,
            };
            ctx.txn.change(Mutation::PutDestroy(*ost, *fid, 0, destroy));
        }
        Ok(())
    }
}
