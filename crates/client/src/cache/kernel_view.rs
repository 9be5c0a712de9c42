//! What the kernel holds or believes of one file, beside the ranges that `kernel_pages` keeps.

use crate::cache::ahead::Sized;

/// The kernel's view of one file.
#[derive(Debug, Default)]
pub(crate) struct KernelView {
    /// The kernel may hold pages.
    has_pages: bool,
    /// Reads answered since the forgetting began: it must be repeated.
    refilled: bool,
    /// How often the kernel is forgetting pages whose lock an eviction has taken. What it writes
    /// back meanwhile was stored under that lock, and goes with it.
    lapsing: u32,
    /// The size that the kernel was told by a notice.
    raised: u64,
    /// Whether the size was asked for ahead of who wants it: then the kernel may have been told it
    /// under an extent lock.
    sized: Sized,
}

impl KernelView {
    /// The kernel may hold pages of the file.
    pub fn has_pages(&self) -> bool {
        self.has_pages
    }

    /// The kernel may hold pages, or was told the size ahead.
    pub fn was_told(&self) -> bool {
        self.has_pages || self.sized != Sized::No
    }

    /// Pages of the kernel are filled.
    pub fn fill(&mut self) {
        self.has_pages = true;
        self.refilled = true;
    }

    /// The kernel forgets all pages. Returns whether it may hold some.
    pub fn take_pages(&mut self) -> bool {
        std::mem::take(&mut self.has_pages)
    }

    /// The kernel is about to forget pages.
    pub fn begin_forgetting(&mut self) {
        self.refilled = false;
    }

    /// Pages were filled since.
    pub fn is_refilled(&self) -> bool {
        self.refilled
    }

    /// The kernel is to forget pages whose lock an eviction has taken.
    pub fn begin_lapse(&mut self) {
        self.lapsing += 1;
    }

    /// The kernel has forgotten them.
    pub fn end_lapse(&mut self) {
        self.lapsing -= 1;
    }

    /// What the kernel writes back goes with an eviction.
    pub fn is_lapsing(&self) -> bool {
        self.lapsing > 0
    }

    /// The kernel was told `size` by a notice.
    pub fn raise(&mut self, size: u64) {
        self.raised = self.raised.max(size);
    }

    /// The kernel is about to be told `size` in an answer. Returns whether that is larger than what it was
    /// told by a notice.
    pub fn answer_size(&mut self, size: u64) -> bool {
        let is_larger = size > self.raised;
        self.raised = self.raised.min(size);
        is_larger
    }

    /// Whether the size was asked for ahead of who wants it.
    pub fn sized(&self) -> Sized {
        self.sized
    }

    /// What statahead has to do with the size now.
    pub fn set_sized(&mut self, sized: Sized) {
        self.sized = sized;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_filled_beside_the_forgetting_are_to_be_forgotten_again() {
        let mut kernel = KernelView::default();
        kernel.fill();
        kernel.begin_forgetting();
        assert!(!kernel.is_refilled() && kernel.has_pages());
        kernel.fill();
        assert!(kernel.is_refilled() && kernel.take_pages() && !kernel.take_pages());
    }

    #[test]
    fn a_size_in_an_answer_is_larger_than_the_one_of_the_last_notice_or_not() {
        let mut kernel = KernelView::default();
        kernel.raise(7);
        kernel.raise(5);
        assert!(!kernel.answer_size(7) && kernel.answer_size(8));
        assert!(
            !kernel.answer_size(3) && kernel.answer_size(4),
            "it was cut off there"
        );
    }

    #[test]
    fn a_size_asked_for_ahead_counts_as_told() {
        let mut kernel = KernelView::default();
        assert!(!kernel.was_told());
        kernel.set_sized(Sized::Ahead);
        assert!(kernel.was_told() && !kernel.has_pages());
    }
}
