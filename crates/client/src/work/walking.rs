//! Stretches of trees: asked for, and put into the cache.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base::limits::WALK_BYTES_MAX;
use base::{Fid, FsError};
use dlm::Bits;
use wire::mdt::{Page, Reply, Request, WalkLevel, WalkOrder};

use crate::cache::ahead::WalkId;
use crate::cache::stamps::Mark;
use crate::calls::listing::DirPage;
use crate::executor::{oneshot, spawn};
use crate::policy::statahead::tree::{
    Asked, ENTRY_BYTES, Place, Reach, Step, Stretch, TreePart, Visit,
};
use crate::session::client::{Client, unexpected};
use crate::session::state::State;
use crate::session::stats::bump;

/// Directories above one that is needed, as far as lists are known.
const CLIMB_MAX: usize = 32;
/// Entries of a list that is searched for a directory that is needed. Beyond: it is not.
const SEARCH_MAX: u64 = 1 << 16;

impl Client {
    /// The list of `dir` is needed from `cookie` on and is not at hand.
    pub(crate) fn step_to(&self, state: &mut State, dir: Fid, cookie: u64) -> Step {
        let reach = self.reach();
        match place(state, dir, cookie) {
            Some(place) if reach.entries_max > 0 => {
                let now = state.locks.now();
                state.policies.trees.missed(place, reach, now)
            }
            _ => Step::Alone,
        }
    }

    /// The list of `dir` is read from its start. What to fetch meanwhile.
    pub(crate) fn step_through(&self, state: &mut State, dir: Fid) -> Option<Stretch> {
        let inode = state.cache.known_mut(dir)?;
        let (parent, links) = (inode.dir(), inode.attrs.known().map(|attr| attr.nlink));
        let directory = inode.directory_known()?;
        let (walk, entries) = (directory.prefetch.reading_begins()?, directory.listed());
        bump(&self.0.stats.statahead_tree_hit);
        let visit = Visit {
            dir,
            parent,
            has_subdirectories: links.is_some_and(|links| links > 2),
            entries,
        };
        let now = state.locks.now();
        state.policies.trees.read(walk, visit, self.reach(), now)
    }

    /// A reader of `dir` has taken `page`. What to fetch meanwhile.
    pub(crate) fn step_within(
        &self,
        state: &mut State,
        dir: Fid,
        page: &DirPage,
    ) -> Option<Stretch> {
        if !state.policies.trees.lists(dir) {
            return None;
        }
        let directory = state.cache.directory_of(dir)?;
        let behind = directory.after(page.entries.last()?.cookie).0;
        // More than that is enough for any walk.
        let most = WALK_BYTES_MAX as u64 / ENTRY_BYTES + 1;
        let left = behind.take(most as usize).count() as u64;
        let now = state.locks.now();
        state.policies.trees.within(dir, left, self.reach(), now)
    }

    pub(super) fn reach(&self) -> Reach {
        Reach {
            entries_max: match self.0.params.statahead_max() {
                0 => 0,
                _ => self.0.params.statahead_tree_max(),
            },
            // Before there is a lane for long answers nothing is asked for early.
            round_trip: match self.0.cluster.mdt.connections() {
                0 | 1 => Duration::ZERO,
                _ => self.0.cluster.mdt.round_trip(),
            },
        }
    }

    /// Fetches the stretch that is needed, and starts with what comes after it.
    pub(crate) async fn fetch_asked(&self, asked: Asked) {
        let Asked { needed, beyond } = asked;
        if beyond.is_none() {
            return self.fetch_stretch(needed).await;
        }
        let (client, (done, has_come)) = (self.clone(), oneshot());
        spawn(async move {
            client.fetch_stretch(needed).await;
            done.send(());
        });
        // Spawned behind the first it is sent behind it.
        self.start_stretch(beyond);
        has_come.await;
    }

    /// Fetches a stretch and keeps it.
    async fn fetch_stretch(&self, stretch: Stretch) {
        bump(&self.0.stats.statahead_tree_walks);
        let request = Request::Walk {
            walk: stretch.chain,
            levels: stretch.levels.clone(),
            order: stretch.order,
            bytes_max: stretch.bytes,
            instead_of: stretch.instead_of,
        };
        let part = self.fetch_part(request, stretch.aside, Some(stretch.walk));
        let part = part.await;
        let mut state = self.lock();
        match part {
            Ok(part) => {
                let counter = &self.0.stats.statahead_tree_total;
                counter.fetch_add(u64::from(part.directories), Ordering::Relaxed);
                state.policies.trees.came(&stretch, part);
            }
            // A call that needs what is in it asks for that.
            Err(_) => state.policies.trees.failed(&stretch),
        }
    }

