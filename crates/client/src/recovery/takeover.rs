//! Takeover from the previous process of this mount. The order keeps it correct: the kernel forgets all that
//! the old locks covered, then the servers get all that was changed under them. Only then do the servers hear
//! that this process is settled, and drop those locks.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use base::{ByteRange, Fid, FsError, LockHandle, TargetName, Transno};
use handover::{Found, Record, Records, Region};
use rpc::{Batch, ClientSecret, Legacy, Unanswered};
use threads::{Condvar, Mutex};
use wire::mdt::{OpenIntent, SetAttr};
use wire::opcode;

use crate::cache::handle::HandleId;
use crate::cache::inode::Inode;
use crate::cache::stamps::Mark;
use crate::calls::attributes::changed_here;
use crate::coherence::invalidation::Invalidation;
use crate::executor::{AT_ONCE, block_on, each_of, join_all, oneshot, spawn};
use crate::journal::bytes::{self, FoundBytes};
use crate::journal::call_records::Redone;
use crate::journal::call_records::{found_answer, found_request, outcome_of_resent};
use crate::journal::configuration::Configuration;
use crate::journal::edits::FoundEdit;
use crate::journal::errors;
use crate::journal::failures::Reported;
use crate::journal::handles::{HandleBody, OpenedAs};
use crate::journal::nodes::FurtherNode;
use crate::journal::record::{
    ANSWER, ATTEMPT, BIRTH, BYTES, CHANGE, CONFIGURATION, ChangeBody, DIRECTORY_TIME, EDIT, FAILED,
    FURTHER_NODE, HANDLE, NODE, PINNED, REQUEST, RESIZE, TARGET, TUNABLES, WRITTEN, decode,
};
use crate::journal::resizes::{self, FoundResize, Resize};
use crate::journal::serving::{INCARNATION, SECRET, SETTLED, WROTE, is_serving};
use crate::journal::sessions::{Sessions, TargetBody};
use crate::journal::tunables::Tunables;
use crate::recovery::inherit::Inherited;
use crate::recovery::void::Opened;
use crate::session::client::Client;
use crate::session::dir_handle::DirHandle;
use crate::session::file_handle::{FileHandle, OpenWish};
use crate::session::gathering::TOGETHER_MAX;
use crate::session::kernel::Forget;
use crate::session::locks::is_own;
use crate::session::state::State;
use crate::session::taken_over::TakenOver;

/// Numbers of requests of one process: those of the next are greater.
const XIDS_OF_A_LIFE: u32 = 32;
/// How long the kernel may take to drop pages that a read on its way holds fast.
const PAGES_PATIENCE: Duration = Duration::from_millis(500);
/// Files that the kernel is to forget at once.
const FORGOTTEN_AT_ONCE: usize = 256;

/// The memory that outlives a process, and the records found in it.
pub struct TakeoverState {
    records: Records,
    incarnation: u64,
    secret: ClientSecret,
    sessions: Sessions,
    configuration: Configuration,
    found: Mutex<Vec<Found>>,
}

impl TakeoverState {
    /// Opens the memory. A mount begins in new memory, with this secret. None: the memory cannot be used.
    pub fn open(region: Region, secret: ClientSecret) -> Option<TakeoverState> {
        let (records, mut found) = Records::open(region)?;
        let told = found.extract_if(.., |found| found.kind == CONFIGURATION);
        let configuration = Configuration::new(records.clone(), told.collect());
        let incarnation = records.get(INCARNATION) + 1;
        let secret = match incarnation {
            1 => {
                for (cell, half) in SECRET.iter().zip(secret.0.chunks_exact(8)) {
                    let half = half.try_into().unwrap_or_default();
                    records.set(*cell, u64::from_ne_bytes(half));
                }
                secret
            }
            _ => {
                let mut bytes = [0; 16];
                for (cell, half) in SECRET.iter().zip(bytes.chunks_exact_mut(8)) {
                    half.copy_from_slice(&records.get(*cell).to_ne_bytes());
                }
                ClientSecret(bytes)
            }
        };
        records.set(INCARNATION, incarnation);
        Some(TakeoverState {
            sessions: Sessions::new(records.clone()),
            configuration,
            records,
            incarnation,
            secret,
            found: Mutex::new(found),
        })
    }

