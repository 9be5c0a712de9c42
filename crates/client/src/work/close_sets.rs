//! Closes that go in sets: of files in directories that this mount has to itself, where only bytes and size
//! changed. The MDT has one request for up to 256 files of a directory (docs/wire.md, "Updates").

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use base::limits::UPDATE_CHANGES_MAX;
use base::{ByteRange, Fid, FsError, LockHandle, Timestamp, Transno};
use dlm::Bits;
use rpc::Urgency;
use wire::mdt::{Reply, Request, SetAttr, SizeUpdate};
use wire::update::{Change, LeasedDir, Told, UpdateNote};
use wire::{Attr, FileKind, SizeState};

use crate::cache::cached_attr::Covered;
use crate::session::client::Client;
use crate::session::state::State;
use crate::work::close::Closing;
use crate::work::sets::leased;

/// Closes of files in one directory.
struct Set {
    dir: LeasedDir,
    changes: Vec<Change>,
    closings: Vec<Closing>,
}

impl Client {
    /// Sends those that can go in sets. The others are returned, and those that the MDT did not take so.
    pub(super) async fn close_in_sets(&self, batch: Vec<Closing>) -> Vec<Closing> {
        if self.0.params.wbc() == 0 {
            return batch;
        }
        let (sets, mut alone) = sets_of(&self.lock(), batch);
        if sets.is_empty() {
            return alone;
        }
        let requests = sets.iter().map(Set::request).collect();
        let changes = sets.iter().map(|set| set.changes.len() as u64).sum();
        let shared = &self.0;
        let counter = &shared.stats.update_changes;
        counter.fetch_add(changes, Ordering::Relaxed);
        let sent = shared
            .cluster
            .mdt_batch(&shared.stats, requests, Urgency::Urgent);
        let mut replies = match sent.await {
            Ok(replies) => replies.into_iter(),
            Err(error) => vec![Err(error); sets.len()].into_iter(),
        };
        let mut needless = Vec::new();
        for set in sets {
            match replies.next().unwrap_or(Err(FsError::Io)) {
                Ok(Reply::Updated {
                    transno, at, notes, ..
                }) => {
                    for (place, closing) in set.closings.into_iter().enumerate() {
                        let is_exact = !is_inexact(&notes, place);
                        needless.extend(self.closed_in_set(closing, (transno, at), is_exact));
                    }
                }
                // Each as any other file: the MDT says what is wrong with which.
                _ => alone.extend(set.closings),
            }
        }
        self.cancel_all(needless).await;
        alone
    }

    /// The MDT has taken the size, and the use is over. The lock that is needless now.
    fn closed_in_set(
        &self,
        closing: Closing,
        answer: (Transno, Timestamp),
        is_exact: bool,
    ) -> Option<LockHandle> {
        let fid = closing.fid;
        let mut state = self.lock();
        let file = state.cache.file(fid);
        if !file.registration.end_close(closing.handle) {
            // The MDT has restarted, and this use was told of anew: it is closed once more.
            return None;
        }
        let known = state.cache.attr_of(fid).cloned();
        let attr = known.zip(closing.change.size);
        let attr = attr.map(|(attr, size)| as_closed(attr, size, answer));
        let dir = state.cache.inode(fid).dir();
        let epoch = state.cache.child_epoch(dir);
        let is_leased = is_exact && state.locks.holds(dir, Bits::CHILD);
        let lock = state.lose_exclusive(fid);
        let inode = state.cache.inode(fid);
        match (attr, epoch) {
            (Some(attr), Some(child_epoch)) if is_leased => {
                inode
                    .attrs
                    .take_covered(attr, Covered::Parent { child_epoch });
            }
            _ => self.uncover(&mut state, fid, dir),
        }
        // Nothing covers the bytes any more, unless an extent lock does.
        if lock.is_some() {
            state.with_pages(fid, |file| file.pages.discard(ByteRange::ALL));
        }
        state.cache.file(fid).waiters.wake_all();
        state.drop_if_idle(fid);
        lock
    }

