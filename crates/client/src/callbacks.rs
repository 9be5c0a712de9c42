//! What servers ask of this client: locks back, single entries forgotten, current values.
//!
//! Order in all of them: answers being prepared lose their cover, the kernel forgets, then the
//! server is told. Nothing here waits for a kernel lock that a call of ours may hold, but for
//! names of open files and directories, where the kernel rim has a fallback (hazards 1 to 4).

use base::{Fid, Name, TargetIndex};
use dlm::{Bits, CacheInput, Cover, Keep, Mode, Release};
use rpc::{CallbackResponder, Message, Urgency};
use wire::mdt::{Callback, CallbackReply, Glimpsed, Request};
use wire::{opcode, ost};

use crate::cache::State;
use crate::cache::inode::Covered;
use crate::client::Client;
use crate::executor::{Oneshot, join_all, oneshot, spawn};
use crate::io::close::READING;
use crate::kernel::{Forget, ForgetName};
use crate::locks::{GivingUp, Holder};
use crate::stats::bump;

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
            Ok(ost::Callback::Blocking { handle, range, .. }) => {
                bump(&self.0.stats.blocking_callbacks);
                let cover = Cover::Range(range);
                let input = CacheInput::Blocking {
                    handle,
                    mode: Mode::EX,
                    cover,
                };
                self.lock().locks.step(holder, input);
                ost::CallbackReply::Done
            }
            Ok(ost::Callback::Glimpse { object, .. }) => {
                bump(&self.0.stats.glimpses);
                ost::CallbackReply::Glimpse(unwritten(&mut self.lock(), object.fid))
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
        let body = wire::encode(&reply);
        responder.reply(Message {
            opcode: opcode::OST_CALLBACK,
            body,
        });
    }

    /// One name or child of a leased directory is valid no more; the lease stays.
    async fn withdraw(&self, dir: Fid, bits: Bits, name: Option<Name>, child: Fid) {
        let mut forget = Going::default();
        let readers = {
            let mut state = self.lock();
            state.withdraw();
            let directory = state.inode(dir).directory();
            directory.withdrawn += 1;
            if bits.contains(Bits::LIST) {
                directory.forget_list();
                state.inode(dir).covered = Covered::No;
                let range = base::ByteRange::ALL;
                forget.forget(Forget::Pages { fid: dir, range });
            }
            let lost = match (&name, bits.contains(Bits::NAMES)) {
                (Some(name), true) => state.inode(dir).directory().forget_name(name),
                _ => None,
            };
            if child != Fid::NONE && bits.contains(Bits::CHILD) {
                uncover(&mut state, child);
                forget.forget(Forget::Attributes { fid: child, dir });
            }
            let lost = lost
                .map(|named| named.fid)
                .or((child != Fid::NONE).then_some(child));
            if let (Some(name), Some(fid), true) = (name, lost, bits.contains(Bits::NAMES)) {
                self.forget_name(&mut state, dir, name, fid, &mut forget);
            }
            unregistered_readers(&mut state, child)
        };
        forget.gone(self).await;
        if readers {
            self.register_reader(child).await;
        }
    }

    /// The kernel shall forget a name that leads to `fid` no more. The attributes go at once, so
    /// that who comes by the name must ask, and waits until the name is gone. So nobody waits for
    /// that here, but where an answer would be seen by who did not come by the name: there only if
    /// it takes long, as it does when a call in the directory waits for another mount which waits
    /// for us.
    pub(crate) fn forget_name(
        &self,
        state: &mut State,
        dir: Fid,
        name: Name,
        fid: Fid,
        going: &mut Going,
    ) {
        let Some(inode) = state.known_mut(fid) else {
            return;
        };
        if inode.lookups == 0 {
            return;
        }
        inode.name_misleads();
        let waits = inode.is_directory() || inode.is_open();
        going.forget(Forget::Attributes { fid, dir });
        let late = self.forget_name_later(state, dir, name, fid);
        if waits {
            going.names.push(late);
        }
    }

    /// The kernel forgets the name as soon as it can; who comes by it waits for that. Resolves when
    /// it has, or when it takes long.
    pub(crate) fn forget_name_later(
        &self,
        state: &mut State,
        dir: Fid,
        name: Name,
        fid: Fid,
    ) -> Oneshot<()> {
        let inode = state.inode(fid);
        inode.name_goes();
        let expire = inode.is_directory();
        let (tell, told) = oneshot();
        let client = self.clone();
        spawn(async move {
            let (late, is_late) = oneshot();
            let (done, forgotten) = oneshot();
            let what = ForgetName { dir, name, expire };
            client.0.kernel.forget_name(what, late, done);
            if is_late.await.is_some()
                && let Some(inode) = client.lock().known_mut(fid)
            {
                inode.name_late();
            }
            tell.send(());
            forgotten.await;
            let mut state = client.lock();
            if let Some(inode) = state.known_mut(fid) {
                inode.name_forgotten();
            }
            state.drop_if_idle(fid);
        });
        told
    }

    /// Files open here for reading without the MDT's knowledge: it must know before the name goes.
    pub(crate) async fn register_reader(&self, fid: Fid) {
        match self.register(fid, READING, true).await {
            Ok(handle) => {
                let mut state = self.lock();
                let file = state.file(fid);
                file.read_opens.push(handle);
            }
            Err(error) => tracing::warn!("{fid} is open here, but the MDT does not know: {error}"),
        }
    }

    /// A lock is to be given back. Ends with the cancel or conversion.
    pub(crate) fn start_giving_up(&self, going: GivingUp) {
        let client = self.clone();
        spawn(async move {
            let GivingUp {
                holder,
                handle,
                fid,
                cover,
                keep,
            } = going;
            match cover {
                Cover::Range(range) => client.give_up_extent(holder, handle, fid, range).await,
                Cover::Bits(bits) => {
                    let exclusive = {
                        let mut state = client.lock();
                        state.file_known(fid).and_then(|file| file.exclusive) == Some(handle)
                    };
                    match exclusive {
                        true => client.give_up_exclusive(handle, fid).await,
                        false => client.give_up_bits(handle, fid, bits, keep).await,
                    }
                }
            }
        });
    }

    /// Part or all of a lock on attributes, or of a lease.
    async fn give_up_bits(&self, handle: base::LockHandle, fid: Fid, bits: Bits, keep: Keep) {
        let forget = {
            let mut state = self.lock();
            state.withdraw();
            self.lose_bits(&mut state, fid, bits)
        };
        forget.gone(self).await;
        let readers = unregistered_readers(&mut self.lock(), fid);
        if readers && keep == Keep::Nothing {
            self.register_reader(fid).await;
        }
        let mut state = self.lock();
        state
            .locks
            .step(Holder::Mdt, CacheInput::Dropped { handle });
        state.drop_if_idle(fid);
        drop(state);
        self.send_releases();
    }

    fn lose_bits(&self, state: &mut State, fid: Fid, bits: Bits) -> Going {
        let mut forget = Going::default();
        state.inode(fid).covered = Covered::No;
        let dir = state.inode(fid).dir();
        if bits.overlaps(Bits::PERM.union(Bits::UPDATE).union(Bits::LIST)) {
            forget.forget(Forget::Attributes { fid, dir });
        }
        if bits.contains(Bits::XATTR) {
            state.inode(fid).set_xattrs(None);
        }
        if !bits.overlaps(Bits::LEASE) {
            return forget;
        }
        state.inode(fid).directory().withdrawn += 1;
        if bits.contains(Bits::LIST) {
            state.inode(fid).directory().forget_list();
            forget.forget(Forget::Pages {
                fid,
                range: base::ByteRange::ALL,
            });
        }
        let names: Vec<(Name, Fid)> = match bits.overlaps(Bits::NAMES.union(Bits::CHILD)) {
            true => {
                let directory = state.inode(fid).directory();
                directory
                    .names()
                    .map(|(name, named)| (name.clone(), named.fid))
                    .collect()
            }
            false => Vec::new(),
        };
        for (name, child) in names {
            self.lose_child(state, fid, name, child, bits, &mut forget);
        }
        if bits.contains(Bits::CHILD) {
            state.inode(fid).directory().child_epoch += 1;
        }
        if bits.contains(Bits::NAMES) {
            state.inode(fid).directory().forget_all();
        }
        forget
    }

    /// A child of a directory whose lease goes.
    fn lose_child(
        &self,
        state: &mut State,
        dir: Fid,
        name: Name,
        child: Fid,
        bits: Bits,
        forget: &mut Going,
    ) {
        let Some(inode) = state.known_mut(child) else {
            return;
        };
        if inode.lookups == 0 {
            return;
        }
        if bits.contains(Bits::CHILD) && matches!(inode.covered, Covered::Parent { .. }) {
            forget.forget(Forget::Attributes { fid: child, dir });
        }
        if bits.contains(Bits::NAMES) {
            self.forget_name(state, dir, name, child, forget);
        }
    }

    /// Sends what gives locks back, many in one message.
    pub(crate) fn send_releases(&self) {
        let max = base::limits::CANCEL_BATCH_MAX;
        let batches = self.lock().locks.take_releases(max);
        for (holder, releases) in batches {
            let client = self.clone();
            spawn(async move { client.release_locks(holder, releases).await });
        }
    }

    async fn release_locks(&self, holder: Holder, releases: Vec<Release>) {
        let cancelled = |release: &Release| match release {
            Release::Cancel(handle) => Some(*handle),
            _ => None,
        };
        let handles: Vec<_> = releases.iter().filter_map(cancelled).collect();
        let shared = &self.0;
        let (cluster, stats) = (&shared.cluster, &shared.stats);
        let sent = match holder {
            Holder::Mdt => {
                let mut requests: Vec<Request> = releases.iter().filter_map(conversion).collect();
                if !handles.is_empty() {
                    requests.push(Request::Cancel { handles });
                }
                cluster
                    .mdt_batch(stats, requests, Urgency::Urgent)
                    .await
                    .map(|_| ())
            }
            Holder::Ost(target) => {
                let request = ost::Request::Cancel { handles };
                let urgency = Urgency::Urgent;
                cluster
                    .ost(stats, target, request, urgency)
                    .await
                    .map(|_| ())
            }
        };
        if let Err(error) = sent {
            tracing::debug!("locks could not be given back: {error}");
        }
    }
}