    /// The memory.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The sessions with targets.
    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// What the MGS told last.
    pub(crate) fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// The tunables that were set while mounted. They are found once.
    pub(crate) fn tunables(&self) -> Tunables {
        Tunables::new(self.records.clone(), self.take(TUNABLES))
    }

    /// Which process of the mount this is, from 1.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// What this mount alone knows.
    pub fn secret(&self) -> ClientSecret {
        self.secret
    }

    fn take(&self, kind: u8) -> Vec<Found> {
        let mut found = self.found.lock().unwrap_or_else(|p| p.into_inner());
        found.extract_if(.., |found| found.kind == kind).collect()
    }

    /// The sessions of the process before, of each target the newest: it may have been about to forget
    /// another.
    pub(crate) fn legacies(&self) -> Vec<(TargetName, Legacy)> {
        let found = self.found.lock().unwrap_or_else(|p| p.into_inner());
        let sessions = newest(found.iter().filter(|found| found.kind == TARGET));
        let legacy = |body: TargetBody, committed: u64| Legacy {
            session: body.session,
            epoch: body.epoch,
            first_xid: self.incarnation << XIDS_OF_A_LIFE,
            committed: Transno(committed),
        };
        let sessions = sessions.into_values();
        sessions
            .map(|(body, found)| (body.target, legacy(body, found.mark)))
            .collect()
    }

    /// The changes that were sent to the MDT: those to be sent again, and those that it may lose.
    pub(crate) fn asked(&self, redone: &Redone) -> rpc::Left {
        let (mut answered, mut undurable) = (BTreeSet::new(), Vec::new());
        for answer in self.take(ANSWER).into_iter().filter_map(found_answer) {
            answered.insert(answer.head.place);
            undurable.extend(answer.undurable());
            if answer.is_wanted() {
                redone.add(answer);
            }
        }
        let mut unanswered = Vec::new();
        for mut found in self.take(REQUEST).into_iter().filter_map(found_request) {
            let place = found.place;
            if answered.contains(&place) {
                continue;
            }
            let batch = Batch::of(opcode::MDT, std::mem::take(&mut found.body));
            let (call_record, sender) = found.go_on(&self.records, redone);
            unanswered.push(Unanswered {
                place,
                batch,
                call_record: Box::new(call_record),
                then: Box::new(move |result| sender.send(outcome_of_resent(result))),
            });
        }
        rpc::Left {
            unanswered,
            undurable,
        }
    }

