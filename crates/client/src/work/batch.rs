//! Batches of lookups ahead of a reader that stats in listing order, or of who asks for numbered
//! names in order.

use std::sync::atomic::Ordering;

use base::{Fid, FsError, Name};
use rpc::Urgency;
use wire::mdt::{Reply, Request};

use crate::cache::cached_attr::Covered;
use crate::cache::handle::HandleId;
use crate::cache::stamps::Mark;
use crate::calls::lookup::{Cached, cached};
use crate::executor::{Oneshot, spawn};
use crate::policy::statahead::sequences::Guess;
use crate::session::client::Client;
use crate::session::state::State;
use crate::session::stats::bump;

/// A batch to send.
struct Plan {
    handle: HandleId,
    mark: Mark,
    names: Vec<Name>,
}

/// What is to be done about a name that was not found in the cache.
enum Ahead {
    /// It is on its way.
    Wait(Oneshot<()>),
    /// It is asked for with others of its sequence.
    Ask(Guess, Mark),
}

impl Client {
    /// A name was found in the cache: if a walk of its directory is under way, that goes well.
    pub(crate) fn statahead_hit(&self, dir: Fid, name: &Name) {
        let window_max = self.0.params.statahead_max() as u32;
        let mut state = self.lock();
        let Some(handle) = walk_of(&state, dir, name) else {
            let stretch = self.name_order_hit(&mut state, dir);
            self.sequence_hit(&mut state, dir, name);
            drop(state);
            return self.start_stretch(stretch);
        };
        let Some(cookie) = cookie_of(&state, dir, name) else {
            return;
        };
        if let Some(open) = state.handles.dir(handle) {
            open.statahead.hit(cookie, window_max);
            bump(&self.0.stats.hit_total);
        }
    }

    /// A name is known not to exist: a hint of a program that names it goes on.
    pub(crate) fn statahead_absent(&self, dir: Fid, name: &Name) {
        let mut state = self.lock();
        if state.policies.sequences.is_advised(dir, name) {
            self.sequence_hit(&mut state, dir, name);
        }
    }

    fn sequence_hit(&self, state: &mut State, dir: Fid, name: &Name) {
        if state.policies.sequences.is_empty() {
            return;
        }
        let (window, now) = (self.sequence_window(), state.locks.now());
        let foresight = state
            .policies
            .sequences
            .asked_for(dir, name, true, window, now);
        if foresight.hit {
            bump(&self.0.stats.hit_total);
        }
        if foresight.hit && foresight.is_advised {
            bump(&self.0.stats.statahead_advise_hit);
        }
        self.start_guess(state, dir, foresight.guess);
    }

    pub(crate) fn start_guess(&self, state: &mut State, dir: Fid, guess: Option<Guess>) {
        if let Some(guess) = guess {
            let (client, mark) = (self.clone(), state.cache.mark(dir));
            spawn(async move { drop(client.run_guess(guess, mark).await) });
        }
    }

    /// A name was not found in the cache. `None`: no walk is under way, ask for this one alone.
    pub(crate) async fn statahead_miss(
        &self,
        dir: Fid,
        name: &Name,
    ) -> Option<Result<Fid, FsError>> {
        let walk = walk_of(&self.lock(), dir, name);
        match walk {
            Some(walk) => self.walk_miss(walk, dir, name).await,
            None => match self.list_instead(dir, name).await {
                Some(found) => Some(found),
                None => self.sequence_miss(dir, name).await,
            },
        }
    }

    /// A name that leads to `fid` was asked for alone.
    pub(crate) fn statahead_alone(&self, dir: Fid, fid: Fid) {
        let mut state = self.lock();
        if !is_refused(&state, fid) {
            return;
        }
        if let Some(handle) = state.handles.dir_open_on(dir)
            && let Some(open) = state.handles.dir(handle)
        {
            open.statahead.refused();
        }
    }

    async fn sequence_miss(&self, dir: Fid, name: &Name) -> Option<Result<Fid, FsError>> {
        let window = self.sequence_window();
        let ahead = {
            let mut state = self.lock();
            let now = state.locks.now();
            match state.policies.sequences.wait_for(dir, name) {
                Some(wait) => Ahead::Wait(wait),
                None => {
                    let foresight = state
                        .policies
                        .sequences
                        .asked_for(dir, name, false, window, now);
                    bump(&self.0.stats.miss_total);
                    Ahead::Ask(foresight.guess?, state.cache.mark(dir))
                }
            }
        };
        match ahead {
            Ahead::Wait(wait) => {
                wait.await;
                let found = match cached(&self.lock(), dir, name) {
                    Cached::Leads(fid) => Ok(fid),
                    Cached::Absent => Err(FsError::NotFound),
                    Cached::Unknown => return None,
                };
                self.sequence_hit(&mut self.lock(), dir, name);
                Some(found)
            }
            Ahead::Ask(guess, mark) => self.run_guess(guess, mark).await.into_iter().next(),
        }
    }

    /// Names fetched ahead of who asks for numbered ones: at first and at most.
    pub(crate) fn sequence_window(&self) -> (u32, u32) {
        let params = &self.0.params;
        let max = params.statahead_fname_max().min(params.statahead_max());
        let max = match params.batch_max() {
            0 | 1 => 0,
            batch_max => max.min(batch_max),
        };
        (params.statahead_min() as u32, max as u32)
    }

