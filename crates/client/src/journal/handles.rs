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
    access: Access,
    append: bool,
    directory: bool,
    /// The kernel's request that opened it; zero: unknown.
    pub origin: u64,
}

/// What is open, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenedAs {
    Directory,
    File {
        access: Access,
        /// Writes go to the end of file.
        append: bool,
    },
}

impl HandleBody {
    /// What is open, and how.
    pub fn opened(&self) -> OpenedAs {
        let HandleBody { access, append, .. } = *self;
        match self.directory {
            true => OpenedAs::Directory,
            false => OpenedAs::File { access, append },
        }
    }
}

/// Remembers an open file or directory.
pub(crate) fn remember_handle(
    records: &Records,
    id: u64,
    fid: Fid,
    opened: OpenedAs,
    reported: Reported,
) -> Option<Record> {
    let (access, append) = match opened {
        OpenedAs::Directory => (Access::default(), false),
        OpenedAs::File { access, append } => (access, append),
    };
    let body = HandleBody {
        id,
        fid,
        access,
        append,
        directory: opened == OpenedAs::Directory,
        origin: executor::origin().map_or(0, |origin| origin.number()),
    };
    put(records, HANDLE, reported.mark(), &encode(&body))
}
