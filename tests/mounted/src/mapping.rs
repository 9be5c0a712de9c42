//! A file mapped into memory, shared and writable.
#![allow(unsafe_code, reason = "mapping a file is unsafe by nature")]

use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::path::Path;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, MsFlags, ProtFlags, mmap, msync, munmap};

/// The first bytes of a file.
pub struct Mapping {
    start: NonNull<libc::c_void>,
    len: usize,
    file: Option<File>,
}

// SAFETY: a mapping belongs to the process, not to a thread; accesses are volatile single bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes, which the file must have.
    pub fn new(path: &Path, len: usize) -> std::io::Result<Mapping> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let size = NonZeroUsize::new(len).expect("at least one byte is mapped");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, &file, 0) }?;
        Ok(Mapping {
            start,
            len,
            file: Some(file),
        })
    }

    /// Closes the file, which stays open by the mapping.
    pub fn close_file(&mut self) {
        self.file = None;
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "{offset} is outside");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.start.as_ptr().cast::<u8>().add(offset) }
    }

    /// Loads one byte.
    pub fn load(&self, offset: usize) -> u8 {
        // SAFETY: `at` is inside the mapping, which lives as long as `self`.
        unsafe { self.at(offset).read_volatile() }
    }

    /// Stores bytes.
    pub fn store(&self, offset: usize, bytes: &[u8]) {
        for (i, byte) in bytes.iter().enumerate() {
            // SAFETY: `at` is inside the mapping, which lives as long as `self`.
            unsafe { self.at(offset + i).write_volatile(*byte) };
        }
    }

    /// Eight bytes at `offset`, a multiple of eight, which are stored and loaded at once.
    fn word_at(&self, offset: usize) -> *mut u64 {
        assert!(offset.is_multiple_of(8), "{offset} is no word");
        assert!(offset + 8 <= self.len, "{offset} is outside");
        self.at(offset).cast()
    }

    /// Loads a word.
    pub fn load_word(&self, offset: usize) -> u64 {
        // SAFETY: `word_at` is aligned and inside the mapping, which lives as long as `self`.
        u64::from_le(unsafe { self.word_at(offset).read_volatile() })
    }

    /// Stores a word.
    pub fn store_word(&self, offset: usize, word: u64) {
        // SAFETY: `word_at` is aligned and inside the mapping, which lives as long as `self`.
        unsafe { self.word_at(offset).write_volatile(word.to_le()) };
    }

    /// `msync(MS_SYNC)`.
    pub fn sync(&self) -> std::io::Result<()> {
        // SAFETY: exactly the mapping.
        Ok(unsafe { msync(self.start, self.len, MsFlags::MS_SYNC) }?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping, which nobody uses any more.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}
