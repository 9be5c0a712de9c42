//! Checking and mending an OST that is not served: its objects against their records, and against the MDT's
//! word about their files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;

use base::limits::FILE_BYTES_MAX;
use base::{ByteRange, Damage, Timestamp, Transno};
pub use layout::ObjectId;
use storage::extents::{Extent, check_row as check_row_of_extents};
use storage::{
    Batch, Flaw, KeyRange, Kv, ObjectId as ObjectIdOfStore, ObjectStore, StorageError, TableId,
    check_seal, examine_seals, recorded_end,
};

use crate::objects::{condemn, damaged, finish_removals, history, stored};
use crate::records::{
    CLIENTS, EXTENTS, HISTORY_KEY, History, KnownClient, META, MdtWatermark, OBJECTS, ObjectRecord,
    SEALS, TABLES, TOMBSTONES, Tombstone, WATERMARK_KEY, client_of_key, object_of_key,
};

/// Objects removed in one batch of a repair.
const REMOVED_AT_ONCE: usize = 4096;

/// Whose an object is, as far as the MDT tells. A repair removes an object only where it is `Nobodys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// A file's, or it is to be removed anyway.
    Known,
    /// Nobody was asked, or could tell.
    Unasked,
    /// No file's, but its maker may come back; or in the wrong place, or of a file that was lost.
    InDoubt,
    /// No file's, and never again: its maker is gone for good, or its file cannot have such a part.
    Nobodys,
}

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
    /// Bytes of an object are not those that were written.
    Rotten {
        /// Which.
        object: ObjectId,
        /// In which of its bytes.
        range: ByteRange,
    },
    /// Two objects, or two parts of one, have the same blocks.
    SharedBlocks(Extent),
    /// Blocks of an object could be given to another.
    FreeBlocks(Extent),
    /// Blocks are nobody's, and cannot be used.
    LeakedBlocks(Extent),
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
        /// Whose it is.
        whose: Whose,
    },
    /// No file has it.
    Unclaimed {
        /// Which.
        object: ObjectId,
        /// Nobody ever will.
        for_good: bool,
    },
    /// A record of an object that is not there, of a file that there is not.
    Leftover {
        /// Of which.
        object: ObjectId,
    },
}

impl Finding {
    /// It takes space, and no more.
    pub fn is_warning(&self) -> bool {
        let is_warning = matches!(self, Finding::Unclaimed { .. } | Finding::Leftover { .. });
        is_warning || self.is_leak()
    }

    /// Blocks are lost, which a repair frees.
    pub fn is_leak(&self) -> bool {
        matches!(self, Finding::LeakedBlocks(_))
    }

    /// The object of which bytes are not what was written.
    pub fn damaged(&self) -> Option<ObjectId> {
        match self {
            Finding::Rotten { object, .. } => Some(*object),
            _ => None,
        }
    }

    /// The object that is removed, and its record, to mend it; `None`: nothing here mends it.
    pub fn to_remove(&self) -> Option<ObjectId> {
        match self {
            Finding::Resurrected {
                object,
                whose: Whose::Nobodys,
            }
            | Finding::Unclaimed {
                object,
                for_good: true,
            }
            | Finding::Leftover { object } => Some(*object),
            _ => None,
        }
    }

