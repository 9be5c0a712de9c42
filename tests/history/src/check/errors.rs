//! Errors that no local file system would have answered, and calls that never returned.

use super::outages::Excuses;
use super::{Policy, Violation};
use crate::event::{Call, Event, Outcome};

/// What calls by names that come and go may say.
const BY_PATH: &[i32] = &[
    libc::ENOENT,
    libc::EEXIST,
    libc::ENOTDIR,
    libc::EISDIR,
    libc::ENOTEMPTY,
    // A directory is not moved below itself, and not linked.
    libc::EINVAL,
    libc::EPERM,
];

/// Each call that failed as it must not, or did not return.
pub(super) fn check(history: &[Event], policy: &Policy) -> Vec<Violation> {
    let excuses = Excuses::new(history, &policy.outages);
    let wrong = history.iter().filter_map(|event| {
        let what = match event.outcome {
            Outcome::Failed(errno) if is_allowed(event, errno, policy) => return None,
            Outcome::Failed(errno) if excuses.excuse(event, Some(errno)) => return None,
            Outcome::Failed(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                format!("{} fails: {error}", event.how)
            }
            Outcome::Flawed(ref what) if changes(&event.call) => format!("{}: {what}", event.how),
            Outcome::Nothing if excuses.excuse(event, None) => return None,
            Outcome::Nothing => format!("{} does not return", event.how),
            _ => return None,
        };
        Some(Violation::new(what, &[event]))
    });
    wrong.collect()
}

fn is_allowed(event: &Event, errno: i32, policy: &Policy) -> bool {
    let by_path = event.call == Call::Path && BY_PATH.contains(&errno);
    by_path || (policy.full && errno == libc::ENOSPC)
}

fn changes(call: &Call) -> bool {
    !matches!(call, Call::Read | Call::ReadAll | Call::Path)
}
