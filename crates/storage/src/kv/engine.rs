//! The engine below the overlay: redb, on a [`Disk`] that checks every block it reads.

use std::io;

use redb::{Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::batch::{KeyRange, TableId};
use super::options::KvOptions;
use super::overlay::{Layer, TableLayer, bounds};
use super::wall::{FirstError, Wall, Walled};
use crate::disk::{CheckedDisk, Disk};
use crate::error::{Result, StorageError};

type Definition<'a> = TableDefinition<'a, &'static [u8], &'static [u8]>;
type Bytes = redb::AccessGuard<'static, &'static [u8]>;
type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;
type Range = redb::Range<'static, &'static [u8], &'static [u8]>;
type Step = Option<std::result::Result<(Bytes, Bytes), redb::StorageError>>;

/// The cache of a database that is only being made.
const CREATE_CACHE_BYTES: usize = 1 << 20;

/// A database open for writing.
#[derive(Debug)]
pub(super) struct Engine {
    database: Walled<Database>,
    tables: Vec<String>,
}

/// The engine's view of a disk.
#[derive(Debug)]
struct Backend<D> {
    disk: CheckedDisk<D>,
    first: FirstError,
}

impl<D: Disk> Backend<D> {
    /// What `call` makes of the disk. After the first error nothing is read or written any more: the engine
    /// may have panicked, and writes where it ends.
    fn call<T>(&self, call: impl FnOnce(&CheckedDisk<D>) -> Result<T>) -> io::Result<T> {
        match self.first.get() {
            Some(first) => Err(io::Error::other(first.to_string())),
            None => self.note(call(&self.disk)),
        }
    }

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
        self.call(CheckedDisk::len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.call(|disk| disk.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(|disk| disk.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.call(CheckedDisk::sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.call(|disk| disk.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.note(self.disk.close())
    }
}

impl Engine {
    /// Makes an empty database on `disk`, durably.
    pub(super) fn create(disk: impl Disk + 'static) -> Result<()> {
        let engine = Engine::start(CheckedDisk::create(disk)?, CREATE_CACHE_BYTES, &[])?;
        engine.apply(&Layer::new(0))?;
        engine.close()
    }

    /// Opens the database on `disk` and makes the tables it lacks.
    pub(super) fn open(
        disk: impl Disk + 'static,
        tables: &[(TableId, &str)],
        options: &KvOptions,
    ) -> Result<(Engine, Snapshot)> {
        let checked = CheckedDisk::open(disk)?;
        if checked.len()? == 0 {
            let at = format!("{:?}", checked.inner());
            let reason = "the head is there, what it heads is not";
            return Err(StorageError::damaged(at, "database", reason));
        }
        let engine = Engine::start(checked, options.cache_bytes, tables)?;
        let snapshot = engine.apply(&Layer::new(tables.len()))?;
        Ok((engine, snapshot))
    }

    fn start<D: Disk + 'static>(
        disk: CheckedDisk<D>,
        cache_bytes: usize,
        tables: &[(TableId, &str)],
    ) -> Result<Engine> {
        let wall = Wall::new(format!("{:?}", disk.inner()));
        let first = wall.first();
        let database = Walled::new(&wall, || {
            let mut builder = Builder::new();
            builder.set_cache_size(cache_bytes);
            builder.create_with_backend(Backend { disk, first })
        })?;
        Ok(Engine {
            database,
            tables: tables.iter().map(|(_, name)| (*name).to_owned()).collect(),
        })
    }

    /// Writes `layer` in one durable transaction, and shows what is there then.
    pub(super) fn apply(&self, layer: &Layer) -> Result<Snapshot> {
        self.database.call(|database| self.write(database, layer))?;
        let tables = self.database.part(|database| self.read(database))?;
        Ok(Snapshot { tables })
    }

    fn write(&self, database: &Database, layer: &Layer) -> std::result::Result<(), redb::Error> {
        let mut transaction = database.begin_write()?;
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

    fn read(&self, database: &Database) -> std::result::Result<Vec<Table>, redb::Error> {
        let transaction = database.begin_read()?;
        let tables = self.tables.iter();
        let tables = tables.map(|name| Ok(transaction.open_table(Definition::new(name))?));
        tables.collect()
    }

    /// Lets go of the disk. Outstanding snapshots fail from then on.
    pub(super) fn close(self) -> Result<()> {
        self.database.end(Database::close)
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
#[derive(Debug)]
pub(super) struct Snapshot {
    tables: Walled<Vec<Table>>,
}

impl Snapshot {
    /// What `read` makes of the value of `key` in table number `table`.
    pub(super) fn get_with<R>(
        &self,
        table: usize,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let found = self.tables.call(|tables| {
            let found = tables[table].get(key)?;
            Ok::<_, redb::Error>(found.inspect(seen))
        })?;
        Ok(found.map(|value| read(value.value())))
    }

    /// The rows of `range` in table number `table`, ascending.
    pub(super) fn rows(&self, table: usize, range: &KeyRange) -> Result<Rows> {
        let rows = match range.is_empty() {
            true => None,
            false => Some(
                self.tables
                    .part(|tables| tables[table].range::<&[u8]>(bounds(range)))?,
            ),
        };
        Ok(Rows { rows })
    }
}

/// A value of the engine is a part of a page, cut out when it is asked for: here, behind the wall, the first
/// time. Pages do not change, so it is there the next time, too.
fn seen(bytes: &Bytes) {
    bytes.value();
}

/// Rows of one table, ascending.
pub(super) struct Rows {
    rows: Option<Walled<Range>>,
}

impl Rows {
    /// The next key and value.
    pub(super) fn next(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        self.step(Range::next)
    }

    /// The last key and value that were not met yet.
    pub(super) fn next_back(&mut self) -> Result<Option<(Bytes, Bytes)>> {
        self.step(Range::next_back)
    }

    fn step(&mut self, step: impl FnOnce(&mut Range) -> Step) -> Result<Option<(Bytes, Bytes)>> {
        let Some(rows) = &mut self.rows else {
            return Ok(None);
        };
        rows.call_mut(|rows| {
            let row = step(rows).transpose()?;
            Ok::<_, redb::Error>(row.inspect(|(key, value)| {
                seen(key);
                seen(value);
            }))
        })
    }
}