/// What the kernel must forget before a lock goes.
#[derive(Default)]
pub(crate) struct Going {
    whats: Vec<Forget>,
    names: Vec<Oneshot<()>>,
}

impl Going {
    pub fn forget(&mut self, what: Forget) {
        if self.whats.last() != Some(&what) {
            self.whats.push(what);
        }
    }

    /// Waits until it has.
    pub async fn gone(self, client: &Client) {
        let whats = self.whats.into_iter();
        join_all(whats.map(|what| client.0.forget(what)).collect()).await;
        join_all(self.names).await;
    }
}

fn conversion(release: &Release) -> Option<Request> {
    let Release::Convert(handle, keep) = release else {
        return None;
    };
    let (mode, bits) = match keep {
        Keep::Bits(bits) => (Mode::PR, bits.0),
        Keep::Mode(mode) => (*mode, u32::MAX),
        Keep::Nothing => return None,
    };
    Some(Request::Convert {
        handle: *handle,
        mode: mode.index() as u8,
        bits,
    })
}

/// The child's attributes are covered by the parent's lease no more.
fn uncover(state: &mut State, child: Fid) {
    if let Some(inode) = state.known_mut(child)
        && matches!(inode.covered, Covered::Parent { .. })
    {
        inode.covered = Covered::No;
    }
}

/// The file is open here for reading and the MDT was not told.
pub(crate) fn unregistered_readers(state: &mut State, fid: Fid) -> bool {
    state.file_known(fid).is_some_and(|file| {
        file.readers > 0 && file.read_opens.is_empty() && file.write_open.is_none()
    })
}

/// The attributes under this client's EX lock.
fn glimpsed(state: &State, fid: Fid) -> Option<Glimpsed> {
    let inode = state.known(fid)?;
    inode.file.as_ref()?.exclusive?;
    let mut attr = state.seen(fid)?;
    // The holder's size is exact, and the OST, which would be asked otherwise, has not heard of it.
    attr.size_state = wire::SizeState::Strict;
    Some(Glimpsed { attr })
}

/// The object with what is not yet written.
fn unwritten(state: &mut State, fid: Fid) -> Option<ost::ObjectAttr> {
    let file = state.file_known(fid)?;
    let end = file.pages.dirty_end()?;
    let attr = file.known;
    Some(ost::ObjectAttr {
        size: attr.size.max(end),
        ..attr
    })
}

fn respond(responder: CallbackResponder, reply: CallbackReply) {
    responder.reply(Message {
        opcode: opcode::MDT_CALLBACK,
        body: wire::encode(&reply),
    });
}
