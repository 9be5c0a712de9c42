//! Reading the readable part of a damaged store.

use std::fmt;

use redb::AccessGuard;

use super::batch::{KeyRange, TableId};
use super::engine::{Engine, Rows};
use super::options::KvOptions;
use crate::disk::Disk;
use crate::error::{Result, StorageError};

/// A part of a table that cannot be read.
#[derive(Debug, Clone)]
pub struct Hole {
    /// Which table; several, if it is in what they have in common: the first of them.
    pub table: TableId,
    /// Where reading failed, from the beginning and from the end of the table: one place, or two,
    /// and then nobody knows of what is between.
    pub causes: Vec<StorageError>,
    /// The last key before it; `None`: none could be read.
    pub after: Option<Vec<u8>>,
    /// The first key behind it; `None`: none could be read.
    pub before: Option<Vec<u8>>,
}

/// Called with the table, the key and the value of a row.
pub type Visit<'v> = dyn FnMut(TableId, &[u8], &[u8]) + 'v;

/// Visits each row of `tables` that can be read, of the store on the disk that `open` opens again
/// and again. Says what could not be read. An error where another version of this program wrote it.
///
/// The engine stops for good at its first failed read, so the store is opened anew after each. A table that
/// was read from its beginning up to a hole is then read from its end down to one.
pub(crate) fn examine<D: Disk + 'static>(
    open: impl Fn() -> Result<D>,
    tables: &[(TableId, &str)],
    options: &KvOptions,
    visit: &mut Visit<'_>,
) -> Result<Vec<Hole>> {
    let mut holes: Vec<Hole> = Vec::new();
    for &(table, name) in tables {
        let mut read = |end| {
            let (mut last, mut see) = (None, |key: &[u8], value: &[u8]| visit(table, key, value));
            let read = read_from(end, open()?, (table, name), options, &mut last, &mut see);
            match read.err() {
                // Nothing is known to be wrong with it.
                Some(foreign @ StorageError::ForeignVersion { .. }) => Err(foreign),
                cause => Ok((cause, last)),
            }
        };
        let (Some(cause), after) = read(End::Front)? else {
            continue;
        };
        let (other, before) = read(End::Back)?;
        let mut causes = vec![cause];
        causes.extend(other);
        causes.dedup_by_key(|cause| cause.to_string());
        let is_known = |hole: &Hole| words(&hole.causes) == words(&causes);
        if !holes.iter().any(is_known) {
            holes.push(Hole {
                table,
                causes,
                after,
                before,
            });
        }
    }
    Ok(holes)
}

fn words(causes: &[impl fmt::Display]) -> Vec<String> {
    causes.iter().map(ToString::to_string).collect()
}

/// Where reading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

/// Reads a table until it ends or cannot be read; `last` becomes the last key that could be.
fn read_from(
    end: End,
    disk: impl Disk + 'static,
    table: (TableId, &str),
    options: &KvOptions,
    last: &mut Option<Vec<u8>>,
    visit: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<()> {
    let (_engine, snapshot) = Engine::open(disk, &[table], options)?;
    let mut rows = snapshot.rows(0, &KeyRange::all())?;
    let next = match end {
        End::Front => Rows::next,
        End::Back => Rows::next_back,
    };
    while let Some((key, value)) = next(&mut rows)? {
        let (key, value): (&AccessGuard<'_, &[u8]>, &AccessGuard<'_, &[u8]>) = (&key, &value);
        visit(key.value(), value.value());
        *last = Some(key.value().to_vec());
    }
    Ok(())
}
