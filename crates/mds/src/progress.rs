//! How far the target has come, told to OSTs with all that it asks of them: they know a target that is
//! an older copy of what it was, and do nothing for it. docs/recovery.md, section 6.

use base::{TargetIndex, Tick, Transno};
use storage::StorageError;
use wire::ost::Progress;

use crate::core::Mds;
use crate::event::Output;

impl Mds {
    /// How far the target has come, for those who are to know it again.
    pub(crate) fn progress(&mut self) -> Progress {
        Progress {
            life: *self.born.get_or_insert(self.wall),
            begun: self.begun,
            committed: self.committed,
        }
    }

    /// An OST knows of changes, as durable, that are not here: the target is an older copy of what it
    /// was.
    pub fn is_behind(
        &mut self,
        now: Tick,
        ost: TargetIndex,
        committed: Transno,
        out: &mut Vec<Output>,
    ) {
        let ours = self.begun;
        let reason = format!(
            "OST{} was told that changes up to {committed} are durable, and there are those up to {ours}: \
             it is damaged or was restored from an older copy; restore a newer one",
            ost.0
        );
        self.destroy_failed(now, ost);
        self.list_failed(now, ost);
        self.halt(StorageError::damaged("MDT", "history", reason), out);
    }
}
