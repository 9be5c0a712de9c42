//! Write errors of files that are no longer in use, until they are reported.

use std::collections::BTreeMap;

use base::limits::LOST_FILES_MAX;
use base::{Fid, FsError};

/// Files with lost bytes whose error was not reported yet.
#[derive(Debug, Default)]
pub(crate) struct WriteErrors {
    pub files: BTreeMap<Fid, FsError>,
    /// The number of further files.
    more: usize,
}

impl WriteErrors {
    /// Adds an error of `fid`.
    pub fn add(&mut self, fid: Fid, error: FsError) {
        match self.files.len() < LOST_FILES_MAX || self.files.contains_key(&fid) {
            true => drop(self.files.insert(fid, error)),
            false => self.more += 1,
        }
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.files.len() + self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_beyond_the_bound_are_counted() {
        let mut write_errors = WriteErrors::default();
        for fid in 0..=LOST_FILES_MAX as u64 {
            write_errors.add(Fid(fid), FsError::Io);
            write_errors.add(Fid(0), FsError::NoSpace);
        }
        assert_eq!(
            (write_errors.files.len(), write_errors.len()),
            (LOST_FILES_MAX, LOST_FILES_MAX + 1)
        );
    }
}
