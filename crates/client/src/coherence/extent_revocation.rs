//! Giving back locks on bytes: the kernel forgets, dirty bytes go out and become durable, then the
//! lock goes. So nobody is shown what a crash of the OST may take, and what it takes this mount has
//! and sends again (docs/recovery.md, section 5).

use base::{ByteRange, Fid, FsError, LockHandle};

use crate::cache::file::FileState;
use crate::cache::file_locks::Revoking;
use crate::cache::holder::Holder;
use crate::session::client::Client;
use crate::session::kernel::Forget;
use crate::session::state::State;

impl Client {
    /// An extent lock is wanted back.
    pub(crate) async fn revoke_extent(
        &self,
        holder: Holder,
        handle: LockHandle,
        fid: Fid,
        range: ByteRange,
    ) {
        self.begin_revoking(fid, |_| true).await;
        self.forget_pages(fid, range, handle).await;
        let written = self.settle(fid, range).await;
        self.finish_revoking(fid, range, written, (holder, handle));
        self.send_releases();
    }

    /// What was changed here of the file is durable when this returns.
    async fn settle(&self, fid: Fid, range: ByteRange) -> Result<(), FsError> {
        let is_changed = |state: &mut State| state.policies.writeback.may_lose(fid);
        self.write_out_durably(fid, range, is_changed).await
    }

    /// One lock of a file is given back at a time, once it `may` be.
    async fn begin_revoking(&self, fid: Fid, may: impl Fn(&FileState) -> bool) {
        loop {
            let wait = {
                let mut state = self.lock();
                state.cache.withdraw();
                let file = state.cache.file(fid);
                match file.locks.revoking() {
                    Revoking::No if may(file) => {
                        file.locks.begin_revoking();
                        // Reads that wait for a lock may have pages locked that are to go.
                        file.locks.look_again();
                        return;
                    }
                    _ => file.waiters.wait(),
                }
            };
            wait.await;
        }
    }

    /// The kernel forgets the pages of `range`; again as long as reads were answered meanwhile,
    /// for the kernel may have put those back.
    pub(crate) async fn forget_pages(&self, fid: Fid, range: ByteRange, handle: LockHandle) {
        loop {
            let had = {
                let mut state = self.lock();
                let file = state.cache.file(fid);
                file.kernel.begin_forgetting();
                file.is_known_to_kernel()
            };
            if had {
                self.forget_range(fid, range).await;
            }
            // Nobody may begin to use the lock between the look at its users and its leaving.
            loop {
                let wait = {
                    let mut state = self.lock();
                    let file = state.cache.file(fid);
                    match (file.locks.is_used(), file.kernel.is_refilled()) {
                        (false, true) => break,
                        (false, false) => {
                            file.locks.begin_writing_out(handle);
                            if range == ByteRange::ALL {
                                file.kernel.take_pages();
                            }
                            return;
                        }
                        _ => file.waiters.wait(),
                    }
                };
                wait.await;
            }
        }
    }

    /// The lock goes in the same step as what marks it as leaving: nothing is read under it between.
    fn finish_revoking(
        &self,
        fid: Fid,
        range: ByteRange,
        written: Result<(), FsError>,
        (holder, handle): (Holder, LockHandle),
    ) {
        let mut state = self.lock();
        state.cache.withdraw();
        state.drop_extent(fid, (holder, handle));
        state.with_pages(fid, |file| {
            if let Err(error) = written {
                file.errors.add(error);
            }
            file.pages.discard(range);
            file.resizes.give_up(FsError::Io);
            file.locks.end_revoking();
            file.waiters.wake_all();
        });
        state.handles.forget_readahead(fid);
        state.drop_if_idle(fid);
    }

    /// The EX lock on the inode is wanted back: bytes to the OST, attributes to the MDT.
    pub(crate) async fn revoke_exclusive(&self, handle: LockHandle, fid: Fid) {
        // A Close under the lock is on its way and takes it along: without the lock it would be refused.
        self.begin_revoking(fid, |file| !file.registration.is_closing())
            .await;
        if self.lock().cache.file(fid).locks.exclusive() != Some(handle) {
            let nothing = ByteRange::new(0, 0);
            self.finish_revoking(fid, nothing, Ok(()), (Holder::Mdt, handle));
            return self.send_releases();
        }
        let dir = self.lock().cache.inode(fid).dir();
        self.0.forget(Forget::Attributes { fid, dir }).await;
        self.forget_pages(fid, ByteRange::ALL, handle).await;
        let written = self.settle(fid, ByteRange::ALL).await;
        let changes = self.take_changes(&mut self.lock(), fid, handle);
        if let Err(error) = self.tell(changes).await {
            tracing::warn!("{fid}: the MDT did not take its attributes: {error}");
        }
        {
            let mut state = self.lock();
            // Where the MDT has restarted meanwhile there may be another.
            if state.cache.file(fid).locks.exclusive() == Some(handle) {
                state.lose_exclusive(fid);
            }
        }
        self.watch_uncovered(vec![fid]).await;
        self.finish_revoking(fid, ByteRange::ALL, written, (Holder::Mdt, handle));
        self.send_releases();
    }
}
