//! Files that are open here to be read, and grow elsewhere. The kernel goes by the size that it was
//! told last, so it is told of growth before that is acknowledged. Called by `open`, by what gives
//! locks back, by writes, and by callbacks. Why so is in docs/adr/0017-growth-is-announced.md.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use base::{Fid, FsError, LockHandle, TargetIndex};
use dlm::{CacheInput, Mode};
use wire::SizeState;
use wire::ost::{ExtentGrant, Reply, Request};

use crate::cache::file::FileState;
use crate::cache::file_locks::Watch;
use crate::cache::holder::Holder;
use crate::cache::stamps::AskedExtent;
use crate::coherence::glimpse::Glimpsing;
use crate::executor::{each_of, oneshot, spawn};
use crate::session::client::{Client, unexpected};
use crate::session::cluster::object_of;
use crate::session::gathering::TOGETHER_MAX;
use crate::session::state::State;

/// When a watch is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watching {
    /// The file may have grown already.
    First,
    /// It was watched until now, or a lock let nobody make it longer; so it has not.
    Again,
}

impl State {
    /// A handle by which the file can be read is gone.
    pub fn looker_goes(&mut self, fid: Fid) {
        let file = self.cache.file(fid);
        file.opens.remove_looker();
        if !file.opens.is_looked_at()
            && let Some(watch) = file.locks.take_watch()
        {
            self.locks.unused(watch);
        }
    }

    /// The kernel may go by the size of the file, and others may move it without a word to this client.
    pub fn is_unwatched(&mut self, fid: Fid) -> bool {
        let attr = self.cache.attr_of(fid);
        let is_strict = attr.is_some_and(|attr| attr.size_state == SizeState::Strict);
        let is_covered = (is_strict && self.attr_valid(fid)) || self.locks.holds_to_eof(fid);
        self.cache.file_known(fid).is_some_and(|file| {
            file.opens.is_looked_at()
                && !file.locks.is_exclusive()
                && !file.locks.is_watched()
                && !is_covered
        })
    }

    /// The file's end is this client's alone to move, and nobody watches it.
    pub fn grows_alone(&mut self, fid: Fid) -> bool {
        self.cache.file(fid).locks.is_exclusive() || self.locks.holds_alone(fid)
    }

    /// A lock that lets others write goes, but for as much as it takes to watch the file.
    pub fn drop_extent(&mut self, fid: Fid, (holder, handle): (Holder, LockHandle)) {
        let watches = |file: &mut FileState| file.opens.is_looked_at() && !file.locks.is_watched();
        let is_to_watch =
            matches!(holder, Holder::Ost(_)) && self.cache.file_known(fid).is_some_and(watches);
        let mode = Mode::CR;
        let input = match is_to_watch {
            true => CacheInput::Kept { handle, mode },
            false => CacheInput::Dropped { handle },
        };
        self.locks.step(holder, input);
        if is_to_watch && self.locks.mode_of(holder, handle) == Some(mode) {
            self.cache.file(fid).locks.hold_watch(holder, handle);
        }
    }
}

impl Client {
    /// When this returns the kernel knows how long the file is, and is told before it is longer.
    pub(crate) async fn watch(&self, fid: Fid, how: Watching) -> Result<(), FsError> {
        loop {
            let wait = {
                let mut state = self.lock();
                if !state.is_unwatched(fid) {
                    return Ok(());
                }
                let file = state.cache.file(fid);
                match file.locks.watch() {
                    Watch::Asked => Some(file.waiters.wait()),
                    _ => {
                        file.locks.ask_to_watch();
                        None
                    }
                }
            };
            match wait {
                Some(wait) => drop(wait.await),
                None => self.ask_to_watch(fid, how).await?,
            }
        }
    }

    async fn ask_to_watch(&self, fid: Fid, how: Watching) -> Result<(), FsError> {
        let result = self.ask_for_watch(fid, how).await;
        let mut state = self.lock();
        if let Some(file) = state.cache.file_known(fid) {
            file.locks.watch_answered();
            file.waiters.wake_all();
        }
        state.drop_if_idle(fid);
        result
    }

