//! Room in memory for bytes that are written. A writer waits while too much is unsent, or while memory is
//! taken by what the OSTs do not have durably. That holds for the kernel's write-back, too, or a mapping
//! would grow past every bound: what makes room is answered by OSTs without waiting for any lock.

use crate::session::client::Client;

impl Client {
    /// Waits until there is room for more. With `write_back` (the kernel writes a page back, for which others
    /// may wait) it does not wait for bytes that lack a ticket and cannot be sent.
    pub(crate) async fn wait_for_room(&self, write_back: bool) {
        let params = &self.0.params;
        loop {
            let wait = self.lock().cache.wait_for_room(params.dirty_max());
            let Some(wait) = wait else {
                break;
            };
            self.start_flushing();
            if write_back && self.lock().policies.writeback.sends_nothing() {
                break;
            }
            wait.await;
        }
        let (much, full) = {
            let state = self.lock();
            (
                state.cache.dirty_bytes() > params.dirty_max() / 8,
                state.cache.cached_bytes() > params.cache_bytes_max(),
            )
        };
        if much {
            self.start_flushing();
        }
        if full && !self.free_memory() {
            // What was sent may go once it is durable; if it cannot be, `fsync` will tell.
            for target in self.0.cluster.osts().map(|(target, _)| *target) {
                let _ = self.sync_target(target).await;
            }
            self.free_memory();
        }
    }

    /// Drops cached bytes, some more than must be, so that it is not done for each write. Whether
    /// that was enough.
    fn free_memory(&self) -> bool {
        let max = self.0.params.cache_bytes_max();
        let mut state = self.lock();
        state.shrink_bytes(max - max / 8);
        state.cache.cached_bytes() <= max
    }
}
