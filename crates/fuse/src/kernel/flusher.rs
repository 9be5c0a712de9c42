//! Keeps threads that serve a mount from waiting for themselves when memory is short.
#![allow(unsafe_code, reason = "prctl has no safe wrapper for this option")]

/// The options' numbers since Linux 5.6.
const PR_SET_IO_FLUSHER: libc::c_int = 57;
const PR_GET_IO_FLUSHER: libc::c_int = 58;

/// Tells the kernel that this thread, and threads it starts from now on, write back dirty pages of
/// others. Its own allocations then never wait for write-back, which may be ours to do.
///
/// Needs CAP_SYS_RESOURCE; `false` without it. A mount then works as well, but for deadlocks
/// that shared writable mappings can make under memory pressure.
pub fn become_io_flusher() -> bool {
    let (set, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: this option takes integers only and changes flags of the calling thread.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, set, unused, unused, unused) == 0 }
}

/// This thread is one.
pub fn is_io_flusher() -> bool {
    let unused: libc::c_ulong = 0;
    // SAFETY: as above; it only tells.
    unsafe { libc::prctl(PR_GET_IO_FLUSHER, unused, unused, unused, unused) == 1 }
}