    /// Restores the state of the previous process into `state`.
    pub(crate) fn restore(&self, state: &mut State) -> TakenOver {
        let mut taken_over = TakenOver::new(state.cache.mark(Fid::NONE));
        for (body, found) in newest(self.take(TARGET).into_iter()).into_values() {
            self.sessions.inherit(body, found.record);
        }
        for found in self.take(NODE) {
            if let Some(fid) = decode::<Fid>(&found.bytes) {
                taken_over.nodes += 1;
                state.cache.inode(fid).inherit_lookups(found.mark);
                state.journal.adopt_node(fid, found.record);
            }
        }
        let further = self.take(FURTHER_NODE).into_iter();
        let further = further.filter_map(|found| FurtherNode::inherit(&found.bytes, found.record));
        state.journal.adopt_further_nodes(further);
        state.journal.adopt_attempts(self.take(ATTEMPT));
        for found in self.take(PINNED) {
            if let Some(fid) = decode::<Fid>(&found.bytes) {
                taken_over.files.insert(fid);
                state.restore_pinned(fid, found.record);
            }
        }
        for failed in self.take(FAILED).into_iter().filter_map(errors::found) {
            state.cache.inherit_write_errors(failed);
        }
        let (gone, last_unreported) = self.restore_unreported(state, &mut taken_over);
        for (dir, at) in state.journal.adopt_dates(self.take(DIRECTORY_TIME)) {
            state.restore_date(dir, at);
        }
        for found in self.take(WRITTEN) {
            state.journal.adopt_written(&found.bytes, found.record);
        }
        state.handles.number_as(self.incarnation);
        for found in self.take(HANDLE) {
            if let Some(body) = decode::<HandleBody>(&found.bytes) {
                taken_over.handles += 1;
                taken_over.files.insert(body.fid);
                let reported = Reported::of_mark(found.mark);
                restore_handle(state, body, reported, found.record);
            }
        }
        taken_over.changes = self.changes();
        let later = taken_over.changes.iter().map(|(body, _)| body.order + 1);
        state
            .journal
            .go_on_after(later.fold(self.records.get(WROTE).max(last_unreported), u64::max));
        taken_over.bytes = self.restore_contents(state, &mut taken_over.files);
        // Of a file that was removed there may be something left.
        for fid in gone {
            taken_over.files.remove(&fid);
            taken_over.changes.retain(|(body, _)| body.fid != fid);
            state.with_pages(fid, |file| file.pages.discard(ByteRange::ALL));
        }
        taken_over
    }

    /// What the MDT does not know, in the order in which it was made and changed. The files that are gone,
    /// and the order that comes after all of it.
    fn restore_unreported(
        &self,
        state: &mut State,
        taken_over: &mut TakenOver,
    ) -> (HashSet<Fid>, u64) {
        let births = state.journal.adopt_births(self.take(BIRTH));
        let edits = state.journal.adopt_edits(self.take(EDIT));
        taken_over.births = births.unreported.len();
        taken_over.edits = edits.len();
        let mut gone = births.removed;
        let removed = edits.iter().filter_map(FoundEdit::removed);
        gone.extend(removed);
        let mut edits = edits.into_iter().peekable();
        let mut last = 0;
        for body in births.unreported {
            while let Some(edit) = edits.next_if(|edit| edit.order < body.order) {
                state.restore_edit(edit);
            }
            last = body.order + 1;
            state.restore_birth(body);
        }
        for edit in edits {
            last = edit.order + 1;
            state.restore_edit(edit);
        }
        (gone, last)
    }

    /// Attributes changed, of each file those that it had last.
    fn changes(&self) -> Vec<(ChangeBody, Record)> {
        let mut last: BTreeMap<Fid, (ChangeBody, Record)> = BTreeMap::new();
        for found in self.take(CHANGE) {
            let Some(body) = decode::<ChangeBody>(&found.bytes) else {
                continue;
            };
            match last.get(&body.fid) {
                Some((known, _)) if known.order > body.order => {}
                _ => drop(last.insert(body.fid, (body, found.record))),
            }
        }
        last.into_values().collect()
    }

    /// What was written and what was cut off, in the order in which that was done.
    fn restore_contents(&self, state: &mut State, files: &mut BTreeSet<Fid>) -> usize {
        let written = self.take(BYTES).into_iter().filter_map(|found| {
            let part = bytes::found(&found.bytes, found.mark)?;
            // Of a write that was under way the kernel asks again.
            part.is_whole(&self.records)
                .then_some((part.order, Was::Written(part, found)))
        });
        let resized = self.take(RESIZE).into_iter().filter_map(resizes::found);
        let resized = resized.map(|found| (found.resize.order, Was::Resized(found)));
        let mut all: Vec<(u64, Was)> = written.chain(resized).collect();
        all.sort_by_key(|(order, _)| *order);
        let last = all.last().map_or(0, |(order, _)| order + 1);
        state.journal.go_on_after(last);
        let mut bytes = 0;
        for (_, was) in all {
            match was {
                Was::Written(part, found) => {
                    bytes += part.bytes.len();
                    files.insert(part.fid);
                    self.restore_bytes(state, &part, found);
                }
                Was::Resized(found) => {
                    files.insert(found.resize.fid);
                    restore_resize(state, found);
                }
            }
        }
        bytes
    }

