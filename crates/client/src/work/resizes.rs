//! Repeats resizes that a restarted OST may have lost, in their order, before another client may change the
//! file (docs/recovery.md, section 5).

use base::{Fid, LockHandle, TargetIndex};
use rpc::Urgency;

use crate::executor::each_of;
use crate::session::client::Client;
use crate::session::cluster::object_of;
use crate::session::state::State;

/// Files of which they are done again at once.
const REDONE_AT_ONCE: usize = 64;

impl Client {
    /// Repeats the resizes of all files on an OST that has restarted.
    pub(crate) async fn redo_resizes(&self, target: TargetIndex) {
        let lost = {
            let mut state = self.lock();
            let is_lost = |state: &mut State, fid| {
                let file = state.cache.file_known(fid);
                file.is_some_and(|file| file.resizes.is_lost())
            };
            let mut fids = Vec::from_iter(state.cache.fids());
            fids.retain(|fid| is_lost(&mut state, *fid) && state.cache.ost(*fid) == Some(target));
            fids
        };
        each_of(lost, REDONE_AT_ONCE, |fid| {
            self.redo_resizes_of(target, fid)
        })
        .await;
    }

    /// Repeats the lost resizes of one file, also if the OST restarts meanwhile. A resize must not be
    /// repeated after a later change, so a second task waits for the first.
    pub(crate) async fn redo_resizes_of(&self, target: TargetIndex, fid: Fid) {
        loop {
            let wait = {
                let mut state = self.lock();
                let file = state.cache.file(fid);
                if !file.resizes.is_lost() {
                    return;
                }
                match file.resizes.begin_redoing() {
                    true => None,
                    false => Some(file.waiters.wait()),
                }
            };
            match wait {
                Some(wait) => drop(wait.await),
                None => break,
            }
        }
        while self.redo_next(target, fid).await {}
        let mut state = self.lock();
        let file = state.cache.file(fid);
        file.resizes.end_redoing();
        file.waiters.wake_all();
        state.answered(fid);
    }

    /// Returns whether to go on.
    async fn redo_next(&self, target: TargetIndex, fid: Fid) -> bool {
        let (next, begun, request) = {
            let mut state = self.lock();
            let epoch = state.boot_epoch_of(fid);
            let file = state.cache.file(fid);
            let Some(next) = file.resizes.next_lost() else {
                return false;
            };
            let (right, no_lock) = ((next.ticket, file.object.mtime()), (LockHandle(0), epoch));
            let request = next.shape.request(object_of(fid), right, no_lock);
            (next.id, file.durability.restarts(), request)
        };
        let done = self.0.change_object(target, request, Urgency::Urgent).await;
        let mut state = self.lock();
        let file = state.cache.file(fid);
        if file.durability.restarts() != begun {
            return true;
        }
        match done {
            Ok((_, transno)) => {
                file.sent(transno);
                file.resizes.done(next, transno);
            }
            Err(error) => {
                tracing::error!("{fid}: its size or space could not be changed again: {error}");
                file.resizes.give_up(error);
                state.cache.add_write_error(fid, error);
            }
        }
        true
    }
}
