//! The priority of a link's threads: a wire needs no processor, so its stand-in waits for none.
#![allow(unsafe_code)] // setpriority has no safe form.

/// Puts the calling thread before ordinary ones. Needs CAP_SYS_NICE, which a process that can make
/// namespaces nearly always has; without it the link is only less precise on a busy machine.
pub(crate) fn raise_priority() {
    // SAFETY: setpriority takes integers; 0 is the calling thread on Linux.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -19) };
}