    /// What a person can do about it where a repair does not.
    fn advice(&self) -> &'static str {
        match self {
            Finding::Damaged(_)
            | Finding::SharedBlocks(_)
            | Finding::FreeBlocks(_)
            | Finding::Unreadable { .. }
            | Finding::Rotten { .. }
            | Finding::TooLong { .. } => "; restore the target or the file from a copy",
            Finding::Resurrected { whose, .. } => match whose {
                Whose::Unasked => "; check it together with the MDT's directory",
                Whose::Nobodys => "",
                Whose::Known | Whose::InDoubt => "; it is left, since its file may need it",
            },
            Finding::Unclaimed {
                for_good: false, ..
            } => "; it is left, since its maker may come back or its record was lost",
            Finding::Unclaimed { .. } | Finding::Leftover { .. } | Finding::LeakedBlocks(_) => "",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Damaged(damage) => write!(f, "{damage}"),
            Finding::SharedBlocks(extent) => {
                write!(f, "{extent} belong to two objects, or twice to one")
            }
            Finding::FreeBlocks(extent) => {
                write!(f, "{extent} belong to an object, and one of them is free")
            }
            Finding::LeakedBlocks(extent) => write!(f, "{extent} belong to no object"),
            Finding::Unreadable { object, reason } => {
                write!(f, "object {} cannot be examined: {reason}", stored(*object))
            }
            Finding::Rotten { object, range } => {
                let object = stored(*object);
                write!(
                    f,
                    "object {object} is damaged: bytes {} to {} are not what was written",
                    range.start, range.end
                )
            }
            Finding::TooLong { object, size } => {
                write!(
                    f,
                    "object {} has {size} bytes, more than a file may",
                    stored(*object)
                )
            }
            Finding::Resurrected { object, .. } => {
                write!(
                    f,
                    "object {} was removed and is there again",
                    stored(*object)
                )
            }
            Finding::Unclaimed { object, .. } => {
                write!(f, "object {} belongs to no file", stored(*object))
            }
            Finding::Leftover { object } => {
                let object = stored(*object);
                write!(
                    f,
                    "there is a record of object {object}, which is not there"
                )
            }
        }?;
        f.write_str(self.advice())
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

/// Reads every record and looks at every object; `whose` says what the MDT knows of it. Changes
/// nothing. An error is one of the store as a whole; the superblock is checked by the caller that
/// opened the target's directory.
pub fn check(
    store: &dyn ObjectStore,
    kv: &Kv,
    whose: &mut dyn FnMut(ObjectId) -> Whose,
) -> Result<Report, StorageError> {
    let mut report = Report::default();
    let (mut recorded, mut removed) = (BTreeSet::new(), BTreeMap::new());
    for (table, _) in TABLES {
        check_rows(kv, table, &mut report.findings, |key, value| {
            match read_row(table, key, value)? {
                Row::Object(object) => drop(recorded.insert(object)),
                Row::Tombstone(object, stone) => drop(removed.insert(object, stone)),
                Row::Other => {}
            }
            Ok(())
        })?;
    }
    report.tombstones = removed.len() as u64;
    let objects = objects(store)?;
    for object in &objects {
        check_size(store, *object, &mut report);
        // A pending removal is done again at the start; a record says that a later open wrote it.
        let finding = match (removed.get(object), recorded.contains(object)) {
            (Some(stone), false) if stone.pending => None,
            (Some(_), false) => Some(Finding::Resurrected {
                object: *object,
                whose: whose(*object),
            }),
            _ => unclaimed(*object, whose(*object)),
        };
        report.findings.extend(finding);
    }
    examine_seals(store, kv, SEALS, &mut |id, range| {
        let object = ObjectId {
            fid: id.fid,
            stripe: id.stripe,
        };
        // What was removed may have left its sums: the next start takes them.
        if removed.contains_key(&object) && !objects.contains(&object) {
            return;
        }
        rotten(&mut report.findings, object, range);
    })?;
    store.find_flaws(&mut |flaw| match flaw {
        Flaw::Bytes(ObjectIdOfStore { fid, stripe }, range) => {
            rotten(&mut report.findings, ObjectId { fid, stripe }, range);
        }
        Flaw::Twice(extent) => report.findings.push(Finding::SharedBlocks(extent)),
        Flaw::Free(extent) => report.findings.push(Finding::FreeBlocks(extent)),
        Flaw::Leaked(extent) => report.findings.push(Finding::LeakedBlocks(extent)),
    })?;
    let gone = recorded.difference(&objects);
    let leftovers = gone.filter(|object| whose(**object) == Whose::Nobodys);
    let leftovers = leftovers.map(|object| Finding::Leftover { object: *object });
    report.findings.extend(leftovers);
    Ok(report)
}

/// One finding for blocks that follow each other: of a lost end there are many.
fn rotten(findings: &mut Vec<Finding>, object: ObjectId, range: ByteRange) {
    match findings.last_mut() {
        Some(Finding::Rotten {
            object: last,
            range: before,
        }) if *last == object && before.end == range.start => before.end = range.end,
        _ => findings.push(Finding::Rotten { object, range }),
    }
}

fn unclaimed(object: ObjectId, whose: Whose) -> Option<Finding> {
    let for_good = whose == Whose::Nobodys;
    (for_good || whose == Whose::InDoubt).then_some(Finding::Unclaimed { object, for_good })
}

/// What a repair did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Repaired {
    /// What was wrong and is mended.
    pub mended: Vec<Finding>,
    /// The target afterwards, with what is still wrong.
    pub left: Report,
}

/// Checks, and mends what can be: removes what is nobody's. Where a record is damaged nothing is
/// changed at all. Everything is durable when this returns.
pub fn repair(
    store: &dyn ObjectStore,
    kv: &Kv,
    whose: &mut dyn FnMut(ObjectId) -> Whose,
    wall: Timestamp,
) -> Result<Repaired, StorageError> {
    let left = check(store, kv, whose)?;
    let is_damage = |finding: &Finding| matches!(finding, Finding::Damaged(_));
    let can_mend = |finding: &Finding| finding.to_remove().is_some() || finding.is_leak();
    let to_mend = left.findings.iter().filter(|finding| can_mend(finding));
    let mended: Vec<Finding> = to_mend.cloned().collect();
    if mended.is_empty() || left.findings.iter().any(is_damage) {
        let mended = Vec::new();
        return Ok(Repaired { mended, left });
    }
    // A block that an object has may look like another's: then nothing is sure.
    let is_unsure =
        |finding: &Finding| matches!(finding, Finding::SharedBlocks(_) | Finding::FreeBlocks(_));
    if !left.findings.iter().any(is_unsure) {
        store.free_leaked()?;
    }
    let objects: Vec<ObjectId> = mended.iter().filter_map(Finding::to_remove).collect();
    for some in objects.chunks(REMOVED_AT_ONCE) {
        let mut batch = Batch::new();
        // No open of a file that does not exist can ever write it.
        some.iter()
            .for_each(|object| condemn(&mut batch, *object, u64::MAX, wall));
        kv.wait_durable(kv.commit(batch)?)?;
        finish_removals(store, kv)?;
        kv.wait_durable(kv.committed())?;
    }
    let left = check(store, kv, whose)?;
    Ok(Repaired { mended, left })
}