    async fn ask_for_watch(&self, fid: Fid, how: Watching) -> Result<(), FsError> {
        let target = self.target_of(fid)?;
        let (asked, writes) = {
            let mut state = self.lock();
            (
                state.cache.asks_extent(fid),
                state.cache.file(fid).opens.is_written(),
            )
        };
        let request = |again| Request::Watch {
            object: object_of(fid),
            writes,
            again,
        };
        let reply = match how {
            Watching::First => self.0.ost(target, request(false)).await?.reply,
            Watching::Again => match self.ost_together(target, request(true)).await {
                // Another client has it to itself, and is asked.
                Err(FsError::TryAgain) => self.0.ost_urgent(target, request(false)).await?.reply,
                reply => reply?,
            },
        };
        let Reply::Locked { grant, attr } = reply else {
            return Err(unexpected(&reply));
        };
        if Mode::from_index(grant.mode) != Some(Mode::CR) {
            let kept = self.keep_extent(fid, (target, &grant), attr, asked).await;
            if let Some(size) = kept.map(|mut state| state.cache.file(fid).object.size()) {
                self.raise(fid, size).await;
            }
            return Ok(());
        }
        let is_new = self.lock().take_watch(fid, (target, &grant), asked);
        match how {
            Watching::First if is_new => self.raise_to_now(fid).await,
            _ => Ok(()),
        }
    }

    /// The kernel goes by no smaller size when this returns.
    pub(crate) async fn raise(&self, fid: Fid, size: u64) {
        let (done, is_done) = oneshot();
        self.0.kernel.extend(fid, size, done);
        is_done.await;
        if let Some(file) = self.lock().cache.file_known(fid) {
            file.kernel.raise(size);
        }
    }

    /// The kernel goes by no smaller size than is known here, where it does not ask for it.
    pub(crate) async fn raise_known(&self, fid: Fid) {
        let size = {
            let mut state = self.lock();
            let is_looked_at = state
                .cache
                .file_known(fid)
                .is_some_and(|file| file.opens.is_looked_at());
            is_looked_at
                .then(|| state.seen(fid))
                .flatten()
                .map(|attr| attr.size)
        };
        if let Some(size) = size {
            self.raise(fid, size).await;
        }
    }

    /// A size is about to be told in an answer. Of a larger one the kernel cuts its pages off there when
    /// it comes to it, and they may have more bytes by then: so it hears of that by a notice first.
    pub(crate) async fn raise_before(&self, fid: Fid, size: u64) {
        let is_larger = self.lock().cache.file_known(fid).is_some_and(|file| {
            file.kernel.answer_size(size) && (file.opens.is_looked_at() || file.kernel.has_pages())
        });
        if is_larger {
            self.raise(fid, size).await;
        }
    }

    /// Another client has made the file longer.
    pub(crate) async fn grown(&self, fid: Fid, (holder, handle): (Holder, LockHandle), size: u64) {
        {
            let mut state = self.lock();
            if state
                .cache
                .file_known(fid)
                .is_none_or(|file| !file.opens.is_looked_at())
            {
                // Nobody looks any more.
                state.locks.give_up_or_refuse(holder, handle);
                return;
            }
        }
        self.raise(fid, size).await;
    }

    /// The file ends at `end` at least. Every client that watches it has heard of that when this returns.
    pub(crate) async fn announce(&self, fid: Fid, end: u64) -> Result<(), FsError> {
        let target = self.target_of(fid)?;
        let asked = self.lock().cache.asks_extent(fid);
        let request = Request::Announce {
            object: object_of(fid),
            size: end,
        };
        let answer = self.0.ost(target, request).await?;
        let Reply::Announced { grant, attr } = answer.reply else {
            return Err(unexpected(&answer.reply));
        };
        if let Some(grant) = grant {
            drop(self.keep_extent(fid, (target, &grant), attr, asked).await);
        }
        Ok(())
    }

    /// The same of a file to which the process before wrote: whether it had announced that is not known.
    pub(crate) async fn announce_written(&self, fid: Fid) -> Result<(), FsError> {
        let now = self.glimpse_object(fid, Glimpsing::Alone).await?;
        self.announce(fid, now.size).await
    }

    /// Before it is acknowledged that what covered the size of these files is gone. Those whose OST is
    /// away, or goes meanwhile, are watched when it is there again: the MDT waits for this.
    pub(crate) async fn watch_uncovered(&self, mut fids: Vec<Fid>) {
        fids.retain(|fid| self.is_at_hand(*fid));
        each_of(fids, TOGETHER_MAX, |fid| self.watch_at_hand(fid)).await;
    }

