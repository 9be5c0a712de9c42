//! Opening, closing, fsync. SEMANTICS: op.open, op.close, op.fsync

use std::pin::Pin;

use base::{ByteRange, Fid, FsError, Tick};
use dlm::Mode;
use rpc::Urgency;
use wire::Cover;
use wire::mdt::{Access, OpenHandle, OpenIntent, Reply, Request, SetAttr};
use wire::ost;

use crate::cache::births::{self, Wish};
use crate::cache::file::FileState;
use crate::cache::handle::HandleId;
use crate::cache::holder::Holder;
use crate::cache::registration::{Standing, WriteOpen};
use crate::coherence::cover::By;
use crate::coherence::watch::Watching;
use crate::executor::{AT_ONCE, each_of, join_all, spawn};
use crate::session::client::{Client, StateGuard, unexpected};
use crate::session::file_handle::{FileHandle, OpenWish};
use crate::session::kernel::Forget;
use crate::session::state::State;
use crate::session::stats::bump;

/// An open file.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    /// Names it.
    pub handle: HandleId,
    /// The kernel may keep the pages it has of the file.
    pub keep_cache: bool,
}

/// An open for reading.
pub(crate) const READING: Access = Access {
    read: true,
    write: false,
    exec: false,
};

/// What is waited for together with others.
type Part<'a> = Pin<Box<dyn Future<Output = Result<(), FsError>> + Send + 'a>>;

/// What became of telling the MDT of a use.
enum Registered {
    /// Its present boot knows.
    Now(OpenHandle),
    /// It has restarted meanwhile, or given up on this client: perhaps a boot that is over was told,
    /// and gave this handle.
    Void(Option<OpenHandle>),
}

impl Client {
    /// Opens a regular file.
    pub async fn open(&self, fid: Fid, wish: OpenWish) -> Result<Opened, FsError> {
        bump(&self.0.stats.open);
        let opened = self.open_unwatched(fid, wish).await?;
        self.watch_for(opened.handle, fid).await?;
        Ok(opened)
    }

    /// Who gets the handle may go by what the kernel takes for the file's size.
    pub(crate) async fn watch_for(&self, handle: HandleId, fid: Fid) -> Result<(), FsError> {
        let watched = self.watch(fid, Watching::First).await;
        watched.inspect_err(|_| self.release(handle))
    }

    async fn open_unwatched(&self, fid: Fid, wish: OpenWish) -> Result<Opened, FsError> {
        let access = wish.access;
        let (mut state, execution) = match access {
            Access { write: true, .. } => {
                self.open_for_writing(fid).await?;
                (self.lock(), None)
            }
            Access { exec: true, .. } => {
                let execution = self.begin_execution(fid).await?;
                (self.lock(), Some(execution))
            }
            // Until the handle is there nobody else has the state: who gives a lock up looks for those.
            _ => (self.open_for_reading(fid).await?, None),
        };
        let file = state.cache.file(fid);
        match access {
            Access { write: true, .. } => file.opens.add_writer(),
            Access { exec: true, .. } => file.opens.add_reader(),
            // Counted already.
            _ => {}
        }
        if wish.is_looker() {
            file.opens.add_looker();
        }
        let keep_cache = file.kernel.has_pages() && !access.write;
        let mut handle = FileHandle::new(fid, wish, file.errors.at_open());
        if let Some(execution) = execution {
            handle.register_execution(execution);
        }
        Ok(Opened {
            handle: state.add_file(handle),
            keep_cache,
        })
    }

    /// Somebody else wants to execute the file, or to write it. The MDT hears of the end of what
    /// excludes that here, if it has ended.
    pub(crate) async fn end_idle_use(&self, fid: Fid) {
        self.start_ending_idle_execution(fid);
        let ends = self.lock().wait_for_end_of_use(fid, self.0.clock.tick());
        if let Some(ends) = ends {
            ends.await;
        }
        if let Err(error) = self.end_idle_writer(fid).await {
            tracing::debug!("{fid}: the end of its use for writing cannot be told: {error}");
        }
    }

