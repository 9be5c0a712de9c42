//! The pages of a file that the kernel may hold while the file has a writer, and bytes written past them
//! since. Called by `read`, `write` and `resize`; docs/adr/0004-writers-bypass-kernel-pages.md gives the
//! reasons.

use base::ByteRange;

use super::extents::Extents;

/// Where the bytes of a read go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadTo {
    /// To a caller's memory, past the pages of the kernel.
    Caller,
    /// To pages of the kernel, which hold nothing until then, are locked, and are kept.
    KernelPages,
}

/// The smallest page of a kernel, in bytes. A larger page drops more than is noted here.
const PAGE_BYTES: u64 = 4096;
/// Ranges kept apart. Beyond, the kernel counts as holding all that lies between.
const RANGES_MAX: usize = 4096;

/// A moment among the answers that fill pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Moment(u64);

/// What the kernel may hold of a file.
#[derive(Debug, Default)]
pub(crate) struct KernelPages {
    /// Pages that were filled, and when.
    held: Extents<Moment>,
    /// Bytes of those that are newer here than in the kernel.
    newer: Extents<()>,
    /// Ranges that are being changed at the OST: what is read of them may be from before.
    changing: Vec<ByteRange>,
    now: Moment,
}

impl KernelPages {
    /// A page read of `range` is answered with the bytes as they are now.
    pub fn filled(&mut self, range: ByteRange) {
        self.newer.remove(range);
        for part in &self.changing {
            let old = part.intersection(range).unwrap_or(ByteRange::new(0, 0));
            self.newer.insert(old, ());
        }
        self.held.insert(range, self.now);
        if self.held.len() > RANGES_MAX {
            self.held.insert(self.held.span(), self.now);
        }
    }

    /// The kernel may hold a byte of `range`.
    pub fn holds(&self, range: ByteRange) -> bool {
        self.held.touches(range)
    }

    /// `range` was changed past the kernel. True: it holds pages of that, which it must forget before
    /// the change is answered.
    pub fn changed(&mut self, range: ByteRange) -> bool {
        let held: Vec<ByteRange> = self.held.within(range).map(|(part, _)| part).collect();
        for part in &held {
            self.newer.insert(*part, ());
        }
        !held.is_empty()
    }

    /// `range` is about to be changed at the OST.
    pub fn begin_change(&mut self, range: ByteRange) {
        self.changing.push(range);
        self.changed(range);
    }

    /// It was, or was not; the kernel is to forget its pages.
    pub fn end_change(&mut self, range: ByteRange) {
        self.changing.retain(|part| *part != range);
    }

    /// The kernel is about to be told to forget pages: those that are filled later are others.
    pub fn begin_forgetting(&mut self) -> Moment {
        let now = self.now;
        self.now.0 += 1;
        now
    }

    /// The kernel has forgotten the pages of `range`, having been told so at `since`.
    pub fn forgotten(&mut self, range: ByteRange, since: Moment) {
        let pages = ByteRange::new(
            range.start / PAGE_BYTES * PAGE_BYTES,
            range
                .end
                .checked_next_multiple_of(PAGE_BYTES)
                .unwrap_or(u64::MAX),
        );
        let filled = self.held.within(pages);
        let gone = filled.filter(|(_, filled)| *filled <= since);
        for part in gone.map(|(part, _)| part).collect::<Vec<_>>() {
            self.held.remove(part);
            self.newer.remove(part);
        }
    }

    /// The parts of `range`, which the kernel writes back, that are not older than what is here.
    pub fn written_back(&self, range: ByteRange) -> Vec<ByteRange> {
        self.newer.gaps(range)
    }

    /// Some of `range` was changed and the kernel has yet to forget what was there before.
    pub fn is_older_in(&self, range: ByteRange) -> bool {
        self.newer.touches(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: ByteRange = ByteRange {
        start: 4096,
        end: 8192,
    };

    fn byte(offset: u64) -> ByteRange {
        ByteRange::new(offset, offset + 1)
    }

    #[test]
    fn what_the_kernel_does_not_hold_need_not_be_forgotten() {
        let mut pages = KernelPages::default();
        assert!(!pages.changed(byte(5000)));
        pages.filled(PAGE);
        assert!(!pages.changed(byte(8192)));
        assert_eq!(pages.written_back(PAGE), [PAGE]);
    }

    #[test]
    fn a_page_written_back_leaves_out_what_was_written_since_it_was_read() {
        let mut pages = KernelPages::default();
        pages.filled(PAGE);
        assert!(pages.changed(byte(5000)));
        let kept = [ByteRange::new(4096, 5000), ByteRange::new(5001, 8192)];
        assert_eq!(pages.written_back(PAGE), kept);
        assert!(pages.is_older_in(byte(5000)) && !pages.is_older_in(byte(5001)));
        let since = pages.begin_forgetting();
        pages.forgotten(byte(5000), since);
        assert_eq!(pages.written_back(PAGE), [PAGE]);
        assert!(!pages.changed(byte(5000)), "the page is gone");
    }

    #[test]
    fn a_page_read_again_has_what_was_written_and_outlives_the_forgetting() {
        let mut pages = KernelPages::default();
        pages.filled(PAGE);
        assert!(pages.changed(byte(5000)));
        let first = pages.begin_forgetting();
        pages.filled(PAGE);
        assert_eq!(pages.written_back(PAGE), [PAGE]);
        assert!(pages.changed(byte(6000)));
        let second = pages.begin_forgetting();
        pages.forgotten(byte(5000), first);
        assert!(pages.is_older_in(byte(6000)), "it was read after the first");
        pages.forgotten(byte(6000), second);
        assert!(!pages.is_older_in(PAGE));
    }

    #[test]
    fn a_page_read_beside_a_change_at_the_ost_may_be_old() {
        let mut pages = KernelPages::default();
        pages.begin_change(byte(5000));
        pages.filled(PAGE);
        assert!(pages.is_older_in(byte(5000)) && !pages.is_older_in(byte(5001)));
        pages.end_change(byte(5000));
        let since = pages.begin_forgetting();
        pages.filled(PAGE);
        pages.forgotten(byte(5000), since);
        assert!(!pages.is_older_in(PAGE) && pages.holds(PAGE));
    }

    #[test]
    fn many_ranges_become_one_that_holds_them() {
        let mut pages = KernelPages::default();
        for page in 0..=RANGES_MAX as u64 {
            pages.filled(ByteRange::new(page * 8192, page * 8192 + 4096));
        }
        assert!(pages.changed(byte(4097)));
    }
}
