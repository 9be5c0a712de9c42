//! Files of which something could not be written.

use std::collections::BTreeMap;

use base::limits::LOST_FILES_MAX;
use base::{Fid, FsError};

/// Files of which something is lost, and nobody was told.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub files: BTreeMap<Fid, FsError>,
    /// Beyond those.
    more: usize,
}

impl Losses {
    /// Something of `fid` is lost.
    pub fn add(&mut self, fid: Fid, error: FsError) {
        match self.files.len() < LOST_FILES_MAX || self.files.contains_key(&fid) {
            true => drop(self.files.insert(fid, error)),
            false => self.more += 1,
        }
    }

    /// How many files.
    pub fn len(&self) -> usize {
        self.files.len() + self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_bound_losses_are_counted() {
        let mut losses = Losses::default();
        for fid in 0..=LOST_FILES_MAX as u64 {
            losses.add(Fid(fid), FsError::Io);
            losses.add(Fid(0), FsError::NoSpace);
        }
        assert_eq!(
            (losses.files.len(), losses.len()),
            (LOST_FILES_MAX, LOST_FILES_MAX + 1)
        );
    }
}
