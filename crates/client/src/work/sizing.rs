//! Sizes that only OSTs know: tried for ahead of a process that stats in listing order, and kept
//! under the locks they come with (AGL).

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use base::{Fid, TargetIndex};
use wire::{FileKind, SizeState};

use crate::cache::ahead::Ahead;
use crate::cache::ahead::Sized;
use crate::calls::listing::DirPage;
use crate::executor::{Oneshot, spawn};
use crate::policy::statahead::sizes::Ask;
use crate::session::client::Client;
use crate::session::state::State;
use crate::session::stats::bump;
use crate::work::reading::{Wanted, Wished};

/// How far behind the file wanted last the next one may be in the list.
const NEAR: usize = 64;
/// Files of a list that are searched for the one where a walk begins.
const SEARCH_MAX: usize = 4096;
/// Files looked at in one go for those to ask for.
const LOOK_MAX: usize = 4096;
/// Files that a request is worth: one alone is asked for by the call that wants it.
const FILES_MIN: usize = 2;

impl Client {
    /// The size of `fid` is wanted and not at hand. `Some`: it is on its way, to be waited for. Else
    /// the caller asks for it, and the next ones of the list are tried for meanwhile.
    pub(crate) fn size_missed(&self, state: &mut State, fid: Fid) -> Option<Oneshot<()>> {
        let (window_min, window_max) = self.sizes_window()?;
        if let Some(file) = state.cache.file_known(fid) {
            if file.fetches.ahead() == Ahead::Coming {
                return Some(file.waiters.wait());
            }
            if file.opens.is_written() {
                return None;
            }
        }
        let dir = state.cache.known(fid)?.dir();
        let cookie = cookie_of(state, dir, fid, SEARCH_MAX)?;
        let now = state.locks.now();
        let window = (window_min, window_max);
        let ask = state.policies.sizes.missed((dir, cookie), window, now);
        self.ask_sizes(state, ask);
        None
    }

    /// The size of `fid` is wanted, and is at hand.
    pub(crate) fn size_used(&self, state: &mut State, fid: Fid) {
        if state.policies.sizes.is_empty() {
            return;
        }
        let Some(file) = state
            .cache
            .file_known(fid)
            .filter(|f| f.kernel.sized() == Sized::Ahead)
        else {
            return;
        };
        file.kernel.set_sized(Sized::Used);
        bump(&self.0.stats.statahead_agl_hit);
        let dir = state
            .cache
            .known(fid)
            .map_or(Fid::NONE, |inode| inode.dir());
        let cookie = cookie_of(state, dir, fid, 0).unwrap_or(0);
        let window_max = self.sizes_window().map_or(0, |(_, max)| max);
        let now = state.locks.now();
        let ask = state.policies.sizes.hit((dir, cookie), window_max, now);
        self.ask_sizes(state, ask);
    }

    /// The kernel is given `page` of `dir`: it need not ask for the sizes that are in it.
    pub(crate) fn sizes_listed(&self, state: &mut State, dir: Fid, page: &DirPage) {
        if state.policies.sizes.is_idle(dir) {
            return;
        }
        let covered = page.entries.iter().filter(|entry| entry.entry.is_some());
        covered.for_each(|entry| self.size_used(state, entry.fid));
    }

    /// Files whose sizes are asked for ahead, at first and at most. `None`: none are.
    fn sizes_window(&self) -> Option<(usize, usize)> {
        let params = &self.0.params;
        let off = params.statahead_agl() == 0
            || params.statahead_max() == 0
            || params.batch_max() < 2
            || self.is_lazy();
        let window = (params.statahead_min(), params.statahead_max());
        (!off).then_some((window.0 as usize, window.1 as usize))
    }

    fn ask_sizes(&self, state: &mut State, ask: Option<Ask>) {
        let Some(ask) = ask else { return };
        let Chosen { files, to } = choose(state, &ask);
        let fids: Vec<Fid> = files.iter().map(|(_, fid)| *fid).collect();
        let requests = self.wish_for_sizes(state, &fids);
        for fid in &fids {
            state.cache.file(*fid).kernel.set_sized(Sized::Ahead);
        }
        let targets: Vec<TargetIndex> = requests.iter().map(|(target, _)| *target).collect();
        let cookies: Vec<u64> = files.iter().map(|(cookie, _)| *cookie).collect();
        state.policies.sizes.asked(ask.dir, &cookies, to, &targets);
        let counter = &self.0.stats.statahead_agl_total;
        counter.fetch_add(fids.len() as u64, Ordering::Relaxed);
        let places: HashMap<Fid, u64> = files.iter().map(|(at, fid)| (*fid, *at)).collect();
        for request in requests {
            let at = |wanted: &Wanted| Some((*places.get(&wanted.fid)?, wanted.fid));
            let files = request.1.iter().filter_map(at).collect();
            let client = self.clone();
            spawn(async move { client.fetch_sizes(ask.dir, request, files).await });
        }
    }