    /// The OST of the file can be asked just now.
    fn is_at_hand(&self, fid: Fid) -> bool {
        let target = self.lock().cache.ost(fid);
        target.is_some_and(|target| self.0.cluster.is_connected(target))
    }

    /// Waits until the file is watched, or its OST is away.
    async fn watch_at_hand(&self, fid: Fid) {
        let (tell, mut watched) = oneshot();
        let client = self.clone();
        spawn(async move {
            client.watch_all(vec![fid]).await;
            tell.send(());
        });
        while self.is_at_hand(fid) {
            let mut moment = self.lock().servers.wait_a_moment();
            let is_watched = poll_fn(|task| match Pin::new(&mut watched).poll(task) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending => Pin::new(&mut moment).poll(task).map(|_| false),
            });
            if is_watched.await {
                return;
            }
        }
    }

    /// Before anybody can have come to make files longer that are open here. A boot of their OST
    /// begins for this client, or goes on after it was away.
    pub(crate) async fn watch_on(&self, target: TargetIndex) {
        self.watch_all(self.unwatched_on(target)).await;
    }

    async fn watch_all(&self, fids: Vec<Fid>) {
        let watched = |fid| async move { (fid, self.watch(fid, Watching::Again).await) };
        for (fid, result) in each_of(fids, TOGETHER_MAX, watched).await {
            if let Err(error) = result {
                tracing::warn!("{fid} is open here, and may grow elsewhere unnoticed: {error}");
            }
        }
    }

    /// The kernel comes to know how long the watched files are, which another process or another boot of
    /// this client may have been told.
    pub(crate) fn raise_watched(&self) {
        let watched: Vec<Fid> = {
            let state = self.lock();
            let is_watched = |file: &FileState| file.locks.is_watched();
            let files = state.cache.files().filter(|(_, file)| is_watched(file));
            files.map(|(fid, _)| fid).collect()
        };
        let client = self.clone();
        spawn(async move {
            let raised = each_of(watched, TOGETHER_MAX, |fid| client.raise_to_now(fid)).await;
            if let Some(Err(error)) = raised.into_iter().find(Result::is_err) {
                tracing::debug!("the size of an open file is not known: {error}");
            }
        });
    }

    /// The same for a file of which nobody waited until it was watched: it may have grown by then.
    pub(crate) async fn raise_if_watched(&self, fid: Fid) {
        let is_watched = |file: &mut FileState| file.locks.is_watched();
        if !self.lock().cache.file_known(fid).is_some_and(is_watched) {
            return;
        }
        if let Err(error) = self.raise_to_now(fid).await {
            tracing::debug!("{fid}: its size is not known: {error}");
        }
    }

    async fn raise_to_now(&self, fid: Fid) -> Result<(), FsError> {
        let now = self.glimpse_object(fid, Glimpsing::Together).await?;
        self.raise(fid, now.size).await;
        Ok(())
    }

    /// The files open here on an OST that nobody watches for the kernel.
    fn unwatched_on(&self, target: TargetIndex) -> Vec<Fid> {
        let mut state = self.lock();
        let fids = state.handles.open_files();
        let is_there = |state: &mut State, fid: Fid| {
            state.cache.ost(fid) == Some(target) && state.is_unwatched(fid)
        };
        let unwatched = fids.into_iter().filter(|fid| is_there(&mut state, *fid));
        unwatched.collect()
    }
}

impl State {
    /// A lock to watch a file came. False: it was watched already, or this was asked of a boot of the
    /// OST that is over.
    fn take_watch(
        &mut self,
        fid: Fid,
        (target, grant): (TargetIndex, &ExtentGrant),
        asked: AskedExtent,
    ) -> bool {
        let holder = Holder::Ost(target);
        if !self.servers.is_of_this_boot_of(target, asked) {
            self.locks.refuse(holder, grant.handle);
            return false;
        }
        self.locks.extent_used(target, grant);
        let is_wanted = self
            .cache
            .file_known(fid)
            .is_some_and(|file| file.opens.is_looked_at() && !file.locks.is_watched());
        if self.locks.mode_of(holder, grant.handle).is_none() {
            return false;
        }
        match is_wanted {
            true => self.cache.file(fid).locks.hold_watch(holder, grant.handle),
            false => self.locks.unused((holder, grant.handle)),
        }
        is_wanted
    }
}
