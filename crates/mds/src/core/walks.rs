//! Walks of trees read the store through the core, which gives their pages locks.

use base::limits::PAGE_ENTRIES_MAX;
use base::{Fid, FsError, Tick, Timestamp};
use wire::mdt::{Page, Reply, Request};

use super::Mds;
use crate::event::{Call, Output};
use crate::ops::readdir::ReadDir;
use crate::request::reply;
use crate::sharing::shown;
use crate::store::{Failure, Store};
use crate::txn::Txn;
use crate::walks::chains::{Ask, Chain, Cursor};
use crate::walks::steps::{Event, Pages};

impl Mds {
    /// A client wants a walk.
    pub(crate) fn start_walk(&mut self, call: Call, request: &Request, out: &mut Vec<Output>) {
        let Request::Walk {
            walk,
            levels,
            order,
            bytes_max,
            instead_of,
        } = request
        else {
            return reply(out, call, Err(FsError::Invalid));
        };
        let chain = |walk| Chain {
            client: call.client,
            walk,
        };
        let event = Event::Asked {
            ask: Ask {
                call,
                chain: chain(*walk),
                bytes_max: *bytes_max,
            },
            from: Cursor {
                levels: levels.clone(),
                order: *order,
            },
            instead_of: (*instead_of != 0).then(|| chain(*instead_of)),
        };
        self.step_walks(event, out);
    }

    /// Goes on with a walk, where there is one.
    pub fn go_on(&mut self, now: Tick, wall: Timestamp, out: &mut Vec<Output>) {
        self.set_time(now, wall);
        self.step_walks(Event::GoOn, out);
    }

    fn step_walks(&mut self, event: Event, out: &mut Vec<Output>) {
        let mut walks = std::mem::take(&mut self.walks);
        let effects = walks.step(self, event);
        self.walks = walks;
        self.carry_out(Ok(effects), out);
    }
}

impl Pages for Mds {
    fn store(&self) -> &Store {
        &self.store
    }

    fn page(
        &mut self,
        call: Call,
        dir: Fid,
        cookie: u64,
        bytes_max: usize,
    ) -> Result<Page, Failure> {
        if self.locks.is_closed(call.client, dir) {
            // Its reader asks for it, and waits.
            return Err(FsError::TryAgain.into());
        }
        let op = ReadDir {
            dir,
            cookie,
            attrs_max: u32::MAX,
            entries_max: PAGE_ENTRIES_MAX as u32,
            bytes_max: bytes_max as u32,
        };
        let txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        let mut page = op.page(&txn)?;
        self.leave_out_closed(call.client, &mut page)?;
        let request = Request::ReadDir {
            dir,
            cookie,
            attrs_max: op.attrs_max,
            entries_max: op.entries_max,
            bytes_max: op.bytes_max,
        };
        let mut answer = Ok(Reply::Page(page));
        let sights = shown(self.hasher, &request, &answer);
        let shows = self.sharing.wait_for(call.client, &sights);
        let durable = shows.max(self.lease_ended) <= self.committed;
        if let (true, Ok(answer)) = (durable, &mut answer) {
            self.cover(None, call, &request, None, answer);
        }
        match answer? {
            Reply::Page(page) => Ok(page),
            _ => Err(FsError::Invalid.into()),
        }
    }
}
