//! Typed reading of the tables.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Damage, Fid, FsError};
use storage::{Batch, KeyRange, Kv, StorageError, TableId, Ticket};

use crate::keys::{self, Spot, Table};
use crate::recent::Recent;
use crate::records::{Dirent, Record};

/// Why an operation did not happen.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The caller's fault or misfortune: told to it; nothing was changed.
    Refused(FsError),
    /// The target cannot go on: storage failed, or a record is damaged.
    Broken(StorageError),
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        Failure::Refused(error)
    }
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Failure {
        Failure::Broken(error)
    }
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Failure {
        Failure::Broken(StorageError::Damaged {
            at: "MDT".into(),
            damage,
        })
    }
}

/// A record that must be there, by what another one says, is not.
pub fn missing(record: &str, of: impl std::fmt::Display) -> Failure {
    let damage = Damage {
        record: format!("{record} of {of}"),
        reason: "it is missing".into(),
    };
    damage.into()
}

/// The store's number of a table.
pub const fn table_id(table: Table) -> TableId {
    TableId(table as u8)
}

/// The tables, as [`Kv::open`] wants them.
pub fn tables() -> Vec<(TableId, &'static str)> {
    Table::ALL
        .iter()
        .map(|table| (table_id(*table), table.name()))
        .collect()
}

/// The key-value store with records instead of bytes.
///
/// It remembers what was read since the last change: an operation reads the same records to say
/// what it needs and again when it runs. So all changes must come through [`Store::commit`].
#[derive(Debug)]
pub struct Store {
    kv: Arc<Kv>,
    recent: RefCell<Recent>,
}

impl Store {
    /// On a store that was opened with [`tables`].
    pub fn new(kv: Arc<Kv>) -> Store {
        Store {
            kv,
            recent: RefCell::default(),
        }
    }

    /// The store below.
    pub fn kv(&self) -> &Arc<Kv> {
        &self.kv
    }

    /// The record at `key`.
    pub fn get<R: Record>(&self, table: Table, key: &[u8]) -> Result<Option<R>, Failure> {
        let recent = &mut *self.recent.borrow_mut();
        if let Some(known) = recent.value(table, key) {
            return Ok(known.map(|bytes| R::from_bytes(key, bytes)).transpose()?);
        }
        let record = self.kv.get_with(table_id(table), key, |bytes| {
            recent.learn(table, key, Some(bytes));
            R::from_bytes(key, bytes)
        })?;
        if record.is_none() {
            recent.learn(table, key, None);
        }
        Ok(record.transpose()?)
    }

    /// The names at the cookies from `first` to `last` of `dir`.
    pub fn names(&self, dir: Fid, first: u64, last: u64) -> Result<Vec<(u64, Dirent)>, Failure> {
        let recent = &mut *self.recent.borrow_mut();
        if let Some(known) = recent.names((dir, first, last)) {
            return Ok(known.to_vec());
        }
        let spot = |cookie| keys::dirent(Spot { dir, cookie });
        let range = KeyRange::new(spot(first), spot(last + 1));
        let mut found = Vec::new();
        self.scan(Table::Dirents, &range, |key, dirent: Dirent| {
            let spot = keys::parse_dirent(key).ok_or_else(|| missing("cookie", dir))?;
            found.push((spot.cookie, dirent));
            Ok(ControlFlow::Continue(()))
        })?;
        recent.learn_names((dir, first, last), &found);
        Ok(found)
    }

    /// There is a record at `key`.
    pub fn contains(&self, table: Table, key: &[u8]) -> Result<bool, Failure> {
        Ok(self.kv.contains(table_id(table), key)?)
    }

    /// Visits the records in `range`, ascending, until `visit` breaks or fails.
    pub fn scan<R: Record>(
        &self,
        table: Table,
        range: &KeyRange,
        mut visit: impl FnMut(&[u8], R) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        let mut failure = None;
        self.kv.scan(table_id(table), range, |key, bytes| {
            let visited = R::from_bytes(key, bytes).map_err(Failure::from);
            visited
                .and_then(|record| visit(key, record))
                .unwrap_or_else(|error| {
                    failure = Some(error);
                    ControlFlow::Break(())
                })
        })?;
        failure.map_or(Ok(()), Err)
    }

    /// There is nothing in `range`.
    pub fn is_empty(&self, table: Table, range: &KeyRange) -> Result<bool, Failure> {
        let mut empty = true;
        self.kv.scan(table_id(table), range, |_, _| {
            empty = false;
            ControlFlow::Break(())
        })?;
        Ok(empty)
    }

    /// Applies a batch.
    pub fn commit(&self, batch: Batch) -> Result<Ticket, Failure> {
        self.recent.borrow_mut().forget();
        Ok(self.kv.commit(batch)?)
    }
}
