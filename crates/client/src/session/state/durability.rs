//! What OSTs have, and may yet lose.

use base::{Fid, TargetIndex, Transno};

use super::State;

impl State {
    /// Everything up to `last_committed` is durable at the OST; each has numbers of its own.
    pub fn committed(&mut self, target: TargetIndex, last_committed: Transno) {
        let told = self.durable.entry(target).or_default();
        *told = last_committed.max(*told);
        let waiting: Vec<Fid> = self.uncommitted.iter().copied().collect();
        for fid in waiting {
            self.settle_file(fid);
        }
    }

    /// The OST has answered a change of the file. It need not be durable; or it is by now, and that was
    /// told before anybody looked at the answer.
    pub fn answered(&mut self, fid: Fid) {
        self.uncommitted.insert(fid);
        self.settle_file(fid);
    }

    /// Bytes of the file that its OST has are kept no longer than it says that they are not durable, also
    /// where others follow them without an end.
    fn settle_file(&mut self, fid: Fid) {
        let target = self.ost(fid);
        let told = target.and_then(|target| self.durable.get(&target).copied());
        let records = self.records.clone();
        if let Some(file) = self.file_known(fid) {
            let Some(durable) = told.filter(|durable| file.can_settle(*durable)) else {
                return;
            };
            file.settle(durable);
            file.forget_settled(fid, records.as_ref());
            if !file.committed {
                return;
            }
        }
        self.uncommitted.remove(&fid);
    }

    /// Something of the file's bytes may not be durable at its OST, as far as it is known here. Under a lock
    /// of this mount on all of them nobody else has anything there that is not.
    pub fn may_be_undurable(&mut self, fid: Fid) -> bool {
        let is_locked = self.locks.reaches_eof(fid);
        let is_uncommitted = self.uncommitted.contains(&fid);
        self.file_known(fid).is_some_and(|file| {
            let is_alone = is_locked || file.exclusive.is_some();
            !file.unsent && (is_uncommitted || !is_alone || !file.reshapes.is_empty())
        })
    }
}
