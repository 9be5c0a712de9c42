//! A target that could not be opened because it is damaged. Its server holds it and reports it like one that
//! stopped later, while other targets serve.

use std::sync::Arc;

use base::{BootEpoch, ClientId, TargetName, Transno, Xid};
use rpc::scheduler::{RuleError, RuleReport};
use rpc::serving::{Recovering, Scheduling};
use rpc::window::Report;
use rpc::{Batch, ClientUuid, Connected, Departure, PeerInfo, Responder, Service, Unwelcome};
use storage::{Pace, StorageError};

use crate::control::of_targets::Controls;

/// Why a target was not opened.
pub enum NotOpened {
    /// Something stored there is not what was written: only this target is concerned.
    Damaged(String),
    /// Something else, perhaps of the call.
    Failed(String),
}

impl NotOpened {
    /// The error of a store, told as `words`.
    pub fn of(error: &StorageError, words: String) -> NotOpened {
        match error.damage() {
            Some(_) => NotOpened::Damaged(words),
            None => NotOpened::Failed(words),
        }
    }
}

impl From<String> for NotOpened {
    fn from(reason: String) -> NotOpened {
        NotOpened::Failed(reason)
    }
}

/// Lets nobody in.
pub struct Unopened {
    reason: String,
}

impl Unopened {
    /// For this `reason`.
    pub fn new(reason: String) -> Arc<Unopened> {
        Arc::new(Unopened { reason })
    }

    /// What people are told of it.
    pub fn controls(self: &Arc<Unopened>, name: TargetName) -> Controls {
        Controls {
            name,
            scheduling: self.clone(),
            recovering: self.clone(),
            pace: Pace::usual(),
            extents: None,
        }
    }

    fn unwelcome<T>(&self) -> Result<T, Unwelcome> {
        Err(Unwelcome::BrokenOff(self.reason.clone()))
    }
}

impl Service for Unopened {
    fn connected(&self, _session: Arc<Connected>) -> Result<(), Unwelcome> {
        self.unwelcome()
    }

    fn request(
        &self,
        _session: &Arc<Connected>,
        _xid: Xid,
        _resent: bool,
        _batch: Batch,
        responder: Responder,
    ) {
        responder.leave();
    }

    fn disconnected(&self, _client: ClientId) {}

    fn succeeded(&self, _session: Arc<Connected>) {}

    fn survived(&self, _epoch: BootEpoch) -> Transno {
        // Asked of sessions only, and there is none.
        Transno(0)
    }

    fn gave_up(&self, _client: ClientUuid) -> Result<bool, Unwelcome> {
        self.unwelcome()
    }

    fn wait_to_give_up(&self, _client: ClientUuid) -> Result<(), Unwelcome> {
        self.unwelcome()
    }

    fn expired(&self, _client: ClientId, _how: Departure) {}
}

impl Scheduling for Unopened {
    fn command(&self, _text: &str) -> Result<(), RuleError> {
        Err(RuleError {
            column: None,
            what: "the target has stopped; mend it and restart the server".to_owned(),
        })
    }

    fn report(&self) -> Vec<RuleReport> {
        Vec::new()
    }

    fn clients(&self) -> Vec<(ClientId, PeerInfo)> {
        Vec::new()
    }
}

impl Recovering for Unopened {
    fn report(&self) -> Report {
        Report::default()
    }

    fn end(&self) {}

    fn stopped(&self) -> Option<String> {
        Some(self.reason.clone())
    }

    fn kept(&self) -> (usize, usize) {
        (0, 0)
    }

    fn evict(&self, _client: ClientUuid) -> bool {
        false
    }
}