    /// Fetches the next part of a tree whose names and attributes are wanted, all of them in the
    /// end. `levels`: see [`Request::Walk`].
    pub async fn prefetch_tree(&self, levels: Vec<WalkLevel>) -> Result<TreePart, FsError> {
        let request = Request::Walk {
            walk: 0,
            levels,
            order: WalkOrder::Cookie,
            bytes_max: WALK_BYTES_MAX as u32,
            instead_of: 0,
        };
        self.fetch_part(request, true, None).await
    }

    /// `aside`: it does not hold up other replies.
    async fn fetch_part(
        &self,
        request: Request,
        aside: bool,
        walk: Option<WalkId>,
    ) -> Result<TreePart, FsError> {
        let mark = self.lock().cache.mark(Fid::NONE);
        let stats = &self.0.stats;
        let walked = self.0.cluster.mdt_walk(stats, request, aside).await?;
        let (pages, targets, next, order) = match walked {
            Reply::Walked {
                pages,
                targets,
                next,
                order,
            } => (pages, targets, next, order),
            other => return Err(unexpected(&other)),
        };
        let (mut directories, mut entries) = (0, 0);
        for (from, page) in pages {
            if let Some(new) = self.take_ahead(
                Mark {
                    dir: page.dir.fid,
                    ..mark
                },
                from,
                page,
                walk,
            ) {
                directories += u32::from(from == 0);
                entries += new;
            }
        }
        for (fid, target) in targets {
            if let Some(link) = self.lock().cache.known_mut(fid) {
                link.learn_target(target.into());
            }
        }
        Ok(TreePart {
            directories,
            entries,
            next,
            order,
        })
    }

    /// How many entries came, unless the list was known already or nothing covers it.
    fn take_ahead(&self, mark: Mark, from: u64, page: Page, walk: Option<WalkId>) -> Option<u64> {
        let (dir, count) = (mark.dir, page.entries.len() as u64);
        let was_listed = is_listed(&self.lock(), dir);
        // The locks that came with it are ours in any case.
        let is_listed = self.take_page(mark, from, &page);
        if was_listed || !is_listed {
            return None;
        }
        let mut state = self.lock();
        let directory = state.cache.inode(dir).directory();
        if from == 0 {
            directory.prefetch.list_came(walk);
        }
        // Where the first page is being read already, the others are no longer ahead.
        let is_ahead = walk.is_none() || directory.prefetch.is_unread();
        Some(if is_ahead { count } else { 0 })
    }

    /// Fetches a stretch ahead of the reader.
    pub(crate) fn start_stretch(&self, stretch: Option<Stretch>) {
        let Some(stretch) = stretch else {
            return;
        };
        let client = self.clone();
        spawn(async move { client.fetch_stretch(stretch).await });
    }
}

/// The whole list of the directory is known and covered.
pub(crate) fn is_listed(state: &State, dir: Fid) -> bool {
    let directory = state.cache.directory_of(dir);
    directory.is_some_and(|directory| directory.is_complete())
        && state.locks.holds(dir, Bits::LIST.union(Bits::NAMES))
}

/// Where `dir` is, as far as the lists above it are known; its own from `cookie` on is needed.
pub(crate) fn place(state: &State, dir: Fid, cookie: u64) -> Option<Place> {
    let mut levels = vec![WalkLevel {
        dir,
        cookie,
        listed: false,
    }];
    let (mut below, mut is_first) = (dir, None);
    while levels.len() < CLIMB_MAX {
        let parent = state.cache.known(below)?.dir();
        let found = match is_listed(state, parent) {
            true => find(state, parent, below),
            false => None,
        };
        let Some((cookie, first)) = found else {
            break;
        };
        if below == dir {
            is_first = first;
        }
        levels.push(WalkLevel {
            dir: parent,
            cookie,
            listed: true,
        });
        below = parent;
    }
    levels.reverse();
    Some(Place { levels, is_first })
}

/// The cookie of a directory in its parent's list, and in which order it is the first there.
fn find(state: &State, parent: Fid, dir: Fid) -> Option<(u64, Option<WalkOrder>)> {
    let directory = state.cache.directory_of(parent)?;
    match directory.listed() <= SEARCH_MAX {
        true => directory.find_subdirectory(dir),
        false => None,
    }
}
