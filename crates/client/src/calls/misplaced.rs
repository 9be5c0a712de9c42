//! Directories that another mount has moved, which the kernel has at their old places still: it drops them
//! before it is told of the new ones. SEMANTICS: cache.side_effects

use base::{Fid, Name};

use crate::cache::State;
use crate::client::Client;
use crate::executor::oneshot;

/// How often the kernel is asked to drop one, where it was in vain before.
const ROUNDS: u32 = 8;
/// Of those without a pause, which is as long as a rename at most, or a tick.
const ROUNDS_AT_ONCE: u32 = 2;
/// What is below one, and is dropped before it, at most.
const BELOW_MAX: usize = 4096;

impl Client {
    /// The kernel is about to be told that `name` in `dir` leads to `fid`. Where it may have that directory at
    /// another place, it drops it there. What somebody uses it cannot drop: it may be able to move it. Where
    /// it was not (`again`), that is waited for, and then believed to be done.
    pub(crate) async fn leave_old_place(&self, dir: Fid, name: &Name, fid: Fid, again: bool) {
        let rounds = if again { ROUNDS } else { 1 };
        for round in 0..rounds {
            let wait = {
                let mut state = self.lock();
                if !state.misplaced.is_elsewhere(fid, dir, name) {
                    return;
                }
                (round >= ROUNDS_AT_ONCE).then(|| state.misplaced.wait())
            };
            if let Some(wait) = wait {
                wait.await;
            }
            let files = with_all_below(&self.lock(), fid);
            let (done, told) = oneshot();
            self.0.kernel.drop_unused(files, done);
            told.await;
        }
        if again {
            self.lock().misplaced.is_gone(fid);
        }
    }

    /// The kernel asks for `name` in `dir` once more, since it could not move the directory there.
    pub async fn leave_old_places(&self, dir: Fid, name: &Name) {
        if let Ok((fid, _)) = self.find(dir, name).await {
            self.leave_old_place(dir, name, fid, true).await;
        }
    }

    /// The kernel may have the directory `fid` elsewhere than at `name` in `dir`.
    pub fn may_be_elsewhere(&self, fid: Fid, dir: Fid, name: &Name) -> bool {
        self.lock().misplaced.is_elsewhere(fid, dir, name)
    }
}

/// The directory and what the kernel has below it, which it must drop before.
fn with_all_below(state: &State, fid: Fid) -> Vec<Fid> {
    let mut files = vec![fid];
    let mut next = 0;
    while let Some(dir) = files.get(next).copied() {
        next += 1;
        let directory = state.known(dir).and_then(|inode| inode.directory.as_ref());
        let below = directory
            .into_iter()
            .flat_map(|directory| directory.names());
        let held = |fid: &Fid| state.known(*fid).is_some_and(|inode| inode.lookups > 0);
        let below = below.map(|(_, named)| named.fid).filter(held);
        let room = (BELOW_MAX + 1).saturating_sub(files.len());
        files.extend(below.take(room));
    }
    files.reverse();
    files
}
