//! Changing a file's size, and reserving, freeing and zeroing space in it.
//! SEMANTICS: op.truncate, op.fallocate

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Fid, FsError, LockHandle, Timestamp};
use dlm::Mode;
use rpc::Urgency;
use wire::mdt::WriteTicket;
use wire::ost::{AllocateMode, ObjectAttr, UNDER_MDT};

use crate::calls::attributes::changed_here;
use crate::coherence::cover::{By, Covering, covering};
use crate::session::client::Client;
use crate::session::cluster::object_of;
use crate::session::stats::bump;
use wire::shape::Shape;

/// A resize that is under way.
struct Begun {
    /// Among those of its file.
    id: u64,
    shape: Shape,
    ticket: WriteTicket,
    mtime: Timestamp,
    /// How often the OST had restarted.
    restarts: u32,
    /// What was known of the file.
    before: ObjectAttr,
    /// It is recorded for the next process, if there is memory for that.
    is_remembered: bool,
}

/// How far it came.
enum Resized {
    Done,
    /// The OST has restarted meanwhile. It is done with the rest that this took, and must not be
    /// done again after, for others may have changed the file since.
    Lost(Begun),
    /// Nothing is begun: a restart of the MDT has taken the right to write.
    NoTicket,
}

impl Client {
    /// Makes the file `size` bytes long.
    pub(crate) async fn truncate(&self, fid: Fid, size: u64) -> Result<(), FsError> {
        if size > FILE_BYTES_MAX {
            return Err(FsError::FileTooBig);
        }
        self.resize(fid, Shape::Size(size)).await
    }

    /// `fallocate(2)` of a plain range.
    pub async fn allocate(
        &self,
        fid: Fid,
        range: ByteRange,
        mode: AllocateMode,
    ) -> Result<(), FsError> {
        if range.end > FILE_BYTES_MAX {
            return Err(FsError::FileTooBig);
        }
        self.resize(fid, Shape::Range(range, mode)).await
    }

    async fn resize(&self, fid: Fid, shape: Shape) -> Result<(), FsError> {
        self.begin_writing(fid).await?;
        let was_done = self.lock().journal.was_resized();
        let result = match was_done {
            true => self.report_resized(fid, shape).await,
            false => self.resize_open(fid, shape).await,
        };
        if let (Shape::Range(range, _), Err(_)) = (shape, &result) {
            // Some of it may be done.
            self.forget_changed(fid, (shape, range)).await;
        }
        self.end_writing(fid);
        result
    }

    async fn resize_open(&self, fid: Fid, shape: Shape) -> Result<(), FsError> {
        if self.lock().cache.file(fid).resizes.is_full() {
            self.write_out_durably(fid, ByteRange::ALL, |_| true)
                .await?;
        }
        loop {
            let before = self.right_to_write(fid);
            let held = self.lock_all(fid).await?;
            let used = self.lock().locks.use_extent(fid, Mode::PW, ByteRange::ALL);
            let under = match held {
                LockHandle(0) => UNDER_MDT,
                held => used.map_or(held, |(_, handle)| handle),
            };
            let resized = self.resize_locked(fid, shape, under).await;
            if let Some(used) = used {
                self.lock().locks.unused(used);
            }
            self.end_use(fid);
            match resized {
                Ok(Resized::Done) => break,
                Ok(Resized::Lost(begun)) => {
                    self.done_again(fid, &begun).await?;
                    break;
                }
                Ok(Resized::NoTicket) => {
                    // The right to write a file that was made here comes when that is reported.
                    self.report_births_of(fid).await;
                    self.open_for_writing(fid).await?;
                }
                // The lock was of the OST's boot before, or the ticket of the MDT's.
                Err(FsError::Stale) if self.right_to_write(fid) != before => {}
                Err(error) => return Err(error),
            }
        }
        self.report_resized(fid, shape).await
    }

