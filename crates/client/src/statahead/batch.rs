//! Batches of lookups ahead of a walker that stats in listing order.

use base::{Fid, FsError, Name};
use rpc::Urgency;
use wire::mdt::{Reply, Request};

use crate::cache::Mark;
use crate::client::Client;
use crate::handles::HandleId;
use crate::stats::bump;

/// A batch to send.
struct Plan {
    handle: HandleId,
    mark: Mark,
    names: Vec<Name>,
}

impl Client {
    /// A name was found in the cache: if a walk of its directory is under way, that goes well.
    pub(crate) fn statahead_hit(&self, dir: Fid, name: &Name) {
        let window_max = self.0.params.statahead_max() as u32;
        let mut state = self.lock();
        let Some(handle) = state.handles.dir_open_on(dir) else {
            return;
        };
        let Some(cookie) = cookie_of(&state, dir, name) else {
            return;
        };
        if let Some(open) = state.handles.dir(handle) {
            open.statahead.hit(cookie, window_max);
        }
    }

    /// A name was not found in the cache. `None`: no walk is under way, ask for this one alone.
    pub(crate) async fn statahead_miss(
        &self,
        dir: Fid,
        name: &Name,
    ) -> Option<Result<Fid, FsError>> {
        let wait = {
            let mut state = self.lock();
            let handle = state.handles.dir_open_on(dir)?;
            state.handles.dir(handle)?.statahead.wait_for_name(name)
        };
        if let Some(wait) = wait {
            wait.await;
            let found = {
                let state = self.lock();
                let directory = state.known(dir)?.directory.as_ref()?;
                directory
                    .get(name)
                    .filter(|named| state.attr_valid(named.fid))
            };
            return found.map(|named| Ok(named.fid));
        }
        let plan = self.plan_batch(dir, name)?;
        Some(self.run_batch(plan, name).await)
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
        if state.handles.dir(handle)?.statahead.is_wrong() && !was_wrong {
            bump(&self.0.stats.statahead_wrong);
        }
        if window == 0 || batch_max < 2 {
            return None;
        }
        let directory = state.known(dir)?.directory.as_ref()?;
        let ahead = directory.after(cookie.saturating_sub(1)).0;
        let names: Vec<Name> = ahead
            .filter(|(_, entry)| !state.attr_valid(entry.fid))
            .map(|(_, entry)| entry.name.clone())
            .take(window.min(batch_max))
            .collect();
        if names.len() < 2 || names.first() != Some(name) {
            return None;
        }
        let mark = state.mark(dir);
        state.handles.dir(handle)?.statahead.started(&names);
        bump(&self.0.stats.statahead_batches);
        let count = names.len() as u64;
        let counter = &self.0.stats.statahead_entries;
        counter.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
        Some(Plan {
            handle,
            mark,
            names,
        })
    }

    async fn run_batch(&self, plan: Plan, name: &Name) -> Result<Fid, FsError> {
        let Plan {
            handle,
            mark,
            names,
        } = plan;
        let lookup = |name: &Name| Request::Lookup {
            dir: mark.dir,
            name: name.clone(),
        };
        let requests = names.iter().map(lookup).collect();
        let shared = &self.0;
        let replies = shared
            .cluster
            .mdt_batch(&shared.stats, requests, Urgency::Ordinary)
            .await;
        let mut wanted = Err(FsError::TryAgain);
        if let Ok(replies) = replies {
            for (asked, reply) in names.iter().zip(replies) {
                let taken = reply.and_then(|reply: Reply| self.take_lookup(mark, asked, reply));
                if asked == name {
                    wanted = taken;
                }
            }
        }
        let mut state = self.lock();
        if let Some(open) = state.handles.dir(handle) {
            open.statahead.ended(&names);
        }
        wanted
    }
}

fn cookie_of(state: &crate::cache::State, dir: Fid, name: &Name) -> Option<u64> {
    let named = state.known(dir)?.directory.as_ref()?.get(name)?;
    (named.cookie != 0).then_some(named.cookie)
}
