//! The engine below the overlay: redb, on a [`Disk`] that checks every block it reads.

use std::io;
use std::sync::{Arc, OnceLock};

use redb::{Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::KvOptions;
use super::batch::{KeyRange, TableId};
use super::overlay::{Layer, TableLayer, bounds};
use crate::disk::{CheckedDisk, Disk};
use crate::error::{Result, StorageError};

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;
type Bytes = redb::AccessGuard<'static, &'static [u8]>;

/// The cache of a database that is only being made.
const CREATE_CACHE_BYTES: usize = 1 << 20;

/// The first error of the disk: what follows from it in the engine says less.
type FirstError = Arc<OnceLock<StorageError>>;

/// A database open for writing.
#[derive(Debug)]
pub(super) struct Engine {
    database: Database,
    tables: Vec<String>,
    faults: Faults,
}

/// Turns the engine's errors into ours.
#[derive(Debug, Clone)]
struct Faults {
    name: String,
    first: FirstError,
}

impl Faults {
    fn explain(&self, error: impl Into<redb::Error>) -> StorageError {
        if let Some(first) = self.first.get() {
            return first.clone();
        }
        let at = &self.name;
        match error.into() {
            redb::Error::Corrupted(reason) => StorageError::damaged(at, "database", reason),
            // What it calls a file that it did not make: the making of this one was cut short.
            redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                StorageError::damaged(at, "database", error.to_string())
            }
            redb::Error::ValueTooLarge(len) => {
                StorageError::refused(at, format!("a value of {len} bytes"))
            }
            redb::Error::UpgradeRequired(found) => StorageError::ForeignVersion {
                at: at.clone(),
                found: u32::from(found),
                ours: 3,
            },
            error => {
                StorageError::from_io(at, "run the engine", &io::Error::other(error.to_string()))
            }
        }
    }
}

/// The engine's view of a disk.
#[derive(Debug)]
struct Backend<D> {
    disk: CheckedDisk<D>,
    first: FirstError,
}

impl<D: Disk> Backend<D> {
    fn note<T>(&self, result: Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let message = error.to_string();
            // Only the first is kept: the others follow from it.
            let _ = self.first.set(error);
            io::Error::other(message)
        })
    }
}

impl<D: Disk + 'static> redb::StorageBackend for Backend<D> {
    fn len(&self) -> io::Result<u64> {
        self.note(self.disk.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.note(self.disk.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.note(self.disk.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.note(self.disk.sync())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.note(self.disk.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.note(self.disk.close())
    }
}

impl Engine {
    /// Makes an empty database on `disk`, durably.
    pub(super) fn create(disk: impl Disk + 'static) -> Result<()> {
        let name = format!("{disk:?}");
        let engine = Engine::start(CheckedDisk::create(disk)?, name, CREATE_CACHE_BYTES, &[])?;
        engine.apply(&Layer::new(0))?;
        engine.close()
    }

    /// Opens the database on `disk` and makes the tables it lacks.
    pub(super) fn open(
        disk: impl Disk + 'static,
        tables: &[(TableId, &str)],
        options: &KvOptions,
    ) -> Result<(Engine, Snapshot)> {
        let name = options.name.clone();
        let checked = CheckedDisk::open(disk)?;
        if checked.len()? == 0 {
            let reason = "the head is there, what it heads is not";
            return Err(StorageError::damaged(name, "database", reason));
        }
        let engine = Engine::start(checked, name, options.cache_bytes, tables)?;
        let snapshot = engine.apply(&Layer::new(tables.len()))?;
        Ok((engine, snapshot))
    }

    fn start<D: Disk + 'static>(
        disk: CheckedDisk<D>,
        name: String,
        cache_bytes: usize,
        tables: &[(TableId, &str)],
    ) -> Result<Engine> {
        let first = FirstError::default();
        let faults = Faults {
            name,
            first: first.clone(),
        };
        let database = Builder::new()
            .set_cache_size(cache_bytes)
            .create_with_backend(Backend { disk, first })
            .map_err(|e| faults.explain(e))?;
        Ok(Engine {
            database,
            tables: tables.iter().map(|(_, name)| (*name).to_owned()).collect(),
            faults,
        })
    }

    /// Writes `layer` in one durable transaction, and shows what is there then.
    pub(super) fn apply(&self, layer: &Layer) -> Result<Snapshot> {
        self.write(layer).map_err(|e| self.faults.explain(e))?;
        self.snapshot().map_err(|e| self.faults.explain(e))
    }

    fn write(&self, layer: &Layer) -> std::result::Result<(), redb::Error> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        // Saves the allocator with each commit and commits in two phases: opening after a crash
        // then reads a few pages, not the whole database.
        transaction.set_quick_repair(true);
        for (name, changes) in self.tables.iter().zip(&layer.tables) {
            let mut table = transaction.open_table(Definition::new(name))?;
            write_table(&mut table, changes)?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn snapshot(&self) -> std::result::Result<Snapshot, redb::Error> {
        let transaction = self.database.begin_read()?;
        let tables = self.tables.iter().map(|name| {
            let table = transaction.open_table(Definition::new(name))?;
            Ok(table)
        });
        Ok(Snapshot {
            tables: tables.collect::<std::result::Result<_, redb::Error>>()?,
            faults: self.faults.clone(),
        })
    }

    /// Lets go of the disk. Outstanding snapshots fail from then on.
    pub(super) fn close(self) -> Result<()> {
        let closed = self.database.close();
        closed.map_err(|e| self.faults.explain(e))
    }
}

fn write_table(
    table: &mut redb::Table<'_, &'static [u8], &'static [u8]>,
    changes: &TableLayer,
) -> std::result::Result<(), redb::Error> {
    for range in changes.cleared.ranges() {
        table.retain_in::<&[u8], _>(bounds(&range), |_, _| false)?;
    }
    for (key, change) in &changes.points {
        match change {
            Some(value) => table.insert(&**key, &**value)?,
            None => table.remove(&**key)?,
        };
    }
    Ok(())
}

/// The tables at one durable moment.
pub(super) struct Snapshot {
    tables: Vec<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    faults: Faults,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({} tables)", self.tables.len())
    }
}

impl Snapshot {
    /// What `read` makes of the value of `key` in table number `table`.
    pub(super) fn get_with<R>(
        &self,
        table: usize,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let found = self.tables[table].get(key);
        let found = found.map_err(|e| self.faults.explain(e))?;
        Ok(found.map(|value| read(value.value())))
    }

    /// The rows of `range` in table number `table`, ascending.
    pub(super) fn rows(&self, table: usize, range: &KeyRange) -> Result<Rows<'_>> {
        let rows = match range.is_empty() {
            true => None,
            false => {
                let rows = self.tables[table].range::<&[u8]>(bounds(range));
                Some(rows.map_err(|e| self.faults.explain(e))?)
            }
        };
        let faults = &self.faults;
        Ok(Rows { rows, faults })
    }
}

/// Rows of one table, ascending.
pub(super) struct Rows<'a> {
    rows: Option<redb::Range<'static, &'static [u8], &'static [u8]>>,
    faults: &'a Faults,
}

impl Rows<'_> {
    /// The next key and value.
    pub(super) fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        let Some(rows) = &mut self.rows else {
            return Ok(None);
        };
        let row = rows.next().transpose();
        row.map_err(|e| self.faults.explain(e))
    }

    /// The last key and value that were not met yet.
    pub(super) fn next_back(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        let Some(rows) = &mut self.rows else {
            return Ok(None);
        };
        let row = rows.next_back().transpose();
        row.map_err(|e| self.faults.explain(e))
    }
}
