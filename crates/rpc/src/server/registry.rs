//! The sessions of a target.

use std::collections::HashMap;
use std::sync::Arc;

use base::limits::CLIENTS_MAX;
use wire::frame::SessionId;
use wire::handshake::{ClientUuid, Refusal, RefusalReason};

use super::connected::Connected;

/// A target's sessions: at most one of each mount.
#[derive(Default)]
pub(super) struct Registry {
    sessions: HashMap<ClientUuid, Arc<Connected>>,
    last: u32,
}

impl Registry {
    pub(super) fn all(&self) -> Vec<Arc<Connected>> {
        self.sessions.values().cloned().collect()
    }

    /// The session of this mount.
    pub(super) fn of(&self, client: ClientUuid) -> Option<Arc<Connected>> {
        self.sessions.get(&client).cloned()
    }

    /// Takes the place of the mount's session before.
    pub(super) fn insert(&mut self, session: &Arc<Connected>) {
        self.sessions.insert(session.peer().uuid, session.clone());
    }

    pub(super) fn remove(&mut self, session: &Connected) {
        let uuid = session.peer().uuid;
        if self
            .sessions
            .get(&uuid)
            .is_some_and(|known| std::ptr::eq(&**known, session))
        {
            self.sessions.remove(&uuid);
        }
    }

    /// The number of one session more.
    pub(super) fn next_id(&mut self) -> Result<SessionId, Refusal> {
        if self.sessions.len() >= CLIENTS_MAX {
            let text = format!("{CLIENTS_MAX} clients have a session, and no more may have one");
            return Err(Refusal::new(RefusalReason::Service, text));
        }
        self.last = self.last.wrapping_add(1).max(1);
        Ok(SessionId(self.last))
    }
}
