//! How many files this process may have open, and what shares them: what cannot be done with as many is
//! refused at the start. Called by every verb that stays.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use storage::OPEN_FILES_MAX;

/// What every process has: its streams, the control socket and its questions, looks into /proc.
const OF_A_PROCESS: usize = 40;
/// What a mount has besides: the kernel's queues, the supervisor's memory, the MGS.
const OF_A_MOUNT: usize = 16;
/// Connections of a mount to one target: its lanes, and one that is being made.
const TO_A_TARGET: usize = 6;
/// What a served target has: its database and the lock on that, its directory, its fence.
const OF_A_TARGET: usize = 8;
/// Objects kept open by an OST: below, most calls would open one.
const OBJECTS_MIN: usize = 16;
/// Connections without which it makes no sense to serve.
const CONNECTIONS_MIN: usize = 16;
/// A connection's own, and what a request of it may have open that is not kept.
const OF_A_CONNECTION: usize = 3;

/// Open files that this process may have.
#[derive(Debug, Clone, Copy)]
pub struct Descriptors {
    limit: usize,
}

/// Who of a server may have how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Objects that each OST keeps open.
    pub objects: usize,
    /// Connections at one time.
    pub connections: usize,
}

impl Descriptors {
    /// As many as the system lets this process have: the soft limit is for programs that number
    /// descriptors in a set of fixed size.
    pub fn raise() -> Result<Descriptors, String> {
        let failed = |errno| format!("the limit of open files: {errno}");
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(failed)?;
        }
        let limit = usize::try_from(hard).unwrap_or(usize::MAX);
        Ok(Descriptors { limit })
    }

    /// For a server of `targets`, `osts` of them OSTs, in a process that also mounts if `mounts`.
    pub fn shares(self, targets: usize, osts: usize, mounts: bool) -> Result<Shares, String> {
        let fixed = OF_A_PROCESS + targets * OF_A_TARGET + usize::from(mounts) * OF_A_MOUNT;
        let needed = fixed + osts * OBJECTS_MIN + CONNECTIONS_MIN * OF_A_CONNECTION;
        let spare = self.beyond(needed, &format!("to serve {targets} targets"))?;
        let objects = OBJECTS_MIN + spare / 2 / osts.max(1);
        let objects = objects.min(OPEN_FILES_MAX);
        let connections = (self.limit - fixed - osts * objects) / OF_A_CONNECTION;
        Ok(Shares {
            objects,
            connections,
        })
    }

    /// For a mount of a file system of `targets`.
    pub fn suffice_to_mount(self, targets: usize) -> Result<(), String> {
        let needed = OF_A_PROCESS + OF_A_MOUNT + targets * TO_A_TARGET;
        self.beyond(needed, &format!("to mount {targets} targets"))
            .map(drop)
    }

    fn beyond(self, needed: usize, what: &str) -> Result<usize, String> {
        let limit = self.limit;
        limit.checked_sub(needed).ok_or_else(|| {
            format!(
                "{what}, {needed} open files are needed, and this process may have {limit}: raise the \
                 hard limit (ulimit -Hn, or LimitNOFILE= of a service)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_into_the_limit_and_too_few_are_refused() {
        for limit in [200, 256, 1024, 4096, 20_000, 1 << 20] {
            let shares = Descriptors { limit }.shares(4, 2, true).unwrap();
            let used = OF_A_PROCESS + OF_A_MOUNT + 4 * OF_A_TARGET;
            let used = used + 2 * shares.objects + shares.connections * OF_A_CONNECTION;
            assert!(used <= limit, "{limit}: {shares:?}");
            assert!(shares.objects >= OBJECTS_MIN && shares.connections >= CONNECTIONS_MIN);
        }
        let few = Descriptors { limit: 64 };
        let said = few.shares(3, 1, true).unwrap_err();
        assert!(said.contains("144 open files are needed"), "{said}");
        assert!(said.contains("may have 64") && said.contains("LimitNOFILE"));
        assert!(few.suffice_to_mount(1).is_ok() && few.suffice_to_mount(2).is_err());
        assert!(Descriptors { limit: 128 }.suffice_to_mount(2).is_ok());
    }

    #[test]
    fn no_ost_takes_no_share() {
        let shares = Descriptors { limit: 1024 }.shares(2, 0, false).unwrap();
        assert_eq!(shares.connections, (1024 - 56) / OF_A_CONNECTION);
    }
}
