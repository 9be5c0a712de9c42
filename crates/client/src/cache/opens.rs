//! Local uses of one file: handles that are open, and calls that must find it.

use wire::mdt::Access;

/// The counts of one file's uses.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    /// Handles open for reading only; of a directory, all.
    readers: u32,
    /// Handles open for writing.
    writers: u32,
    /// Those of either by which it can be read: what the kernel takes for its size counts.
    lookers: u32,
    /// Calls that must find it, no matter which client removes its name.
    pins: u32,
}

impl Opens {
    /// A handle is opened, of a file.
    pub fn add_handle(&mut self, access: Access) {
        match access.write {
            true => self.add_writer(),
            false => self.add_reader(),
        }
        if access.read || access.exec {
            self.add_looker();
        }
    }

    /// A handle is opened for reading only.
    pub fn add_reader(&mut self) {
        self.readers += 1;
    }

    /// A handle open for reading only is closed.
    pub fn remove_reader(&mut self) {
        self.readers -= 1;
    }

    /// A handle is opened for writing, or a call without one begins to write.
    pub fn add_writer(&mut self) {
        self.writers += 1;
    }

    /// A handle open for writing is closed, or a call without one has written.
    pub fn remove_writer(&mut self) {
        self.writers -= 1;
    }

    /// The file can be read by a handle that is opened.
    pub fn add_looker(&mut self) {
        self.lookers += 1;
    }

    /// A handle is closed by which the file could be read.
    pub fn remove_looker(&mut self) {
        self.lookers -= 1;
    }

    /// A call begins that must find the file.
    pub fn pin(&mut self) {
        self.pins += 1;
    }

    /// A call has ended that had to find the file.
    pub fn unpin(&mut self) {
        self.pins -= 1;
    }

    /// A handle is open for writing.
    pub fn is_written(&self) -> bool {
        self.writers > 0
    }

    /// The file can be read by a handle.
    pub fn is_looked_at(&self) -> bool {
        self.lookers > 0
    }

    /// A handle is open.
    pub fn is_open(&self) -> bool {
        self.readers + self.writers > 0
    }

    /// A reader or a call needs the file: it stays when its last name goes.
    pub fn is_kept(&self) -> bool {
        self.readers + self.pins > 0
    }

    /// Nothing uses the file.
    pub fn is_idle(&self) -> bool {
        !self.is_open() && !self.is_kept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_and_pins_keep_a_file_and_writers_do_not() {
        let mut opens = Opens::default();
        assert!(opens.is_idle());
        opens.add_writer();
        assert!(opens.is_written() && opens.is_open() && !opens.is_kept());
        opens.remove_writer();
        opens.add_reader();
        opens.pin();
        assert!(opens.is_open() && opens.is_kept() && !opens.is_written());
        opens.remove_reader();
        assert!(opens.is_kept() && !opens.is_open() && !opens.is_idle());
        opens.unpin();
        assert!(opens.is_idle());
    }

    #[test]
    fn a_handle_counts_by_what_it_is_opened_for() {
        let (mut opens, mut access) = (Opens::default(), Access::default());
        access.write = true;
        opens.add_handle(access);
        assert!(opens.is_written() && !opens.is_kept() && !opens.is_looked_at());
        opens.remove_writer();
        (access.write, access.exec) = (false, true);
        opens.add_handle(access);
        assert!(opens.is_kept() && opens.is_looked_at() && !opens.is_written());
    }

    #[test]
    fn a_file_is_looked_at_as_long_as_a_handle_reads_it() {
        let mut opens = Opens::default();
        opens.add_looker();
        opens.add_looker();
        opens.remove_looker();
        assert!(opens.is_looked_at());
        opens.remove_looker();
        assert!(!opens.is_looked_at());
    }
}
