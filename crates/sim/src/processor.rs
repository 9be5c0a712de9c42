//! Where a simulation runs: its threads take turns, so a second processor only makes each turn begin
//! later.

#![allow(unsafe_code)]

/// The threads that this one starts stay on the processor where it is now, and who wakes another
/// goes on until it waits. Else each turn begins twice. That it cannot be so costs time, nothing
/// else.
pub fn stay_on_one() {
    // SAFETY: `set` and `no_priority` are plain memory for which zeros are a value; the size of the one
    // is given.
    unsafe {
        let here = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if let Ok(here) = usize::try_from(here) {
            libc::CPU_SET(here, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
        let no_priority: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &no_priority);
    }
}
