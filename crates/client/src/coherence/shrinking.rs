//! The cache is kept within its bounds, and the kernel is asked to let go of what goes.

use crate::session::client::Client;
use crate::session::state::bound::STEPS_MAX;

impl Client {
    /// Keeps the cache within its bounds.
    pub(crate) fn shrink_cache(&self) {
        let params = &self.0.params;
        let (bytes, entries) = (params.cache_bytes_max(), params.cache_entries_max());
        self.lock().shrink_bytes(bytes);
        let mut let_go = Vec::new();
        for _ in 0..STEPS_MAX {
            let mut shrunk = self.lock().shrink(entries as usize, let_go.len());
            let_go.append(&mut shrunk.let_go);
            if !shrunk.more {
                break;
            }
        }
        if !let_go.is_empty() {
            self.0.kernel.let_go(let_go);
        }
    }
}
