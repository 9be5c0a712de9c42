//! What could not be written in the background, told to each who has the file open.
//!
//! As on a local file system: each open file's next `fsync` says it, once. A `close` says it too
//! and takes nothing away, for a process that forks and executes closes its copies of descriptors
//! whose owner has yet to ask.

use base::FsError;

/// Of one file.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Option<FsError>,
    count: u32,
    /// Some open file was told of the last one.
    told: bool,
    /// Who asked about the whole mount was.
    reported: bool,
}

/// How many failures an open file was told of, or precede it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Told(u32);

impl Told {
    /// As a number that says it to the next process.
    pub fn mark(self) -> u64 {
        self.0.into()
    }

    /// The inverse.
    pub fn of_mark(mark: u64) -> Told {
        Told(mark as u32)
    }
}

impl Failures {
    /// As a process before this one knew them.
    pub fn restored(error: FsError, count: u32, told: bool) -> Failures {
        Failures {
            last: Some(error),
            count,
            told,
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
        (self.told, self.reported) = (false, false);
    }

    /// The last one, if neither an open file nor who asked about the whole mount was told of it.
    pub fn unreported(&self) -> Option<FsError> {
        self.last.filter(|_| !self.told && !self.reported)
    }

    /// The same, to one who asks about the whole mount and is told hereby. That takes nothing from
    /// open files.
    pub fn report(&mut self) -> Option<FsError> {
        let last = self.unreported();
        self.reported |= last.is_some();
        last
    }

    /// Something could not be written since the file was first in use.
    pub fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Where an open file begins: what nobody was told yet is its business too.
    pub fn at_open(&self) -> Told {
        match self.told {
            true => Told(self.count),
            false => Told(self.count.saturating_sub(1)),
        }
    }

    /// The last failure an open file was not told of.
    pub fn peek(&self, told: Told) -> Result<(), FsError> {
        match self.last {
            Some(error) if told.0 < self.count => Err(error),
            _ => Ok(()),
        }
    }

    /// The last failure an open file was not told of, which it is told hereby.
    pub fn tell(&mut self, told: &mut Told) -> Result<(), FsError> {
        let failure = self.peek(*told);
        self.told |= failure.is_err();
        told.0 = self.count;
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
        assert_eq!(failures.tell(&mut one), Ok(()));
        failures.add(FsError::Io);
        assert_eq!(failures.tell(&mut one), Err(FsError::Io));
        assert_eq!(failures.tell(&mut one), Ok(()));
        assert_eq!(failures.tell(&mut two), Err(FsError::Io));
        assert_eq!(failures.tell(&mut two), Ok(()));
    }

    #[test]
    fn a_close_takes_nothing_away() {
        let mut failures = Failures::default();
        let mut told = failures.at_open();
        failures.add(FsError::NoSpace);
        assert_eq!(failures.peek(told), Err(FsError::NoSpace));
        assert_eq!(failures.peek(told), Err(FsError::NoSpace));
        assert_eq!(failures.tell(&mut told), Err(FsError::NoSpace));
        assert_eq!(failures.peek(told), Ok(()));
    }

    #[test]
    fn who_asks_about_the_mount_is_told_once_what_no_open_file_was() {
        let mut failures = Failures::default();
        let mut told = failures.at_open();
        assert_eq!(failures.report(), None);
        failures.add(FsError::NoSpace);
        assert_eq!(failures.report(), Some(FsError::NoSpace));
        assert_eq!(failures.report(), None);
        assert_eq!(failures.tell(&mut told), Err(FsError::NoSpace));
        failures.add(FsError::Io);
        assert_eq!(failures.tell(&mut told), Err(FsError::Io));
        assert_eq!(failures.report(), None);
    }

    #[test]
    fn who_opens_later_is_told_what_nobody_was() {
        let mut failures = Failures::default();
        failures.add(FsError::Io);
        let mut later = failures.at_open();
        assert_eq!(failures.tell(&mut later), Err(FsError::Io));
        let mut last = failures.at_open();
        assert_eq!(failures.tell(&mut last), Ok(()));
    }
}
