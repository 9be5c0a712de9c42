//! Making objects durable: commits of all that changed, one flush, then their rows.

use std::sync::PoisonError;

use super::ExtentObjects;
use super::state::State;
use crate::disk::Disk;
use crate::error::{Result, StorageError};
use crate::extents::changed::{Building, Object};
use crate::extents::commit::{Commit, Row};
use crate::extents::log::BLOCK_BYTES;
use crate::objects::ObjectId;

/// Bytes of a commit, beyond which the next one begins.
const COMMIT_BYTES_MAX: u64 = 2 << 20;
/// A commit takes this part of the log at most, but for its last segment.
const LOG_PARTS: u64 = 4;

/// Commits that wait for a flush.
#[derive(Default)]
struct Appended {
    rows: Vec<Row>,
    /// The log has no room for this one.
    left: Option<Commit>,
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
        let mut left = None;
        loop {
            let Some(appended) = self.append(left)? else {
                return Ok(());
            };
            let had_room = appended.left.is_none();
            left = appended.left;
            let ticket = self.state().device.begin_sync()?;
            let synced = self.disk.sync();
            self.state().device.end_sync(ticket, synced)?;
            let batch = self.records.put(appended.rows, self.geometry.id, ticket)?;
            self.state().changed.retain(|_, object| !object.forget());
            let is_due = !had_room || self.state().device.wants_checkpoint();
            if is_due {
                self.records.wait_durable(batch)?;
                let checkpoint = self.state().device.begin_checkpoint(ticket)?;
                let written = checkpoint.write(&self.disk);
                self.state().device.end_checkpoint(checkpoint, written)?;
            }
            if had_room {
                return Ok(());
            }
        }
    }

    /// Appends commits of all that changed to the log. `None`: nothing is to be made durable.
    fn append(&self, left: Option<Commit>) -> Result<Option<Appended>> {
        let mut state = self.state();
        state.device.check_running()?;
        let log_bytes = self.geometry.log.blocks * BLOCK_BYTES;
        let bytes_max = COMMIT_BYTES_MAX.min(log_bytes / LOG_PARTS) as usize;
        let mut appended = Appended::default();
        if let Some(commit) = left {
            // The log was just emptied.
            if let Some(commit) = self.append_one(&mut state, commit, &mut appended)? {
                let bytes = commit.encode().len();
                let reason = format!("a commit of {bytes} bytes is too large for its log");
                return Err(StorageError::refused(self.records.name(), reason));
            }
        }
        loop {
            let commit = self.next_commit(&mut state, bytes_max);
            let freed = commit.freed.iter();
            let freed = freed.map(|extent| u64::from(extent.blocks)).sum();
            if commit == Commit::default() {
                break;
            }
            state.committed_frees(freed);
            appended.left = self.append_one(&mut state, commit, &mut appended)?;
            if appended.left.is_some() {
                break;
            }
        }
        let is_durable = state.device.durable() == state.device.last();
        let has_nothing = is_durable && appended.left.is_none() && appended.rows.is_empty();
        Ok((!has_nothing).then_some(appended))
    }

    /// Gives the commit back where the log has no room for it.
    fn append_one(
        &self,
        state: &mut State,
        commit: Commit,
        appended: &mut Appended,
    ) -> Result<Option<Commit>> {
        if state.device.commit_if_fits(&commit)?.is_none() {
            return Ok(Some(commit));
        }
        appended.rows.extend(commit.rows);
        Ok(None)
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
