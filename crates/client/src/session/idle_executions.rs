//! Executions that are over here and that the MDT still has on record, so that the next one of the same
//! program costs no request. Called when files are opened and closed; locks.md, section 9.

use std::collections::{BTreeMap, HashMap};

use base::Fid;
use wire::mdt::OpenHandle;

/// Programs kept so. Beyond, the one that ended first goes.
pub(crate) const IDLE_EXECUTIONS_MAX: usize = 1024;

/// One execution that is over, of each of the programs that ended last.
#[derive(Debug, Default)]
pub(crate) struct IdleExecutions {
    by_file: HashMap<Fid, (OpenHandle, u64)>,
    /// In the order in which they ended.
    order: BTreeMap<u64, Fid>,
    last: u64,
}

impl IdleExecutions {
    /// An execution of `fid` is over and may stay on record. Returns one that must not: a second of this
    /// program, or the oldest of too many.
    pub fn keep(&mut self, fid: Fid, handle: OpenHandle) -> Option<(Fid, OpenHandle)> {
        if self.by_file.contains_key(&fid) {
            return Some((fid, handle));
        }
        self.last += 1;
        self.by_file.insert(fid, (handle, self.last));
        self.order.insert(self.last, fid);
        if self.by_file.len() <= IDLE_EXECUTIONS_MAX {
            return None;
        }
        let (_, oldest) = self.order.first_key_value()?;
        let oldest = *oldest;
        Some((oldest, self.take(oldest)?))
    }

    /// That of `fid`: it is in use again, or ends.
    pub fn take(&mut self, fid: Fid) -> Option<OpenHandle> {
        let (handle, order) = self.by_file.remove(&fid)?;
        self.order.remove(&order);
        Some(handle)
    }

    /// The programs, the one that ended first before the others.
    pub fn programs(&self) -> Vec<Fid> {
        self.order.values().copied().collect()
    }

    /// The MDT has none on record any more.
    pub fn lose_all(&mut self) {
        self.by_file.clear();
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_execution_of_each_program_is_kept_and_the_oldest_goes() {
        let mut idle = IdleExecutions::default();
        assert_eq!(idle.keep(Fid(1), OpenHandle(1)), None);
        let second = (Fid(1), OpenHandle(2));
        assert_eq!(idle.keep(second.0, second.1), Some(second));
        for number in 2..=IDLE_EXECUTIONS_MAX as u64 {
            assert_eq!(idle.keep(Fid(number), OpenHandle(number)), None);
        }
        assert_eq!(idle.take(Fid(1)), Some(OpenHandle(1)));
        assert_eq!(idle.keep(Fid(1), OpenHandle(7)), None, "it ended last now");
        let surplus = idle.keep(Fid(9_999), OpenHandle(9));
        assert_eq!(surplus, Some((Fid(2), OpenHandle(2))));
        assert_eq!(idle.programs().len(), IDLE_EXECUTIONS_MAX);
        assert_eq!(idle.programs().last(), Some(&Fid(9_999)));
        idle.lose_all();
        assert!(idle.programs().is_empty() && idle.take(Fid(1)).is_none());
    }
}
