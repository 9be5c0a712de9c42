//! Checking a target that is not being served: what is stored against what is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use base::limits::FILE_BYTES_MAX;
use base::{Damage, Fid};
use layout::ObjectId;
use storage::{KeyRange, Kv, ObjectStore, StorageError, TableId};

use crate::objects::stored;
use crate::records::{
    HISTORY_KEY, History, META, OBJECTS, ObjectRecord, TABLES, TOMBSTONES, Tombstone, object_of_key,
};

/// Files asked about in one question of [`orphans`].
const ASKED_AT_ONCE: usize = 1024;

/// What is wrong with a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A record cannot be read. Nothing mends this but a copy.
    Damaged(Damage),
    /// An object's bytes cannot be examined.
    Unreadable {
        /// Which.
        object: ObjectId,
        /// Why.
        reason: String,
    },
    /// Longer than a file can be.
    TooLong {
        /// Which.
        object: ObjectId,
        /// How long, in bytes.
        size: u64,
    },
    /// It was removed for good, and is there: it takes space that nobody can free.
    Resurrected {
        /// Which.
        object: ObjectId,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Damaged(damage) => damage.fmt(f),
            Finding::Unreadable { object, reason } => {
                write!(f, "object {} cannot be examined: {reason}", stored(*object))
            }
            Finding::TooLong { object, size } => {
                write!(
                    f,
                    "object {} has {size} bytes, more than a file may",
                    stored(*object)
                )
            }
            Finding::Resurrected { object } => {
                write!(
                    f,
                    "object {} was removed and is there again",
                    stored(*object)
                )
            }
        }
    }
}

/// A target, examined.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Objects stored.
    pub objects: u64,
    /// Bytes in them, holes included.
    pub bytes: u64,
    /// Tombstones kept.
    pub tombstones: u64,
    /// What is wrong; empty for a sound target.
    pub findings: Vec<Finding>,
}

/// Reads every record and looks at every object. Changes nothing. An error is one of the store
/// as a whole; the superblock is checked by whoever opened the target's directory.
pub fn check(store: &dyn ObjectStore, kv: &Kv) -> Result<Report, StorageError> {
    let mut report = Report::default();
    let mut removed = BTreeMap::new();
    check_rows(kv, OBJECTS, &mut report.findings, |key, value| {
        object_of_key(key)?;
        ObjectRecord::decode(value).map(drop)
    })?;
    check_rows(kv, META, &mut report.findings, |key, value| match key {
        HISTORY_KEY => History::decode(value).map(drop),
        _ => Err(damage("row of ost_meta", "its key is unknown")),
    })?;
    check_rows(kv, TOMBSTONES, &mut report.findings, |key, value| {
        removed.insert(object_of_key(key)?, Tombstone::decode(value)?);
        Ok(())
    })?;
    report.tombstones = removed.len() as u64;
    for object in objects(store)? {
        check_object(store, kv, object, removed.get(&object), &mut report)?;
    }
    Ok(report)
}

/// The files of which objects are stored though `ask` says that they do not exist: `ask` gives, for
/// each of the files, whether it does. Meant for files of clients that are gone, after recovery:
/// those of others may be on their way to the MDT.
pub fn orphans(
    store: &dyn ObjectStore,
    ask: impl Fn(&[Fid]) -> Vec<bool>,
) -> Result<Vec<ObjectId>, StorageError> {
    let objects = objects(store)?;
    let files: Vec<Fid> = objects
        .iter()
        .map(|o| o.fid)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    let mut gone = BTreeSet::new();
    for some in files.chunks(ASKED_AT_ONCE) {
        // What was not answered is kept.
        let absent = some.iter().zip(ask(some)).filter(|(_, exists)| !exists);
        gone.extend(absent.map(|(file, _)| *file));
    }
    Ok(objects
        .into_iter()
        .filter(|object| gone.contains(&object.fid))
        .collect())
}

fn objects(store: &dyn ObjectStore) -> Result<BTreeSet<ObjectId>, StorageError> {
    let mut objects = BTreeSet::new();
    store.list(&mut |id| {
        objects.insert(ObjectId {
            fid: id.fid,
            stripe: id.stripe,
        });
    })?;
    Ok(objects)
}

fn check_rows(
    kv: &Kv,
    table: TableId,
    findings: &mut Vec<Finding>,
    mut row: impl FnMut(&[u8], &[u8]) -> Result<(), Damage>,
) -> Result<(), StorageError> {
    let name = TABLES
        .iter()
        .find(|(id, _)| *id == table)
        .map_or("", |(_, name)| name);
    kv.scan(table, &KeyRange::all(), |key, value| {
        if let Err(damage) = row(key, value) {
            let record = format!("{} {key:02x?} in {name}", damage.record);
            findings.push(Finding::Damaged(Damage { record, ..damage }));
        }
        ControlFlow::Continue(())
    })
}

fn check_object(
    store: &dyn ObjectStore,
    kv: &Kv,
    object: ObjectId,
    tombstone: Option<&Tombstone>,
    report: &mut Report,
) -> Result<(), StorageError> {
    report.objects += 1;
    match store.stat(stored(object)) {
        Ok(stat) => {
            let size = stat.unwrap_or_default().size;
            report.bytes = report.bytes.saturating_add(size);
            if size > FILE_BYTES_MAX {
                report.findings.push(Finding::TooLong { object, size });
            }
        }
        Err(error) => {
            report.findings.push(Finding::Unreadable {
                object,
                reason: error.to_string(),
            });
        }
    }
    // A pending removal is done again at the start; a record says that a later open wrote it.
    let final_removal = tombstone.is_some_and(|stone| !stone.pending);
    if final_removal && !kv.contains(OBJECTS, &crate::records::object_key(object))? {
        report.findings.push(Finding::Resurrected { object });
    }
    Ok(())
}

fn damage(record: &str, reason: &str) -> Damage {
    Damage {
        record: record.to_owned(),
        reason: reason.to_owned(),
    }
}