    async fn fetch_sizes(&self, dir: Fid, request: Wished, files: Vec<(u64, Fid)>) {
        let target = request.0;
        self.learn_sizes(request).await;
        let mut state = self.lock();
        let mut refused = Vec::new();
        for (cookie, fid) in &files {
            let file = state.cache.file_known(*fid);
            let Some(file) = file.filter(|file| file.fetches.ahead() == Ahead::Refused) else {
                continue;
            };
            file.kernel.set_sized(Sized::No);
            refused.push(*cookie);
            state.drop_if_idle(*fid);
        }
        let counter = &self.0.stats.statahead_agl_refused;
        counter.fetch_add(refused.len() as u64, Ordering::Relaxed);
        let window_max = self.sizes_window().map_or(0, |(_, max)| max);
        let of = (dir, target);
        let ask = state
            .policies
            .sizes
            .came(of, files.len(), &refused, window_max);
        self.ask_sizes(&mut state, ask);
    }
}

/// Files to ask for, by cookie, and up to where the list was looked at for them.
struct Chosen {
    files: Vec<(u64, Fid)>,
    to: u64,
}

/// Files of which nothing is here, with no more for each OST than it is to be asked for at once.
fn choose(state: &State, ask: &Ask) -> Chosen {
    let (mut files, mut to) = (Vec::new(), ask.after);
    let directory = state.cache.directory_of(ask.dir);
    let listed = directory
        .into_iter()
        .flat_map(|d| d.sizeless_after(ask.after));
    let mut of_target: Vec<(TargetIndex, usize)> = Vec::new();
    for (cookie, fid) in listed.take(LOOK_MAX) {
        if files.len() >= ask.count {
            break;
        }
        if let Some(target) = target_without_size(state, ask.dir, fid) {
            let index = of_target.iter().position(|(other, _)| *other == target);
            let index = index.unwrap_or_else(|| {
                of_target.push((target, state.policies.sizes.room(target)));
                of_target.len() - 1
            });
            let room = &mut of_target[index].1;
            if *room == 0 {
                break;
            }
            *room -= 1;
            files.push((cookie, fid));
        }
        to = cookie;
    }
    if files.len() < FILES_MIN
        && let Some((cookie, _)) = files.pop()
    {
        to = cookie - 1;
    }
    Chosen { files, to }
}

/// The OST that knows the size of `fid`, if nobody here does.
fn target_without_size(state: &State, dir: Fid, fid: Fid) -> Option<TargetIndex> {
    let inode = state.cache.known(fid).filter(|inode| inode.dir() == dir)?;
    let untouched = inode.as_file().is_none_or(|file| {
        let asked = matches!(file.fetches.ahead(), Ahead::Coming | Ahead::Refused);
        file.is_idle() && file.pages.cached_bytes() == 0 && !asked
    });
    let attr = inode.attrs.known()?;
    let sizeless = attr.kind == FileKind::Regular && attr.size_state == SizeState::Ask;
    let target = attr.layout.stripes.first().copied();
    target.filter(|_| untouched && sizeless && !state.locks.has_extents(fid))
}

/// Where the list has a file whose size the MDT did not know: soon after the one wanted last, or
/// among the first `search`.
fn cookie_of(state: &State, dir: Fid, fid: Fid, search: usize) -> Option<u64> {
    let directory = state.cache.directory_of(dir)?;
    let find = |after: u64, count: usize| {
        let mut files = directory.sizeless_after(after).take(count);
        files.find(|(_, other)| *other == fid)
    };
    // That one may be asked for again.
    let last = state.policies.sizes.last(dir).saturating_sub(1);
    let found = find(last, NEAR).or_else(|| find(0, search));
    found.map(|(cookie, _)| cookie)
}
