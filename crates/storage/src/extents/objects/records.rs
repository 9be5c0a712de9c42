//! The rows of a store of extents in its tables.

use std::ops::ControlFlow;
use std::sync::Arc;

use base::Damage;

use crate::error::{Result, StorageError};
use crate::extents::commit::Row;
use crate::extents::geometry::StoreId;
use crate::extents::recovery::Replayed;
use crate::extents::rows::{
    ExtentTables, Head, LOGGED_KEY, LogPlace, MARK_KEY, decode_head, decode_logged, decode_mark,
    decode_segment, encode_logged, encode_mark, object_key, place_of_key, segment_key,
    segments_from,
};
use crate::extents::segment::Segment;
use crate::kv::{Batch, KeyRange, Kv, Logged, TableId, Ticket};
use crate::objects::ObjectId;

/// Where each commit of these rows ends: a batch is never divided, so that a crash takes it whole or not.
fn ends_of(logged: &[(u64, Logged)], bytes_max: usize) -> Vec<usize> {
    let (mut ends, mut bytes) = (Vec::new(), 0);
    for (at, (ticket, row)) in logged.iter().enumerate() {
        let is_new = at > 0 && logged[at - 1].0 != *ticket;
        if is_new && bytes > bytes_max {
            ends.push(at);
            bytes = 0;
        }
        bytes += row.key.len() + row.value.as_ref().map_or(0, |value| value.len()) + ROW_BYTES;
    }
    ends.push(logged.len());
    ends
}

/// As rows of a commit.
pub fn row_list(logged: Vec<Logged>) -> Vec<Row> {
    let rows = logged.into_iter();
    let row = |Logged { table, key, value }: Logged| Row {
        table: table.0,
        key,
        value: value.map(|value| value.to_vec()),
    };
    rows.map(row).collect()
}

/// Bytes of a row in a commit besides its key and value.
const ROW_BYTES: usize = 7;

/// The rows of objects and segments that a commit made durable.
#[derive(Debug)]
pub struct Records {
    kv: Arc<Kv>,
    tables: ExtentTables,
}

impl Records {
    /// Those in `tables` of `kv`.
    pub fn new(kv: Arc<Kv>, tables: ExtentTables) -> Records {
        Records { kv, tables }
    }

    /// What messages call the target.
    pub fn name(&self) -> &str {
        self.kv.name()
    }

    /// Where they are.
    pub fn tables(&self) -> &ExtentTables {
        &self.tables
    }

    fn damaged(&self, id: ObjectId, damage: Damage) -> StorageError {
        let at = format!("{}: object {id}", self.kv.name());
        StorageError::damaged(at, damage.record, damage.reason)
    }

    /// An object's row.
    pub fn head(&self, id: ObjectId) -> Result<Option<(Head, Option<Segment>)>> {
        let key = object_key(id);
        let found = self.kv.get_with(self.tables.extents, &key, decode_head)?;
        found.transpose().map_err(|damage| self.damaged(id, damage))
    }

    /// A segment by its own rows; an empty one where there are none.
    pub fn segment(&self, id: ObjectId, number: u64) -> Result<Segment> {
        let key = segment_key(id, number);
        let places = self.kv.get(self.tables.extents, &key)?;
        let sums = self.kv.get(self.tables.sums, &key)?;
        let found = match (places, sums) {
            (None, None) => return Ok(Segment::default()),
            (Some(places), Some(sums)) => decode_segment(&places, &sums),
            _ => Err(Damage {
                record: format!("segment {number}"),
                reason: "its places or its sums are missing".to_owned(),
            }),
        };
        found.map_err(|damage| self.damaged(id, damage))
    }

