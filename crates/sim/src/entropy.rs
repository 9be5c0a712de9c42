//! The machine's random numbers, as threads of a simulation get them: from its seed.
//!
//! Hash tables order their keys by random numbers of the thread that makes them, so the program
//! that walks one does it in an order of that thread's own. The C library's function that `std`
//! asks for them is replaced in programs that contain this crate; threads outside a simulation
//! reach the kernel.

#![allow(unsafe_code)]

use std::cell::Cell;

use base::{Rng, SeededRng};

thread_local! {
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on this thread's random numbers follow from `seed`. Before its first hash table.
pub(crate) fn seed(seed: u64) {
    SEED.set(Some(seed));
}

/// As the C library's function of this name.
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
