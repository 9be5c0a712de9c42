//! What of one file could not be written, until each open file has reported it, and the record of that.

use std::sync::Arc;

use base::{Fid, FsError};
use handover::{Record, Records};

use crate::journal::errors::{self, FoundFailures, RememberedFailures};
use crate::journal::failures::{Failures, Reported};

/// The write errors of one file.
#[derive(Debug, Default)]
pub(crate) struct FileErrors {
    failures: Failures,
    /// The last of them as the next process will know it.
    remembered: Option<RememberedFailures>,
}

impl FileErrors {
    /// Something could not be written.
    pub fn add(&mut self, error: FsError) {
        self.failures.add(error);
    }

    /// The last error, and how many there were with it.
    pub fn last(&self) -> Option<(FsError, u32)> {
        self.failures.last()
    }

    /// Something could not be written since the file was first in use.
    pub fn is_any(&self) -> bool {
        self.failures.is_any()
    }

    /// The last error, if nobody has reported it.
    pub fn unreported(&self) -> Option<FsError> {
        self.failures.unreported()
    }

    /// The last error, if no `fsync` has reported it.
    pub fn unsynced(&self) -> Option<FsError> {
        self.failures.unsynced()
    }

    /// Reports the last error to a caller that has not opened the file, as `fsync` would of a file that is
    /// opened now.
    pub fn sync_unopened(&mut self) -> Result<(), FsError> {
        let mut reported = self.at_open();
        self.sync(&mut reported, None)
    }

    /// Reports the last error for the whole mount.
    pub fn report(&mut self) -> Option<FsError> {
        self.failures.report()
    }

    /// Where an open file begins.
    pub fn at_open(&self) -> Reported {
        self.failures.at_open()
    }

    /// This open file still has to report that an earlier write found no space.
    pub fn lacks_space(&self, reported: Reported) -> bool {
        self.failures.lacks_space(reported)
    }

    /// Reports the last error at a close, if this open file has not reported it. The next process knows of
    /// that.
    pub fn close(&mut self, reported: Reported) -> Result<(), FsError> {
        let result = self.failures.close(reported);
        if result.is_err() {
            errors::close(self.remembered.as_ref());
        }
        result
    }

    /// Reports the last error at an fsync, once for each open file. The next process knows of that by the
    /// `handle`'s record.
    pub fn sync(
        &mut self,
        reported: &mut Reported,
        handle: Option<Arc<Record>>,
    ) -> Result<(), FsError> {
        let result = self.failures.sync(reported);
        if result.is_err() {
            errors::report(handle, self.remembered.as_ref(), *reported);
        }
        result
    }

    /// The last error is written to `records`.
    pub fn remember(&mut self, records: &Records, fid: Fid) {
        errors::remember(&mut self.remembered, records, fid, &self.failures);
    }

    /// The process before knew of these. It may have been about to forget a record that knew of fewer.
    pub fn inherit(&mut self, found: FoundFailures) {
        let is_newer = |(_, count)| count < found.count;
        if self.failures.last().is_none_or(is_newer) {
            self.failures = found.failures;
            self.remembered = Some(found.remembered);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handover::Region;

    const FILE: Fid = Fid(7);

    #[test]
    fn of_two_records_the_one_that_knows_of_more_is_inherited() {
        let memory = Region::create(8 << 20).unwrap();
        let (records, _) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut file = FileErrors::default();
        file.remember(&records, FILE);
        assert_eq!(records.bytes(), 0, "there is none");
        file.add(FsError::NoSpace);
        file.remember(&records, FILE);
        let first = file.remembered.take();
        file.add(FsError::Io);
        file.remember(&records, FILE);
        let (_, found) = Records::open(Region::map(&memory).unwrap()).unwrap();
        let mut next = FileErrors::default();
        found
            .into_iter()
            .filter_map(errors::found)
            .for_each(|found| next.inherit(found));
        assert_eq!(next.last(), Some((FsError::Io, 2)));
        std::mem::forget((first, file, next));
    }
}
