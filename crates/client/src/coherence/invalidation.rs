//! Invalidation of the kernel's caches before a lock is given up: attributes and pages at once, names as soon
//! as the kernel can.

use base::{ByteRange, Fid, Name};

use crate::cache::file::FileState;
use crate::executor::{Oneshot, join_all, oneshot, spawn};
use crate::session::client::Client;
use crate::session::kernel::{Forget, ForgetName};
use crate::session::state::State;

/// A name, and the file that the kernel takes it for.
pub(crate) struct KernelName {
    pub dir: Fid,
    pub name: Name,
    pub fid: Fid,
}

/// Whether a name that the kernel is to forget leads to the file that the kernel takes it for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// It leads there no more.
    Elsewhere,
    /// It may lead there still.
    Perhaps,
}

/// An invalidation: all that the kernel must forget before a lock is given up.
#[derive(Default)]
pub(crate) struct Invalidation {
    whats: Vec<Forget>,
    lapsing: Vec<Fid>,
    /// Names, and pages that are written back first.
    later: Vec<Oneshot<()>>,
}

impl Invalidation {
    pub fn forget(&mut self, what: Forget) {
        if self.whats.last() != Some(&what) {
            self.whats.push(what);
        }
    }

    /// The lock on a file's bytes went with an eviction, and with it what was stored into pages of
    /// the kernel. It writes those back before it forgets them, which is
    /// accepted and dropped.
    pub fn lapse(&mut self, file: &mut FileState, fid: Fid) {
        if file.is_known_to_kernel() {
            file.kernel.begin_lapse();
            self.lapsing.push(fid);
        }
    }

    /// Waits until the kernel has forgotten all of it.
    pub async fn done(mut self, client: &Client) {
        for fid in self.lapsing {
            let (done, gone) = oneshot();
            self.later.push(gone);
            let client = client.clone();
            spawn(async move {
                client.forget_lapsed(fid).await;
                done.send(());
            });
        }
        let whats = self.whats.into_iter();
        join_all(whats.map(|what| client.0.forget(what)).collect()).await;
        join_all(self.later).await;
    }
}

impl Client {
    async fn forget_lapsed(&self, fid: Fid) {
        let range = ByteRange::ALL;
        self.0.forget(Forget::Pages { fid, range }).await;
        let mut state = self.lock();
        state.cache.file(fid).kernel.end_lapse();
        state.drop_if_idle(fid);
    }

    /// Makes the kernel forget a name. The attributes go at once, so a process that uses the name must ask,
    /// and waits until the name is gone. Calls here do not wait for that, except where the reply is seen by
    /// a process that did not use the name. Such a reply waits only for a while: a call in the directory may
    /// wait for a mount that waits for this one. If the name may lead to a directory still, a request about
    /// that is answered when the name is gone: its caller may stand in the directory or have it open.
    pub(crate) fn forget_name(
        &self,
        state: &mut State,
        name: KernelName,
        leads: Leads,
        invalidation: &mut Invalidation,
    ) {
        let KernelName { dir, fid, .. } = name;
        let known = state.cache.known_mut(fid);
        let Some(inode) = known.filter(|inode| inode.is_in_kernel()) else {
            return;
        };
        if leads == Leads::Elsewhere || !inode.is_directory() {
            inode.name_misleads();
        }
        let waits = inode.is_directory() || inode.is_open();
        invalidation.forget(Forget::Attributes { fid, dir });
        let late = self.forget_name_later(state, name);
        if waits {
            invalidation.later.push(late);
        }
    }

    /// Makes the kernel forget the name as soon as it can. Processes that use the name wait for that.
    /// Resolves when the kernel has forgotten it, or when that takes long.
    pub(crate) fn forget_name_later(&self, state: &mut State, name: KernelName) -> Oneshot<()> {
        let KernelName { dir, name, fid } = name;
        let expire = state.cache.begin_invalidation(dir, &name, fid);
        let (gone_or_late, is_gone_or_late) = oneshot();
        let client = self.clone();
        spawn(async move {
            let (late, is_late) = oneshot();
            let (done, forgotten) = oneshot();
            let what = ForgetName {
                dir,
                name: name.clone(),
                fid,
                expire,
            };
            client.0.kernel.forget_name(what, late, done);
            if is_late.await.is_some()
                && let Some(inode) = client.lock().cache.known_mut(fid)
            {
                inode.name_late();
            }
            gone_or_late.send(());
            forgotten.await;
            let mut state = client.lock();
            state.cache.end_invalidation(dir, name, fid);
            state.drop_if_idle(fid);
        });
        is_gone_or_late
    }
}
