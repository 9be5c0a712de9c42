//! The clock that all processes of a machine share.
#![allow(unsafe_code, reason = "the system call takes a pointer")]

/// Nanoseconds of CLOCK_MONOTONIC, which `Instant` does not tell.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives through the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(result, 0, "CLOCK_MONOTONIC can be read");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
