//! The state behind a `Kv`: overlay, engine, and how far each batch has come.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Instant;
use threads::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use base::limits::{KV_KEY_BYTES_MAX, KV_VALUE_BYTES_MAX};

use super::batch::{Batch, KeyRange, Logged, Op, TableId, Ticket};
use super::engine::{Engine, Snapshot};
use super::key::Key;
use super::options::{Commit, KvOptions};
use super::overlay::{Layer, View};
use super::scan::{FIRST_RUN, LARGEST_RUN, merge};
use super::stats::KvStats;
use crate::error::{Result, StorageError};
use crate::pace::Pace;

/// The bound of the overlay while the disk is nearly full. The engine writes pages anew before it
/// frees the old ones, so what one flush takes for a while is a page or two for each record.
const TIGHT_OVERLAY_BYTES_MAX: usize = 64 << 10;

/// Told each newest durable ticket, and once the error that stops the store.
pub(super) type Callback = Box<dyn Fn(&Result<Ticket>) + Send + Sync>;

threads::local! {
    /// This thread runs a durability callback: the flush that it would wait for waits for it.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Shared by the callers' threads and the committer.
pub(super) struct Shared {
    options: KvOptions,
    /// The position of each table id among the tables given at open.
    positions: Box<[Option<usize>; 256]>,
    /// Held for moments only.
    overlay: RwLock<Overlay>,
    /// Bytes in both layers.
    overlay_bytes: AtomicUsize,
    /// The disk is nearly full.
    tight: AtomicBool,
    /// Held through a flush, which makes flushes follow each other. `None` once closed.
    engine: Mutex<Option<Engine>>,
    durable: AtomicU64,
    flushes: AtomicU64,
    failed: OnceLock<Arc<StorageError>>,
    pub(super) progress: Mutex<Progress>,
    /// The committer has something to look at.
    pub(super) wake: Condvar,
    /// A flush ended.
    flushed: Condvar,
    callbacks: RwLock<Vec<Callback>>,
}

/// Three layers, the upper ones first: what a reader sees.
#[derive(Debug)]
struct Overlay {
    filling: Layer,
    flushing: Option<Arc<Layer>>,
    engine: Arc<Snapshot>,
    committed: u64,
    /// Changes that are neither durable nor taken for a log elsewhere, with their tickets. `None`: there is
    /// no such log.
    unlogged: Option<VecDeque<(u64, Logged)>>,
}

/// What a batch added to the overlay.
struct Added {
    /// Bytes that were there.
    before: usize,
    bytes: usize,
}

impl Overlay {
    fn apply(&mut self, placed: Vec<(usize, Op)>) -> Added {
        let before = self.filling.bytes;
        for (table, op) in placed {
            self.filling.apply(table, op);
        }
        self.committed += 1;
        Added {
            before,
            bytes: self.filling.bytes - before,
        }
    }
}

/// What the committer goes by.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Someone waits for this ticket.
    pub(super) wanted: u64,
    /// When the oldest batch that is not being flushed came.
    pub(super) dirty_since: Option<Instant>,
    pub(super) stop: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kv({}, {:?})", self.options.name, self.stats())
    }
}

impl Shared {
    pub(super) fn new(
        engine: Engine,
        snapshot: Snapshot,
        tables: &[(TableId, &str)],
        options: KvOptions,
    ) -> Shared {
        let mut positions = Box::new([None; 256]);
        for (position, (id, _)) in tables.iter().enumerate() {
            positions[usize::from(id.0)] = Some(position);
        }
        let overlay = Overlay {
            filling: Layer::new(tables.len()),
            flushing: None,
            engine: Arc::new(snapshot),
            committed: 0,
            unlogged: None,
        };
        Shared {
            options,
            positions,
            overlay: RwLock::new(overlay),
            overlay_bytes: AtomicUsize::new(0),
            tight: AtomicBool::new(false),
            engine: Mutex::new(Some(engine)),
            durable: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            failed: OnceLock::new(),
            progress: Mutex::default(),
            wake: Condvar::new(),
            flushed: Condvar::new(),
            callbacks: RwLock::default(),
        }
    }

    pub(super) fn commit_mode(&self) -> Commit {
        self.options.commit
    }

    pub(super) fn name(&self) -> &str {
        &self.options.name
    }