    fn restore_bytes(&self, state: &mut State, part: &FoundBytes, found: Found) {
        state.journal.add_written(part.origin);
        state.with_pages(part.fid, |file| {
            file.pages.write(part.offset, &part.bytes, base::Tick(0));
            file.object.was_changed(part.mtime);
            let end = part.offset + part.bytes.len() as u64;
            file.object.grow(end);
            file.remembered.adopt(&self.records, found);
        });
    }
}

/// A change that the previous process made to a file's contents.
enum Was {
    Written(FoundBytes, Found),
    Resized(FoundResize),
}

fn restore_resize(state: &mut State, found: FoundResize) {
    let Resize {
        fid,
        shape,
        ticket,
        mtime,
        ..
    } = found.resize;
    state.journal.adopt_resized(found.unanswered);
    state.with_pages(fid, |file| {
        file.object.was_changed(mtime);
        if let Some(undurable) = found.undurable {
            file.resizes.inherit(shape, ticket, undurable);
        }
        file.object
            .was_resized(shape.size_after(file.object.size()));
        // What it took may be there still, where the process before ended in its midst.
        file.pages.discard(shape.removes());
    });
}

/// Of the sessions with each target, the newest.
fn newest<F: Borrow<Found>>(found: impl Iterator<Item = F>) -> BTreeMap<String, (TargetBody, F)> {
    let mut newest = BTreeMap::<String, (TargetBody, F)>::new();
    for found in found {
        let Some(body) = decode::<TargetBody>(&found.borrow().bytes) else {
            continue;
        };
        match newest.get(&body.target.to_string()) {
            Some((known, _)) if known.age() >= body.age() => {}
            _ => drop(newest.insert(body.target.to_string(), (body, found))),
        }
    }
    newest
}

impl State {
    /// A call that the process before served must find the file.
    fn restore_pinned(&mut self, fid: Fid, record: Record) {
        self.cache.file(fid).opens.pin();
        let now = self.locks.now();
        self.handles.keep_pinned(now, fid, Some(record));
    }
}

fn restore_handle(state: &mut State, body: HandleBody, reported: Reported, record: Record) {
    let (fid, id, left) = (body.fid, HandleId(body.id), (record, body.origin));
    let opens = &mut state.cache.file(fid).opens;
    let wish = match body.opened() {
        OpenedAs::Directory => {
            opens.add_reader();
            return state.handles.restore_dir(id, DirHandle::new(fid), left);
        }
        OpenedAs::File { access, append } => OpenWish { access, append },
    };
    opens.add_handle(wish.access);
    let open = FileHandle::new(fid, wish, reported);
    state.handles.restore_file(id, open, left);
}

impl Client {
    /// The state of this process is recorded for the next one.
    pub fn is_remembered(&self) -> bool {
        self.0.records.is_some()
    }

    /// How often another process went on with this mount; None: none would.
    pub fn replaced(&self) -> Option<u64> {
        let records = self.0.records.as_ref()?;
        is_serving(records).then(|| records.get(INCARNATION).saturating_sub(1))
    }

    /// The kernel asks again what it had asked the process before: a use that was opened for it and
    /// not told is nobody's.
    pub fn asked_again(&self, origin: u64) {
        let opened = self.lock().handles.opened_for(origin);
        match opened {
            Some((handle, true)) => self.releasedir(handle),
            Some((handle, false)) => self.release(handle),
            None => {}
        }
    }

