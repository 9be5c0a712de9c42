//! Changing the size. SEMANTICS: op.truncate

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid, FsError, LockHandle};
use dlm::Mode;
use wire::mdt::WriteTicket;
use wire::ost;

use crate::calls::attributes::changed_here;
use crate::client::Client;
use crate::cluster::object_of;
use crate::io::cover::{By, Covering, covering};
use crate::remembered::Shape;
use crate::stats::bump;

impl Client {
    /// Makes the file `size` bytes long.
    pub(crate) async fn truncate(&self, fid: Fid, size: u64) -> Result<(), FsError> {
        if size > FILE_BYTES_MAX {
            return Err(FsError::FileTooBig);
        }
        self.begin_writing(fid).await?;
        let was_done = self.lock().was_reshaped();
        let result = match was_done {
            true => self.tell_size(fid).await,
            false => self.truncate_open(fid, size).await,
        };
        self.end_writing(fid);
        result
    }

    async fn truncate_open(&self, fid: Fid, size: u64) -> Result<(), FsError> {
        loop {
            let before = self.restarts(fid);
            let under = self.lock_all(fid).await?;
            let recut = self.lock().file(fid).recut;
            let used = self.lock().locks.use_extent(fid, Mode::PW, ByteRange::ALL);
            let under = match under {
                LockHandle(0) => under,
                under => used.map_or(under, |(_, handle)| handle),
            };
            let cut = self.truncate_locked(fid, size, under).await;
            if let Some(used) = used {
                self.lock().locks.unused(used);
            }
            self.end_use(fid);
            match cut {
                // The lock was of the OST's life before.
                Err(FsError::Stale) if self.restarts(fid) != before => {
                    if self.is_recut(fid, recut).await {
                        break;
                    }
                }
                cut => break cut?,
            }
        }
        self.tell_size(fid).await
    }

    /// What was begun was done with the rest that a restart of the OST took, and must not be again:
    /// others may have changed the file since.
    async fn is_recut(&self, fid: Fid, before: u32) -> bool {
        loop {
            let wait = {
                let mut state = self.lock();
                let file = state.file(fid);
                if !file.is_cut_lost() {
                    return file.recut != before;
                }
                file.waiters.wait()
            };
            wait.await;
        }
    }

    /// Nothing of the call relies on the file's lock any more.
    pub(crate) fn end_use(&self, fid: Fid) {
        let mut state = self.lock();
        let file = state.file(fid);
        file.users -= 1;
        file.waiters.wake_all();
    }

    async fn truncate_locked(&self, fid: Fid, size: u64, under: LockHandle) -> Result<(), FsError> {
        let (ticket, is_sent, now, begun, remembered) = {
            let mut state = self.lock();
            let now = state.content_time(fid, self.0.clock.now());
            let file = state.file(fid);
            let ticket = file
                .write_open
                .map_or(WriteTicket::default(), |open| open.ticket);
            let is_sent = !file.unsent || size > 0;
            let shape = (Shape::Size(size), is_sent);
            let remembered = state.remember_reshape(fid, shape, ticket, now);
            let begun = state.with_pages(fid, |file| {
                file.pages.truncate(size);
                file.known.size = size;
                file.content_changed(now);
                if size == 0 {
                    file.known.blocks = 0;
                }
                if is_sent {
                    file.begin_cut(size, ticket);
                }
                file.restarts
            });
            (ticket, is_sent, now, begun, remembered)
        };
        if !is_sent {
            return Ok(());
        }
        // Writes already on their way must not come after it.
        self.write_out(fid, ByteRange::ALL).await?;
        let target = self.target_of(fid)?;
        let object = object_of(fid);
        let request = ost::Request::Truncate {
            object,
            size,
            ticket,
            mtime: now,
            under,
        };
        let (attr, transno) = self.0.change_object(target, request).await?;
        {
            let mut state = self.lock();
            let file = state.file(fid);
            file.cut_sent(begun, transno);
            file.known.blocks = attr.blocks;
            state.uncommitted.insert(fid);
        }
        if !remembered {
            bump(&self.0.stats.unremembered);
            self.sync_target(target).await?;
        }
        Ok(())
    }

    /// Waits until the whole file is locked for writing here, and counts a user of the lock. The
    /// kernel may hold back pages of the file meanwhile, as in a write-back.
    pub(crate) async fn lock_all(&self, fid: Fid) -> Result<LockHandle, FsError> {
        loop {
            let wait = {
                let mut state = self.lock();
                match covering(&mut state, fid, ByteRange::ALL, Mode::PW, By::WriteBack) {
                    Covering::Lock(under) => {
                        state.file(fid).users += 1;
                        return Ok(under);
                    }
                    Covering::Wait(wait) => Some(wait),
                    Covering::No => None,
                }
            };
            match wait {
                Some(wait) => {
                    wait.await;
                }
                None => self.enqueue(fid, Mode::PW, By::WriteBack).await?,
            }
        }
    }

    /// The right to change the file's bytes, for a call that has no handle.
    pub(crate) async fn begin_writing(&self, fid: Fid) -> Result<(), FsError> {
        self.open_for_writing(fid).await?;
        self.lock().file(fid).writers += 1;
        Ok(())
    }

    /// The inverse of [`Client::begin_writing`].
    pub(crate) fn end_writing(&self, fid: Fid) {
        let mut state = self.lock();
        let file = state.file(fid);
        file.writers -= 1;
        if file.writers == 0 && file.write_open.is_some() {
            state.closing.insert(fid);
        }
    }

    /// Tells the MDT that size and mtime changed, unless it will be told with the Close under EX.
    pub(crate) async fn tell_size(&self, fid: Fid) -> Result<(), FsError> {
        let change = {
            let mut state = self.lock();
            if state.file(fid).exclusive.is_some() {
                return Ok(());
            }
            let size = state.size_to_tell(fid, false);
            wire::mdt::SetAttr {
                size,
                ..Default::default()
            }
        };
        let under = LockHandle(0);
        self.change_at_mdt(fid, |dir| changed_here(fid, dir, change, under))
            .await
    }
}