    // The overlay is changed by code that cannot panic half way (allocation failure aborts), so
    // what a panicking thread left behind is whole. The same goes for the other locks here.
    fn overlay(&self) -> RwLockReadGuard<'_, Overlay> {
        self.overlay.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlay_mut(&self) -> RwLockWriteGuard<'_, Overlay> {
        self.overlay.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails once the store has stopped.
    fn check(&self) -> Result<()> {
        match self.failed.get() {
            None => Ok(()),
            Some(cause) => Err(StorageError::Stopped {
                at: self.options.name.clone(),
                cause: cause.clone(),
            }),
        }
    }

    /// Stops the store for good at its first error.
    fn fail(&self, error: StorageError) -> StorageError {
        if self.failed.set(Arc::new(error.clone())).is_ok() {
            tracing::error!(target = self.options.name, %error, "the store has stopped");
            self.announce(&Err(error.clone()));
        }
        error
    }

    fn announce(&self, news: &Result<Ticket>) {
        // Under the lock waiters check their condition with, so that none misses it.
        drop(self.progress());
        self.flushed.notify_all();
        let callbacks = self.callbacks.read();
        let callbacks = callbacks.unwrap_or_else(PoisonError::into_inner);
        let outer = IN_CALLBACK.replace(true);
        callbacks.iter().for_each(|callback| callback(news));
        IN_CALLBACK.set(outer);
    }

    fn position(&self, table: TableId) -> Result<usize> {
        let position = self.positions[usize::from(table.0)];
        position.ok_or_else(|| self.refuse(format!("table {} is not open", table.0)))
    }

    fn refuse(&self, reason: impl Into<String>) -> StorageError {
        StorageError::refused(&self.options.name, reason)
    }

    fn check_op(&self, op: &Op) -> Result<()> {
        let (key, value) = match op {
            Op::Put(key, value) => (key.len(), value.len()),
            Op::Delete(key) => (key.len(), 0),
            Op::DeleteRange(range) => (
                range
                    .start
                    .len()
                    .max(range.end.as_ref().map_or(0, Vec::len)),
                0,
            ),
        };
        if key > KV_KEY_BYTES_MAX {
            let reason = format!("a key of {key} bytes; at most {KV_KEY_BYTES_MAX} are allowed");
            return Err(self.refuse(reason));
        }
        if value > KV_VALUE_BYTES_MAX {
            let reason =
                format!("a value of {value} bytes; at most {KV_VALUE_BYTES_MAX} are allowed");
            return Err(self.refuse(reason));
        }
        Ok(())
    }

    pub(super) fn commit(&self, batch: Batch, is_logged: bool) -> Result<Ticket> {
        self.check()?;
        let mut placed = Vec::with_capacity(batch.ops.len());
        for (table, op) in batch.ops {
            self.check_op(&op)?;
            placed.push((self.position(table)?, op));
        }
        self.wait_for_room()?;
        if placed.is_empty() {
            return Ok(self.committed());
        }
        let mut overlay = self.overlay_mut();
        if !is_logged && overlay.unlogged.is_some() {
            let ids: Vec<TableId> = placed.iter().map(|(table, _)| self.id_of(*table)).collect();
            let ticket = overlay.committed + 1;
            for (id, (_, op)) in ids.into_iter().zip(&placed) {
                let logged = Logged::of(id, op);
                let logged = logged.ok_or_else(|| self.refuse("a range cannot be logged"))?;
                overlay
                    .unlogged
                    .get_or_insert_default()
                    .push_back((ticket, logged));
            }
        }
        let added = overlay.apply(placed);
        Ok(self.applied(overlay, added))
    }

    /// A batch was applied: says its ticket, and wakes the committer if it is due.
    fn applied(&self, overlay: RwLockWriteGuard<'_, Overlay>, added: Added) -> Ticket {
        let ticket = Ticket(overlay.committed);
        let Added { before, bytes } = added;
        // Under the lock, so that a flush cannot subtract it first.
        let total = self.overlay_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        drop(overlay);
        let filled_up = self.is_filling_up(total) && !self.is_filling_up(total - bytes);
        if before == 0 || filled_up {
            self.progress().dirty_since.get_or_insert_with(threads::now);
            self.wake.notify_one();
        }
        ticket
    }

    fn id_of(&self, position: usize) -> TableId {
        let id = self.positions.iter().position(|of| *of == Some(position));
        TableId(id.unwrap_or_default() as u8)
    }

