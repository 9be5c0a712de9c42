//! Cutting a file off at the first byte for which its OST has no space. What this mount wrote behind that
//! may have found some. SEMANTICS: crash.full

use base::{BootEpoch, ByteRange, Fid, LockHandle, TargetIndex};
use dlm::Mode;
use rpc::Urgency;
use wire::ost::{Request, UNDER_MDT};

use crate::executor::spawn;
use crate::session::client::Client;
use crate::session::cluster::object_of;
use crate::session::state::State;
use wire::shape::Shape;

/// A cut that the OST is asked for.
struct Begun {
    target: TargetIndex,
    /// Among the changes of the file's shape.
    id: u64,
    request: Request,
    /// How often the OST had restarted.
    restarts: u32,
    /// The next process would know of it, if there is one.
    is_remembered: bool,
}

impl State {
    /// The file is to end at `end` from now on, if nobody else can have written behind it. Returns whether.
    pub(super) fn is_cut_at(&mut self, fid: Fid, end: u64) -> bool {
        let is_alone = self.held_behind(fid, end).is_some();
        if is_alone {
            self.with_pages(fid, |file| file.ends(end));
        }
        is_alone
    }

    /// The lock here under which all behind `end` can be changed.
    fn held_behind(&mut self, fid: Fid, end: u64) -> Option<LockHandle> {
        match self.cache.file(fid).locks.exclusive() {
            Some(_) => Some(UNDER_MDT),
            None => {
                let behind = ByteRange::from(end);
                self.locks.extent_even_revoked(fid, Mode::PW, behind)
            }
        }
    }
}

impl Client {
    /// Begins to cut the file off, if that is due and nothing of it is on its way. On behalf of no request
    /// of the kernel: the next process is not to take one for done by that.
    pub(super) fn start_cut(&self, fid: Fid) {
        let is_due = |file: &mut crate::cache::file::FileState| file.resizes.cut_due().is_some();
        if self.lock().cache.file_known(fid).is_some_and(is_due) {
            let client = self.clone();
            spawn(async move { client.cut_off(fid).await });
        }
    }

    async fn cut_off(&self, fid: Fid) {
        let Some(begun) = self.begin_cut(fid) else {
            return;
        };
        let done = self
            .0
            .change_object(begun.target, begun.request, Urgency::Ordinary)
            .await;
        if !begun.is_remembered
            && let Err(error) = self.sync_target(begun.target).await
        {
            tracing::warn!(%fid, %error, "what was cut off may be back after a crash");
        }
        let mut state = self.lock();
        let file = state.cache.file(fid);
        match done {
            // Its next boot is asked for it again, as for all that the OST may have lost.
            _ if file.durability.restarts() != begun.restarts => {}
            Ok((attr, transno)) => {
                file.sent(transno);
                file.resizes.done(begun.id, transno);
                file.object.learn_blocks(attr.blocks);
            }
            Err(error) => {
                tracing::error!("{fid}: what had no space could not be cut off: {error}");
                file.resizes.refused(begun.id);
            }
        }
        file.resizes.end_cut();
        file.waiters.wake_all();
        state.answered(fid);
    }

    fn begin_cut(&self, fid: Fid) -> Option<Begun> {
        let mut state = self.lock();
        let file = state.cache.file_known(fid)?;
        let end = file.resizes.cut_due()?;
        if file.durability.writing() > 0 {
            return None;
        }
        let ticket = file.registration.ticket()?;
        let is_sent = !file.object.is_unsent();
        let Some((under, target)) = state
            .held_behind(fid, end)
            .zip(state.cache.ost(fid))
            .filter(|_| is_sent)
        else {
            let file = state.cache.file(fid);
            file.resizes.end_cut();
            file.waiters.wake_all();
            return None;
        };
        let (shape, now) = (Shape::Size(end), self.0.clock.now());
        let mtime = state.cache.content_time(fid, now);
        let remembered = state.journal.put_resize(fid, (shape, true), ticket, mtime);
        let epoch: BootEpoch = state.boot_epoch_of(fid);
        let file = state.cache.file(fid);
        file.content_changed(mtime);
        file.resizes.begin_cut();
        let is_remembered = remembered.is_some();
        Some(Begun {
            target,
            id: file.resizes.begin(shape, ticket, remembered.flatten()),
            request: shape.request(object_of(fid), (ticket, mtime), (under, epoch)),
            restarts: file.durability.restarts(),
            is_remembered,
        })
    }
}