    /// What the OST goes by: its boot, as the count of its restarts, and the ticket of the MDT's boot.
    fn right_to_write(&self, fid: Fid) -> (u32, Option<WriteTicket>) {
        let mut state = self.lock();
        let file = state.cache.file(fid);
        (file.durability.restarts(), file.registration.ticket())
    }

    /// Tells the kernel and the MDT.
    async fn report_resized(&self, fid: Fid, shape: Shape) -> Result<(), FsError> {
        if let Shape::Range(range, _) = shape {
            self.forget_changed(fid, (shape, range)).await;
        }
        let is_announced = !self.lock().grows_alone(fid);
        if let Some(end) = shape.reaches().filter(|_| is_announced) {
            self.announce(fid, end).await?;
        }
        self.report_size(fid).await
    }

    /// The kernel forgets what it read of a range before it was changed, or meanwhile.
    async fn forget_changed(&self, fid: Fid, (shape, range): (Shape, ByteRange)) {
        if let Some(file) = self.lock().cache.file_known(fid) {
            file.in_kernel.end_change(shape.removes());
        }
        self.forget_range(fid, range).await;
    }

    async fn resize_locked(
        &self,
        fid: Fid,
        shape: Shape,
        under: LockHandle,
    ) -> Result<Resized, FsError> {
        if let Shape::Range(..) = shape {
            // There may be no room for it: then they must be somewhere. Durable, where the last of
            // them go and so could not be sent again: with them would go the size.
            self.write_out_durably(fid, ByteRange::ALL, |state| {
                let size = state.cache.file(fid).object.size();
                state.policies.writeback.may_lose(fid) && shape.removes().end >= size
            })
            .await?;
        }
        let begun = match self.begin_resize(fid, shape) {
            Ok(begun) => begun,
            Err(resized) => return Ok(resized),
        };
        let (right, epoch) = ((begun.ticket, begun.mtime), self.lock().boot_epoch_of(fid));
        // Writes already on their way must not come after it.
        self.write_out(fid, ByteRange::ALL).await;
        let request = shape.request(object_of(fid), right, (under, epoch));
        let target = self.target_of(fid)?;
        let done = self
            .0
            .change_object(target, request, Urgency::Ordinary)
            .await;
        if self.restarts(fid) != begun.restarts {
            return Ok(Resized::Lost(begun));
        }
        match done {
            Ok((attr, transno)) => {
                {
                    let mut state = self.lock();
                    let file = state.cache.file(fid);
                    file.sent(transno);
                    file.resizes.done(begun.id, transno);
                    state.answered(fid);
                }
                self.resized(fid, &begun);
                self.lock().cache.file(fid).object.learn_blocks(attr.blocks);
                if !begun.is_remembered {
                    bump(&self.0.stats.unremembered);
                    self.sync_target(target).await?;
                }
                Ok(Resized::Done)
            }
            Err(error) => {
                self.not_resized(fid, &begun);
                // What was dropped here for it, the OST has and may lose.
                if let Err(sync) = self.sync_target(target).await {
                    tracing::warn!(%fid, %sync, "what a refused change dropped may not be on disk yet");
                }
                Err(error)
            }
        }
    }

    /// From here on it is done again should the OST lose it. Or nothing is to be done, as no object is
    /// there; or nothing can be.
    fn begin_resize(&self, fid: Fid, shape: Shape) -> Result<Begun, Resized> {
        let mut state = self.lock();
        let mtime = state.cache.content_time(fid, self.0.clock.now());
        let file = state.cache.file(fid);
        let is_sent = shape != Shape::Size(0) || !file.object.is_unsent();
        let ticket = file.registration.ticket();
        if is_sent && ticket.is_none() {
            return Err(Resized::NoTicket);
        }
        let ticket = ticket.unwrap_or_default();
        // Before bytes go for it.
        let remembered = state
            .journal
            .put_resize(fid, (shape, is_sent), ticket, mtime);
        let is_remembered = remembered.is_some();
        state.with_pages(fid, |file| {
            let before = file.object.attr();
            file.pages.discard(shape.removes());
            if let Shape::Range(..) = shape {
                file.in_kernel.begin_change(shape.removes());
            }
            if let Shape::Size(size) = shape {
                file.object.resize(size);
                file.content_changed(mtime);
            }
            if !is_sent {
                return Err(Resized::Done);
            }
            Ok(Begun {
                id: file.resizes.begin(shape, ticket, remembered.flatten()),
                shape,
                ticket,
                mtime,
                restarts: file.durability.restarts(),
                before,
                is_remembered,
            })
        })
    }

