//! Rows one by one, of a target in which some cannot be read.

use base::Damage;
use storage::TableId;

use crate::keys::{self, Table};
use crate::records::{
    BootBegun, Bytes, Destroy, Dirent, Inode, KnownClient, Orphan, Place, Record, SeenOst,
    SequenceOwner, State, StoredReply,
};
use crate::store::table_id;

fn table_of(id: TableId) -> Option<Table> {
    Table::ALL.into_iter().find(|table| table_id(*table) == id)
}

/// Whether the row `key` of a table is one that can be there.
pub fn check_row(table: TableId, key: &[u8], value: &[u8]) -> Result<(), Damage> {
    let is = |found: Option<()>| {
        found.ok_or_else(|| Damage {
            record: format!("with {}", told_key(table, key)),
            reason: "no key looks like this".into(),
        })
    };
    match table_of(table) {
        Some(Table::Dirents) => {
            is(keys::parse_dirent(key).map(drop)).and(check::<Dirent>(key, value))
        }
        Some(Table::Inodes) => is(keys::parse_fid(key).map(drop)).and(check::<Inode>(key, value)),
        Some(Table::Places) => is(keys::parse_fid(key).map(drop)).and(check::<Place>(key, value)),
        Some(Table::Links) => is(keys::parse_link(key).map(drop)).and(check::<Bytes>(key, value)),
        Some(Table::Xattrs) => is(keys::parse_xattr(key).map(drop)).and(check::<Bytes>(key, value)),
        Some(Table::Targets) => is(keys::parse_fid(key).map(drop)).and(check::<Bytes>(key, value)),
        Some(Table::Orphans) => is(keys::parse_fid(key).map(drop)).and(check::<Orphan>(key, value)),
        Some(Table::Destroys) => {
            is(keys::parse_destroy(key).map(drop)).and(check::<Destroy>(key, value))
        }
        Some(Table::Replies) => check::<StoredReply>(key, value),
        Some(Table::Sequences | Table::LeakSearches) => {
            is(keys::parse_sequence(key).map(drop)).and(check::<SequenceOwner>(key, value))
        }
        Some(Table::Osts) => is(keys::parse_ost(key).map(drop)).and(check::<SeenOst>(key, value)),
        Some(Table::State) => check::<State>(key, value),
        Some(Table::Clients) => check::<KnownClient>(key, value),
        Some(Table::Boots) => check::<BootBegun>(key, value),
        None => is(None),
    }
}

fn check<R: Record>(key: &[u8], value: &[u8]) -> Result<(), Damage> {
    R::from_bytes(key, value).map(drop)
}

/// What a key says, for people.
pub fn told_key(table: TableId, key: &[u8]) -> String {
    let begins = key
        .split_at_checked(8)
        .and_then(|(fid, _)| keys::parse_fid(fid));
    match (table_of(table), begins) {
        (Some(Table::Dirents), Some(dir)) => format!("a name in directory {dir}"),
        (
            Some(
                Table::Inodes
                | Table::Places
                | Table::Links
                | Table::Xattrs
                | Table::Targets
                | Table::Orphans,
            ),
            Some(file),
        ) => format!("file {file}"),
        _ => {
            let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("key {digits}")
        }
    }
}
