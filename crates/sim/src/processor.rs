//! Where a simulation runs: its threads take turns, so a second processor only makes each turn begin
//! later.

#![allow(unsafe_code)]

/// The threads that this one starts stay on the processor where it is now. That it cannot be so costs
/// time, nothing else.
pub fn stay_on_one() {
    // SAFETY: `set` is plain memory for which zeros are a value, and is given with its size.
    unsafe {
        let here = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if let Ok(here) = usize::try_from(here) {
            libc::CPU_SET(here, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}
