//! The pages of one directory's list that the kernel may hold: whether all show the list that is valid now.

/// The kernel's pages of one directory.
#[derive(Debug, Default)]
pub(crate) struct KernelList {
    /// Counts losses of the list.
    epoch: u64,
    /// The list that all pages show; `None` when mixed or none.
    shown: Option<u64>,
}

impl KernelList {
    /// The list is valid no more.
    pub fn list_lost(&mut self) {
        self.epoch += 1;
    }

    /// The directory is opened. Returns whether the kernel may keep its pages, of which `is_covered` says
    /// that a lock covers the list. Else it drops them.
    pub fn opened(&mut self, is_covered: bool) -> bool {
        let may_keep = is_covered && self.shown == Some(self.epoch);
        if !may_keep {
            self.shown = None;
        }
        may_keep
    }

    /// The kernel is given entries after `cookie`: a list that it has from its start is all of a kind.
    pub fn answered(&mut self, cookie: u64) {
        let is_same = cookie == 0 || self.shown == Some(self.epoch);
        self.shown = is_same.then_some(self.epoch);
    }

    /// The kernel's pages shall not be used by the next reader, whatever they show.
    pub fn spoil(&mut self) {
        self.shown = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_one_list_are_kept_and_mixed_ones_are_not() {
        let mut list = KernelList::default();
        assert!(!list.opened(true), "there are none");
        list.answered(10);
        assert!(!list.opened(true), "the first is missing");
        list.answered(0);
        list.answered(10);
        assert!(list.opened(true));
        list.list_lost();
        assert!(!list.opened(true));
        list.answered(0);
        list.list_lost();
        list.answered(10);
        assert!(!list.opened(true), "the first is of a list before");
    }

    #[test]
    fn pages_that_no_lock_covers_and_spoilt_ones_are_dropped_for_good() {
        let mut list = KernelList::default();
        list.answered(0);
        assert!(!list.opened(false) && !list.opened(true));
        list.answered(0);
        list.spoil();
        assert!(!list.opened(true));
    }
}
