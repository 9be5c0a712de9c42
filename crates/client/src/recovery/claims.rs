//! What becomes of files and changes that the MDT does not know (ADR 19) when it restarts or gives up on this
//! mount. A restarted MDT gives back the write leases under which they were made, before it serves anybody.
//! With an eviction they are lost. docs/recovery.md, section 4, is the normative text.

use std::collections::BTreeSet;

use base::{ByteRange, Fid, FsError};
use wire::mdt::{Reply, Request};

use crate::cache::births::Standing;
use crate::cache::stamps::Mark;
use crate::coherence::invalidation::{Invalidation, Leads};
use crate::executor::{each_of, spawn};
use crate::recovery::void_inode::void_inode;
use crate::session::client::Client;
use crate::session::gathering::TOGETHER_MAX;
use crate::session::state::State;
use crate::work::pending_update::PendingUpdate;

/// Files that an eviction took are named in the log up to this number.
const NAMED_MAX: usize = 256;

/// A write lease that this mount had in the MDT's boot before.
pub(crate) struct Claim {
    dir: Fid,
    /// When that was found void.
    mark: Mark,
    _until_acknowledged: PendingUpdate,
    _until_answered: Answering,
}

/// A claim that is not answered: nothing is reported meanwhile.
struct Answering(Client);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.lock().birth_reporter.end_claim();
    }
}

/// What stays as it is while the MDT's boots change.
pub(crate) struct Kept {
    /// Files of which the MDT does not know all. The directories of such files are among them, and those of
    /// names that went.
    all: BTreeSet<Fid>,
    /// Those of the directories that the MDT knows, or may know.
    known: Vec<Fid>,
    /// Files of which it does not know the attributes.
    amended: Vec<Fid>,
}

impl Kept {
    /// Nothing.
    pub fn none() -> Kept {
        Kept {
            all: BTreeSet::new(),
            known: Vec::new(),
            amended: Vec::new(),
        }
    }

    /// All that belongs to what the MDT does not know.
    pub fn of(state: &State) -> Kept {
        let births = &state.births;
        let may_be_known = |dir: &Fid| {
            let birth = births.get(*dir);
            birth.is_none_or(|birth| birth.standing == Standing::OnItsWay)
        };
        let (leases, amended) = (births.leases(), births.edits().amended());
        let amended: Vec<Fid> = amended.collect();
        let all = births.all().into_iter().chain(leases.iter().copied());
        Kept {
            all: all.chain(amended.iter().copied()).collect(),
            known: leases.iter().copied().filter(may_be_known).collect(),
            amended,
        }
    }

    /// The file stays as it is.
    pub fn has(&self, fid: Fid) -> bool {
        self.all.contains(&fid)
    }
}

impl Client {
    /// The write leases that are to be claimed. Before that the MDT does not hear that this client is ready.
    pub(crate) fn claims(&self, state: &mut State, kept: &Kept) -> Vec<Claim> {
        for fid in &kept.amended {
            state.cache.inode(*fid).attrs.restarted();
        }
        let claims = kept.known.iter().map(|dir| {
            state.cache.inode(*dir).attrs.restarted();
            state.birth_reporter.begin_claim();
            Claim {
                dir: *dir,
                mark: state.cache.mark(*dir),
                _until_acknowledged: PendingUpdate::new(self, state, *dir),
                _until_answered: Answering(self.clone()),
            }
        });
        claims.collect()
    }

    /// Claims the write lease of a directory. Without it nothing that is known of the directory is true; the
    /// MDT refuses the files that were made there, and they are reported as lost then.
    pub(crate) async fn claim(&self, claim: Claim) {
        let reply = self.mdt_together(Request::ReclaimLease { dir: claim.dir });
        let reply = reply.await;
        if let Some(forget) = self.claimed(&claim, reply) {
            // Not waited for: the kernel may hold the directory for a call that waits for the MDT. That waits
            // for this client.
            let client = self.clone();
            spawn(async move { forget.done(&client).await });
        }
    }

    /// What the kernel is to forget of the directory, if its lease is lost.
    fn claimed(&self, claim: &Claim, reply: Result<Reply, FsError>) -> Option<Invalidation> {
        let Claim { dir, mark, .. } = *claim;
        let mut state = self.lock();
        // The MDT has restarted once more: it was claimed anew.
        if !state.servers.is_of_this_boot(mark) {
            return None;
        }
        if let Ok(Reply::WriteLease {
            grant: Some(grant),
            outside,
            ..
        }) = reply
        {
            state.take_write_lease(&grant, &outside, mark);
            return None;
        }
        // The answer to its birth, which is on its way, brings the lease.
        if state.births.is_unborn(dir) {
            return None;
        }
        tracing::error!(%dir, "the MDT did not give a write lease back: {reply:?}");
        let mut forget = Invalidation::default();
        for name in void_inode(&mut state, dir, &mut forget) {
            self.forget_name(&mut state, name, Leads::Perhaps, &mut forget);
        }
        Some(forget)
    }

    /// Reports the files that the process before had made. Its write leases are this client's until it says
    /// that it is ready, and it claims those that went with a boot of the MDT. Nothing that is known of these
    /// files is covered then.
    pub(crate) async fn report_inherited_births(&self) {
        let (all, dirs) = {
            let state = self.lock();
            let kept = Kept::of(&state);
            (kept.all, kept.known)
        };
        if all.is_empty() {
            return;
        }
        each_of(dirs, TOGETHER_MAX, |dir| async move {
            let claimed = self.mdt_together(Request::ReclaimLease { dir }).await;
            if let Ok(Reply::WriteLease {
                grant: Some(grant), ..
            }) = claimed
            {
                self.lock().locks.take_grant(&grant);
            }
        })
        .await;
        self.report_all_births().await;
        let (mut state, mut forgotten) = (self.lock(), Invalidation::default());
        for fid in all {
            // The kernel has forgotten all names and attributes before.
            void_inode(&mut state, fid, &mut forgotten);
        }
    }

    /// The MDT has given up on this mount: files that it does not know are lost. The log names them, and
    /// calls on those that are open fail.
    pub(crate) fn lose_births(&self, state: &mut State, forget: &mut Invalidation) {
        lose_edits(state);
        let lost = state.births.all();
        state.lose_dates();
        if lost.is_empty() {
            return;
        }
        tracing::error!(
            "{} files that were made here are lost with the eviction: the MDT did not know them",
            lost.len()
        );
        for fid in lost.iter().take(NAMED_MAX) {
            tracing::error!("lost: {}", state.births.path(*fid));
        }
        let now = self.0.clock.now();
        for fid in lost.into_iter().rev() {
            let file = state.cache.file(fid);
            forget.lapse(file, fid);
            state.with_pages(fid, |file| {
                file.change.lose();
                file.lose_open(false);
                file.pages.discard(ByteRange::ALL);
            });
            state.unbear(fid, now);
        }
        // Those of the directories that have lost these files.
        state.lose_dates();
    }
}

/// Changes of files that the MDT knows are lost. The files are seen as they are there: nothing of what was
/// known is valid any more.
fn lose_edits(state: &mut State) {
    state.journal.end_edits();
    let lost = state.births.edits_mut().take_all();
    if lost.is_empty() {
        return;
    }
    tracing::error!(
        "{} changes of names and attributes are lost with the eviction: the MDT did not know them",
        lost.len()
    );
    for (count, edit) in lost.into_iter().enumerate() {
        if count < NAMED_MAX {
            edit.log_loss("the MDT gave up on this mount");
        }
        state.cache.add_write_error(edit.about(), FsError::Io);
    }
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