    /// The segments from `first` on that have rows, at most `limit`.
    pub fn segments(&self, id: ObjectId, first: u64, limit: usize) -> Result<Vec<u64>> {
        let (mut found, mut wrong) = (Vec::new(), false);
        let range = segments_from(id, first);
        self.kv.scan(self.tables.extents, &range, |key, _| {
            match place_of_key(key) {
                Some((_, Some(number))) => found.push(number),
                _ => wrong = true,
            }
            match found.len() < limit && !wrong {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        match wrong {
            false => Ok(found),
            true => Err(self.damaged(
                id,
                Damage {
                    record: "key of extents".to_owned(),
                    reason: "it names no segment".to_owned(),
                },
            )),
        }
    }

    /// Every object with a row.
    pub fn objects(&self) -> Result<Vec<ObjectId>> {
        let mut found = Vec::new();
        self.kv
            .scan(self.tables.extents, &KeyRange::all(), |key, _| {
                found.extend(match place_of_key(key) {
                    Some((id, None)) => Some(id),
                    _ => None,
                });
                ControlFlow::Continue(())
            })?;
        Ok(found)
    }

    /// The records are those of store `id`, and none is newer than its commit `last`.
    pub fn check_mark(&self, id: StoreId, last: u64) -> Result<()> {
        let found = self
            .kv
            .get_with(self.tables.extents, MARK_KEY, decode_mark)?;
        let at = self.kv.name();
        let record = "mark of the store of extents";
        match found.transpose() {
            Err(damage) => Err(StorageError::damaged(at, record, damage.reason)),
            Ok(Some((store, _))) if store != id.0 => Err(StorageError::damaged(
                at,
                record,
                "its records belong to another store of extents",
            )),
            Ok(Some((_, ticket))) if ticket > last => Err(StorageError::damaged(
                at,
                record,
                format!("its records know commit {ticket}, and its log ends with {last}"),
            )),
            Ok(_) => Ok(()),
        }
    }

    /// Puts the rows of commits up to `ticket` into the tables, which then have all rows of other tables up
    /// to `known`. They are durable with the batch.
    pub fn put(
        &self,
        rows: impl IntoIterator<Item = Row>,
        id: StoreId,
        (ticket, known): (u64, LogPlace),
    ) -> Result<Ticket> {
        let mut batch = Batch::new();
        for row in rows {
            let table = TableId(row.table);
            match row.value {
                Some(value) => batch.put(table, row.key, value),
                None => batch.delete(table, row.key),
            };
        }
        let extents = self.tables.extents;
        batch.put(extents, MARK_KEY, encode_mark(id.0, ticket));
        batch.put(extents, LOGGED_KEY, encode_logged(known));
        self.kv.commit_logged(batch)
    }

    /// Puts the rows that the log kept, and that a crash took from their tables. From now on the log has all
    /// that is committed to these.
    pub fn restore(&self, replayed: Vec<Replayed>, id: StoreId, last: LogPlace) -> Result<()> {
        let tables = [self.tables.extents.0, self.tables.sums.0];
        let found = self
            .kv
            .get_with(self.tables.extents, LOGGED_KEY, decode_logged)?;
        let at = self.kv.name();
        let known = found
            .transpose()
            .map_err(|damage| StorageError::damaged(at, "mark of the log", damage.reason))?;
        let known = known.unwrap_or_default();
        let mut rows = Vec::new();
        for Replayed {
            ticket,
            life,
            rows: logged,
        } in replayed
        {
            // What the tables had later than this must stay.
            let is_known = LogPlace { life, ticket } <= known;
            rows.extend(
                logged
                    .into_iter()
                    .filter(|row| !is_known || tables.contains(&row.table)),
            );
        }
        self.put(rows, id, (last.ticket, last))?;
        self.kv.begin_log();
        Ok(())
    }

    /// Commits to the records that the log does not have, as rows in commits of at most about `bytes_max`.
    /// The first of them will be commit `next`.
    pub fn unlogged(&self, next: LogPlace, bytes_max: usize) -> Result<Vec<Vec<Row>>> {
        let mut ends = Vec::new();
        let taken = self.kv.take_unlogged(|logged| {
            ends = ends_of(logged, bytes_max);
            let last = LogPlace {
                ticket: next.ticket + ends.len() as u64 - 1,
                ..next
            };
            (
                self.tables.extents,
                LOGGED_KEY.to_vec(),
                encode_logged(last),
            )
        })?;
        let rows = taken.into_iter().map(|(_, row)| row).collect();
        let mut rows = row_list(rows).into_iter();
        let mut begin = 0;
        let commits = ends.into_iter().map(|end| {
            let commit = rows.by_ref().take(end - begin).collect();
            begin = end;
            commit
        });
        Ok(commits.collect())
    }

    /// All batches so far are durable when this returns.
    pub fn wait_all_durable(&self) -> Result<()> {
        self.kv.wait_durable(self.kv.committed())
    }

    /// The batch is durable when this returns.
    pub fn wait_durable(&self, batch: Ticket) -> Result<()> {
        self.kv.wait_durable(batch)
    }
}
