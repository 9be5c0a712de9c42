//! Extended attributes of what this mount alone knows: files that nobody has heard of (ADR 19), and removed
//! directories that the MDT has forgotten.

use base::{Fid, FsError};
use wire::FileKind;
use wire::mdt::XattrMode;
use wire::xattr::check_name;

use crate::cache::births::Standing;
use crate::cache::inode::Xattrs;
use crate::session::client::Client;

/// A file with more than so many bytes of names and values is made known first.
const BYTES_MAX: usize = 1024;

/// The value that is set, and whether there may be one; `None`: it goes.
type New<'a> = Option<(&'a [u8], XattrMode)>;

impl Client {
    /// Sets or removes an extended attribute here. `None`: the MDT is to be asked.
    pub(crate) fn change_xattr_here(
        &self,
        fid: Fid,
        name: &[u8],
        new: New<'_>,
    ) -> Option<Result<(), FsError>> {
        let mut state = self.lock();
        let birth = state.births.get(fid)?;
        // The record of a file, which the next process reads, has no values.
        if birth.standing != Standing::Unreported || state.journal.records().is_some() {
            return None;
        }
        let attr = state.attr(fid)?;
        if let Err(error) = check_name(name, attr.kind) {
            return Some(Err(error));
        }
        let mut values = match attr.has_xattrs {
            true => state.cache.known(fid)?.xattrs()?.clone(),
            false => Xattrs::new(),
        };
        if let Err(error) = change(&mut values, name, new) {
            return Some(Err(error));
        }
        let bytes: usize = values.iter().map(|(n, v)| n.len() + v.len()).sum();
        if bytes > BYTES_MAX {
            return None;
        }
        let now = self.0.clock.now();
        state.cache.inode(fid).change_xattrs_here(values, now);
        Some(Ok(()))
    }

    /// All of a removed directory of which the MDT knows nothing any more.
    ///
    /// # Errors
    /// `Stale`: it had some, and nobody knows them.
    pub(crate) fn xattrs_of_removed(&self, fid: Fid) -> Result<Xattrs, FsError> {
        let state = self.lock();
        let inode = state.cache.known(fid).ok_or(FsError::Stale)?;
        match inode.attrs.known().is_some_and(|attr| attr.has_xattrs) {
            true => inode.xattrs().cloned().ok_or(FsError::Stale),
            false => Ok(Xattrs::new()),
        }
    }

    /// Sets or removes one of such a directory.
    pub(crate) fn change_xattr_of_removed(
        &self,
        fid: Fid,
        name: &[u8],
        new: New<'_>,
    ) -> Result<(), FsError> {
        check_name(name, FileKind::Directory)?;
        let mut values = self.xattrs_of_removed(fid)?;
        change(&mut values, name, new)?;
        let now = self.0.clock.now();
        let mut state = self.lock();
        state.cache.inode(fid).change_xattrs_here(values, now);
        Ok(())
    }
}

/// They stay in the order of their names.
fn change(values: &mut Xattrs, name: &[u8], new: New<'_>) -> Result<(), FsError> {
    let place = values.binary_search_by(|(known, _)| known[..].cmp(name));
    match (place, new) {
        (Ok(_), Some((_, XattrMode::Create))) => return Err(FsError::Exists),
        (Err(_), None | Some((_, XattrMode::Replace))) => return Err(FsError::NoAttribute),
        (Ok(at), Some((value, _))) => values[at].1 = value.to_vec(),
        (Err(at), Some((value, _))) => values.insert(at, (name.to_vec(), value.to_vec())),
        (Ok(at), None) => drop(values.remove(at)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_made_replaced_and_removed_as_they_may_be() {
        let mut values = Xattrs::new();
        let mut set =
            |name: &[u8], value: &[u8], mode| change(&mut values, name, Some((value, mode)));
        assert_eq!(set(b"user.b", b"1", XattrMode::Set), Ok(()));
        assert_eq!(set(b"user.a", b"2", XattrMode::Set), Ok(()));
        let there = set(b"user.a", b"3", XattrMode::Create);
        assert_eq!(there, Err(FsError::Exists));
        let none = set(b"user.c", b"3", XattrMode::Replace);
        assert_eq!(none, Err(FsError::NoAttribute));
        let names: Vec<&[u8]> = values.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [b"user.a", b"user.b"]);
        assert_eq!(change(&mut values, b"user.a", None), Ok(()));
        assert_eq!(
            change(&mut values, b"user.a", None),
            Err(FsError::NoAttribute)
        );
        assert_eq!(values, [(b"user.b".to_vec(), b"1".to_vec())]);
    }
}
