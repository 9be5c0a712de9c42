//! The memory itself: words that are stored one at a time.

#![allow(unsafe_code)] // Shared memory is a raw pointer; nothing safe maps it.

use std::ffi::CStr;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// How it is called in /proc.
const NAME: &CStr = c"glint-handover";

/// Memory shared with the process that holds its descriptor. What was never written takes no room.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: NonZeroUsize,
    death: Option<Death>,
}

/// The end of a process that works in a memory, after so many stores: those that follow do nothing.
/// For tests.
#[derive(Debug, Clone)]
pub struct Death(Arc<AtomicU64>);

impl Death {
    /// After `stores`.
    pub fn after(stores: u64) -> Death {
        Death(Arc::new(AtomicU64::new(stores)))
    }

    /// It comes now.
    pub fn come(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// It has come.
    pub fn has_come(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    /// Whether one more store is done.
    fn spares(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        let spared = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        spared.is_ok()
    }
}

// SAFETY: words are reached as atomics; bytes by the process that owns the record they are in
// (`Records`).
unsafe impl Send for Region {}
// SAFETY: the same.
unsafe impl Sync for Region {}

/// The descriptor of this number, which the program that started this one has left open for it. To
/// be asked for once; it is not passed on to what this program starts.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl looks at a number, whatever is behind it.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and by the caller's word nobody's yet.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Leaves a descriptor open for the programs that this one starts.
pub fn bequeath(descriptor: impl AsFd) -> io::Result<RawFd> {
    let number = descriptor.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open, and only a flag of it changes.
    match unsafe { libc::fcntl(number, libc::F_SETFD, 0) } {
        0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Region {
    /// A descriptor of new memory of `bytes`, all zeros, which the programs that are started inherit.
    pub fn create(bytes: u64) -> io::Result<OwnedFd> {
        let memory = memfd_create(NAME, MFdFlags::empty())?;
        nix::unistd::ftruncate(&memory, bytes.try_into().unwrap_or(i64::MAX))?;
        Ok(memory)
    }

    /// Maps the memory of `memory`, all of it.
    pub fn map(memory: impl AsFd) -> io::Result<Region> {
        let stat = nix::sys::stat::fstat(memory.as_fd())?;
        let len = NonZeroUsize::new(usize::try_from(stat.st_size).unwrap_or(0));
        let len = len.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (protection, flags) = (
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED,
        );
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let start = unsafe {
            mmap(
                None,
                len,
                protection,
                flags | MapFlags::MAP_NORESERVE,
                memory,
                0,
            )
        }?;
        Ok(Region {
            start: start.cast(),
            len,
            death: None,
        })
    }

    /// The same for a process that dies in the midst of its work.
    pub fn mapped_until(memory: impl AsFd, death: &Death) -> io::Result<Region> {
        let mut region = Region::map(memory)?;
        region.death = Some(death.clone());
        Ok(region)
    }

    /// Memory of this process alone, which ends with it: for tests.
    pub fn private(bytes: usize) -> io::Result<Region> {
        let len = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let (protection, flags) = (
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_PRIVATE,
        );
        // SAFETY: the same.
        let start =
            unsafe { mmap_anonymous(None, len, protection, flags | MapFlags::MAP_NORESERVE) }?;
        Ok(Region {
            start: start.cast(),
            len,
            death: None,
        })
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.len.get()
    }

    /// It has none: never so.
    pub fn is_empty(&self) -> bool {
        false
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            at.is_multiple_of(8) && at + 8 <= self.len(),
            "word {at} is not in the memory"
        );
        // SAFETY: inside the mapping and aligned, which lives as long as `self`; the process that
        // reaches the word does so as an atomic, or owns the record it is in.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// The word at `at`.
    pub(crate) fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    /// Stores a word: all stores before this one are there when it is.
    pub(crate) fn store(&self, at: usize, value: u64) {
        if self.death.as_ref().is_none_or(Death::spares) {
            self.word(at).store(value, Ordering::Release);
        }
    }

    /// Copies `data` to `at`.
    ///
    /// # Safety
    ///
    /// Nobody else reaches these bytes meanwhile.
    pub(crate) unsafe fn write(&self, at: usize, data: &[u8]) {
        assert!(at <= self.len() && data.len() <= self.len() - at);
        let data = match &self.death {
            // It may come in the midst of the bytes.
            Some(death) if !death.spares() => return,
            Some(death) if death.has_come() => &data[..data.len() / 2],
            _ => data,
        };
        // SAFETY: inside the mapping, and the caller's promise.
        unsafe {
            self.start
                .as_ptr()
                .add(at)
                .copy_from_nonoverlapping(data.as_ptr(), data.len());
        }
    }

    /// Bytes from `at` on.
    ///
    /// # Safety
    ///
    /// Nobody writes these bytes meanwhile.
    pub(crate) unsafe fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at <= self.len() && len <= self.len() - at);
        // SAFETY: inside the mapping, initialised (with zeros), and the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), len) }.to_vec()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, and no reference outlives it. An error would leave it.
        let _ = unsafe { munmap(self.start.cast(), self.len.get()) };
    }
}
