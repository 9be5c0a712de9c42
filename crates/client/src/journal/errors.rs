//! Records of write errors: of each file those that its open files have not all reported.

use std::sync::Arc;

use base::{Fid, FsError};
use handover::{Found, Record, Records};
use serde::{Deserialize, Serialize};

use super::record::{FAILED, decode, encode, put};
use crate::executor::{UntilAnswered, origin};
use crate::journal::failures::{Failures, Reported, SaidBy};

/// In the mark of a [`FAILED`], beside how many there were: somebody was told of the last.
const SYNCED: u64 = 1 << 32;
/// The same: a close has said it.
const CLOSED: u64 = 1 << 33;

/// Body of a [`FAILED`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct FailedBody {
    fid: Fid,
    /// The last failure, in the numbers of the wire.
    status: u16,
}

/// The record.
#[derive(Debug)]
pub(crate) struct RememberedFailures {
    count: u32,
    record: Arc<Record>,
}

/// A record that was found.
pub(crate) struct FoundFailures {
    pub fid: Fid,
    pub count: u32,
    pub failures: Failures,
    pub remembered: RememberedFailures,
}

/// Marks that change when the kernel has the reply that reports the error. So two processes may both report
/// an error, but none goes unreported.
#[derive(Debug)]
struct Reporting {
    /// The open file that reports it, and how much it has reported then.
    handle: Option<(Arc<Record>, Reported)>,
    /// Of what, and how.
    failures: Option<(Arc<Record>, u64)>,
}

impl UntilAnswered for Reporting {}

impl Drop for Reporting {
    fn drop(&mut self) {
        if let Some((failures, how)) = &self.failures {
            failures.set_mark(failures.mark() | how);
        }
        if let Some((handle, reported)) = &self.handle {
            handle.set_mark(reported.mark());
        }
    }
}

impl Reporting {
    fn new(
        handle: Option<(Arc<Record>, Reported)>,
        of: Option<&RememberedFailures>,
        how: u64,
    ) -> Reporting {
        Reporting {
            handle,
            failures: of.map(|failures| (failures.record.clone(), how)),
        }
    }

    /// As soon as the present task's origin is answered.
    fn when_answered(self) {
        match origin() {
            Some(origin) => origin.keep(Box::new(self)),
            None => drop(self),
        }
    }
}

/// Remembers the last of `failures`; `known` is what is remembered so far.
pub(crate) fn remember(
    known: &mut Option<RememberedFailures>,
    records: &Records,
    fid: Fid,
    failures: &Failures,
) {
    let Some((error, count)) = failures.last() else {
        return;
    };
    if known.as_ref().is_some_and(|known| known.count == count) {
        return;
    }
    let status = wire::status_of(Err(error));
    let body = encode(&FailedBody { fid, status });
    let record = put(records, FAILED, u64::from(count), &body);
    // The old one, if there is one, goes after that.
    if let Some(record) = record {
        let record = Arc::new(record);
        *known = Some(RememberedFailures { count, record });
    }
}

/// An open file reports `reported`.
pub(crate) fn report(
    handle: Option<Arc<Record>>,
    failures: Option<&RememberedFailures>,
    reported: Reported,
) {
    let handle = handle.map(|handle| (handle, reported));
    Reporting::new(handle, failures, SYNCED).when_answered();
}

/// A close says the last failure.
pub(crate) fn close(failures: Option<&RememberedFailures>) {
    Reporting::new(None, failures, CLOSED).when_answered();
}

/// Reads a record.
pub(crate) fn found(found: Found) -> Option<FoundFailures> {
    let FailedBody { fid, status } = decode(&found.bytes)?;
    let error = wire::status_from(status).err().unwrap_or(FsError::Io);
    let count = (found.mark & (SYNCED - 1)) as u32;
    let said = SaidBy {
        fsync: found.mark & SYNCED != 0,
        close: found.mark & CLOSED != 0,
    };
    Some(FoundFailures {
        fid,
        count,
        failures: Failures::restored(error, count, said),
        remembered: RememberedFailures {
            count,
            record: Arc::new(found.record),
        },
    })
}
