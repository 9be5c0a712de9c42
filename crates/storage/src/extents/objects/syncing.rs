//! Making objects durable: commits of all that changed, one flush, then their rows.

use std::collections::VecDeque;
use std::sync::PoisonError;

use super::ExtentObjects;
use super::state::State;
use crate::disk::Disk;
use crate::error::{Result, StorageError};
use crate::extents::changed::{Building, Object};
use crate::extents::commit::{Commit, Row};
use crate::extents::log::BLOCK_BYTES;
use crate::extents::rows::LogPlace;
use crate::kv::Logged;
use crate::objects::ObjectId;

use super::records::row_list;

/// Bytes of a commit, beyond which the next one begins.
const COMMIT_BYTES_MAX: u64 = 2 << 20;
/// A commit takes this part of the log at most, but for its last segment.
const LOG_PARTS: u64 = 4;

/// Commits that wait for a flush.
#[derive(Default)]
struct Appended {
    /// Rows to be put when it is done.
    rows: Vec<Row>,
    /// Commits for which the log has no room.
    left: VecDeque<Next>,
}

/// A commit of objects, or of what was committed to the records.
struct Next {
    commit: Commit,
    /// Its rows are put when it is durable; else they are there.
    is_put_later: bool,
}

impl ExtentObjects {
    /// Makes everything done so far durable; with `of`, only where that object changed.
    pub(super) fn make_durable(&self, of: Option<ObjectId>) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = of {
            let state = self.state();
            let object = state.changed.get(&id);
            if !object.is_some_and(Object::is_changed) {
                return state.device.check_running();
            }
        }
        self.commit_all(Vec::new())
    }

    /// Makes everything done so far durable, and these rows of other tables with the last of it.
    pub(super) fn make_all_durable(&self, rows: Vec<Logged>) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.commit_all(row_list(rows))
    }

    /// Makes everything durable, and a checkpoint of it: the next start has nothing to put once more.
    pub(super) fn checkpoint_all(&self) -> Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.commit_all(Vec::new())?;
        self.records.wait_all_durable()?;
        let checkpoint = {
            let state = self.state();
            state.device.begin_checkpoint(state.device.durable())?
        };
        let written = checkpoint.write(&self.disk);
        self.state().device.end_checkpoint(checkpoint, written)
    }

    fn commit_all(&self, last: Vec<Row>) -> Result<()> {
        let (mut left, mut last) = (VecDeque::new(), last);
        loop {
            let Some(appended) = self.append(left, &mut last)? else {
                return Ok(());
            };
            let had_room = appended.left.is_empty();
            left = appended.left;
            let ticket = self.state().device.begin_sync()?;
            let synced = self.disk.sync();
            self.state().device.end_sync(ticket, synced)?;
            let life = self.state().device.life();
            // The records have what these will hold, though the log does not yet. What others hold is known
            // only here until they are put.
            let of_records = left.iter().filter(|next| !next.is_put_later).count();
            let place = LogPlace {
                life,
                ticket: ticket + of_records as u64,
            };
            let batch = self
                .records
                .put(appended.rows, self.geometry.id, (ticket, place))?;
            if !left.iter().any(|next| next.is_put_later) {
                self.state().changed.retain(|_, object| !object.forget());
            }
            let is_due = !had_room || self.state().device.wants_checkpoint();
            if is_due {
                self.records.wait_durable(batch)?;
                let checkpoint = self.state().device.begin_checkpoint(ticket)?;
                let written = checkpoint.write(&self.disk);
                self.state().device.end_checkpoint(checkpoint, written)?;
            }
            if had_room {
                return self.shrink_where_tight().map(drop);
            }
        }
    }

    /// Appends commits of all that changed to the log. `None`: nothing is to be made durable.
    fn append(&self, left: VecDeque<Next>, last: &mut Vec<Row>) -> Result<Option<Appended>> {
        let mut state = self.state();
        state.device.check_running()?;
        let log_bytes = self.geometry.log.blocks * BLOCK_BYTES;
        let bytes_max = COMMIT_BYTES_MAX.min(log_bytes / LOG_PARTS) as usize;
        let mut appended = Appended::default();
        // The log was just emptied, if there are any.
        let mut next = left;
        let mut is_first = !next.is_empty();
        loop {
            while let Some(one) = next.pop_front() {
                if state.device.commit_if_fits(&one.commit)?.is_none() {
                    if is_first {
                        let bytes = one.commit.encode().len();
                        let reason = format!("a commit of {bytes} bytes is too large for its log");
                        return Err(StorageError::refused(self.records.name(), reason));
                    }
                    next.push_front(one);
                    appended.left = next;
                    return Ok(Some(appended));
                }
                is_first = false;
                if one.is_put_later {
                    appended.rows.extend(one.commit.rows);
                }
            }
            next = self.next_commits(&mut state, bytes_max)?;
            if next.is_empty() && !last.is_empty() {
                next.push_back(Next {
                    commit: Commit {
                        rows: std::mem::take(last),
                        ..Commit::default()
                    },
                    is_put_later: true,
                });
            }
            if next.is_empty() {
                break;
            }
        }
        let is_durable = state.device.durable() == state.device.last();
        Ok((!is_durable).then_some(appended))
    }

    /// What is to be committed next: objects that changed; when there are none, what was committed to the
    /// records meanwhile. So a record is never durable without the bytes that came before it.
    fn next_commits(&self, state: &mut State, bytes_max: usize) -> Result<VecDeque<Next>> {
        let commit = self.next_commit(state, bytes_max);
        if commit != Commit::default() {
            let freed = commit.freed.iter();
            state.committed_frees(freed.map(|extent| u64::from(extent.blocks)).sum());
            let next = Next {
                commit,
                is_put_later: true,
            };
            return Ok([next].into());
        }
        let place = LogPlace {
            life: state.device.life(),
            ticket: state.device.last() + 1,
        };
        let unlogged = self.records.unlogged(place, bytes_max)?.into_iter();
        let unlogged = unlogged.map(|rows| Next {
            commit: Commit {
                rows,
                ..Commit::default()
            },
            is_put_later: false,
        });
        Ok(unlogged.collect())
    }

    fn next_commit(&self, state: &mut State, bytes_max: usize) -> Commit {
        let mut building = Building::new(bytes_max);
        for (id, object) in &mut state.changed {
            if object.is_changed() && !building.add(*id, self.records.tables(), object) {
                break;
            }
        }
        building.finish()
    }
}
