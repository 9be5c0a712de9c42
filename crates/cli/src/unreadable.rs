//! What of a target's records cannot be read, for people: all of it that can be found.

use base::{Damage, TargetKind};
use storage::{Hole, KvOptions, StorageError, TableId, Target};

/// Whether a row, the key and the value, is one that can be there.
type CheckRow = fn(TableId, &[u8], &[u8]) -> Result<(), Damage>;

/// How the owner of a target's tables reads them.
struct Reader {
    tables: Vec<(TableId, &'static str)>,
    check: CheckRow,
    /// What a key says.
    key: fn(TableId, &[u8]) -> String,
}

fn reader(kind: TargetKind) -> Reader {
    match kind {
        TargetKind::Mgs => Reader {
            tables: vec![(crate::mgs::TABLE, "config")],
            check: |_, _, _| Ok(()),
            key: |_, key| format!("key {}", String::from_utf8_lossy(key).escape_debug()),
        },
        TargetKind::Mdt => Reader {
            tables: mds::tables(),
            check: mds::fsck::check_row,
            key: mds::fsck::told_key,
        },
        TargetKind::Ost => Reader {
            tables: oss::records::TABLES.to_vec(),
            check: oss::fsck::check_row,
            key: oss::fsck::told_key,
        },
    }
}

/// A line for each damaged record, and for each part of a table that cannot be read. The target's
/// store must not be open.
pub fn unreadable(target: &Target) -> Result<Vec<String>, StorageError> {
    let name = target.superblock().target;
    let reader = reader(name.kind);
    let mut lines = Vec::new();
    let options = KvOptions::new(name.to_string());
    let holes = target.examine(&reader.tables, &options, &mut |table, key, value| {
        let damage = (reader.check)(table, key, value).err();
        lines.extend(damage.map(|damage| damage.to_string()));
    })?;
    lines.extend(holes.iter().map(|hole| reader.tell(hole)));
    Ok(lines)
}

impl Reader {
    fn tell(&self, hole: &Hole) -> String {
        let causes: Vec<String> = hole.causes.iter().map(cause).collect();
        let table = self.tables.iter().find(|(id, _)| *id == hole.table);
        let table = table.map_or("", |(_, name)| name);
        let key = |key: &Vec<u8>| (self.key)(hole.table, key);
        let part = match (hole.after.as_ref().map(key), hole.before.as_ref().map(key)) {
            (Some(after), Some(before)) => format!("what is between {after} and {before}"),
            (Some(after), None) => format!("what comes after {after}"),
            (None, Some(before)) => format!("what comes before {before}"),
            (None, None) => "all".to_owned(),
        };
        format!("{}; lost of table {table}: {part}", causes.join(", and "))
    }
}

/// Without advice: that comes once for all.
fn cause(error: &StorageError) -> String {
    match error {
        StorageError::Damaged { at, damage } => format!("{at}: {damage}"),
        other => other.to_string(),
    }
}
