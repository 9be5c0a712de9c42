//! One huge page, where the system has one.

#![allow(unsafe_code)] // Mappings with an alignment of their own; nothing safe gives them.

use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use nix::sys::prctl;

/// Bytes of a huge page: for the processor one entry of a table, for a device one piece, where
/// small pages are hundreds.
pub const PAGE_BYTES: usize = 2 << 20;

/// [`PAGE_BYTES`] of memory, aligned to their size.
#[derive(Debug)]
pub(crate) struct Mapping {
    whole: NonNull<u8>,
    aligned: NonNull<u8>,
}

// SAFETY: the memory belongs to this value alone, and is reached through it only.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives shared references to the bytes only; the caller of `fill` sees
// to the rest.
unsafe impl Sync for Mapping {}

/// Twice the size: somewhere in it is an aligned half. What is not touched takes no memory.
const WHOLE_BYTES: NonZeroUsize = NonZeroUsize::new(2 * PAGE_BYTES).expect("not zero");

impl Mapping {
    pub(crate) fn new() -> io::Result<Mapping> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let whole = unsafe { mmap_anonymous(None, WHOLE_BYTES, protection, flags) }?.cast::<u8>();
        let skip = whole.as_ptr().align_offset(PAGE_BYTES);
        // SAFETY: `skip` is less than PAGE_BYTES, the mapping twice as long.
        let aligned = unsafe { whole.add(skip) };
        let mut mapping = Mapping { whole, aligned };
        mapping.populate();
        Ok(mapping)
    }

    /// Gets the memory, as a huge page if the system has one.
    fn populate(&mut self) {
        /// The flag is the whole process's: one at a time changes it.
        static FLAG: Mutex<()> = Mutex::new(());
        let _turn = FLAG.lock().unwrap_or_else(PoisonError::into_inner);
        // The allocator may have switched huge pages off, which holds for what asks for them too.
        let switched_off = prctl::get_thp_disable().unwrap_or(false);
        if switched_off {
            let _ = prctl::set_thp_disable(false);
        }
        // SAFETY: the range is inside the mapping, and the advice changes no byte of it.
        // Refused, it is small pages, which work as well but slower.
        let _ = unsafe { madvise(self.aligned.cast(), PAGE_BYTES, MmapAdvise::MADV_HUGEPAGE) };
        self.bytes_mut()[0] = 0;
        if switched_off {
            let _ = prctl::set_thp_disable(true);
        }
    }

    /// Some of its bytes.
    ///
    /// # Panics
    ///
    /// If `part` is not inside.
    pub(crate) fn part(&self, part: Range<usize>) -> &[u8] {
        assert!(part.start <= part.end && part.end <= PAGE_BYTES);
        // SAFETY: inside the mapping, which is initialised (with zeros) and lives as long as
        // `self`; who has `&self` knows that nobody writes there.
        unsafe {
            let start = self.aligned.add(part.start);
            std::slice::from_raw_parts(start.as_ptr(), part.len())
        }
    }

    /// Writes `data` at `at`.
    ///
    /// # Panics
    ///
    /// If that is not inside.
    ///
    /// # Safety
    ///
    /// Nothing else refers to these bytes meanwhile.
    pub(crate) unsafe fn fill(&self, at: usize, data: &[u8]) {
        assert!(at <= PAGE_BYTES && data.len() <= PAGE_BYTES - at);
        // SAFETY: inside the mapping, and the caller's promise.
        unsafe {
            let place = self.aligned.add(at).as_ptr();
            place.copy_from_nonoverlapping(data.as_ptr(), data.len());
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.part(0..PAGE_BYTES)
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the mapping, initialised, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.aligned.as_ptr(), PAGE_BYTES) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference outlives it. An error would leave
        // it mapped.
        let _ = unsafe { munmap(self.whole.cast(), WHOLE_BYTES.get()) };
    }
}
