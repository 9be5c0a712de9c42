//! Open files and directories.

use base::Fid;
use handover::{Record, Records};
use wire::mdt::Access;

use super::failures::Reported;
use super::record::{HANDLE, encode, put};
use crate::executor;

/// Body of a [`HANDLE`].
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct HandleBody {
    pub id: u64,
    pub fid: Fid,
    pub access: Access,
    pub append: bool,
    pub directory: bool,
    /// The kernel's request that opened it; zero: unknown.
    pub origin: u64,
}

/// Remembers an open file or directory.
pub(crate) fn remember_handle(
    records: &Records,
    id: u64,
    (fid, directory): (Fid, bool),
    (access, append): (Access, bool),
    reported: Reported,
) -> Option<Record> {
    let body = HandleBody {
        id,
        fid,
        access,
        append,
        directory,
        origin: executor::origin().map_or(0, |origin| origin.number()),
    };
    put(records, HANDLE, reported.mark(), &encode(&body))
}