    /// From now on changes are kept for a log.
    pub(super) fn begin_log(&self) {
        self.overlay_mut().unlogged.get_or_insert_default();
    }

    /// Takes the changes that are neither in the log nor durable here, in order. In the same step the row is
    /// put that `mark` makes of them.
    pub(super) fn take_unlogged(
        &self,
        mark: impl FnOnce(&[(u64, Logged)]) -> (TableId, Key, Vec<u8>),
    ) -> Result<Vec<(u64, Logged)>> {
        self.check()?;
        let mut overlay = self.overlay_mut();
        let durable = self.durable().0;
        let taken = overlay.unlogged.as_mut().map(std::mem::take);
        let mut taken = Vec::from(taken.unwrap_or_default());
        taken.retain(|(ticket, _)| *ticket > durable);
        if taken.is_empty() {
            return Ok(taken);
        }
        let (table, key, value) = mark(&taken);
        let placed = vec![(self.position(table)?, Op::Put(key, value.into()))];
        let added = overlay.apply(placed);
        self.applied(overlay, added);
        Ok(taken)
    }

    pub(super) fn pace(&self) -> &Pace {
        &self.options.pace
    }

    /// The committer starts at half the bound at the latest, so that callers rarely reach it.
    pub(super) fn is_filling_up(&self, bytes: usize) -> bool {
        let paced = usize::try_from(self.pace().bytes()).unwrap_or(usize::MAX);
        bytes > paced.min(self.overlay_bytes_max() / 2)
    }

    fn overlay_bytes_max(&self) -> usize {
        match self.tight.load(Ordering::Relaxed) {
            true => self.options.overlay_bytes_max.min(TIGHT_OVERLAY_BYTES_MAX),
            false => self.options.overlay_bytes_max,
        }
    }

    pub(super) fn overlay_bytes(&self) -> usize {
        self.overlay_bytes.load(Ordering::Relaxed)
    }

