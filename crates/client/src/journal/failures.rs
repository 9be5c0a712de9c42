//! Errors of background writes, each reported to every open file.

use base::FsError;

/// The errors of one file, reported as a local file system does: each open file's next `fsync` reports an
/// error, once.
///
/// A `close` reports it too, and the `fsync` after it still does: a process that forks and executes closes
/// its copies of descriptors, and their owner has yet to ask. A file that is opened later has lost nothing.
/// Its `close` reports only an error that no call has reported; its `fsync` may be the one that another
/// process relies on for its bytes.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Option<FsError>,
    count: u32,
    /// Some open file was told of the last one.
    synced: bool,
    /// A close has said the last one.
    closed: bool,
    /// Who asked about the whole mount was.
    reported: bool,
}

/// How many failures an open file was told of, or precede it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reported {
    /// For its `fsync`.
    synced: u32,
    /// For its `close`: never less.
    closed: u32,
}

impl Reported {
    /// As a number that says it to the next process.
    pub fn mark(self) -> u64 {
        u64::from(self.closed) << 32 | u64::from(self.synced)
    }

    /// The inverse.
    pub fn of_mark(mark: u64) -> Reported {
        Reported {
            synced: mark as u32,
            closed: (mark >> 32) as u32,
        }
    }
}

/// The calls by which open files have said the last failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SaidBy {
    pub fsync: bool,
    pub close: bool,
}

impl Failures {
    /// As a process before this one knew them.
    pub fn restored(error: FsError, count: u32, said: SaidBy) -> Failures {
        Failures {
            last: Some(error),
            count,
            synced: said.fsync,
            closed: said.close,
            reported: false,
        }
    }

    /// The last one, and how many there were with it.
    pub fn last(&self) -> Option<(FsError, u32)> {
        self.last.map(|error| (error, self.count))
    }

    /// Something could not be written.
    pub fn add(&mut self, error: FsError) {
        self.last = Some(error);
        self.count += 1;
        (self.synced, self.closed, self.reported) = (false, false, false);
    }

    /// The last error, if it was reported neither to an open file nor for the whole mount.
    pub fn unreported(&self) -> Option<FsError> {
        self.last.filter(|_| !self.synced && !self.reported)
    }

    /// The last error, if no `fsync` has reported it.
    pub fn unsynced(&self) -> Option<FsError> {
        self.last.filter(|_| !self.synced)
    }

    /// Reports the last error for the whole mount. Open files still report it to their callers.
    pub fn report(&mut self) -> Option<FsError> {
        let last = self.unreported();
        self.reported |= last.is_some();
        last
    }

    /// Something could not be written since the file was first in use.
    pub fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Where an open file begins: it also reports an error that was not reported yet.
    pub fn at_open(&self) -> Reported {
        let begin = |is_reported: bool| match is_reported {
            true => self.count,
            false => self.count.saturating_sub(1),
        };
        Reported {
            synced: begin(self.synced),
            closed: begin(self.synced || self.closed),
        }
    }

    fn since(&self, reported: u32) -> Result<(), FsError> {
        match self.last {
            Some(error) if reported < self.count => Err(error),
            _ => Ok(()),
        }
    }

    /// Reports the last error at a close, if this open file has not reported it. Other open files
    /// still report it.
    pub fn close(&mut self, reported: Reported) -> Result<(), FsError> {
        let failure = self.since(reported.closed);
        self.closed |= failure.is_err();
        failure
    }

    /// This open file still has to report that an earlier write found no space.
    pub fn lacks_space(&self, reported: Reported) -> bool {
        self.since(reported.closed) == Err(FsError::NoSpace)
    }

    /// Reports the last error at an fsync, once for each open file.
    pub fn sync(&mut self, reported: &mut Reported) -> Result<(), FsError> {
        let failure = self.since(reported.synced);
        self.synced |= failure.is_err();
        *reported = Reported {
            synced: self.count,
            closed: self.count,
        };
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_is_told_once() {
        let mut failures = Failures::default();
        let (mut one, mut two) = (failures.at_open(), failures.at_open());
        assert_eq!(failures.sync(&mut one), Ok(()));
        failures.add(FsError::Io);
        assert_eq!(failures.sync(&mut one), Err(FsError::Io));
        assert_eq!(failures.sync(&mut one), Ok(()));
        assert_eq!(failures.sync(&mut two), Err(FsError::Io));
        assert_eq!(failures.sync(&mut two), Ok(()));
    }

    #[test]
    fn a_close_takes_nothing_away() {
        let mut failures = Failures::default();
        let mut reported = failures.at_open();
        failures.add(FsError::NoSpace);
        assert_eq!(failures.close(reported), Err(FsError::NoSpace));
        assert_eq!(failures.close(reported), Err(FsError::NoSpace));
        assert_eq!(failures.sync(&mut reported), Err(FsError::NoSpace));
        assert_eq!(failures.close(reported), Ok(()));
    }

    #[test]
    fn an_open_file_lacks_space_until_it_is_told() {
        let mut failures = Failures::default();
        let mut reported = failures.at_open();
        failures.add(FsError::Io);
        assert!(!failures.lacks_space(reported));
        failures.add(FsError::NoSpace);
        assert!(failures.lacks_space(reported));
        assert_eq!(failures.close(reported), Err(FsError::NoSpace));
        assert!(!failures.lacks_space(failures.at_open()), "it was said");
        assert_eq!(failures.sync(&mut reported), Err(FsError::NoSpace));
        assert!(!failures.lacks_space(reported));
    }

    #[test]
    fn what_a_close_has_said_is_said_by_no_close_of_who_opens_later() {
        let mut failures = Failures::default();
        let (mut first, second) = (failures.at_open(), failures.at_open());
        failures.add(FsError::Io);
        let opened_before = failures.at_open();
        assert_eq!(failures.close(first), Err(FsError::Io));
        let mut later = failures.at_open();
        assert_eq!(failures.close(later), Ok(()));
        assert_eq!(failures.close(second), Err(FsError::Io));
        assert_eq!(failures.close(opened_before), Err(FsError::Io));
        assert_eq!(
            failures.report(),
            Some(FsError::Io),
            "no fsync has reported it"
        );
        // Its owner may have the bytes of others synced.
        assert_eq!(failures.sync(&mut later), Err(FsError::Io));
        assert_eq!(failures.sync(&mut first), Err(FsError::Io));
        failures.add(FsError::NoSpace);
        assert_eq!(failures.close(later), Err(FsError::NoSpace));
        assert_eq!(Reported::of_mark(later.mark()), later);
    }

    #[test]
    fn who_asks_about_the_mount_is_told_once_what_no_open_file_was() {
        let mut failures = Failures::default();
        let mut reported = failures.at_open();
        assert_eq!(failures.report(), None);
        failures.add(FsError::NoSpace);
        assert_eq!(failures.report(), Some(FsError::NoSpace));
        assert_eq!(failures.report(), None);
        assert_eq!(failures.sync(&mut reported), Err(FsError::NoSpace));
        failures.add(FsError::Io);
        assert_eq!(failures.sync(&mut reported), Err(FsError::Io));
        assert_eq!(failures.report(), None);
    }

    #[test]
    fn who_opens_later_is_told_what_nobody_was() {
        let mut failures = Failures::default();
        failures.add(FsError::Io);
        let mut later = failures.at_open();
        assert_eq!(failures.sync(&mut later), Err(FsError::Io));
        let mut last = failures.at_open();
        assert_eq!(failures.sync(&mut last), Ok(()));
    }
}
