//! The C library's random numbers, which follow from a seed on threads of a simulation.

#![allow(unsafe_code)]

use std::cell::Cell;

use base::{Rng, SeededRng};

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on this thread's random numbers follow from `seed`, which takes over what they followed from. Of
/// none they come from the kernel.
pub(crate) fn exchange(seed: &mut Option<u64>) {
    *seed = SEED.replace(*seed);
}

/// As the C library's function of this name, which it replaces in programs that contain this crate. Threads
/// outside a simulation reach the kernel.
///
/// Each thread gets random numbers from it for its hash tables, which put their keys in an order that follows
/// from the numbers. So a program that walks a hash table does so in the same order in each run of a seed.
///
/// # Safety
///
/// `buffer` has room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(
    buffer: *mut libc::c_void,
    len: libc::size_t,
    flags: libc::c_uint,
) -> libc::ssize_t {
    // A thread whose own memory is being taken down is no part of a simulation any more.
    let seed = SEED.try_with(Cell::get).ok().flatten();
    let Some(seed) = seed else {
        // SAFETY: the kernel's own call with the caller's own arguments.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, len, flags) as libc::ssize_t };
    };
    let mut numbers = SeededRng::new(seed);
    // SAFETY: the caller gives `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    for part in bytes.chunks_mut(8) {
        let number = numbers.next_u64().to_le_bytes();
        part.copy_from_slice(&number[..part.len()]);
    }
    SEED.set(Some(numbers.next_u64()));
    len as libc::ssize_t
}
