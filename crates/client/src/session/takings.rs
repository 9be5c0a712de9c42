//! What a process took over of the one before, until it is settled.

use std::collections::BTreeSet;

use base::Fid;
use handover::Record;

use crate::cache::stamps::Mark;
use crate::journal::record::ChangeBody;

/// How much of what, and what is still to be told.
#[derive(Debug)]
pub(crate) struct Takings {
    pub bytes: usize,
    pub requests: usize,
    pub handles: usize,
    pub nodes: usize,
    pub changes: Vec<(ChangeBody, Record)>,
    pub files: BTreeSet<Fid>,
    /// Before anything came to pass in this process.
    pub mark: Mark,
}

impl Takings {
    /// Nothing yet.
    pub fn new(mark: Mark) -> Takings {
        Takings {
            bytes: 0,
            requests: 0,
            handles: 0,
            nodes: 0,
            changes: Vec::new(),
            files: BTreeSet::new(),
            mark,
        }
    }

    /// Requests to be sent again, for the log.
    pub fn with_requests(self, requests: usize) -> Takings {
        Takings { requests, ..self }
    }
}
