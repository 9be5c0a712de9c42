//! Executions: they exclude writers, and may stay on record at the MDT when they are over.
//! Normative: docs/locks.md, section 9.
// SEMANTICS: op.open, op.exec

use base::{Fid, FsError};
use wire::mdt::{Access, OpenHandle, OpenIntent};

use crate::executor::spawn;
use crate::session::client::Client;
use crate::session::file_handle::Execution;
use crate::session::stats::bump;

/// An open for execution.
const EXECUTING: Access = Access {
    read: false,
    write: false,
    exec: true,
};

impl Client {
    /// Nobody may write what begins to run here: the MDT has that on record from before, or is asked.
    pub(super) async fn begin_execution(&self, fid: Fid) -> Result<Execution, FsError> {
        let mark = {
            let mut state = self.lock();
            let mark = state.cache.mark(fid);
            if let Some(handle) = state.reuse_execution(fid) {
                bump(&self.0.stats.open_hit);
                return Ok(Execution { handle, mark });
            }
            mark
        };
        // What was just written comes to the MDT with a use for writing, which has to end first.
        self.report_births_first(&[fid]).await;
        self.end_idle_writer(fid).await?;
        let handle = self.register(fid, EXECUTING, OpenIntent::First).await?;
        Ok(Execution { handle, mark })
    }

    /// Nobody may write what runs here, after a restart of the MDT either. Where it refuses, the program
    /// runs on.
    pub(crate) async fn register_executions(&self, fid: Fid) {
        let executions = self.lock().handles.executing(fid);
        for handle in executions {
            let mark = self.lock().cache.mark(fid);
            let registered = self.register(fid, EXECUTING, OpenIntent::Reopen).await;
            let Ok(open) = registered else {
                continue;
            };
            let execution = Execution { handle: open, mark };
            let is_over = match self.lock().handles.file(handle) {
                Some(file) => {
                    file.register_execution(execution);
                    false
                }
                None => true,
            };
            if is_over {
                self.end_uses(fid, vec![open]);
            }
        }
    }

    /// The end of what stays on record of `fid` is reported to the MDT when this returns.
    pub(crate) async fn end_idle_execution(&self, fid: Fid) {
        self.start_ending_idle_execution(fid);
        let ends = {
            let mut state = self.lock();
            let is_reported = state.handles.is_end_reported(fid);
            is_reported.then(|| state.handles.wait_for_end_of_use(fid, self.0.clock.tick()))
        };
        if let Some(ends) = ends {
            ends.await;
        }
    }

    /// Starts to report the end of what stays on record of `fid`.
    pub(crate) fn start_ending_idle_execution(&self, fid: Fid) {
        let ended = {
            let mut state = self.lock();
            let idle = state.idle_executions.take(fid);
            if idle.is_some() {
                state.handles.begin_report_of_end(fid);
            }
            idle
        };
        if let Some(handle) = ended {
            self.end_execution(fid, handle);
        }
    }

    /// Ends what stays on record of files whose removal no lock would report.
    pub(crate) fn end_uncovered_executions(&self) {
        let is_kept = self.0.params.opencache() == 1;
        let uncovered = {
            let state = self.lock();
            let mut programs = state.idle_executions.programs();
            programs.retain(|fid| !is_kept || !state.may_keep_execution(*fid));
            programs
        };
        for fid in uncovered {
            self.start_ending_idle_execution(fid);
        }
    }

    /// Reports to the MDT that a file is not executed any more. A question whether it is must not be
    /// answered before the MDT has heard that: it asks just once.
    pub(super) fn end_execution(&self, fid: Fid, handle: OpenHandle) {
        let client = self.clone();
        spawn(async move {
            client.close_uses(fid, vec![handle]).await;
            let asked = {
                let mut state = client.lock();
                state.handles.end_report_of_end(fid);
                match state.excludes_others(fid) {
                    true => Vec::new(),
                    false => state.handles.end_use(fid),
                }
            };
            drop(asked);
        });
    }
}
