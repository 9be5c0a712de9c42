//! Revocation of locks on attributes and of leases: replies under way lose their cover, the kernel forgets,
//! then the lock is given up. Locks on bytes are in `extent_revocation`.

use base::{Fid, LockHandle, Name};
use dlm::{Bits, CacheInput, Cover, Keep, Mode, Release};
use rpc::Urgency;
use wire::frame::Bulk;
use wire::mdt::Request;
use wire::ost;

use crate::cache::bits::DIR_ATTR;
use crate::cache::bits::FILE_ATTR;
use crate::cache::holder::Holder;
use crate::coherence::invalidation::{Invalidation, KernelName, Leads};
use crate::executor::{join_all, spawn};
use crate::session::client::Client;
use crate::session::kernel::Forget;
use crate::session::locks::Revocation;
use crate::session::state::State;

impl Client {
    /// Starts to give up a lock. The task ends with the cancel or conversion.
    pub(crate) fn start_revocation(&self, revocation: Revocation) {
        let client = self.clone();
        spawn(async move {
            let Revocation {
                holder,
                handle,
                fid,
                cover,
                is_bare,
            } = revocation;
            match cover {
                Cover::Range(_) if is_bare => client.revoke_bare(holder, handle, fid),
                Cover::Range(range) => client.revoke_extent(holder, handle, fid, range).await,
                Cover::Bits(bits) => {
                    let exclusive = {
                        let mut state = client.lock();
                        state
                            .cache
                            .file_known(fid)
                            .and_then(|file| file.locks.exclusive())
                            == Some(handle)
                    };
                    match exclusive {
                        true => client.revoke_exclusive(handle, fid).await,
                        false => client.revoke_bits(handle, fid, bits).await,
                    }
                }
            }
        });
    }

    /// Gives up a lock that covers nothing here.
    fn revoke_bare(&self, holder: Holder, handle: LockHandle, fid: Fid) {
        let mut state = self.lock();
        state.locks.step(holder, CacheInput::Dropped { handle });
        state.drop_if_idle(fid);
        drop(state);
        self.send_releases();
    }

    /// Gives up some or all bits of a lock on attributes, or of a lease.
    async fn revoke_bits(&self, handle: LockHandle, fid: Fid, bits: Bits) {
        self.report_births_of(fid).await;
        let (forget, readers, open) = {
            let mut state = self.lock();
            state.cache.withdraw();
            let forget = self.lose_bits(&mut state, fid, bits);
            let readers = state.uncovered_readers(fid, bits);
            (forget, readers, state.uncovered_files(fid, bits))
        };
        forget.done(self).await;
        self.watch_uncovered(open).await;
        let registered = readers.into_iter().map(|fid| self.register_reader(fid));
        join_all(registered.collect()).await;
        let mut state = self.lock();
        state
            .locks
            .step(Holder::Mdt, CacheInput::Dropped { handle });
        state.drop_if_idle(fid);
        drop(state);
        self.send_releases();
    }

    /// What the bits cover of a file or directory is not known any more. What the kernel is to forget.
    pub(crate) fn lose_bits(&self, state: &mut State, fid: Fid, bits: Bits) -> Invalidation {
        let mut forget = Invalidation::default();
        let dir = state.cache.inode(fid).dir();
        // LOOKUP is in write leases alone.
        if bits.overlaps(DIR_ATTR.union(FILE_ATTR).union(Bits::LOOKUP)) {
            state.cache.inode(fid).attrs.cover_lost();
            forget.forget(Forget::Attributes { fid, dir });
        }
        if bits.contains(Bits::XATTR) {
            state.cache.inode(fid).forget_xattrs();
        }
        if !bits.overlaps(Bits::LEASE) {
            return forget;
        }
        state.cache.withdraw_from(fid);
        if bits.contains(Bits::LIST) {
            state.cache.inode(fid).directory().forget_list();
            forget.forget(Forget::Pages {
                fid,
                range: base::ByteRange::ALL,
            });
        }
        let names: Vec<(Name, Fid)> = match bits.overlaps(Bits::NAMES.union(Bits::CHILD)) {
            true => {
                let directory = state.cache.inode(fid).directory();
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
            state.cache.inode(fid).directory().children_lost();
        }
        if bits.contains(Bits::NAMES) {
            state.cache.inode(fid).directory().forget_all();
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
        forget: &mut Invalidation,
    ) {
        let Some(inode) = state.cache.known_mut(child) else {
            return;
        };
        if !inode.is_in_kernel() {
            return;
        }
        if bits.contains(Bits::CHILD) && inode.attrs.is_covered_by_parent() {
            forget.forget(Forget::Attributes { fid: child, dir });
        }
        if bits.contains(Bits::NAMES) {
            let name = KernelName {
                dir,
                name,
                fid: child,
            };
            self.forget_name(state, name, Leads::Elsewhere, forget);
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
                let mut requests: Vec<_> = releases.iter().filter_map(weakening).collect();
                if !handles.is_empty() {
                    requests.push(ost::Request::Cancel { handles });
                }
                let (nothing, urgency) = (Bulk::default(), Urgency::Urgent);
                cluster
                    .ost_batch(stats, target, &requests, nothing, urgency)
                    .await
                    .map(|_| ())
            }
        };
        if let Err(error) = sent {
            tracing::debug!("locks could not be given back: {error}");
        }
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

fn weakening(release: &Release) -> Option<ost::Request> {
    let Release::Convert(handle, Keep::Mode(mode)) = release else {
        return None;
    };
    Some(ost::Request::Convert {
        handle: *handle,
        mode: mode.index() as u8,
    })
}
