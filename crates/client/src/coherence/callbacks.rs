//! Callbacks of servers to this client: locks to give back, entries to forget, current values to report.

use base::{Fid, Name, TargetIndex};
use dlm::{Bits, CacheInput, Cover, Mode};
use rpc::{CallbackResponder, Message};
use wire::mdt::{Callback, CallbackReply, Glimpsed};
use wire::{opcode, ost};

use crate::cache::holder::Holder;
use crate::cache::withdrawn::Withdrawn;
use crate::coherence::invalidation::{Invalidation, KernelName, Leads};
use crate::executor::spawn;
use crate::session::client::Client;
use crate::session::kernel::Forget;
use crate::session::state::State;
use crate::session::stats::bump;

/// In all of them answers that are being prepared lose their cover, then the kernel forgets, then the server
/// is answered. None waits for a lock in the kernel that a call of this mount may hold, except for names of
/// open files and directories, where the wait is bounded (docs/locks.md, section 10).
impl Client {
    /// A message of the MDT.
    pub(crate) fn on_mdt_callback(&self, message: &Message, responder: CallbackResponder) {
        let callback = match wire::decode::<Callback>(&message.body) {
            Ok(callback) => callback,
            Err(error) => {
                tracing::error!("the MDT called with what cannot be read: {error}");
                return respond(responder, CallbackReply::Done);
            }
        };
        tracing::trace!(?callback, "the MDT calls");
        // Others change what is known here: what is known of space is older.
        self.lock().servers.forget_space();
        match callback {
            Callback::Blocking { handle, bits, .. } => {
                bump(&self.0.stats.blocking_callbacks);
                let cover = Cover::Bits(Bits(bits));
                let input = CacheInput::Blocking {
                    handle,
                    mode: Mode::EX,
                    cover,
                };
                self.lock().locks.step(Holder::Mdt, input);
                respond(responder, CallbackReply::Done);
            }
            Callback::Withdraw {
                dir,
                bits,
                name,
                child,
                ..
            } => {
                bump(&self.0.stats.withdrawals);
                let client = self.clone();
                spawn(async move {
                    client.withdraw(dir, Bits(bits), name, child).await;
                    respond(responder, CallbackReply::Done);
                });
            }
            Callback::Glimpse { fid, .. } => {
                bump(&self.0.stats.glimpses);
                let glimpsed = glimpsed(&self.lock(), fid);
                respond(responder, CallbackReply::Glimpse(glimpsed));
            }
            Callback::Shrink { .. } => {
                self.lock().locks.step(Holder::Mdt, CacheInput::Shrink);
                respond(responder, CallbackReply::Done);
            }
            Callback::EndIdleUse { fid } => {
                let client = self.clone();
                spawn(async move {
                    client.end_idle_use(fid).await;
                    respond(responder, CallbackReply::Done);
                });
            }
        }
    }

    /// A message of an OST.
    pub(crate) fn on_ost_callback(
        &self,
        target: TargetIndex,
        message: &Message,
        responder: CallbackResponder,
    ) {
        let holder = Holder::Ost(target);
        let callback = wire::decode::<ost::Callback>(&message.body);
        tracing::trace!(?target, ?callback, "the OST calls");
        let reply = match callback {
            Ok(ost::Callback::Blocking {
                handle,
                range,
                mode,
                ..
            }) => {
                bump(&self.0.stats.blocking_callbacks);
                let cover = Cover::Range(range);
                let mode = match Mode::from_index(mode) {
                    // Who only reads beside a writer is given all, too.
                    Some(Mode::PR) => Mode::PW,
                    mode => mode.unwrap_or(Mode::EX),
                };
                let input = CacheInput::Blocking {
                    handle,
                    mode,
                    cover,
                };
                self.lock().locks.step(holder, input);
                ost::CallbackReply::Done
            }
            Ok(ost::Callback::Glimpse { object, .. }) => {
                bump(&self.0.stats.glimpses);
                seen(&mut self.lock(), object.fid)
            }
            Ok(ost::Callback::Grown {
                handle,
                object,
                size,
            }) => {
                bump(&self.0.stats.growth_heard);
                let client = self.clone();
                spawn(async move {
                    client.grown(object.fid, (holder, handle), size).await;
                    answer_ost(responder, &ost::CallbackReply::Done);
                });
                return;
            }
            Ok(ost::Callback::Shrink { .. }) => {
                self.lock().locks.step(holder, CacheInput::Shrink);
                ost::CallbackReply::Done
            }
            Err(error) => {
                tracing::error!("{target:?} called with what cannot be read: {error}");
                ost::CallbackReply::Done
            }
        };
        answer_ost(responder, &reply);
    }

