//! Opens that a use elsewhere excludes: who writes a file excludes who executes it, and the other way
//! round. Such a use may be over for the programs there, and its end not told yet: a Close waits until
//! the bytes are durable. So its client is asked to end it before the open is refused.

use std::collections::BTreeSet;
use std::time::Duration;

use base::{ClientId, Fid, FsError, Tick};
use wire::mdt::{Access, Callback, Request};

use crate::core::{Mds, Parked};
use crate::event::Output;
use crate::opens::Opens;

/// Opens that wait for answers. Bounded by the slots of those who ask.
#[derive(Debug, Default)]
pub(crate) struct BusyOpens(Vec<BusyOpen>);

#[derive(Debug)]
struct BusyOpen {
    parked: Parked,
    /// The questions that are open.
    asked: BTreeSet<u64>,
    /// When they were asked.
    since: Tick,
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
    fn take_older(&mut self, now: Tick, patience: Duration) -> Vec<Parked> {
        let old = |open: &mut BusyOpen| now.since(open.since) >= patience;
        let taken = self.0.extract_if(.., old);
        taken.map(|open| open.parked).collect()
    }

    /// When the first of them has waited for so long.
    fn next(&self, patience: Duration) -> Option<Tick> {
        self.0.iter().map(|open| open.since.after(patience)).min()
    }

    /// A question is answered, or its client is gone. The open that may be tried again now.
    fn answered(&mut self, question: u64) -> Option<Parked> {
        let index = self
            .0
            .iter_mut()
            .position(|open| open.asked.remove(&question) && open.asked.is_empty())?;
        Some(self.0.swap_remove(index).parked)
    }
}

impl Opens {
    /// The clients whose uses of `fid` exclude one for `access` by `client`; none where its own do.
    fn excluding(&self, fid: Fid, access: Access, client: ClientId) -> BTreeSet<ClientId> {
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

impl Mds {
    /// An open was found to be excluded: asks those who exclude it, once, or refuses it.
    pub(crate) fn ask_users(&mut self, mut parked: Parked, out: &mut Vec<Output>) {
        let users = match &parked.request {
            Request::Open { fid, access, .. } if !parked.asked && parked.replay.is_none() => {
                let users = self.opens.excluding(*fid, *access, parked.call.client);
                (*fid, users)
            }
            _ => (Fid::NONE, BTreeSet::new()),
        };
        let (fid, users) = users;
        if users.is_empty() {
            return self.refuse(&parked, FsError::TextBusy, out);
        }
        parked.asked = true;
        let ask = |client| {
            let callback = Callback::EndIdleUse { fid };
            self.ask_about_use(client, callback, out)
        };
        let asked = users.into_iter().map(ask).collect();
        let since = self.now;
        self.busy.0.push(BusyOpen {
            parked,
            asked,
            since,
        });
    }

    /// Opens wait for answers no longer than for locks: then uses count as they are known.
    pub(crate) fn end_waits_for_users(&mut self, out: &mut Vec<Output>) {
        for parked in self.busy.take_older(self.now, self.rules.patience()) {
            self.attempt(parked, out);
        }
    }

    pub(crate) fn next_end_of_wait(&self) -> Option<Tick> {
        self.busy.next(self.rules.patience())
    }

    /// A question about a use is answered.
    pub(crate) fn use_answered(&mut self, question: u64, out: &mut Vec<Output>) {
        if let Some(parked) = self.busy.answered(question) {
            match self.halted {
                true => self.reply_halted(parked.call, &parked.request, out),
                false => self.attempt(parked, out),
            }
        }
    }
}