    /// The MDT hears of a close when the bytes are durable. Who runs what was just built does not
    /// wait for that by itself, and would find the file busy.
    pub(super) async fn end_idle_writer(&self, fid: Fid) -> Result<(), FsError> {
        loop {
            let (wait, written) = {
                let mut state = self.lock();
                let Some(file) = state.cache.file_known(fid) else {
                    return Ok(());
                };
                if !file.registration.has_writers() || file.opens.is_written() {
                    return Ok(());
                }
                (
                    file.registration.is_closing().then(|| file.waiters.wait()),
                    file.durability.written(),
                )
            };
            if let Some(wait) = wait {
                wait.await;
                continue;
            }
            self.write_out(fid, ByteRange::ALL).await;
            self.sync_target(self.target_of(fid)?).await?;
            {
                let mut state = self.lock();
                let file = state.cache.file(fid);
                file.settle(written);
                if !file.opens.is_written() && file.registration.has_writers() {
                    state.policies.writeback.closes(fid);
                }
            }
            self.close_all().await;
        }
    }

    /// Reading needs no word to the MDT while a lock covers the file. Before its name goes, the
    /// lock is withdrawn, or this client removes it itself, and then the MDT is told; and before
    /// the lock goes. Nor while it is open here, unless all that the MDT was told is that it be
    /// kept: then its maker may have it to himself still, with bytes that no OST has.
    pub(crate) async fn open_for_reading(&self, fid: Fid) -> Result<StateGuard<'_>, FsError> {
        {
            let mut state = self.lock();
            let covered = state.attr_valid(fid);
            let stays = covered && !state.cache.may_be_removed(fid);
            let file = state.cache.file(fid);
            // At once, for who removes the name meanwhile.
            file.opens.add_reader();
            if covered {
                file.registration.share();
            }
            let open_elsewhere =
                file.registration.is_kept_by_writers() || file.registration.has_sharing_readers();
            if stays || open_elsewhere {
                bump(&self.0.stats.open_hit);
                return Ok(state);
            }
        }
        let registered = self.register(fid, READING, OpenIntent::First).await;
        let mut state = self.lock();
        let file = state.cache.file(fid);
        match registered {
            Ok(handle) => {
                file.registration.share();
                file.registration.register_readers(handle);
            }
            Err(failure) => {
                file.opens.remove_reader();
                return Err(failure);
            }
        }
        Ok(state)
    }

    /// All writers of this mount share one open at the MDT.
    pub(crate) async fn open_for_writing(&self, fid: Fid) -> Result<(), FsError> {
        loop {
            let birth = self.lock().births.get(fid).map(|birth| birth.standing);
            match birth {
                // The use goes with the word that there is such a file.
                Some(births::Standing::Unreported) => {
                    bump(&self.0.stats.open_hit);
                    return Ok(());
                }
                Some(births::Standing::OnItsWay) => self.report_births_first(&[fid]).await,
                None => {}
            }
            let wait = {
                let mut state = self.lock();
                if state.births.is_unborn(fid) {
                    continue;
                }
                state.policies.writeback.closes_no_more(fid);
                let file = state.cache.file(fid);
                match (
                    file.registration.is_closing(),
                    file.registration.has_writers(),
                ) {
                    (true, _) => file.waiters.wait(),
                    (false, true) => {
                        bump(&self.0.stats.open_hit);
                        return Ok(());
                    }
                    (false, false) => break,
                }
            };
            wait.await;
        }
        self.end_idle_execution(fid).await;
        let access = Access {
            write: true,
            read: true,
            exec: false,
        };
        self.register_writer(fid, access).await?;
        // From now on pages in the kernel can be written without a word: those it has were read
        // under a lock that does not allow it.
        self.drop_kernel_pages(fid).await;
        Ok(())
    }

    /// Of a file that is this mount's alone the lock on its bytes is asked for at the same time.
    async fn register_writer(&self, fid: Fid, access: Access) -> Result<(), FsError> {
        let is_alone = self.lock().is_alone_with(fid);
        let registered = async {
            let registered = self.register(fid, access, OpenIntent::First);
            registered.await.map(|_| ())
        };
        let mut parts: Vec<Part<'_>> = vec![Box::pin(registered)];
        if is_alone {
            // A call that needs the lock asks again.
            let locked = async {
                let _ = self.enqueue(fid, Mode::PW, By::Call).await;
                Ok(())
            };
            parts.push(Box::pin(locked));
        }
        join_all(parts).await.into_iter().collect()
    }

    pub(crate) async fn drop_kernel_pages(&self, fid: Fid) {
        let had = self.lock().cache.file(fid).kernel.take_pages();
        if had {
            self.0
                .forget(Forget::Pages {
                    fid,
                    range: ByteRange::ALL,
                })
                .await;
        }
    }

    /// Tells the MDT of a use. One for writing is kept with the file. A use of before is told until
    /// the boot that the MDT has then has answered.
    pub(crate) async fn register(
        &self,
        fid: Fid,
        access: Access,
        intent: OpenIntent,
    ) -> Result<OpenHandle, FsError> {
        let mark = self.lock().cache.mark(fid);
        loop {
            // After an eviction others may have had it.
            let intent = match intent {
                OpenIntent::ReopenExclusive if !self.lock().servers.may_report(mark) => {
                    OpenIntent::Reopen
                }
                intent => intent,
            };
            match self.register_once(fid, access, intent).await? {
                Registered::Now(handle) => return Ok(handle),
                Registered::Void(handle) => self.end_uses(fid, Vec::from_iter(handle)),
            }
        }
    }

    async fn register_once(
        &self,
        fid: Fid,
        access: Access,
        intent: OpenIntent,
    ) -> Result<Registered, FsError> {
        let again = intent.is_reopen();
        let in_doubt = |file: &mut FileState| file.registration.standing() == Standing::InDoubt;
        let (dir, mark, is_in_doubt) = {
            let mut state = self.lock();
            let dir = state.cache.inode(fid).dir();
            let is_in_doubt = state.cache.file_known(fid).is_some_and(in_doubt);
            (dir, state.cache.mark(dir), is_in_doubt)
        };
        let request = Request::Open {
            fid,
            dir,
            access,
            intent,
        };
        let reply = match (again, is_in_doubt) {
            (false, _) => self.0.mdt(request).await,
            (true, false) => self.mdt_together(request).await,
            // Given up by the MDT: that waits until nobody believes the file's size any more.
            (true, true) => self.0.mdt_urgent(request).await,
        };
        // What an eviction cut off says nothing of the file.
        if again && reply.is_err() && !self.lock().servers.is_of_this_boot(mark) {
            return Ok(Registered::Void(None));
        }
        let reply = reply?;
        let Reply::Opened {
            node,
            handle,
            ticket,
        } = reply
        else {
            return Err(unexpected(&reply));
        };
        let mut state = self.lock();
        if !state.servers.is_of_this_boot(mark) {
            if let Cover::Own(grant) = &node.cover {
                state.locks.refuse(Holder::Mdt, grant.handle);
            }
            return Ok(Registered::Void(Some(handle)));
        }
        // Of a file that the process before had open nothing is known yet.
        let is_unknown = state.cache.attr_of(fid).is_none();
        match (intent, &node.cover) {
            // The answer comes when it is durable, and covers nothing by itself.
            (OpenIntent::First, _) if state.is_alone_with(fid) => state.take_changed(&node, mark),
            (OpenIntent::First, _) => state.take_node(&node, mark),
            (OpenIntent::Reopen, _) if is_unknown => state.take_node(&node, mark),
            (OpenIntent::ReopenExclusive, Cover::Own(grant)) => state.regain(grant, &node, mark),
            (_, Cover::Own(grant)) => drop(state.locks.take_grant(grant)),
            _ => {}
        }
        let file = state.cache.file(fid);
        if access.write {
            let surplus = file
                .registration
                .register_writers(WriteOpen { handle, ticket });
            file.stands(Standing::Known);
            if let Some(surplus) = surplus {
                self.end_uses(fid, vec![surplus]);
            }
        }
        Ok(Registered::Now(handle))
    }

    /// Files open here for reading without the MDT's knowledge: it must know before the name goes.
    pub(crate) async fn register_reader(&self, fid: Fid) {
        let is_unborn = self.lock().births.is_unborn(fid);
        if is_unborn {
            // Its use may go with the word that there is such a file.
            self.report_births_of(fid).await;
            if !self.lock().has_unregistered_readers(fid) {
                return;
            }
        }
        let registered = self.register(fid, READING, OpenIntent::Reopen).await;
        let standing = match &registered {
            Err(FsError::Stale) => Standing::Gone,
            _ => Standing::Known,
        };
        if let Some(file) = self.lock().cache.file_known(fid) {
            file.stands(standing);
        }
        match registered {
            Ok(handle) => self.readers_known(fid, handle),
            Err(error) => tracing::warn!("{fid} is open here, but the MDT does not know: {error}"),
        }
    }

    /// The MDT knows of the file's readers by `handle` now, who may be gone meanwhile.
    pub(crate) fn readers_known(&self, fid: Fid, handle: OpenHandle) {
        let ended = {
            let mut state = self.lock();
            let file = state.cache.file_known(fid);
            match file.filter(|file| file.opens.is_kept()) {
                Some(file) => {
                    file.registration.register_readers(handle);
                    Vec::new()
                }
                None => vec![handle],
            }
        };
        self.end_uses(fid, ended);
    }

    /// One of the handle's descriptors was closed: what failed so far is told.
    pub async fn flush(&self, handle: HandleId) -> Result<(), FsError> {
        let mut state = self.lock();
        let open = state.handles.file(handle).ok_or(FsError::BadHandle)?;
        let (fid, reported) = (open.fid(), open.reported());
        let file = state.cache.file(fid);
        let result = file.errors.close(reported);
        drop(state);
        self.send_rewritten(fid);
        result
    }

    /// The last descriptor of the handle is gone.
    pub fn release(&self, handle: HandleId) {
        let mut state = self.lock();
        let Some(gone) = state.handles.remove_file(handle) else {
            return;
        };
        let fid = gone.fid();
        let file = state.cache.file(fid);
        let ended = match gone.is_writer() {
            true => {
                file.opens.remove_writer();
                Vec::new()
            }
            false => file.reader_gone(),
        };
        if gone.wish().is_looker() {
            state.looker_goes(fid);
        }
        let file = state.cache.file(fid);
        if !file.opens.is_written() && file.registration.has_writers() {
            state.policies.writeback.closes(fid);
        }
        let is_kept = self.0.params.opencache() == 1;
        let execution = gone.execution();
        let execution = execution.and_then(|over| state.end_execution(fid, over, is_kept));
        state.drop_if_idle(fid);
        let is_awaited = state.handles.are_ends_awaited() && !state.excludes_others(fid);
        let asked = match is_awaited {
            true => state.handles.end_use(fid),
            false => Vec::new(),
        };
        drop(state);
        self.end_uses(fid, ended);
        if let Some((program, handle)) = execution {
            self.end_execution(program, handle);
        }
        // After the word that it has ended.
        drop(asked);
    }

    /// Nothing is open any more, whatever the kernel has said.
    pub(crate) fn release_all(&self) {
        let (files, dirs) = self.lock().handles.ids();
        files.into_iter().for_each(|file| self.release(file));
        dirs.into_iter().for_each(|dir| self.releasedir(dir));
    }

    /// Tells the MDT of uses that are over. Nobody reads here any more, or another use took their
    /// place, or they were told of to a boot of the MDT that is over itself.
    pub(crate) fn end_uses(&self, fid: Fid, ended: Vec<OpenHandle>) {
        if ended.is_empty() {
            return;
        }
        let client = self.clone();
        spawn(async move { client.close_uses(fid, ended).await });
    }

    pub(crate) async fn close_uses(&self, fid: Fid, ended: Vec<OpenHandle>) {
        let close = |handle| Request::Close {
            fid,
            dir: Fid::NONE,
            handle,
            change: SetAttr::default(),
            under: base::LockHandle(0),
        };
        let requests = ended.into_iter().map(close).collect();
        let (shared, asked) = (&self.0, self.lock().cache.mark(fid));
        let closed = shared
            .cluster
            .mdt_batch(&shared.stats, requests, Urgency::Urgent)
            .await;
        match closed {
            Ok(replies) => replies
                .iter()
                .flatten()
                .for_each(|reply| shared.keep_grant(reply, asked)),
            Err(error) => tracing::debug!("could not tell the MDT of a close: {error}"),
        }
    }

    /// Everything written to the file, and its attributes and name, are durable when this returns.
    pub async fn fsync(&self, handle: HandleId) -> Result<(), FsError> {
        self.fsync_range(handle, ByteRange::ALL).await
    }

    /// The same, of the bytes of `range` only.
    pub(crate) async fn fsync_range(
        &self,
        handle: HandleId,
        range: ByteRange,
    ) -> Result<(), FsError> {
        let fid = self.lock().handles.file(handle).map(|open| open.fid());
        let fid = fid.ok_or(FsError::BadHandle)?;
        self.make_durable(fid, range).await?;
        let mut state = self.lock();
        let State { cache, handles, .. } = &mut *state;
        let record = handles.record(handle);
        match handles.file(handle) {
            Some(open) => open.sync(&mut cache.file(fid).errors, record),
            None => Ok(()),
        }
    }

    /// Bytes at the OST, attributes and names at the MDT: neither waits for the other.
    async fn make_durable(&self, fid: Fid, range: ByteRange) -> Result<(), FsError> {
        self.report_births_first(&[fid]).await;
        // Also what was written here by uses that are over.
        let is_there = |state: &mut State| state.may_be_undurable(fid);
        let bytes: Part<'_> = Box::pin(self.write_out_durably(fid, range, is_there));
        let is_moved = self.lock().births.edits().move_of(fid).is_some();
        if is_moved {
            // A name that another file had before is reported after the bytes.
            bytes.await?;
            self.report_births(Wish::NameOf(fid)).await;
            return self.make_attributes_durable(fid).await;
        }
        let rest: Part<'_> = Box::pin(self.make_attributes_durable(fid));
        join_all(vec![bytes, rest]).await.into_iter().collect()
    }

    /// Reports what was changed of the file under the EX lock. With that and its names, all that this
    /// mount has done at the MDT is durable.
    async fn make_attributes_durable(&self, fid: Fid) -> Result<(), FsError> {
        self.wait_until(fid, FileState::being_told).await;
        let is_changed = |file: &mut FileState| file.has_changes_to_report().is_some();
        if self.lock().cache.file_known(fid).is_some_and(is_changed) {
            // Over one lane: when the MDT hears the wish that all be durable it has heard the change.
            let (reported, synced): (Part<'_>, Part<'_>) = (
                Box::pin(self.report_changes(fid)),
                Box::pin(self.sync_mdt()),
            );
            join_all(vec![reported, synced])
                .await
                .into_iter()
                .collect::<Result<(), FsError>>()?;
        }
        // Names, and a change that had to be told once more.
        self.sync_names().await
    }

    /// Everything done in the directory, and its own name and attributes, are durable when this returns. What
    /// was lost of it is reported once.
    pub async fn fsyncdir(&self, dir: Fid) -> Result<(), FsError> {
        self.report_births_of(dir).await;
        let lost = {
            let mut state = self.lock();
            let lost = state.cache.take_write_error(dir);
            state.drop_if_idle(dir);
            lost
        };
        self.sync_names().await?;
        lost
    }

    /// Everything done on this mount is durable when this returns, but for what could not be written
    /// in the background, before or now: see [`Client::sync_or_tell`]. Of each target it is tried,
    /// whatever fails at others.
    pub async fn sync(&self) -> Result<(), FsError> {
        self.report_all_births().await;
        self.write_out_all().await;
        let mut result = self.report_all_changes().await;
        let targets: Vec<_> = self.0.cluster.osts().map(|(target, _)| *target).collect();
        for target in targets {
            result = result.and(self.sync_target(target).await);
        }
        result.and(self.sync_mdt().await)
    }

    async fn report_all_changes(&self) -> Result<(), FsError> {
        let fids = self.lock().policies.writeback.take_changed(Tick(u64::MAX));
        let reports = each_of(fids, AT_ONCE, |fid| self.report_changes(fid)).await;
        reports.into_iter().collect()
    }

    /// What this mount has changed at the MDT, and was answered, is durable when this returns. What
    /// others changed was so before it could be seen here.
    pub(crate) async fn sync_names(&self) -> Result<(), FsError> {
        match self.0.cluster.mdt.kept() {
            (0, _) => Ok(()),
            _ => self.sync_mdt().await,
        }
    }

    async fn sync_mdt(&self) -> Result<(), FsError> {
        match self.0.mdt(Request::Sync).await? {
            Reply::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// What the OST was sent is durable when this returns.
    pub(crate) async fn sync_target(&self, target: base::TargetIndex) -> Result<(), FsError> {
        let answer = self.0.ost(target, ost::Request::Sync);
        answer.await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;
    use crate::executor::block_on;
    use crate::rig::servers::{Heard, Servers};

    const FILE: Fid = Fid(7);

    fn is_close(heard: &Heard) -> bool {
        matches!(heard, Heard::Mdt(Request::Close { .. }, _))
    }

    fn is_open(heard: &Heard) -> bool {
        matches!(heard, Heard::Mdt(Request::Open { .. }, _))
    }

    fn execute(client: &Client) -> HandleId {
        let client = client.clone();
        let opened = block_on(async move {
            let access = Access {
                exec: true,
                ..READING
            };
            let append = false;
            client.open(FILE, OpenWish { access, append }).await
        });
        opened.expect("it is answered").handle
    }

    #[test]
    fn an_execution_that_is_over_serves_the_next_one_until_the_file_is_to_be_written() {
        let servers = Servers::start();
        let mounted = servers.mount(None);
        let client = mounted.client();
        let heard = |what: fn(&Heard) -> bool| servers.heard().into_iter().filter(what).count();
        for _ in 0..3 {
            client.release(execute(client));
        }
        assert_eq!((heard(is_open), heard(is_close)), (1, 0));
        let writing = client.clone();
        block_on(async move { writing.open_for_writing(FILE).await }).expect("it is answered");
        assert_eq!((heard(is_open), heard(is_close)), (2, 1));
        let all = servers.heard();
        let [closed, written] = [is_close, is_open].map(|what| all.iter().rposition(what));
        assert!(closed < written, "its own execution would exclude it");
    }

    #[test]
    fn whether_a_file_is_executed_is_answered_when_the_mdt_has_heard_of_the_end() {
        let servers = Servers::start();
        let mounted = servers.mount(None);
        let client = mounted.client();
        let handle = execute(client);
        servers.hold(is_close);
        client.release(handle);
        let (answer, answered) = channel();
        let asked = client.clone();
        spawn(async move {
            asked.end_idle_use(FILE).await;
            answer.send(()).expect("somebody waits");
        });
        servers.wait_for(1, is_close);
        assert!(answered.try_recv().is_err(), "the MDT may not have heard");
        servers.answer();
        let patience = Duration::from_secs(20);
        answered.recv_timeout(patience).expect("it has heard");
    }
}
