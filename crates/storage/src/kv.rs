//! An ordered, transactional key-value store with several tables, on one [`Disk`] (docs/disk.md, "Kv").

mod batch;
mod committer;
#[cfg(test)]
mod damage_tests;
mod engine;
mod examine;
mod key;
mod options;
mod overlay;
mod scan;
mod stats;
mod store;
mod wall;

use std::ops::ControlFlow;
use std::sync::Arc;
use threads::JoinHandle;

pub use batch::{Batch, KeyRange, Logged, TableId, Ticket};
pub(crate) use examine::examine;
pub use examine::{Hole, Visit};
use key::Key;
pub use options::{Commit, KvOptions};
pub use stats::KvStats;
use store::Shared;

use crate::disk::{Disk, MemDisk};
use crate::error::Result;
use crate::room::RoomyDisk;

/// The store. Any thread may call it; calls that read never wait for the disk to sync.
///
/// A committed batch is applied to an overlay in memory, and every later call sees it. The overlay is drained
/// in order, many batches at a time, into one transaction of the engine; then its batches are durable. So a
/// crash loses a suffix of the batches, each whole, and nothing that [`Kv::durable`] reported. After an error
/// the store answers nothing any more.
///
/// Dropping it without [`Kv::close`] loses what is not durable, as a crash would.
#[derive(Debug)]
pub struct Kv {
    shared: Arc<Shared>,
    committer: Option<JoinHandle<()>>,
}

impl Kv {
    /// Makes an empty store on `disk`, forgetting what it held. Durable when this returns.
    pub fn create(disk: impl Disk + 'static) -> Result<()> {
        engine::Engine::create(disk)
    }

    /// Opens the store on `disk`, which [`Kv::create`] made, with `tables`: their ids here, and
    /// the names they have on disk. Tables that are missing are made.
    pub fn open(
        disk: impl Disk + 'static,
        tables: &[(TableId, &str)],
        options: KvOptions,
    ) -> Result<Kv> {
        let (engine, snapshot) = match options.room.clone() {
            Some(room) => engine::Engine::open(RoomyDisk::new(disk, room), tables, &options)?,
            None => engine::Engine::open(disk, tables, &options)?,
        };
        let shared = Arc::new(Shared::new(engine, snapshot, tables, options));
        let committer = committer::start(&shared)?;
        Ok(Kv { shared, committer })
    }

    /// An empty store in memory, drained by hand: for tests.
    pub fn scratch(tables: &[(TableId, &str)]) -> Result<Kv> {
        let disk = MemDisk::new();
        Kv::create(disk.clone())?;
        Kv::open(disk, tables, KvOptions::new("scratch").manual())
    }

    /// Applies `batch` whole, in about a microsecond; every call that starts after this returns
    /// sees it. It is durable when [`Kv::durable`] reaches the ticket. Blocks while the overlay is
    /// full. An empty batch gets the ticket of the last one.
    pub fn commit(&self, batch: Batch) -> Result<Ticket> {
        self.shared.commit(batch, false)
    }

    /// The same for rows that a log elsewhere has.
    pub(crate) fn commit_logged(&self, batch: Batch) -> Result<Ticket> {
        self.shared.commit(batch, true)
    }

    /// From now on there is a log elsewhere, which takes what is committed before it is durable here.
    pub(crate) fn begin_log(&self) {
        self.shared.begin_log();
    }

    /// What that log does not have, with tickets, and what is not durable here. In the same step the row that
    /// `mark` makes of it is put, unless there is nothing.
    pub(crate) fn take_unlogged(
        &self,
        mark: impl FnOnce(&[(u64, Logged)]) -> (TableId, Vec<u8>, Vec<u8>),
    ) -> Result<Vec<(u64, Logged)>> {
        self.shared.take_unlogged(|logged| {
            let (table, key, value) = mark(logged);
            (table, Key::new(&key), value)
        })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        self.shared.name()
    }

    /// The value of `key`.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(table, key, <[u8]>::to_vec)
    }

    /// What `read` makes of the value of `key`, without a copy. `read` may call this store.
    pub fn get_with<R>(
        &self,
        table: TableId,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.shared.get_with(table, key, read)
    }

    /// Whether `key` has a value.
    pub fn contains(&self, table: TableId, key: &[u8]) -> Result<bool> {
        Ok(self.get_with(table, key, |_| ())?.is_some())
    }

    /// Calls `visit` with each key in `range` and its value, ascending, until it breaks. `visit`
    /// may call this store.
    ///
    /// A row present during the whole scan is met exactly once. Beside concurrent commits the scan
    /// is one moment's state in runs of at least 32 rows, later runs being as new or newer.
    pub fn scan(
        &self,
        table: TableId,
        range: &KeyRange,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.shared.scan(table, range, visit)
    }

    /// The last batch committed.
    pub fn committed(&self) -> Ticket {
        self.shared.committed()
    }

    /// Every batch up to this one is durable.
    pub fn durable(&self) -> Ticket {
        self.shared.durable()
    }

    /// Makes `ticket` durable soon, without waiting: [`Kv::on_durable`] tells when it is.
    pub fn sync_soon(&self, ticket: Ticket) {
        self.shared.sync_soon(ticket);
    }

    /// Returns when `ticket` is durable, making it so soon; fails if it never will be.
    pub fn wait_durable(&self, ticket: Ticket) -> Result<()> {
        self.shared.wait_durable(ticket)
    }

    /// From now on, calls `callback` with each newest durable ticket, and once with an error when the store
    /// stops. It runs on the committer's thread, or on that of [`Kv::flush_once`]'s caller. The next flush
    /// waits for it: keep it short. It may read and commit, not flush or wait, and should hold this store
    /// weakly at most.
    pub fn on_durable(&self, callback: impl Fn(&Result<Ticket>) + Send + Sync + 'static) {
        self.shared.on_durable(Box::new(callback));
    }

    /// Makes everything committed so far durable, in one engine transaction; says up to where.
    pub fn flush_once(&self) -> Result<Ticket> {
        self.shared.flush_once()
    }

    /// How many bytes the records may still grow by; existing records and removals need the rest of the disk.
    /// `None`: no disk bounds them. Asks the system.
    ///
    /// Half the disk's floor stays free: object data on the same disk end at the whole of it, so
    /// names can still be changed then.
    pub fn space_left(&self) -> Result<Option<u64>> {
        self.shared.space_left()
    }

    /// Counters since the start.
    pub fn stats(&self) -> KvStats {
        self.shared.stats()
    }

    /// Makes everything durable and lets go of the disk.
    pub fn close(mut self) -> Result<()> {
        self.stop_committer();
        self.shared.flush_once()?;
        self.shared.close_engine()
    }

    fn stop_committer(&mut self) {
        self.shared.stop();
        let Some(thread) = self.committer.take() else {
            return;
        };
        // A callback that drops the last handle runs on that very thread, which ends by itself.
        if thread.thread().id() != threads::current().id() && thread.join().is_err() {
            tracing::error!("the committer thread panicked");
        }
    }
}

impl Drop for Kv {
    fn drop(&mut self) {
        self.stop_committer();
    }
}
