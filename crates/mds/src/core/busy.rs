//! Opens that wait until uses elsewhere end: who is asked, and what the answers say.

use std::collections::BTreeSet;

use base::{Fid, FsError, Tick};
use wire::mdt::{Callback, Request};

use super::Mds;
use crate::busy::BusyOpen;
use crate::event::Output;
use crate::request::Parked;

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

    /// Asks the next process of a client whose process was asked about a use and is gone. A use that is over
    /// may be on record again.
    pub(crate) fn ask_again(&mut self, question: u64, out: &mut Vec<Output>) {
        if let Some(open) = self.busy.of(question) {
            open.parked.asked = false;
        }
        self.use_answered(question, out);
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
