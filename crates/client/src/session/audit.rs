//! What a mount holds, and what it has not finished. For tests and the simulator.

use base::{Fid, TargetKind, TargetName, Tick};
use dlm::Lock;

use crate::cache::file::FileState;
use crate::cache::holder::Holder;
use crate::session::client::Client;

impl Client {
    /// The locks that it believes to have of a target, as the target would call them.
    pub fn held(&self, target: TargetName) -> Vec<Lock> {
        let peer = self
            .0
            .cluster
            .peers()
            .find(|peer| peer.target() == target)
            .map(rpc::Peer::client);
        let holder = match target.kind {
            TargetKind::Ost => Holder::Ost(target.index),
            _ => Holder::Mdt,
        };
        peer.map_or_else(Vec::new, |client| self.lock().locks.held(holder, client))
    }

    /// Since when each target has known it without giving it up; none: it does not.
    pub fn begun(&self) -> Vec<Option<Tick>> {
        self.0.cluster.peers().map(rpc::Peer::begun).collect()
    }

    /// Uses of files that it believes the MDT to have on record.
    pub fn uses(&self) -> Vec<Fid> {
        let state = self.lock();
        let files = state
            .cache
            .files()
            .flat_map(|(fid, file)| std::iter::repeat_n(fid, file.registration.count()));
        let mut uses: Vec<Fid> = files.collect();
        uses.sort_unstable();
        uses
    }

    /// What is under way or has yet to be: nothing, where no call is made and time enough has passed.
    pub fn unfinished(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut note = |count: usize, what: String| {
            if count > 0 {
                found.push(format!("{count} {what}"));
            }
        };
        for peer in self.0.cluster.peers() {
            let target = peer.target();
            note(
                peer.outstanding(),
                format!("calls to {target} without an answer"),
            );
            note(
                peer.kept().0,
                format!("requests to {target} kept for a replay"),
            );
        }
        let state = self.lock();
        let (files, dirs) = state.handles.counts();
        note(files, "handles of files".to_owned());
        note(dirs, "handles of directories".to_owned());
        let is_left = |file: &FileState| {
            file.registration.count() > 0 && !file.opens.is_written() && !file.opens.is_kept()
        };
        let left = state.cache.files().filter(|(_, file)| is_left(file));
        note(left.count(), "uses of files by nobody".to_owned());
        let pinned = state.handles.pinned_count();
        note(
            pinned,
            "files kept for a call that was led astray".to_owned(),
        );
        note(
            state.locks.release_count(),
            "locks not given back".to_owned(),
        );
        note(
            state.locks.revocation_count(),
            "locks to be flushed".to_owned(),
        );
        note(
            state.policies.writeback.uncommitted_count(),
            "files that may not be durable".to_owned(),
        );
        let dirty = state
            .cache
            .files()
            .map(|(_, file)| file.pages.dirty_bytes());
        note(dirty.sum::<u64>() as usize, "bytes not written".to_owned());
        found
    }
}
