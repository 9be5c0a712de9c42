//! The MDT, asked about objects of OSTs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::{TargetIndex, Transno};
use mds::fsck::objects;
use mds::store::{Failure, Store};
use oss::fsck::Whose;

use super::checked::Checked;

/// The MDT, for questions about objects.
pub(super) struct Mdt {
    pub store: Store,
    /// Nothing was wrong with it, so that what it does not know there is not.
    pub was_sound: bool,
    /// Its last change.
    pub last: Transno,
}

/// A file of whose bytes there are more or fewer than there must be.
pub(super) struct WrongSize {
    pub object: oss::fsck::ObjectId,
    /// Bytes that there must be.
    pub size: u64,
    /// Bytes that there are. None: no object.
    pub found: Option<u64>,
}

impl fmt::Display for WrongSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, size) = (self.object.fid, self.size);
        match self.found {
            None => write!(f, "the bytes of file {file} are missing"),
            Some(found) => write!(f, "file {file} is {size} bytes long, and has {found}"),
        }
    }
}

impl Mdt {
    pub fn whose(&self, ost: TargetIndex, object: oss::fsck::ObjectId) -> Whose {
        match objects::claim(&self.store, ost, object) {
            Ok(objects::Claim::Named | objects::Claim::ToBeRemoved) => Whose::Known,
            // A file whose record was lost may have left it, and then it is all there is of it.
            Ok(objects::Claim::Nobodys | objects::Claim::Superfluous) if self.was_sound => {
                Whose::Nobodys
            }
            Ok(_) => Whose::InDoubt,
            Err(_) => Whose::Unasked,
        }
    }

    /// OSTs that have bytes of files, and are not looked at.
    pub fn tell_unchecked(
        &self,
        osts: &BTreeSet<TargetIndex>,
        checked: &mut Checked,
    ) -> Result<(), String> {
        let mut unchecked = BTreeMap::<TargetIndex, u64>::new();
        let look = |on: TargetIndex, _: oss::fsck::ObjectId, _: u64| {
            if !osts.contains(&on) {
                *unchecked.entry(on).or_default() += 1;
            }
        };
        objects::expected(&self.store, look).map_err(words)?;
        let told = unchecked.iter().map(|(ost, files)| {
            format!(
                "OST{} has bytes of {files} files and was not given: they are not checked; give its \
                 directory, too",
                ost.0
            )
        });
        checked.warnings.extend(told);
        Ok(())
    }

    /// Files of which the number of bytes is known, and is another.
    pub fn wrong_sizes(
        &self,
        ost: TargetIndex,
        store: &dyn storage::ObjectStore,
    ) -> Result<Vec<WrongSize>, String> {
        let mut wrong = Vec::new();
        let look = |on: TargetIndex, object: oss::fsck::ObjectId, size: u64| {
            if on != ost {
                return;
            }
            // What cannot be examined was told already.
            let found = oss::fsck::size(store, object).ok();
            let other = found.filter(|found| *found != Some(size));
            wrong.extend(other.map(|found| WrongSize {
                object,
                size,
                found,
            }));
        };
        objects::expected(&self.store, look).map_err(words)?;
        Ok(wrong)
    }
}

/// What failed.
pub(super) fn words(failure: Failure) -> String {
    match failure {
        Failure::Refused(error) => error.to_string(),
        Failure::Broken(error) => error.to_string(),
    }
}