    /// What each name of the guess that is not at hand leads to.
    async fn run_guess(&self, guess: Guess, mark: Mark) -> Vec<Result<Fid, FsError>> {
        if guess.is_first {
            bump(&self.0.stats.statahead_fname_total);
        }
        let unknown = self.not_at_hand(mark.dir, &guess.names, guess.is_needed);
        let found = match unknown.is_empty() {
            true => Vec::new(),
            false => self.ask_names(mark, &unknown).await,
        };
        let mut state = self.lock();
        // What others write to has to be asked for anew each time.
        let kept = found.iter().flatten().filter(|fid| state.attr_valid(**fid));
        let at_hand = guess.names.len() - unknown.len();
        let useful = at_hand + kept.count();
        if state.policies.sequences.came(&guess, useful) {
            bump(&self.0.stats.statahead_wrong);
        }
        drop(state);
        found
    }

    /// Those of the names that nothing is known of; the first in any case if that is `needed`.
    pub(crate) fn not_at_hand(&self, dir: Fid, names: &[Name], needed: bool) -> Vec<Name> {
        let state = self.lock();
        let unknown = |name: &Name| matches!(cached(&state, dir, name), Cached::Unknown);
        let (first, others) = names.split_at(usize::from(needed));
        let others = others.iter().filter(|name| unknown(name));
        first.iter().chain(others).cloned().collect()
    }

    fn found_in_cache(&self, dir: Fid, name: &Name) -> Option<Fid> {
        let state = self.lock();
        let named = state.cache.directory_of(dir)?.get(name)?;
        state.attr_valid(named.fid).then_some(named.fid)
    }

    async fn walk_miss(
        &self,
        walk: HandleId,
        dir: Fid,
        name: &Name,
    ) -> Option<Result<Fid, FsError>> {
        let wait = self.lock().handles.dir(walk)?.statahead.wait_for_name(name);
        if let Some(wait) = wait {
            wait.await;
            return self.found_in_cache(dir, name).map(Ok);
        }
        let plan = self.plan_batch(dir, name)?;
        Some(self.run_batch(plan).await)
    }

    fn plan_batch(&self, dir: Fid, name: &Name) -> Option<Plan> {
        let params = &self.0.params;
        let (min, max) = (params.statahead_min() as u32, params.statahead_max() as u32);
        let batch_max = params.batch_max() as usize;
        let mut state = self.lock();
        let handle = state.handles.dir_open_on(dir)?;
        let cookie = cookie_of(&state, dir, name)?;
        let was_wrong = state.handles.dir(handle)?.statahead.is_wrong();
        let window = state.handles.dir(handle)?.statahead.miss(cookie, min, max) as usize;
        bump(&self.0.stats.miss_total);
        if state.handles.dir(handle)?.statahead.is_wrong() && !was_wrong {
            bump(&self.0.stats.statahead_wrong);
        }
        if window == 0 || batch_max < 2 {
            return None;
        }
        let directory = state.cache.directory_of(dir)?;
        let ahead = directory.after(cookie.saturating_sub(1)).0;
        let names: Vec<Name> = ahead
            .filter(|(_, entry)| entry.name == *name || is_worth_asking(&state, entry.fid))
            .map(|(_, entry)| entry.name.clone())
            .take(window.min(batch_max))
            .collect();
        if names.len() < 2 || names.first() != Some(name) {
            return None;
        }
        let mark = state.cache.mark(dir);
        state.handles.dir(handle)?.statahead.started(&names);
        Some(Plan {
            handle,
            mark,
            names,
        })
    }

    /// What the first name of the plan leads to.
    async fn run_batch(&self, plan: Plan) -> Result<Fid, FsError> {
        let Plan {
            handle,
            mark,
            names,
        } = plan;
        let found = self.ask_names(mark, &names).await;
        let mut state = self.lock();
        // The first is needed in any case.
        let ahead = found.iter().skip(1).flatten();
        let kept = ahead.filter(|fid| state.attr_valid(**fid)).count();
        if let Some(open) = state.handles.dir(handle) {
            open.statahead.ended(&names, kept + 1);
        }
        found.into_iter().next().unwrap_or(Err(FsError::TryAgain))
    }

    /// What each of the names leads to, asked in one message.
    pub(crate) async fn ask_names(&self, mark: Mark, names: &[Name]) -> Vec<Result<Fid, FsError>> {
        let shared = &self.0;
        self.report_births_first(&[mark.dir]).await;
        bump(&shared.stats.statahead_batches);
        let counter = &shared.stats.statahead_entries;
        counter.fetch_add(names.len() as u64, Ordering::Relaxed);
        let lookup = |name: &Name| Request::Lookup {
            dir: mark.dir,
            name: name.clone(),
        };
        let requests = names.iter().map(lookup).collect();
        let replies = shared
            .cluster
            .mdt_batch(&shared.stats, requests, Urgency::Ordinary)
            .await;
        let take = |(name, reply): (&Name, Result<Reply, FsError>)| {
            reply.and_then(|reply| self.take_lookup(mark, name, reply))
        };
        match replies {
            Ok(replies) => names.iter().zip(replies).map(take).collect(),
            Err(error) => vec![Err(error); names.len()],
        }
    }
}

/// It is not at hand, and may be kept when it comes.
fn is_worth_asking(state: &State, fid: Fid) -> bool {
    !is_refused(state, fid) && !state.attr_valid(fid)
}

/// Others write to the file: it has to be asked for when it is wanted, each time.
fn is_refused(state: &State, fid: Fid) -> bool {
    let covered = state.cache.known(fid).map(|inode| inode.attrs.covered());
    matches!(covered, Some(Covered::Refused | Covered::Mode))
}

/// The walk that a question about `name` belongs to.
fn walk_of(state: &State, dir: Fid, name: &Name) -> Option<HandleId> {
    match state.policies.sequences.is_advised(dir, name) {
        true => None,
        false => state.handles.dir_open_on(dir),
    }
}

fn cookie_of(state: &State, dir: Fid, name: &Name) -> Option<u64> {
    let named = state.cache.directory_of(dir)?.get(name)?;
    (named.cookie != 0).then_some(named.cookie)
}
