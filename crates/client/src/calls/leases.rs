//! Write leases are asked for by the first change of a directory's names, or of the files in it
//! (docs/locks.md, section 11).

use base::Fid;
use base::limits::PAGE_ENTRIES_MAX;
use dlm::Bits;
use rpc::Urgency;
use wire::attr::Grant;
use wire::mdt::{Reply, Request};

use super::births::may_change;
use super::listing::page_request;
use crate::cache::stamps::Mark;
use crate::policy::statahead::flat::Fetch;
use crate::session::client::Client;
use crate::session::lease_wishes::Wish;
use crate::session::state::State;

/// Pages of a list that are fetched behind a lease. Names of longer directories are changed at the MDT.
const PAGES_MAX: usize = 16;

/// What is fetched with a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// The list of names and the directory's attributes, as far as they are not here: names are to change.
    List,
    /// The lease alone: attributes are to change.
    Nothing,
}

impl Client {
    /// Something that the write lease of `dir` covers is about to be changed. Asks for that lease, if it may
    /// be had. True: it may be here now.
    pub(crate) async fn wish_write_lease(&self, dir: Fid, fetched: Fetched) -> bool {
        if self.0.params.wbc() == 0 {
            return false;
        }
        let wish = {
            let mut state = self.lock();
            let now = self.0.clock.tick();
            let is_of_no_use = !state.locks.is_settled() || has_lease(&state, dir, fetched);
            match is_of_no_use {
                true => Wish::No,
                false => state.lease_wishes.begin(dir, now),
            }
        };
        match wish {
            Wish::No => false,
            Wish::Wait(wait) => {
                wait.await;
                true
            }
            Wish::Ask => {
                let is_had = self.take_write_lease(dir, fetched).await;
                let now = self.0.clock.tick();
                self.lock().lease_wishes.end(dir, now, is_had);
                is_had
            }
        }
    }

    /// Tries for the write lease of a directory, and fetches of its list and its attributes what is not here.
    /// Without it the MDT is told of each change at once.
    pub(crate) async fn take_write_lease(&self, dir: Fid, fetched: Fetched) -> bool {
        self.report_births_first(&[dir]).await;
        let (mark, ahead, requests) = {
            let mut state = self.lock();
            let ahead = self.leases_ahead(&mut state, dir, fetched);
            let of_all = [dir].into_iter().chain(ahead.iter().map(|mark| mark.dir));
            let mut requests: Vec<Request> = of_all.map(|dir| Request::TakeLease { dir }).collect();
            if fetched == Fetched::List {
                requests.extend(self.lacking(&state, dir));
            }
            (state.cache.mark(dir), ahead, requests)
        };
        let shared = &self.0;
        let asked = shared
            .cluster
            .mdt_batch(&shared.stats, requests, Urgency::Ordinary);
        let mut replies = asked.await.unwrap_or_default().into_iter();
        let own = replies.next().and_then(Result::ok);
        let is_answered = own.is_some();
        self.lease_answered(own, mark).await;
        for mark in ahead {
            let had = self.lease_answered(replies.next().and_then(Result::ok), mark);
            let is_had = had.await;
            let now = self.0.clock.tick();
            self.lock().lease_wishes.end(mark.dir, now, is_had);
        }
        if !is_answered {
            return false;
        }
        for reply in replies.flatten() {
            match reply {
                Reply::Page(page) => drop(self.take_page(mark, 0, &page)),
                Reply::Node(node) => self.lock().take_node(&node, mark),
                _ => {}
            }
        }
        if fetched == Fetched::List {
            self.list_rest(dir).await;
        }
        has_lease(&self.lock(), dir, fetched)
    }

    /// Takes the lease of the mark's directory. False: it was refused.
    async fn lease_answered(&self, reply: Option<Reply>, mark: Mark) -> bool {
        let Some(Reply::WriteLease {
            grant: Some(grant),
            outside,
            is_empty,
        }) = reply
        else {
            return false;
        };
        self.keep_write_lease(&grant, &outside, mark, is_empty)
            .await;
        true
    }

    /// Asks for what is not here of the directory's list and attributes.
    fn lacking(&self, state: &State, dir: Fid) -> Option<Request> {
        let directory = state.cache.directory_of(dir);
        let is_listed = directory.is_some_and(|directory| directory.is_complete());
        match (is_listed, state.attr_valid(dir)) {
            (false, _) => Some(page_request(dir, &self.whole_page(0))),
            (true, false) => Some(Request::GetAttr {
                fid: dir,
                dir: Fid::NONE,
            }),
            (true, true) => None,
        }
    }

    fn whole_page(&self, cookie: u64) -> Fetch {
        let entries = PAGE_ENTRIES_MAX as u32;
        let attrs = entries.min(self.0.params.statahead_max() as u32);
        Fetch {
            cookie,
            entries,
            attrs,
        }
    }

    /// The lease counts when nothing that others use is believed to be covered by it.
    async fn keep_write_lease(&self, grant: &Grant, outside: &[Fid], mark: Mark, is_empty: bool) {
        let dir = mark.dir;
        for child in outside {
            self.withdraw(dir, Bits::CHILD, None, *child).await;
        }
        let mut state = self.lock();
        let is_kept = state.take_write_lease(grant, outside, mark);
        let is_unchanged = |state: &State| {
            let changes = state.cache.changes_since(mark);
            changes.is_some_and(|mut changes| changes.next().is_none())
        };
        if is_kept && is_empty && state.cache.is_current(mark) && is_unchanged(&state) {
            let directory = state.cache.inode(dir).directory();
            directory.extend(0, std::iter::empty(), true);
        }
    }

    /// Fetches what is missing of a list under its write lease.
    async fn list_rest(&self, dir: Fid) {
        for _ in 0..PAGES_MAX {
            let (from, mark) = {
                let state = self.lock();
                let directory = state.cache.directory_of(dir);
                let Some(directory) = directory.filter(|_| state.locks.may_change_names(dir))
                else {
                    return;
                };
                if directory.is_complete() {
                    return;
                }
                (directory.known_until(0), state.cache.mark(dir))
            };
            let request = page_request(dir, &self.whole_page(from));
            let Ok(Reply::Page(page)) = self.0.mdt(request).await else {
                return;
            };
            if !self.take_page(mark, from, &page) {
                return;
            }
        }
    }
}

fn has_lease(state: &State, dir: Fid, fetched: Fetched) -> bool {
    match fetched {
        Fetched::List => may_change(state, dir).is_some(),
        Fetched::Nothing => state.locks.may_change_names(dir),
    }
}
