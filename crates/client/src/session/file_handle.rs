//! An open file.

use std::sync::Arc;

use base::{ByteRange, Fid, FsError};
use handover::Record;
use wire::mdt::{Access, OpenHandle};

use crate::cache::file_errors::FileErrors;
use crate::cache::stamps::Mark;
use crate::journal::failures::Reported;
use crate::policy::readahead::ReadAhead;

/// How a file shall be opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenWish {
    /// For what.
    pub access: Access,
    /// Writes go to the end of file.
    pub append: bool,
}

impl OpenWish {
    /// The file can be read by the handle: what the kernel takes for its size counts.
    pub(crate) fn is_looker(self) -> bool {
        self.access.read || self.access.exec
    }
}

/// An execution that the MDT has on record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Execution {
    /// The MDT's handle of it.
    pub handle: OpenHandle,
    /// When it was put on record.
    pub mark: Mark,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    fid: Fid,
    /// How it was opened.
    wish: OpenWish,
    readahead: ReadAhead,
    /// How the MDT has an open for execution on record, each by itself.
    execution: Option<Execution>,
    /// What its owner knows of writes that failed.
    reported: Reported,
}

impl FileHandle {
    /// The file is open now. Its owner knows of what is `reported`.
    pub fn new(fid: Fid, wish: OpenWish, reported: Reported) -> FileHandle {
        FileHandle {
            fid,
            wish,
            readahead: ReadAhead::new(),
            execution: None,
            reported,
        }
    }

    /// The file.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// How it was opened.
    pub fn wish(&self) -> OpenWish {
        self.wish
    }

    /// It is open for writing.
    pub fn is_writer(&self) -> bool {
        self.wish.access.write
    }

    /// It is executed.
    pub fn is_executed(&self) -> bool {
        self.wish.access.exec
    }

    /// The MDT has this execution on record.
    pub fn register_execution(&mut self, execution: Execution) {
        self.execution = Some(execution);
    }

    /// How the MDT has this execution on record.
    pub fn execution(&self) -> Option<Execution> {
        self.execution
    }

    /// What its owner knows of writes that failed.
    pub fn reported(&self) -> Reported {
        self.reported
    }

    /// Reports the last of the file's errors at an fsync, once. The next process knows of that by the
    /// handle's record.
    pub fn sync(
        &mut self,
        errors: &mut FileErrors,
        record: Option<Arc<Record>>,
    ) -> Result<(), FsError> {
        errors.sync(&mut self.reported, record)
    }

    /// What to fetch ahead, within `ahead_max` bytes, now that `len` bytes at `offset` of `size` are read.
    pub fn read_ahead(
        &mut self,
        (offset, len): (u64, u64),
        size: u64,
        ahead_max: u64,
    ) -> Option<ByteRange> {
        self.readahead.next(offset, len, size, ahead_max)
    }

    /// It is read in order, since this was asked last, and more was fetched than was read.
    pub fn is_read_ahead(&mut self) -> bool {
        self.readahead.is_ahead()
    }

    /// What was fetched ahead is gone.
    pub fn forget_readahead(&mut self) {
        self.readahead.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_by_each_handle_once_and_not_by_later_ones() {
        let mut errors = FileErrors::default();
        let open =
            |errors: &FileErrors| FileHandle::new(Fid(1), OpenWish::default(), errors.at_open());
        let (mut first, mut second) = (open(&errors), open(&errors));
        errors.add(FsError::NoSpace);
        assert_eq!(first.sync(&mut errors, None), Err(FsError::NoSpace));
        assert_eq!(first.sync(&mut errors, None), Ok(()));
        assert_eq!(open(&errors).sync(&mut errors, None), Ok(()));
        assert_eq!(second.sync(&mut errors, None), Err(FsError::NoSpace));
    }

    #[test]
    fn handles_that_read_or_execute_look_at_the_file() {
        let wish = |access| OpenWish {
            access,
            append: false,
        };
        let (read, exec) = (true, true);
        let nothing = Access::default();
        assert!(wish(Access { read, ..nothing }).is_looker());
        assert!(wish(Access { exec, ..nothing }).is_looker());
        let write = Access {
            write: true,
            ..nothing
        };
        assert!(!wish(write).is_looker());
        let mut writer = FileHandle::new(Fid(1), wish(write), Reported::default());
        assert!(writer.is_writer() && !writer.is_executed() && writer.execution().is_none());
        let mark = Mark {
            dir: Fid(1),
            asked: 0,
            changes: 0,
        };
        let handle = OpenHandle(7);
        writer.register_execution(Execution { handle, mark });
        assert_eq!(writer.execution().map(|known| known.handle), Some(handle));
    }
}
