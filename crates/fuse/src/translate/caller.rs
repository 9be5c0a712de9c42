//! What the kernel says of a thread that has called.

use std::fs;
use std::time::Duration;

/// SIGKILL is pending for the thread: how the kernel marks every signal that will end it.
pub(super) fn is_dying(thread: u32) -> bool {
    const SIGKILL_BIT: u64 = 1 << 8;
    let Some(status) = told(thread, "status") else {
        return true;
    };
    status
        .lines()
        .filter_map(|line| {
            line.strip_prefix("SigPnd:")
                .or_else(|| line.strip_prefix("ShdPnd:"))
        })
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & SIGKILL_BIT != 0)
}

/// Its state as a letter; `None` if it has ended.
pub(super) fn state(thread: u32) -> Option<char> {
    let stat = told(thread, "stat")?;
    let (_, behind_its_name) = stat.rsplit_once(") ")?;
    behind_its_name.chars().next()
}

/// For how long it has run.
pub(super) fn ran(thread: u32) -> Option<Duration> {
    let counts = told(thread, "schedstat")?;
    let nanoseconds = counts.split(' ').next()?.parse().ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

fn told(thread: u32, what: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{thread}/{what}")).ok()
}
