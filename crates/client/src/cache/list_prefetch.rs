//! Whether one directory's list was fetched ahead of its reader, and whether that is of use.

use crate::cache::ahead::WalkId;

/// The prefetch of one directory's list.
#[derive(Debug, Default)]
pub(crate) struct ListPrefetch {
    /// A walk of a tree brought the list, and nobody has read it yet.
    unread: Option<WalkId>,
    /// The list was lost while it was being read, and not read in one go since. What is fetched
    /// ahead of its reader would be lost again.
    is_in_vain: bool,
}

impl ListPrefetch {
    /// The list came from its start on, with a walk or for a reader that asked.
    pub fn list_came(&mut self, walk: Option<WalkId>) {
        self.unread = walk;
    }

    /// Nobody has read what a walk brought.
    pub fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// A reader begins. Returns the walk that brought the list, if this is the first.
    pub fn reading_begins(&mut self) -> Option<WalkId> {
        self.unread.take()
    }

    /// The list was lost while it was being read.
    pub fn lost_while_read(&mut self) {
        self.is_in_vain = true;
    }

    /// A reader has read the list to its end.
    pub fn read_to_end(&mut self) {
        self.is_in_vain = false;
    }

    /// What is fetched ahead would be lost.
    pub fn is_in_vain(&self) -> bool {
        self.is_in_vain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_ahead_until_it_is_read() {
        let mut prefetch = ListPrefetch::default();
        prefetch.list_came(Some(WalkId(7)));
        assert!(prefetch.is_unread());
        assert_eq!(prefetch.reading_begins(), Some(WalkId(7)));
        assert!(!prefetch.is_unread() && prefetch.reading_begins().is_none());
        prefetch.list_came(Some(WalkId(8)));
        prefetch.list_came(None);
        assert!(!prefetch.is_unread(), "a reader has asked for it itself");
    }

    #[test]
    fn after_a_loss_prefetch_is_in_vain_until_the_list_was_read_in_one_go() {
        let mut prefetch = ListPrefetch::default();
        prefetch.lost_while_read();
        prefetch.list_came(None);
        assert!(prefetch.is_in_vain());
        prefetch.read_to_end();
        assert!(!prefetch.is_in_vain());
    }
}
