//! Fetches lists for a process that asks for names in name order without reading a list.

use base::{Fid, FsError, Name};
use dlm::Bits;
use wire::mdt::{Reply, WalkOrder};

use crate::cache::inode::Inode;
use crate::calls::listing::page_request;
use crate::calls::lookup::{Cached, cached};
use crate::policy::statahead::name_order::{Extent, Page, Step};
use crate::policy::statahead::tree::{self, Place, Stretch};
use crate::session::client::Client;
use crate::session::state::State;
use crate::work::walking::place;

impl Client {
    /// A name of a directory that nobody reads is not at hand. `None`: ask for it alone.
    pub(super) async fn list_instead(&self, dir: Fid, name: &Name) -> Option<Result<Fid, FsError>> {
        let step = {
            let mut state = self.lock();
            if self.0.params.statahead_max() == 0
                || state.policies.sequences.goes_on_with(dir, name)
            {
                return None;
            }
            let above = state.cache.known(dir).map_or(Fid::NONE, Inode::dir);
            let (known, now) = (extent(&state, dir), state.locks.now());
            state
                .policies
                .name_order
                .missed((above, dir), name, known, now)
        };
        match step {
            Step::Alone => return None,
            Step::Wait(wait) => {
                wait.await;
            }
            Step::List(page) => self.fetch_list(dir, page).await,
        }
        let found = match cached(&self.lock(), dir, name) {
            Cached::Leads(fid) => Ok(fid),
            Cached::Absent => Err(FsError::NotFound),
            Cached::Unknown => return None,
        };
        let stretch = self.name_order_hit(&mut self.lock(), dir);
        self.start_stretch(stretch);
        Some(found)
    }

    /// A name that was asked for alone leads there.
    pub(crate) fn answered_alone(&self, dir: Fid, name: &Name, found: &Result<Fid, FsError>) {
        let exists = match found {
            Ok(_) => true,
            Err(FsError::NotFound) => false,
            Err(_) => return,
        };
        self.lock().policies.name_order.answered(dir, name, exists);
    }

    /// A name of a directory that nobody reads is at hand. What to fetch meanwhile.
    pub(super) fn name_order_hit(&self, state: &mut State, dir: Fid) -> Option<Stretch> {
        let now = state.locks.now();
        state.policies.name_order.hit(dir, now);
        self.step_through(state, dir)
    }

    /// Fetches a page of the list; where that is one of a tree, with what comes after it there.
    async fn fetch_list(&self, dir: Fid, page: Page) {
        let (step, mark) = {
            let mut state = self.lock();
            let step = match page.of_tree {
                true => self.enter_in_name_order(&mut state, dir),
                false => tree::Step::Alone,
            };
            (step, state.cache.mark(dir))
        };
        match step {
            tree::Step::Ask(asked) => self.fetch_asked(asked).await,
            tree::Step::Wait(wait) => {
                wait.await;
            }
            tree::Step::Alone => {}
        }
        let has_come = extent(&self.lock(), dir).covered > page.fetch.cookie;
        if !has_come {
            let reply = self.0.mdt(page_request(dir, &page.fetch)).await;
            if let Ok(Reply::Page(reply)) = &reply {
                self.take_page(mark, page.fetch.cookie, reply);
            }
        }
        let mut state = self.lock();
        let known = extent(&state, dir);
        state.policies.name_order.came(dir, known);
    }

    /// The list of `dir`, one of several that are gone through by name, is needed.
    fn enter_in_name_order(&self, state: &mut State, dir: Fid) -> tree::Step {
        let Some(place) = place(state, dir, 0) else {
            return tree::Step::Alone;
        };
        let is_first = Some(WalkOrder::Name);
        let place = Place { is_first, ..place };
        let now = state.locks.now();
        state.policies.trees.missed(place, self.reach(), now)
    }
}

/// What is known and covered of a directory's list.
fn extent(state: &State, dir: Fid) -> Extent {
    let directory = state.cache.directory_of(dir);
    let held = state.locks.holds(dir, Bits::LIST.union(Bits::NAMES));
    match directory.filter(|_| held) {
        Some(directory) => Extent {
            listed: directory.listed(),
            covered: directory.known_until(0),
        },
        None => Extent {
            listed: 0,
            covered: 0,
        },
    }
}