    fn wait_for_room(&self) -> Result<()> {
        let is_full = || self.overlay_bytes() > self.overlay_bytes_max();
        // What a callback adds beyond the bound is bounded by what a callback does.
        if !is_full() || IN_CALLBACK.get() {
            return Ok(());
        }
        if self.commit_mode() == Commit::Manual {
            return self.flush_once().map(drop);
        }
        let mut progress = self.progress();
        while is_full() {
            self.check()?;
            self.wake.notify_one();
            progress = self
                .flushed
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.check()
    }

    pub(super) fn get_with<R>(
        &self,
        table: TableId,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.check()?;
        let table = self.position(table)?;
        let overlay = self.overlay();
        let mut layers = std::iter::once(&overlay.filling).chain(overlay.flushing.as_deref());
        let change = layers.find_map(|layer| layer.tables[table].get(key));
        drop(layers);
        let snapshot = overlay.engine.clone();
        drop(overlay);
        match change {
            Some(change) => Ok(change.map(|value| read(&value))),
            None => snapshot
                .get_with(table, key, read)
                .map_err(|error| self.fail(error)),
        }
    }

    pub(super) fn scan(
        &self,
        table: TableId,
        range: &KeyRange,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.check()?;
        let table = self.position(table)?;
        let mut rest = Cow::Borrowed(range);
        let mut run = FIRST_RUN;
        while !rest.is_empty() {
            let (snapshot, mut view) = self.view(table, &rest, run);
            let stop = view.stop.take();
            let part = match &stop {
                Some(stop) => Cow::Owned(KeyRange::new(&*rest.start, &**stop)),
                None => Cow::Borrowed(&*rest),
            };
            let merged = merge(&snapshot, table, &part, view, &mut visit);
            if merged.map_err(|error| self.fail(error))?.is_break() {
                return Ok(());
            }
            let Some(stop) = stop else {
                return Ok(());
            };
            rest.to_mut().start = stop;
            run = (run * 4).min(LARGEST_RUN);
        }
        Ok(())
    }

    /// What one moment's overlay says about the beginning of `range`, and the snapshot below it.
    fn view(&self, table: usize, range: &KeyRange, limit: usize) -> (Arc<Snapshot>, View) {
        let overlay = self.overlay();
        let layers = overlay.flushing.as_deref().into_iter();
        let layers = layers.chain(std::iter::once(&overlay.filling));
        let view = View::take(layers.map(|layer| &layer.tables[table]), range, limit);
        (overlay.engine.clone(), view)
    }

    pub(super) fn committed(&self) -> Ticket {
        Ticket(self.overlay().committed)
    }

    pub(super) fn durable(&self) -> Ticket {
        Ticket(self.durable.load(Ordering::Acquire))
    }

    pub(super) fn sync_soon(&self, ticket: Ticket) {
        if ticket <= self.durable() {
            return;
        }
        let mut progress = self.progress();
        progress.wanted = progress.wanted.max(ticket.0);
        self.wake.notify_one();
    }

    pub(super) fn wait_durable(&self, ticket: Ticket) -> Result<()> {
        if ticket > self.committed() {
            return Err(self.refuse("waiting for a batch that was never committed"));
        }
        if ticket > self.durable() && IN_CALLBACK.get() {
            return Err(self.refuse("a durability callback waits for durability"));
        }
        if self.commit_mode() == Commit::Manual && ticket > self.durable() {
            self.flush_once()?;
        }
        self.sync_soon(ticket);
        let mut progress = self.progress();
        while ticket > self.durable() {
            self.check()?;
            progress = self
                .flushed
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    pub(super) fn on_durable(&self, callback: Callback) {
        let callbacks = self.callbacks.write();
        callbacks
            .unwrap_or_else(PoisonError::into_inner)
            .push(callback);
    }

    pub(super) fn flush_once(&self) -> Result<Ticket> {
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        let Some(engine) = engine.as_ref() else {
            return Err(self.refuse("it is closed"));
        };
        // For what comes after this flush; one that cannot tell says so when it writes.
        let _ = self.space_left();
        let Some((layer, last)) = self.begin_flush() else {
            return Ok(self.durable());
        };
        let begun = threads::now();
        let snapshot = engine.apply(&layer).map_err(|error| self.fail(error))?;
        self.pace().took(threads::now() - begun, layer.bytes as u64);
        self.end_flush(snapshot, last);
        self.overlay_bytes.fetch_sub(layer.bytes, Ordering::Relaxed);
        self.durable.store(last.0, Ordering::Release);
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.announce(&Ok(last));
        Ok(last)
    }

    /// Freezes what has been committed so far, up to the ticket given back.
    fn begin_flush(&self) -> Option<(Arc<Layer>, Ticket)> {
        let mut overlay = self.overlay_mut();
        if overlay.committed == self.durable().0 {
            return None;
        }
        let empty = Layer::new(overlay.filling.tables.len());
        let layer = Arc::new(std::mem::replace(&mut overlay.filling, empty));
        overlay.flushing = Some(layer.clone());
        Some((layer, Ticket(overlay.committed)))
    }

    /// Shows the engine's new rows in place of the flushed layer, in one step for every reader.
    fn end_flush(&self, snapshot: Snapshot, last: Ticket) {
        let mut overlay = self.overlay_mut();
        // What is durable here needs no log.
        if let Some(unlogged) = &mut overlay.unlogged {
            while unlogged
                .pop_front_if(|(ticket, _)| *ticket <= last.0)
                .is_some()
            {}
        }
        let layer = overlay.flushing.take();
        let old = std::mem::replace(&mut overlay.engine, Arc::new(snapshot));
        drop(overlay);
        // Freeing many entries takes a while: not under the lock.
        drop((layer, old));
    }

    pub(super) fn space_left(&self) -> Result<Option<u64>> {
        let Some(room) = &self.options.room else {
            return Ok(None);
        };
        let space = room.space()?;
        // What is not on the disk yet takes about twice its size there: pages are not full.
        let kept = space.floor() / 2 + 2 * self.overlay_bytes() as u64;
        let left = space.available.saturating_sub(kept);
        self.tight.store(left == 0, Ordering::Relaxed);
        Ok(Some(left))
    }

    pub(super) fn stats(&self) -> KvStats {
        KvStats {
            batches: self.committed().0,
            flushes: self.flushes.load(Ordering::Relaxed),
            overlay_bytes: self.overlay_bytes(),
        }
    }

    pub(super) fn stop(&self) {
        self.progress().stop = true;
        self.wake.notify_all();
    }

    pub(super) fn close_engine(&self) -> Result<()> {
        let mut engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        engine.take().map_or(Ok(()), Engine::close)
    }
}