    /// One name or child of a leased directory is valid no more; the lease stays.
    pub(crate) async fn withdraw(&self, dir: Fid, bits: Bits, name: Option<Name>, child: Fid) {
        let mut forget = Invalidation::default();
        let readers = {
            let mut state = self.lock();
            let is_read = state.handles.dir_open_on(dir).is_some();
            let withdrawn = Withdrawn {
                bits,
                name: name.clone(),
                child,
            };
            let directory = state.cache.withdraw_entry(dir, withdrawn);
            if bits.contains(Bits::LIST) {
                directory.forget_list();
                if is_read {
                    directory.prefetch.lost_while_read();
                }
                state.cache.inode(dir).attrs.cover_lost();
                let range = base::ByteRange::ALL;
                forget.forget(Forget::Pages { fid: dir, range });
            }
            // The list does not show the name from here on, whatever else told of it.
            let is_named = bits.overlaps(Bits::NAMES.union(Bits::LIST));
            let lost = match (&name, is_named) {
                (Some(name), true) => state.cache.inode(dir).directory().forget_name(name),
                _ => None,
            };
            if child != Fid::NONE && bits.contains(Bits::CHILD) {
                if let Some(inode) = state.cache.known_mut(child) {
                    inode.attrs.lease_lost();
                }
                forget.forget(Forget::Attributes { fid: child, dir });
            }
            let lost = lost
                .map(|named| named.fid)
                .or((child != Fid::NONE).then_some(child));
            if let (Some(name), Some(fid), true) = (name, lost, is_named) {
                let name = KernelName { dir, name, fid };
                self.forget_name(&mut state, name, Leads::Elsewhere, &mut forget);
            }
            state.has_unregistered_readers(child)
        };
        forget.done(self).await;
        if child != Fid::NONE {
            self.watch_uncovered(vec![child]).await;
        }
        if readers {
            self.register_reader(child).await;
        }
    }
}

/// The attributes under this client's EX lock.
fn glimpsed(state: &State, fid: Fid) -> Option<Glimpsed> {
    state.cache.file_of(fid)?.locks.exclusive()?;
    let mut attr = state.seen(fid)?;
    // The holder's size is exact, and the OST, which would be asked otherwise, has not heard of it.
    attr.size_state = wire::SizeState::Strict;
    Some(Glimpsed { attr })
}

/// The object with what is not yet written.
fn seen(state: &mut State, fid: Fid) -> ost::CallbackReply {
    let Some(file) = state.cache.file_known(fid) else {
        return ost::CallbackReply::Glimpse(None);
    };
    if file.resizes.is_under_way() {
        return ost::CallbackReply::Resizing(file.shown());
    }
    let (end, attr) = (file.pages.dirty_end(), file.shown());
    ost::CallbackReply::Glimpse(end.map(|end| ost::ObjectAttr {
        size: attr.size.max(end),
        ..attr
    }))
}

fn answer_ost(responder: CallbackResponder, reply: &ost::CallbackReply) {
    responder.reply(Message {
        opcode: opcode::OST_CALLBACK,
        body: wire::encode(reply),
    });
}

fn respond(responder: CallbackResponder, reply: CallbackReply) {
    responder.reply(Message {
        opcode: opcode::MDT_CALLBACK,
        body: wire::encode(&reply),
    });
}
