//! The state that this process took over from the previous one, until the servers have all of it.

use std::collections::BTreeSet;

use base::Fid;
use handover::Record;

use crate::cache::stamps::Mark;
use crate::journal::record::ChangeBody;

/// How much was taken over, and the changes that the MDT must still be told of.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub bytes: usize,
    pub requests: usize,
    pub handles: usize,
    pub nodes: usize,
    /// Files that the MDT did not know.
    pub births: usize,
    /// Changes of other files that it did not know.
    pub edits: usize,
    pub changes: Vec<(ChangeBody, Record)>,
    pub files: BTreeSet<Fid>,
    /// A mark from before this process did anything.
    pub mark: Mark,
}

impl TakenOver {
    /// Nothing yet.
    pub fn new(mark: Mark) -> TakenOver {
        TakenOver {
            bytes: 0,
            requests: 0,
            handles: 0,
            nodes: 0,
            births: 0,
            edits: 0,
            changes: Vec::new(),
            files: BTreeSet::new(),
            mark,
        }
    }

    /// Requests to be sent again, for the log.
    pub fn with_requests(self, requests: usize) -> TakenOver {
        TakenOver { requests, ..self }
    }
}