/// How long an object is, in bytes; none: it is not there.
pub fn size(store: &dyn ObjectStore, object: ObjectId) -> Result<Option<u64>, StorageError> {
    Ok(store.stat(stored(object))?.map(|stat| stat.size))
}

/// The size of an object by the target's records, in bytes; none: they say nothing of it.
pub fn recorded_size(kv: &Kv, object: ObjectId) -> Result<Option<u64>, StorageError> {
    recorded_end(kv, SEALS, stored(object))
}

/// How far the target had come, and how far it knows that the MDT had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Histories {
    /// The target.
    pub own: Transno,
    /// The MDT.
    pub mdt: Transno,
}

/// Which is told apart from a target that is an older copy of what it was.
pub fn histories(kv: &Kv) -> Result<Histories, StorageError> {
    let heard = kv.get_with(META, WATERMARK_KEY, MdtWatermark::decode)?;
    let heard = heard.transpose().map_err(|damage| damaged(&damage))?;
    Ok(Histories {
        own: history(kv)?.committed,
        mdt: heard.unwrap_or_default().committed,
    })
}

/// Whatever the MDT holds will do from now on. Durable when this returns.
pub fn forget_mdt(kv: &Kv) -> Result<(), StorageError> {
    let mut batch = Batch::new();
    batch.delete(META, WATERMARK_KEY);
    kv.wait_durable(kv.commit(batch)?)
}

/// The greatest sequence below `end` of which there are objects.
pub fn last_sequence(store: &dyn ObjectStore, end: u64) -> Result<Option<u64>, StorageError> {
    let objects = objects(store)?.into_iter();
    let sequences = objects.map(|object| object.fid.sequence());
    Ok(sequences.filter(|sequence| *sequence < end).max())
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
    kv.scan(table, &KeyRange::all(), |key, value| {
        findings.extend(row(key, value).err().map(Finding::Damaged));
        ControlFlow::Continue(())
    })
}

/// What a row says.
enum Row {
    Object(ObjectId),
    Tombstone(ObjectId, Tombstone),
    Other,
}

fn read_row(table: TableId, key: &[u8], value: &[u8]) -> Result<Row, Damage> {
    let read = || match table {
        OBJECTS => {
            ObjectRecord::decode(value)?;
            Ok(Row::Object(object_of_key(key)?))
        }
        TOMBSTONES => Ok(Row::Tombstone(
            object_of_key(key)?,
            Tombstone::decode(value)?,
        )),
        META if key == HISTORY_KEY => History::decode(value).map(|_| Row::Other),
        META if key == WATERMARK_KEY => MdtWatermark::decode(value).map(|_| Row::Other),
        CLIENTS => {
            client_of_key(key)?;
            KnownClient::decode(value).map(|_| Row::Other)
        }
        SEALS => check_seal(key, value).map(|_| Row::Other),
        table if table == EXTENTS.extents || table == EXTENTS.sums => {
            check_row_of_extents(&EXTENTS, table, key, value).map(|()| Row::Other)
        }
        _ => Err(damage("row", "its key is unknown")),
    };
    read().map_err(|damage: Damage| {
        let name = TABLES.iter().find(|(id, _)| *id == table);
        let name = name.map_or("", |(_, name)| name);
        let record = format!("{}, {}, in {name}", damage.record, told_key(table, key));
        Damage { record, ..damage }
    })
}

/// Whether the row `key` of a table is one that can be there.
pub fn check_row(table: TableId, key: &[u8], value: &[u8]) -> Result<(), Damage> {
    read_row(table, key, value).map(drop)
}

/// What a key says, for people.
pub fn told_key(table: TableId, key: &[u8]) -> String {
    match (table, object_of_key(key.get(..12).unwrap_or(key))) {
        (OBJECTS | TOMBSTONES | SEALS, Ok(object)) => format!("object {}", stored(object)),
        _ => {
            let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("key {digits}")
        }
    }
}

fn check_size(store: &dyn ObjectStore, object: ObjectId, report: &mut Report) {
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
}

fn damage(record: &str, reason: &str) -> Damage {
    Damage {
        record: record.to_owned(),
        reason: reason.to_owned(),
    }
}
