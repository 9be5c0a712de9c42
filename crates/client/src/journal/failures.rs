//! What could not be written in the background, told to each who has the file open.
//!
//! As on a local file system: each open file's next `fsync` says it, once. A `close` says it too
//! and takes nothing away, for a process that forks and executes closes its copies of descriptors
//! whose owner has yet to ask. But who opens the file later has lost nothing: his own `close` says only
//! what none has said before, while his `fsync` may be the one that somebody else's bytes wait for.

use base::FsError;

/// Of one file.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    last: Option<FsError>,
    count: u32,
    /// Some open file was told of the last one.
    told: bool,
    /// A close has said the last one.
    closed: bool,
    /// Who asked about the whole mount was.
    reported: bool,
}

/// How many failures an open file was told of, or precede it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Told {
    /// For its `fsync`.
    synced: u32,
    /// For its `close`: never less.
    closed: u32,
}

impl Told {
    /// As a number that says it to the next process.
    pub fn mark(self) -> u64 {
        u64::from(self.closed) << 32 | u64::from(self.synced)
    }

    /// The inverse.
    pub fn of_mark(mark: u64) -> Told {
        Told {
            synced: mark as u32,
            closed: (mark >> 32) as u32,
        }
    }
}

impl Failures {
    /// As a process before this one knew them: whether an `fsync`, or a close, has said the last one.
    pub fn restored(error: FsError, count: u32, (told, closed): (bool, bool)) -> Failures {
        Failures {
            last: Some(error),
            count,
            told,
            closed,
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
        (self.told, self.closed, self.reported) = (false, false, false);
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
        let begin = |told: bool| match told {
            true => self.count,
            false => self.count.saturating_sub(1),
        };
        Told {
            synced: begin(self.told),
            closed: begin(self.told || self.closed),
        }
    }

    fn since(&self, told: u32) -> Result<(), FsError> {
        match self.last {
            Some(error) if told < self.count => Err(error),
            _ => Ok(()),
        }
    }

    /// A close says the last failure that the open file was not told of. Who has it open already is
    /// told of that all the same.
    pub fn close(&mut self, told: Told) -> Result<(), FsError> {
        let failure = self.since(told.closed);
        self.closed |= failure.is_err();
        failure
    }

    /// An open file has yet to be told that something written before had no space.
    pub fn lacks_space(&self, told: Told) -> bool {
        self.since(told.closed) == Err(FsError::NoSpace)
    }

    /// The last failure an open file was not told of, which it is told hereby.
    pub fn tell(&mut self, told: &mut Told) -> Result<(), FsError> {
        let failure = self.since(told.synced);
        self.told |= failure.is_err();
        *told = Told {
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
        assert_eq!(failures.close(told), Err(FsError::NoSpace));
        assert_eq!(failures.close(told), Err(FsError::NoSpace));
        assert_eq!(failures.tell(&mut told), Err(FsError::NoSpace));
        assert_eq!(failures.close(told), Ok(()));
    }

    #[test]
    fn an_open_file_lacks_space_until_it_is_told() {
        let mut failures = Failures::default();
        let mut told = failures.at_open();
        failures.add(FsError::Io);
        assert!(!failures.lacks_space(told));
        failures.add(FsError::NoSpace);
        assert!(failures.lacks_space(told));
        assert_eq!(failures.close(told), Err(FsError::NoSpace));
        assert!(!failures.lacks_space(failures.at_open()), "it was said");
        assert_eq!(failures.tell(&mut told), Err(FsError::NoSpace));
        assert!(!failures.lacks_space(told));
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
        assert_eq!(failures.report(), Some(FsError::Io), "no fsync has told it");
        // Its owner may have the bytes of others synced.
        assert_eq!(failures.tell(&mut later), Err(FsError::Io));
        assert_eq!(failures.tell(&mut first), Err(FsError::Io));
        failures.add(FsError::NoSpace);
        assert_eq!(failures.close(later), Err(FsError::NoSpace));
        assert_eq!(Told::of_mark(later.mark()), later);
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