    async fn cancel_all(&self, handles: Vec<LockHandle>) {
        if handles.is_empty() {
            return;
        }
        let (shared, requests) = (&self.0, vec![Request::Cancel { handles }]);
        let sent = shared
            .cluster
            .mdt_batch(&shared.stats, requests, Urgency::Urgent);
        if let Err(error) = sent.await {
            tracing::debug!("locks could not be given back: {error}");
        }
    }
}

impl Set {
    fn request(&self) -> Request {
        Request::Update {
            dirs: vec![self.dir],
            changes: self.changes.clone(),
        }
    }
}

fn sets_of(state: &State, batch: Vec<Closing>) -> (Vec<Set>, Vec<Closing>) {
    let (mut sets, mut alone): (Vec<Set>, _) = (Vec::new(), Vec::new());
    let mut open: HashMap<Fid, usize> = HashMap::new();
    for closing in batch {
        let Some((dir, size)) = size_in_set(state, &closing) else {
            alone.push(closing);
            continue;
        };
        let found = open.get(&dir).copied();
        let place = found.filter(|place| sets[*place].changes.len() < UPDATE_CHANGES_MAX);
        let place = place.unwrap_or_else(|| {
            sets.push(Set {
                dir: leased(state, dir),
                changes: Vec::new(),
                closings: Vec::new(),
            });
            open.insert(dir, sets.len() - 1);
            sets.len() - 1
        });
        sets[place].changes.push(Change::Size {
            fid: closing.fid,
            size,
            handle: closing.handle,
        });
        sets[place].closings.push(closing);
    }
    (sets, alone)
}

/// The directory of a file that can be closed in a set, and what is to be said of its size.
fn size_in_set(state: &State, closing: &Closing) -> Option<(Fid, SizeUpdate)> {
    let inode = state.cache.known(closing.fid)?;
    let (dir, attr) = (inode.dir(), inode.attrs.known()?);
    let size = closing.change.size?;
    let is_size_alone = closing.change
        == SetAttr {
            size: Some(size),
            ..SetAttr::default()
        };
    let is_covered = attr.kind == FileKind::Regular && attr.nlink == 1;
    let is_own = closing.under != LockHandle(0) && !closing.readers_stay;
    let is_leased = state.locks.is_settled() && state.locks.may_change_names(dir);
    (is_size_alone && is_covered && is_own && is_leased).then_some((dir, size))
}

/// The attributes as the MDT has them now. It takes no time that is later than its own.
fn as_closed(mut attr: Attr, size: SizeUpdate, (transno, at): (Transno, Timestamp)) -> Attr {
    let written = size.mtime.min(at);
    if written > attr.mtime_set {
        (attr.mtime, attr.mtime_set) = (written, written);
    }
    attr.ctime = attr.ctime.later(written);
    (attr.size, attr.blocks) = (size.size, size.blocks);
    attr.size_state = SizeState::Strict;
    attr.version = transno.0;
    attr
}

fn is_inexact(notes: &[UpdateNote], place: usize) -> bool {
    let mut of_change = notes
        .iter()
        .filter(|note| usize::from(note.change) == place);
    of_change.any(|note| note.told == Told::Inexact)
}

#[cfg(test)]
mod tests {
    use base::TargetIndex;

    use super::*;
    use crate::rig::attr_at;

    const fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 0 }
    }

    #[test]
    fn times_of_a_closed_file_are_those_that_the_mdt_keeps() {
        let closed = |set, mtime, written| {
            let attr = Attr {
                mtime,
                mtime_set: set,
                ctime: set,
                ..attr_at(TargetIndex(0))
            };
            let size = SizeUpdate {
                size: 7,
                blocks: 1,
                mtime: written,
                committed: true,
            };
            let attr = as_closed(attr, size, (Transno(5), at(100)));
            (attr.mtime, attr.mtime_set, attr.ctime)
        };
        assert_eq!(closed(at(10), at(10), at(20)), (at(20), at(20), at(20)));
        let ahead = closed(at(10), at(10), at(200));
        assert_eq!(ahead, (at(100), at(100), at(100)));
        let set_by_program = closed(at(30), at(999), at(20));
        assert_eq!(set_by_program, (at(999), at(30), at(30)));
    }
}