    /// Takes over from the previous process, before the kernel's requests are read. True: there was one.
    pub fn take_over(&self) -> bool {
        let taken_over = self
            .0
            .taken_over
            .lock()
            .unwrap_or_else(|p| p.into_inner())
            .take();
        let Some(taken_over) = taken_over else {
            return false;
        };
        let began = self.0.clock.tick();
        let held_fast = self.forget_all();
        let hold = self.0.cluster.mdt.hold_ready();
        self.lock().policies.pending_updates.await_inherited(hold);
        self.0.cluster.peers().for_each(rpc::Peer::withdrawn);
        let TakenOver {
            bytes,
            requests,
            handles,
            nodes,
            births,
            edits,
            changes,
            files,
            mark,
        } = taken_over;
        let changed = changes.len();
        let client = self.clone();
        let inherited = block_on(async move {
            client.put_in_order(files, changes, mark).await;
            client.inherit_locks(held_fast).await
        });
        let all = {
            let mut state = self.lock();
            state.policies.pending_updates.inherited_acknowledged();
            state.all_acknowledged()
        };
        if let Some(all) = all {
            all.report(self);
        }
        self.0.cluster.peers().for_each(rpc::Peer::settled);
        self.have_locks(inherited);
        self.join_all();
        if let Some(records) = &self.0.records {
            records.set(SETTLED, records.get(INCARNATION));
        }
        let took = self.0.clock.tick().since(began);
        tracing::warn!(
            "took over from a process that ended: {bytes} unwritten bytes, {changed} changed files, \
             {births} files that the MDT did not know, {edits} changes of others, \
             {requests} requests under way, {handles} open files, {nodes} files known to the kernel, in {} ms",
            took.as_millis()
        );
        true
    }

    /// This process has locks from now on: first those that it has inherited.
    fn have_locks(&self, inherited: Vec<Inherited>) {
        let osts = self.0.cluster.osts().map(|(index, _)| *index);
        let mut state = self.lock();
        let inherited = state.still_inherited(inherited);
        state.settle(osts);
        let now = state.locks.now();
        state.handles.renew_pinned(now);
        state.keep_inherited(inherited);
    }

    /// The kernel forgets what it was told under locks that this process does not know. Open files of
    /// which it has not forgotten all pages then, since a read on its way holds some.
    fn forget_all(&self) -> BTreeSet<Fid> {
        if !self.0.kernel.forget_all_names() {
            tracing::error!("the kernel cannot forget all names: some may be old");
        }
        let nodes = self.known_to_the_kernel();
        self.forget_lapsed_before();
        for fid in &nodes {
            let (done, _) = oneshot();
            let what = Forget::Attributes {
                fid: *fid,
                dir: Fid::NONE,
            };
            self.0.kernel.forget(what, done);
        }
        let left = Arc::new((
            Mutex::new(BTreeSet::from_iter(nodes.clone())),
            Condvar::new(),
        ));
        let (client, tell) = (self.clone(), left.clone());
        spawn(async move { client.forget_pages_of(nodes, &tell).await });
        let held_fast = left.0.lock().unwrap_or_else(|p| p.into_inner());
        let waited = left
            .1
            .wait_timeout_while(held_fast, PAGES_PATIENCE, |left| !left.is_empty());
        let held_fast = waited.unwrap_or_else(|p| p.into_inner()).0.clone();
        if !held_fast.is_empty() {
            tracing::warn!(
                "reads on their way hold pages: the locks on those files stay for longer"
            );
        }
        held_fast
    }

    /// What the kernel writes back of files whose locks went before this process could be told, was
    /// stored under those.
    fn forget_lapsed_before(&self) {
        let mut lapsed = Invalidation::default();
        {
            let mut state = self.lock();
            for fid in state.take_lapsed() {
                lapsed.lapse(state.cache.file(fid), fid);
            }
        }
        let client = self.clone();
        spawn(async move { lapsed.done(&client).await });
    }

