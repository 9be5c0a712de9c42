//! Opens that a use elsewhere excludes: who writes a file excludes who executes it, and the other way
//! round. Such a use may be over for the programs there, and its end not told yet: a Close waits until
//! the bytes are durable. So its client is asked to end it before the open is refused.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{ClientId, Fid, Tick};
use wire::mdt::Access;

use crate::opens::Opens;
use crate::request::Parked;

/// Opens that wait for answers. Bounded by the slots of those who ask.
#[derive(Debug, Default)]
pub(crate) struct BusyOpens(pub Vec<BusyOpen>);

#[derive(Debug)]
pub(crate) struct BusyOpen {
    pub parked: Parked,
    /// The questions that are open.
    pub asked: BTreeSet<u64>,
    /// When they were asked.
    pub since: Tick,
}

impl BusyOpens {
    /// Who is gone waits for nothing.
    pub fn forget(&mut self, client: ClientId) {
        self.0.retain(|open| open.parked.call.client != client);
    }

    /// All of them, which wait no longer.
    pub fn take(&mut self) -> Vec<Parked> {
        let taken = std::mem::take(&mut self.0).into_iter();
        taken.map(|open| open.parked).collect()
    }

    /// Those that have waited for so long by now.
    pub fn take_older(&mut self, now: Tick, patience: Duration) -> Vec<Parked> {
        let old = |open: &mut BusyOpen| now.since(open.since) >= patience;
        let taken = self.0.extract_if(.., old);
        taken.map(|open| open.parked).collect()
    }

    /// When the first of them has waited for so long.
    pub fn next(&self, patience: Duration) -> Option<Tick> {
        self.0.iter().map(|open| open.since.after(patience)).min()
    }

    /// The open that waits for the answer to `question`.
    pub fn of(&mut self, question: u64) -> Option<&mut BusyOpen> {
        self.0
            .iter_mut()
            .find(|open| open.asked.contains(&question))
    }

    /// A question is answered, or its client is gone. The open that may be tried again now.
    pub fn answered(&mut self, question: u64) -> Option<Parked> {
        let index = self
            .0
            .iter_mut()
            .position(|open| open.asked.remove(&question) && open.asked.is_empty())?;
        Some(self.0.swap_remove(index).parked)
    }
}

impl Opens {
    /// The clients whose uses of `fid` exclude one for `access` by `client`; none where its own do.
    pub fn excluding(&self, fid: Fid, access: Access, client: ClientId) -> BTreeSet<ClientId> {
        let excludes = |use_: &Access| (access.write && use_.exec) || (access.exec && use_.write);
        let clients: BTreeSet<ClientId> = self
            .of(fid)
            .filter(|open| excludes(&open.access))
            .map(|open| open.client)
            .collect();
        match clients.contains(&client) {
            true => BTreeSet::new(),
            false => clients,
        }
    }
}
