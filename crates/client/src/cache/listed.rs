//! A directory as it was listed.

use base::{Fid, Name};
use wire::FileKind;

/// An entry of the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub name: Name,
    pub fid: Fid,
    pub kind: FileKind,
}