    /// Files that are open come last: only of those reads can be on their way.
    fn known_to_the_kernel(&self) -> Vec<Fid> {
        let state = self.lock();
        let mut nodes: Vec<Fid> = state.journal.nodes().collect();
        let is_open = |fid: &Fid| state.cache.known(*fid).is_some_and(Inode::is_open);
        nodes.sort_by_cached_key(is_open);
        nodes
    }

    async fn forget_pages_of(&self, nodes: Vec<Fid>, left: &(Mutex<BTreeSet<Fid>>, Condvar)) {
        each_of(nodes, FORGOTTEN_AT_ONCE, |fid| async move {
            let range = ByteRange::ALL;
            self.0.forget(Forget::Pages { fid, range }).await;
            left.0
                .lock()
                .unwrap_or_else(|p| p.into_inner())
                .remove(&fid);
            left.1.notify_all();
        })
        .await;
    }

    async fn put_in_order(
        &self,
        files: BTreeSet<Fid>,
        changes: Vec<(ChangeBody, Record)>,
        mark: Mark,
    ) {
        self.report_inherited_births().await;
        let files = Vec::from_iter(files);
        each_of(files.clone(), TOGETHER_MAX, |fid| {
            self.reopen_inherited(fid)
        })
        .await;
        // What was cut off goes first: bytes may have come after it.
        let osts = self.0.cluster.osts();
        join_all(osts.map(|(target, _)| self.redo_resizes(*target)).collect()).await;
        self.raise_watched();
        self.write_out_files(&files).await;
        // The locks they are under go with `Ready`, and as any other not before that is durable.
        for (target, _) in self.0.cluster.osts() {
            if let Err(error) = self.settle_old_bytes(*target).await {
                tracing::warn!("what was written to {target:?} may be lost with it: {error}");
            }
        }
        each_of(changes, AT_ONCE, |(body, record)| async move {
            let fid = body.fid;
            if let Err(error) = self.report_inherited(body, mark).await {
                // It was told, and the lock given up with it.
                tracing::debug!("{fid}: what was changed was told before: {error}");
            }
            drop(record);
        })
        .await;
    }

    /// Tells what the process before had changed under the MDT's lock. `mark`: of before this process
    /// began.
    async fn report_inherited(&self, body: ChangeBody, mark: Mark) -> Result<(), FsError> {
        let ChangeBody {
            fid,
            under,
            epoch,
            change,
            ..
        } = body;
        loop {
            let present = {
                let mut state = self.lock();
                if !state.servers.may_report(mark) {
                    // It went with an eviction: others may have changed the same since.
                    state.cache.add_write_error(fid, FsError::Io);
                    return Ok(());
                }
                state.servers.mdt_epoch()
            };
            // A lock of an earlier boot says nothing against it.
            let under = match epoch == present && !is_own(under) {
                true => under,
                false => LockHandle::ENDED,
            };
            let changed = changed_here(fid, Fid::NONE, change.clone(), under);
            let reported = self.0.report_to_mdt(changed).await;
            let state = self.lock();
            let is_same = state.servers.mdt_epoch() == present && state.servers.may_report(mark);
            if is_same || reported.is_ok() {
                return reported;
            }
        }
    }

    /// Tells the MDT of an open file again.
    async fn reopen_inherited(&self, fid: Fid) {
        let (read, write, mark) = {
            let mut state = self.lock();
            let mark = state.cache.mark(fid);
            let file = state.cache.file(fid);
            let dirty = file.pages.dirty_bytes() > 0 || file.resizes.is_lost();
            (file.opens.is_kept(), file.opens.is_written() || dirty, mark)
        };
        let opened = Opened {
            fid,
            read,
            write,
            intent: OpenIntent::Reopen,
            closing: false,
            change: SetAttr::default(),
            mark,
            is_loss_reported: false,
            _until_acknowledged: (None, None),
        };
        self.reopen(opened).await;
    }
}

#[cfg(test)]
#[path = "takeover_tests.rs"]
mod tests;
