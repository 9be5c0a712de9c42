//! What to do when: pure, without an executor, a clock or a server.

pub(crate) mod pending_updates;
pub(crate) mod queue;
pub(crate) mod readahead;
pub(crate) mod statahead;
pub(crate) mod writeback;
