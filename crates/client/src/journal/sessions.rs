//! The sessions with targets. One that the next process did not know would be taken for that of a client
//! that does not come back: it is remembered before the target hears more over it than its hello. The
//! record's mark is how far the target has come, so that an older copy of it is known later, too.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use base::{BootEpoch, TargetName, Transno};
use handover::{Record, Records};
use serde::{Deserialize, Serialize};
use threads::Mutex;
use wire::frame::SessionId;

use super::record::{TARGET, encode, put};

/// Body of a [`TARGET`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct TargetBody {
    pub target: TargetName,
    pub session: SessionId,
    pub epoch: BootEpoch,
}

impl TargetBody {
    /// Of two sessions with one target the later one has the greater.
    pub fn age(&self) -> (BootEpoch, u32) {
        (self.epoch, self.session.0)
    }
}

/// Of each target the newest session, by its name.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    records: Records,
    known: Arc<Mutex<HashMap<String, (TargetBody, Record)>>>,
}

impl Sessions {
    pub fn new(records: Records) -> Sessions {
        Sessions {
            records,
            known: Arc::default(),
        }
    }

    /// The new session is there before the old one goes.
    pub fn remember(&self, body: TargetBody) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.get(&body.target.to_string());
        if before.is_some_and(|(before, _)| before.age() >= body.age()) {
            return;
        }
        let committed = before.map_or(0, |(_, record)| record.mark());
        if let Some(record) = put(&self.records, TARGET, committed, &encode(&body)) {
            known.insert(body.target.to_string(), (body, record));
        }
    }

    /// The target has made everything up to there durable.
    pub fn committed(&self, target: TargetName, committed: Transno) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, record)) = known.get(&target.to_string())
            && record.mark() < committed.0
        {
            record.set_mark(committed.0);
        }
    }

    /// One of the process before stays until this process has one of its own: it may not come to that.
    pub fn inherit(&self, body: TargetBody, record: Record) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .entry(body.target.to_string())
            .or_insert((body, record));
    }
}
