//! What OSTs have, and may yet lose.

use base::{Fid, TargetIndex, Transno};

use super::State;

impl State {
    /// Everything up to `last_committed` is durable at the OST; each has numbers of its own.
    pub fn committed(&mut self, target: TargetIndex, last_committed: Transno) {
        self.servers.committed(target, last_committed);
        for fid in self.policies.writeback.settled_by(target, last_committed) {
            self.settle_file(fid);
        }
    }

    /// The OST has answered a change of the file. It need not be durable; or it is by now, and that was
    /// told before anybody looked at the answer.
    pub fn answered(&mut self, fid: Fid) {
        let ost = self.cache.ost(fid);
        let first = self.cache.file(fid).durability.first_unsettled();
        self.policies
            .writeback
            .is_uncommitted((fid, ost), Some(first));
        self.settle_file(fid);
    }

    /// Frees the file's bytes that its OST reports as durable, also while further writes follow without an
    /// end.
    fn settle_file(&mut self, fid: Fid) {
        let ost = self.cache.ost(fid);
        let durable = ost.and_then(|ost| self.servers.durable(ost));
        let file = self.cache.file_known(fid);
        let is_settled = match (file, durable) {
            (None, _) => true,
            (Some(file), Some(durable)) if file.durability.can_settle(durable) => {
                file.settle(durable);
                file.forget_settled(fid, self.journal.records());
                file.durability.is_committed()
            }
            (Some(_), _) => false,
        };
        if is_settled {
            self.policies.writeback.is_uncommitted((fid, ost), None);
        }
        self.note(fid);
    }

    /// Something of the file's bytes may not be durable at its OST, as far as it is known here. Under a lock
    /// of this mount on all of them nobody else has anything there that is not.
    pub fn may_be_undurable(&mut self, fid: Fid) -> bool {
        let is_locked = self.locks.reaches_eof(fid);
        let is_uncommitted = self.policies.writeback.may_lose(fid);
        self.cache.file_known(fid).is_some_and(|file| {
            let is_alone = is_locked || file.locks.is_exclusive();
            !file.object.is_unsent() && (is_uncommitted || !is_alone || !file.resizes.is_empty())
        })
    }
}
