//! Size, times and space of one file, as its bytes here make them.

use base::Timestamp;
use wire::ost::ObjectAttr;

/// The object of one file, as it is known here.
#[derive(Debug, Default)]
pub(crate) struct Object {
    /// Size and last write as the bytes here make them, and the blocks that the OST has. Valid
    /// under EX, or under an extent lock to the end of file.
    known: ObjectAttr,
    /// The file was made here, is still this client's alone, and nothing of it was sent: there is no
    /// object to ask for.
    unsent: bool,
    /// The file was emptied here, of bytes that it had, and not closed since.
    emptied: bool,
}

impl Object {
    /// All that is known.
    pub fn attr(&self) -> ObjectAttr {
        self.known
    }

    /// The size.
    pub fn size(&self) -> u64 {
        self.known.size
    }

    /// The time of the last write.
    pub fn mtime(&self) -> Timestamp {
        self.known.mtime
    }

    /// The blocks that the OST has.
    pub fn blocks(&self) -> u64 {
        self.known.blocks
    }

    /// The object is like this, says the server that granted a lock on it.
    pub fn learn(&mut self, known: ObjectAttr) {
        self.known = known;
    }

    /// The OST has so many blocks.
    pub fn learn_blocks(&mut self, blocks: u64) {
        self.known.blocks = blocks;
    }

    /// The content was changed at `now`.
    pub fn changed(&mut self, now: Timestamp) {
        self.known.mtime = now;
    }

    /// The content was changed at `mtime`, perhaps before the last change that is known.
    pub fn was_changed(&mut self, mtime: Timestamp) {
        self.known.mtime = self.known.mtime.later(mtime);
    }

    /// Bytes were written that end at `end`.
    pub fn grow(&mut self, end: u64) {
        self.known.size = self.known.size.max(end);
    }

    /// The file ends at `end` at the latest.
    pub fn cut(&mut self, end: u64) {
        self.known.size = self.known.size.min(end);
    }

    /// The file is made `size` bytes long.
    pub fn resize(&mut self, size: u64) {
        self.emptied |= size == 0 && self.known.size > 0;
        self.known.size = size;
        if size == 0 {
            self.known.blocks = 0;
        }
    }

    /// The file has the size that a change at the OST has led to.
    pub fn was_resized(&mut self, size: u64) {
        self.known.size = size;
    }

    /// A change of the size was refused: size and space are as before.
    pub fn was_not_resized(&mut self, before: ObjectAttr) {
        self.known.size = before.size;
        self.known.blocks = before.blocks;
    }

    /// The file was emptied here since this was asked last.
    pub fn take_emptied(&mut self) -> bool {
        std::mem::take(&mut self.emptied)
    }

    /// There is no object to ask for.
    pub fn is_unsent(&self) -> bool {
        self.unsent
    }

    /// The file was made here.
    pub fn made(&mut self, is_exclusive: bool) {
        self.unsent = is_exclusive;
    }

    /// Something of the file was sent, or others may make the object.
    pub fn sent(&mut self) {
        self.unsent = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(size: u64, blocks: u64) -> Object {
        let mut object = Object::default();
        object.learn(ObjectAttr {
            size,
            blocks,
            mtime: Timestamp::default(),
        });
        object
    }

    #[test]
    fn emptying_counts_once_and_only_where_there_were_bytes() {
        let mut empty = object(0, 0);
        empty.resize(0);
        assert!(!empty.take_emptied());
        let mut full = object(5, 8);
        full.resize(0);
        assert_eq!((full.size(), full.blocks()), (0, 0));
        assert!(full.take_emptied() && !full.take_emptied());
    }

    #[test]
    fn a_refused_change_leaves_size_and_space_and_the_time_of_writes_since() {
        let mut file = object(5, 8);
        let (before, later) = (file.attr(), Timestamp::default().next());
        file.resize(9);
        file.grow(7);
        file.changed(later);
        assert_eq!(file.size(), 9);
        file.was_not_resized(before);
        assert_eq!((file.size(), file.blocks(), file.mtime()), (5, 8, later));
        file.was_changed(Timestamp::default());
        assert_eq!(file.mtime(), later);
        file.cut(3);
        assert_eq!(file.size(), 3);
    }
}
