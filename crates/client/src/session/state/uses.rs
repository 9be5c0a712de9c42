//! Uses of files here, and what others who want them must wait for.

use base::{Fid, Tick};
use dlm::Bits;
use wire::mdt::OpenHandle;

use super::State;
use crate::cache::births::Standing;
use crate::executor::Oneshot;
use crate::session::file_handle::Execution;

impl State {
    /// A process here has the file open to write it, or executes it, as far as the kernel has told. Or one
    /// has executed it, and the MDT has yet to hear that this is over.
    pub fn excludes_others(&mut self, fid: Fid) -> bool {
        let is_written = self
            .cache
            .file_known(fid)
            .is_some_and(|file| file.opens.is_written());
        let is_executed = !self.handles.executing(fid).is_empty();
        is_written || is_executed || self.handles.is_end_reported(fid)
    }

    /// Resolves when that is over, or it seems that it goes on. None: it is over.
    pub fn wait_for_end_of_use(&mut self, fid: Fid, now: Tick) -> Option<Oneshot<()>> {
        self.excludes_others(fid)
            .then(|| self.handles.wait_for_end_of_use(fid, now))
    }

    /// The end of the file's last name would be noticed here, so an execution that is over may stay on
    /// record at the MDT.
    pub fn may_keep_execution(&self, fid: Fid) -> bool {
        let attr = self.cache.attr_of(fid);
        attr.is_some_and(|attr| attr.nlink > 0) && self.attr_valid(fid)
    }

    /// The execution of the file that the MDT has on record and that is over.
    pub fn reuse_execution(&mut self, fid: Fid) -> Option<OpenHandle> {
        let may_be_used = self.may_keep_execution(fid);
        may_be_used.then(|| self.idle_executions.take(fid))?
    }

    /// An execution is over. It stays on record if `is_kept` and nobody waits for its end. Returns one whose
    /// end is to be reported to the MDT.
    pub fn end_execution(
        &mut self,
        fid: Fid,
        over: Execution,
        is_kept: bool,
    ) -> Option<(Fid, OpenHandle)> {
        let stays = is_kept
            && self.servers.is_of_this_boot(over.mark)
            && self.may_keep_execution(fid)
            && !self.handles.is_end_awaited(fid);
        let ended = match stays {
            true => self.idle_executions.keep(fid, over.handle),
            false => Some((fid, over.handle)),
        };
        if let Some((program, _)) = ended {
            self.handles.begin_report_of_end(program);
        }
        ended
    }

    /// The file is open here for reading and the MDT was not told. The use of a file that nobody has heard of
    /// is registered with its birth.
    pub fn has_unregistered_readers(&mut self, fid: Fid) -> bool {
        let birth = self.births.get(fid);
        if birth.is_some_and(|birth| birth.standing == Standing::Unreported) {
            return false;
        }
        self.cache.file_known(fid).is_some_and(|file| {
            file.opens.is_kept()
                && !file.registration.has_readers()
                && !file.registration.is_kept_by_writers()
        })
    }

    /// Such files (open for reading, unknown to the MDT) whose removal no lock reports any more, now that
    /// this client has lost `bits` of `fid`.
    pub fn uncovered_readers(&mut self, fid: Fid, bits: Bits) -> Vec<Fid> {
        let mut open = self.open_below(fid, bits);
        open.retain(|fid| self.has_unregistered_readers(*fid) && !self.attr_valid(*fid));
        open
    }

    /// The open files of which attributes went with `bits` of `fid`.
    pub fn uncovered_files(&mut self, fid: Fid, bits: Bits) -> Vec<Fid> {
        let mut open = self.open_below(fid, bits);
        open.retain(|fid| self.is_unwatched(*fid));
        open
    }

    /// More of an append to the file is to come, under the lock that covers what came now.
    pub fn begin_append(&mut self, fid: Fid, now: Tick) {
        if self.long_appends.goes_on(fid, now) {
            self.cache.file(fid).locks.begin_uses(1);
        }
    }

    /// No more of it comes.
    pub fn end_append(&mut self, fid: Fid) {
        if self.long_appends.end(fid)
            && let Some(file) = self.cache.file_known(fid)
            && file.locks.end_use()
        {
            file.waiters.wake_all();
        }
    }

    /// Ends those of the `late` appends whose calls do not go on, or have not for long.
    pub fn end_broken_appends(&mut self, late: &[Fid], going_on: &[Fid], now: Tick) {
        let broken_off = self.long_appends.broken_off(late, going_on, now);
        broken_off.into_iter().for_each(|fid| self.end_append(fid));
    }

    /// The files open here that `bits` of `fid` may cover.
    fn open_below(&self, fid: Fid, bits: Bits) -> Vec<Fid> {
        match bits.overlaps(Bits::LEASE) {
            true => self.handles.open_files(),
            false => vec![fid],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    use base::Name;

    use super::*;
    use crate::cache::births::{Birth, Wish};
    use crate::session::locks::Locks;

    #[test]
    fn the_use_of_a_file_that_nobody_has_heard_of_is_not_registered_before_it() {
        let mut state = State::new(Locks::new([]), Arc::new(AtomicU64::new(0)));
        let (dir, file) = (Fid(7), Fid(8));
        state.cache.file(file).opens.add_reader();
        assert!(state.has_unregistered_readers(file));
        let name = Name::new(b"f").expect("valid");
        state.births.add(file, Birth::new(dir, name, Tick(1)));
        assert!(!state.has_unregistered_readers(file));
        state.births.send(&[Wish::Of(file)], 1);
        assert!(
            state.has_unregistered_readers(file),
            "it may have missed it"
        );
    }
}
