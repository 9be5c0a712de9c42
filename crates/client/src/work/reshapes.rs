//! Changes of a file's shape that its OST may still lose. Done again in its next life, in their
//! order, before anybody else may do anything there (docs/recovery.md, section 5).

use base::{Fid, LockHandle, TargetIndex, Timestamp};
use rpc::Urgency;
use wire::mdt::WriteTicket;

use crate::executor::{self, each_of};
use crate::journal::reshapes::{self, RememberedReshape, Reshape};
use crate::journal::shape::Shape;
use crate::session::client::Client;
use crate::session::cluster::object_of;
use crate::session::state::State;

/// Files of which they are done again at once.
const REDONE_AT_ONCE: usize = 64;

impl Client {
    /// What was changed of shapes on an OST that has restarted is changed there once more.
    pub(crate) async fn redo_reshapes(&self, target: TargetIndex) {
        let lost = {
            let mut state = self.lock();
            let is_lost = |state: &mut State, fid| {
                let file = state.file_known(fid);
                file.is_some_and(|file| file.reshapes.is_lost())
            };
            let mut fids = state.fids();
            fids.retain(|fid| is_lost(&mut state, *fid) && state.ost(*fid) == Some(target));
            fids
        };
        each_of(lost, REDONE_AT_ONCE, |fid| {
            self.redo_reshapes_of(target, fid)
        })
        .await;
    }

    /// The same of one file, also in a life that begins meanwhile. What was done again must not be once
    /// more after what came later: so who finds another at it waits.
    pub(crate) async fn redo_reshapes_of(&self, target: TargetIndex, fid: Fid) {
        loop {
            let wait = {
                let mut state = self.lock();
                let file = state.file(fid);
                if !file.reshapes.is_lost() {
                    return;
                }
                match file.reshapes.begin_redoing() {
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
        let file = state.file(fid);
        file.reshapes.end_redoing();
        file.waiters.wake_all();
        state.answered(fid);
    }

    /// Returns whether to go on.
    async fn redo_next(&self, target: TargetIndex, fid: Fid) -> bool {
        let (next, begun, request) = {
            let mut state = self.lock();
            let life = state.life_of(fid);
            let file = state.file(fid);
            let Some(next) = file.reshapes.next_lost() else {
                return false;
            };
            let (right, no_lock) = ((next.ticket, file.known.mtime), (LockHandle(0), life));
            let request = next.shape.request(object_of(fid), right, no_lock);
            (next.id, file.restarts, request)
        };
        let done = self.0.change_object(target, request, Urgency::Urgent).await;
        let mut state = self.lock();
        let file = state.file(fid);
        if file.restarts != begun {
            return true;
        }
        match done {
            Ok((_, transno)) => {
                file.sent(transno);
                file.reshapes.done(next, transno);
            }
            Err(error) => {
                tracing::error!("{fid}: its size or space could not be changed again: {error}");
                file.failures.add(error);
                file.reshapes.give_up(error);
            }
        }
        true
    }
}

impl State {
    /// Remembers what is about to be done to a file, before anything of it is. `is_sent`: its OST has
    /// to be told. None: there is no room to, it must be durable before anybody hears of it.
    pub fn remember_reshape(
        &mut self,
        fid: Fid,
        (shape, is_sent): (Shape, bool),
        ticket: WriteTicket,
        mtime: Timestamp,
    ) -> Option<Option<RememberedReshape>> {
        let Some(records) = self.records.clone() else {
            return Some(None);
        };
        let order = self.write_order;
        self.write_order += 1;
        let reshape = Reshape {
            fid,
            shape,
            ticket,
            mtime,
            order,
        };
        reshapes::remember(&records, &reshape, is_sent)
    }

    /// The process before had done it for the same request of the kernel, or this one has done it
    /// again. It is not done once more.
    pub fn was_reshaped(&mut self) -> bool {
        let Some(origin) = executor::origin() else {
            return false;
        };
        let noted = self.reshaped_for.remove(&origin.number());
        let was = noted.is_some();
        if let Some(noted) = noted {
            origin.keep(Box::new(noted));
        }
        was
    }
}
