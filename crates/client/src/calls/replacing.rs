//! Bytes before what shows them. A file that takes another's place by a rename has its bytes
//! durable first, and one that was emptied and written anew is sent when it is closed. SEMANTICS:
//! op.rename, op.close

use base::{ByteRange, Fid, FsError, Name};
use dlm::Mode;
use wire::{Attr, FileKind, SizeState};

use crate::cache::file::FileState;
use crate::calls::lookup::{Cached, cached, cached_name};
use crate::coherence::cover::By;
use crate::executor::spawn;
use crate::session::client::Client;
use crate::session::state::State;

impl Client {
    /// A rename is about to put what `source` names in the place of what `target` names, if that is there.
    /// A crash must leave the name with the bytes of the one or of the other. The error with which bytes
    /// could not be written: then nothing is to be replaced. It counts as reported hereby.
    pub(crate) async fn settle_before_it_replaces(
        &self,
        source: (Fid, &Name),
        target: (Fid, &Name),
    ) -> Result<(), FsError> {
        let (known, is_free) = {
            let state = self.lock();
            let is_free = matches!(cached(&state, target.0, target.1), Cached::Absent);
            (cached_name(&state, source.0, source.1), is_free)
        };
        if is_free {
            return Ok(());
        }
        let fid = match known {
            Some(fid) => fid,
            None if self.lock().has_nothing_to_settle() => return Ok(()),
            None => match self.lookup(source.0, source.1).await {
                Ok(found) => {
                    self.forget(found.fid, 1);
                    found.fid
                }
                // The MDT says what is wrong with the rename.
                Err(FsError::NotFound | FsError::Stale) => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        if self.lock().is_directory(fid) {
            return Ok(());
        }
        if self.lock().is_written_elsewhere(fid) {
            self.call_in(fid).await?;
        }
        let settled = self.settle_bytes(fid).await;
        let reported = self.lock().report_before_it_replaces(fid);
        settled.and(reported)
    }

    /// What is here of the file's bytes is durable. The error is that of writing them, be it now or before,
    /// where no `fsync` has reported it.
    pub(crate) async fn settle_bytes(&self, fid: Fid) -> Result<(), FsError> {
        let last = |state: &State| state.cache.file_of(fid).and_then(|file| file.errors.last());
        let (is_pending, before) = {
            let mut state = self.lock();
            (state.is_pending(fid), last(&state))
        };
        if is_pending {
            let is_needed = |state: &mut State| state.may_be_undurable(fid);
            self.write_out_durably(fid, ByteRange::ALL, is_needed)
                .await?;
        }
        let state = self.lock();
        // An `fsync` may have reported it meanwhile.
        let since = last(&state).filter(|last| Some(*last) != before);
        let lost = since.map(|(error, _)| error);
        lost.or(state.cache.write_error(fid)).map_or(Ok(()), Err)
    }

    /// Another mount may have bytes of the file that its OST has not. It gives up the lock under
    /// which it has, and before that they are durable.
    async fn call_in(&self, fid: Fid) -> Result<(), FsError> {
        match self.open_for_reading(fid).await {
            Ok(state) => drop(state),
            // The MDT says what is wrong with the rename.
            Err(FsError::Stale) => return Ok(()),
            Err(error) => return Err(error),
        }
        let is_called_in = {
            let state = self.lock();
            state.is_exact(fid) || state.locks.reaches_eof(fid)
        };
        let called_in = match is_called_in {
            true => Ok(()),
            false => self.enqueue(fid, Mode::PR, By::Call).await,
        };
        let ended = {
            let mut state = self.lock();
            let ended = state.cache.file(fid).reader_gone();
            state.drop_if_idle(fid);
            ended
        };
        self.end_uses(fid, ended);
        called_in
    }

    /// A descriptor of a file that was emptied is closed: its new bytes go at once, and nobody waits for
    /// that.
    pub(crate) fn send_rewritten(&self, fid: Fid) {
        let rewritten = {
            let mut state = self.lock();
            let file = state.cache.file_known(fid);
            file.is_some_and(|file| file.object.take_emptied() && file.is_unsent())
        };
        if !rewritten {
            return;
        }
        let client = self.clone();
        spawn(async move { client.write_out(fid, ByteRange::ALL).await });
    }
}

impl State {
    /// A file is about to take the place of another. What was lost of it before is reported hereby, if no
    /// `fsync` has reported it: then nothing is to be replaced.
    pub(crate) fn report_before_it_replaces(&mut self, fid: Fid) -> Result<(), FsError> {
        match self.is_directory(fid) {
            // Its errors are those of names in it.
            true => Ok(()),
            false => self.cache.take_write_error(fid),
        }
    }

    fn is_directory(&self, fid: Fid) -> bool {
        let inode = self.cache.known(fid);
        inode.is_some_and(|inode| inode.is_directory())
    }

    /// All that was written here is durable, or its loss was reported.
    fn has_nothing_to_settle(&self) -> bool {
        self.policies.writeback.is_all_durable() && !self.cache.has_write_errors()
    }

    /// Bytes of the file, or changes of its size, were made here and may not be durable.
    fn is_pending(&mut self, fid: Fid) -> bool {
        let is_uncommitted = self.policies.writeback.may_lose(fid);
        let pending = |file: &mut FileState| file.pages.may_be_lost() || !file.resizes.is_empty();
        is_uncommitted || self.cache.file_known(fid).is_some_and(pending)
    }

    /// Nothing says that no other mount has bytes of it that its OST has not.
    fn is_written_elsewhere(&self, fid: Fid) -> bool {
        let Some(inode) = self.cache.known(fid) else {
            return false;
        };
        let is_alone = inode.is_exclusive();
        let is_regular = |attr: &Attr| attr.kind == FileKind::Regular;
        let is_settled =
            is_alone || self.locks.reaches_eof(fid) || (self.attr_valid(fid) && self.is_exact(fid));
        inode.attrs.known().is_some_and(is_regular) && !is_settled
    }

    /// The MDT says that its size is exact: nobody has bytes of it that its OST has not durably.
    fn is_exact(&self, fid: Fid) -> bool {
        let attr = self.cache.attr_of(fid);
        attr.is_some_and(|attr| attr.size_state == SizeState::Strict)
    }
}

#[cfg(test)]
#[path = "replacing_tests.rs"]
mod tests;
