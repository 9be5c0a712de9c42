//! Memory that a disk reads into by itself: aligned, in one piece for the device where the system
//! gives huge pages, and used again and again.

#![allow(unsafe_code)] // Mappings with an alignment of their own; nothing safe gives them.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};
use nix::sys::prctl;

/// Bytes of one buffer: a huge page, so that the device sees one piece and not hundreds of pages.
pub(super) const BUFFER_BYTES: usize = 2 << 20;

/// A bounded set of buffers, made when they are first needed.
#[derive(Debug)]
pub(super) struct Buffers {
    state: Mutex<State>,
    bound: usize,
}

#[derive(Debug, Default)]
struct State {
    /// The one used last is used next: what nobody needs any more is never touched.
    free: Vec<Mapping>,
    made: usize,
}

impl Buffers {
    /// At most `bound` buffers.
    pub(super) fn new(bound: usize) -> Arc<Buffers> {
        Arc::new(Buffers {
            state: Mutex::default(),
            bound,
        })
    }

    // Changed in one step each time: poisoning adds nothing.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer, which comes back when it is dropped. None: all are in use, or there is no memory.
    pub(super) fn take(self: &Arc<Self>) -> Option<Buffer> {
        let mut state = self.state();
        if let Some(mapping) = state.free.pop() {
            return Some(self.lend(mapping));
        }
        if state.made >= self.bound {
            return None;
        }
        match Mapping::new() {
            Ok(mapping) => {
                state.made += 1;
                Some(self.lend(mapping))
            }
            Err(error) => {
                tracing::warn!(%error, "no memory for a buffer to read into");
                None
            }
        }
    }

    fn lend(self: &Arc<Self>, mapping: Mapping) -> Buffer {
        Buffer {
            mapping: Some(mapping),
            home: self.clone(),
        }
    }
}

/// [`BUFFER_BYTES`] bytes, with what was last read into them.
#[derive(Debug)]
pub(super) struct Buffer {
    /// None: it has gone home.
    mapping: Option<Mapping>,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.mapping.as_ref().map_or(&[], Mapping::bytes)
    }
}

impl AsMut<[u8]> for Buffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.mapping.as_mut().map_or(&mut [], Mapping::bytes_mut)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.home.state().free.extend(self.mapping.take());
    }
}

/// Memory of its own, aligned to its size.
#[derive(Debug)]
struct Mapping {
    whole: NonNull<u8>,
    aligned: NonNull<u8>,
}

// SAFETY: the memory belongs to this value alone, and is reached through it only.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives shared references to the bytes only.
unsafe impl Sync for Mapping {}

/// Twice the size: somewhere in it is an aligned half. What is not touched takes no memory.
const WHOLE_BYTES: NonZeroUsize = NonZeroUsize::new(2 * BUFFER_BYTES).expect("not zero");

impl Mapping {
    fn new() -> Result<Mapping, Errno> {
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let whole = unsafe { mmap_anonymous(None, WHOLE_BYTES, protection, flags) }?.cast::<u8>();
        let skip = whole.as_ptr().align_offset(BUFFER_BYTES);
        // SAFETY: `skip` is less than BUFFER_BYTES, the mapping twice as long.
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
        let _ = unsafe { madvise(self.aligned.cast(), BUFFER_BYTES, MmapAdvise::MADV_HUGEPAGE) };
        self.bytes_mut()[0] = 0;
        if switched_off {
            let _ = prctl::set_thp_disable(true);
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: inside the mapping, which is initialised (with zeros) and lives as long as
        // `self`; who has `&self` knows that nobody writes.
        unsafe { std::slice::from_raw_parts(self.aligned.as_ptr(), BUFFER_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.aligned.as_ptr(), BUFFER_BYTES) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference outlives it. An error would leave
        // it mapped.
        let _ = unsafe { munmap(self.whole.cast(), WHOLE_BYTES.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_bounded_and_come_back() {
        let buffers = Buffers::new(2);
        let (mut one, two) = (buffers.take().unwrap(), buffers.take().unwrap());
        assert!(buffers.take().is_none());
        assert_eq!(one.as_ref().len(), BUFFER_BYTES);
        assert_eq!(one.as_ref().as_ptr() as usize % BUFFER_BYTES, 0);
        one.as_mut().fill(7);
        assert!(two.as_ref().iter().all(|byte| *byte == 0));
        drop(one);
        let again = buffers.take().unwrap();
        assert!(again.as_ref().iter().all(|byte| *byte == 7), "the same one");
    }

    #[test]
    fn a_buffer_may_outlive_its_pool() {
        let buffers = Buffers::new(1);
        let shared = bytes::Bytes::from_owner(buffers.take().unwrap());
        drop(buffers);
        assert_eq!(shared.slice(5..9), &[0; 4][..]);
    }
}
