//! What the MDT knows of this client's uses of one file.

use wire::mdt::{OpenHandle, WriteTicket};

/// The one write-open of this client at the MDT, shared by all local handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteOpen {
    pub handle: OpenHandle,
    pub ticket: WriteTicket,
}

/// Whether the MDT has the file that is open here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Standing {
    /// It has.
    #[default]
    Known,
    /// It gave this client up, and is being told: it may have lost the file, and then an OST has no
    /// bytes of it.
    InDoubt,
    /// The MDT has lost the file: calls on its open handles fail.
    Gone,
}

/// What the MDT had on record of one file before it lost everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LostUses {
    /// It had writers.
    pub had_writers: bool,
    /// Their Close was on its way.
    pub was_closing: bool,
}

/// The registered uses of one file.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    /// The MDT's handle for this client's writers.
    write_open: Option<WriteOpen>,
    /// The MDT's handles of readers. They had to be told to it before an unlink, or after a restart, or
    /// execute the file.
    read_opens: Vec<OpenHandle>,
    /// The Close of this use is on its way.
    closing: Option<OpenHandle>,
    /// Whether the MDT has the file, as far as that was told.
    standing: Standing,
    /// The file is not its maker's alone, nor will it be again: that was seen to for who has it open here.
    shared: bool,
    /// A lock under which the Close can tell the size was tried for.
    size_asked: bool,
}

impl Registration {
    /// The MDT has nothing on record.
    pub fn is_idle(&self) -> bool {
        self.write_open.is_none() && self.read_opens.is_empty() && self.closing.is_none()
    }

    /// How many uses the MDT has on record.
    pub fn count(&self) -> usize {
        usize::from(self.write_open.is_some()) + self.read_opens.len()
    }

    /// The MDT has the writers on record.
    pub fn has_writers(&self) -> bool {
        self.write_open.is_some()
    }

    /// The right to write, which a restart of the MDT takes away for a while.
    pub fn ticket(&self) -> Option<WriteTicket> {
        self.write_open.map(|open| open.ticket)
    }

    /// The MDT has the writers on record by this. Returns another handle for them that is of no use now: two
    /// asked at once, and the MDT counts each.
    pub fn register_writers(&mut self, open: WriteOpen) -> Option<OpenHandle> {
        let before = self.write_open.replace(open);
        self.size_asked = false;
        let before = before.map(|before| before.handle);
        before.filter(|before| Some(*before) != self.closing)
    }

    /// The MDT has lost the writers.
    pub fn lose_writers(&mut self) {
        self.write_open = None;
    }

    /// The MDT has readers on record.
    pub fn has_readers(&self) -> bool {
        !self.read_opens.is_empty()
    }

    /// The MDT has readers on record by `handle`.
    pub fn register_readers(&mut self, handle: OpenHandle) {
        self.read_opens.push(handle);
    }

    /// The readers are gone: what the MDT has of them on record.
    pub fn take_readers(&mut self) -> Vec<OpenHandle> {
        std::mem::take(&mut self.read_opens)
    }

    /// The file is not its maker's alone any more.
    pub fn share(&mut self) {
        self.shared = true;
    }

    /// The MDT has readers on record, and was not only told to keep the file: then its maker may have it to
    /// itself still.
    pub fn has_sharing_readers(&self) -> bool {
        self.shared && !self.read_opens.is_empty()
    }

    /// The MDT keeps the file for the writers here: no Close of their use is on its way, after which it
    /// would know of nobody.
    pub fn is_kept_by_writers(&self) -> bool {
        let writers = self.write_open.map(|open| open.handle);
        writers.is_some() && writers != self.closing
    }

    /// A Close of the use for writing is on its way.
    pub fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// The Close of the writers is about to be sent: of which use.
    pub fn begin_close(&mut self) -> Option<OpenHandle> {
        let handle = self.write_open?.handle;
        self.closing = Some(handle);
        Some(handle)
    }

    /// The Close of `handle` is answered. False: the MDT has restarted, and this use was told of anew. A use
    /// that was asked for before the other ended, and was told of since, goes on.
    pub fn end_close(&mut self, handle: OpenHandle) -> bool {
        if self.closing != Some(handle) {
            return false;
        }
        self.closing = None;
        self.size_asked = false;
        self.write_open.take_if(|open| open.handle == handle);
        true
    }

    /// The MDT has lost everything.
    pub fn lose(&mut self) -> LostUses {
        self.read_opens.clear();
        LostUses {
            had_writers: self.write_open.take().is_some(),
            was_closing: self.closing.take().is_some(),
        }
    }

    /// Whether the MDT has the file.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether the MDT has the file is known now.
    pub fn stands(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// A lock under which the Close can tell the size is tried for.
    pub fn ask_size(&mut self) {
        self.size_asked = true;
    }

    /// Such a lock was tried for.
    pub fn was_size_asked(&self) -> bool {
        self.size_asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(handle: u64) -> WriteOpen {
        WriteOpen {
            handle: OpenHandle(handle),
            ticket: WriteTicket::default(),
        }
    }

    #[test]
    fn of_two_uses_for_writing_one_is_enough_but_for_one_that_is_closing() {
        let mut registration = Registration::default();
        assert_eq!(registration.register_writers(open(1)), None);
        assert_eq!(registration.register_writers(open(2)), Some(OpenHandle(1)));
        assert_eq!(registration.begin_close(), Some(OpenHandle(2)));
        assert!(registration.is_closing() && !registration.is_kept_by_writers());
        assert_eq!(registration.register_writers(open(3)), None);
        assert!(registration.is_kept_by_writers());
        assert!(registration.end_close(OpenHandle(2)));
        assert!(registration.has_writers() && !registration.is_closing());
    }

    #[test]
    fn a_close_that_a_restart_overtook_ends_nothing() {
        let mut registration = Registration::default();
        registration.register_writers(open(1));
        registration.register_readers(OpenHandle(7));
        registration.begin_close();
        let lost = registration.lose();
        assert!(lost.had_writers && lost.was_closing);
        assert!(registration.is_idle());
        registration.register_writers(open(2));
        assert!(!registration.end_close(OpenHandle(1)) && registration.has_writers());
    }

    #[test]
    fn a_file_that_is_only_kept_is_not_shared_with_its_maker() {
        let mut registration = Registration::default();
        registration.register_readers(OpenHandle(7));
        assert!(registration.has_readers() && !registration.has_sharing_readers());
        registration.share();
        assert!(registration.has_sharing_readers());
        assert_eq!(registration.take_readers(), [OpenHandle(7)]);
        assert!(!registration.has_sharing_readers() && registration.is_idle());
    }
}