    fn resized(&self, fid: Fid, begun: &Begun) {
        self.lock().with_pages(fid, |file| {
            // Again: a read that overtook the request has brought what was there before it.
            file.pages.discard(begun.shape.removes());
            file.object
                .was_resized(begun.shape.size_after(file.object.size()));
            file.content_changed(begun.mtime);
        });
    }

    fn not_resized(&self, fid: Fid, begun: &Begun) {
        let mut state = self.lock();
        let file = state.cache.file(fid);
        file.resizes.refused(begun.id);
        file.object.was_not_resized(begun.before);
    }

    /// Waits until what the OST's restart took is there again.
    async fn done_again(&self, fid: Fid, begun: &Begun) -> Result<(), FsError> {
        loop {
            let wait = {
                let mut state = self.lock();
                let file = state.cache.file(fid);
                match file.resizes.outcome(begun.id) {
                    Some(outcome) => {
                        drop(state);
                        outcome?;
                        self.resized(fid, begun);
                        return Ok(());
                    }
                    None => file.waiters.wait(),
                }
            };
            wait.await;
        }
    }

    /// Nothing of the call relies on the file's lock any more.
    pub(crate) fn end_use(&self, fid: Fid) {
        let mut state = self.lock();
        let file = state.cache.file(fid);
        file.locks.end_use();
        file.waiters.wake_all();
    }

    /// Waits until the whole file is locked for writing here, and counts a user of the lock. The
    /// kernel may hold back pages of the file meanwhile, as in a write-back.
    pub(crate) async fn lock_all(&self, fid: Fid) -> Result<LockHandle, FsError> {
        loop {
            let wait = {
                let mut state = self.lock();
                match covering(&mut state, fid, ByteRange::ALL, Mode::PW, By::WriteBack)? {
                    Covering::Lock(under) => {
                        state.cache.file(fid).locks.begin_uses(1);
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
        self.lock().cache.file(fid).opens.add_writer();
        Ok(())
    }

    /// The inverse of [`Client::begin_writing`].
    pub(crate) fn end_writing(&self, fid: Fid) {
        let mut state = self.lock();
        let file = state.cache.file(fid);
        file.opens.remove_writer();
        if !file.opens.is_written() && file.registration.has_writers() {
            state.policies.writeback.closes(fid);
        }
    }

    /// Tells the MDT that size and mtime changed. Where nobody else can look, the Close tells it.
    async fn report_size(&self, fid: Fid) -> Result<(), FsError> {
        loop {
            let (change, asked) = {
                let mut state = self.lock();
                if state.cache.file(fid).locks.is_exclusive() || state.is_alone_with(fid) {
                    return Ok(());
                }
                let size = state.size_to_report(fid, false);
                let change = wire::mdt::SetAttr {
                    size,
                    ..Default::default()
                };
                (change, state.cache.mark(fid))
            };
            let under = LockHandle(0);
            let result = self
                .change_at_mdt(fid, |dir| changed_here(fid, dir, change, under))
                .await;
            match result {
                // The MDT had given this mount up, and knew of no writer.
                Err(FsError::Invalid) if !self.lock().servers.is_of_this_boot(asked) => {
                    self.open_for_writing(fid).await?;
                }
                result => return result,
            }
        }
    }
}
