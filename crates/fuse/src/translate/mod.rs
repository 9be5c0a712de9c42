//! Kernel request -> client call -> answer. Translation only: no decision about the file system
//! is made here, but for which answers may be believed for how long ([`gate`]).

mod advice;
mod answers;
mod appending;
mod caller;
mod errno;
pub mod gate;
mod listing;
mod nodes;
mod parked;
mod reading;
mod renames;
mod requests;
mod retries;
mod shape;
mod told_names;
mod told_rights;

use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use base::{Fid, FsError, Name};
use client::{Client, Entry, HandleId, Moved, Reached, Unheard, executor};
use tracing::{error, info, trace};
use wire::{Attr, FileKind};

use crate::kernel::{
    Delivery, Early, Granted, Handler, Heard, InitOffer, InitWish, Notifier, Op, Opened, Replier,
    Request,
};
use gate::{Gate, Passage};
use nodes::{Nodes, Place, Sequel, Telling, Told};
use parked::{Parked, Promise, take};
use retries::{Answering, FoundName, Question, Retries};
use told_names::ToldNames;
use told_rights::{Hold, Rights};

pub use errno::errno;

/// What the requests are answered from.
pub struct FileSystem {
    context: Arc<Context>,
}

/// What every request has at hand.
pub(crate) struct Context {
    client: OnceLock<Client>,
    gate: Arc<Gate>,
    parked: Parked,
    granted: OnceLock<Granted>,
    retries: Retries,
    told_names: ToldNames,
    selinux: bool,
}

/// Which attempt of its caller a question belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nth {
    /// Perhaps the first: the caller would ask anew.
    First,
    /// The second, which is the last.
    Second,
}

/// Whether it matters that the kernel may drop an answer, and go by what it was told before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    Matters,
    Passes,
}

/// One request under way: who asked, and the promise to answer.
#[derive(Clone)]
pub(crate) struct Asked {
    context: Arc<Context>,
    unique: u64,
    thread: u32,
    /// The node that is asked about; of a question about a name, its directory.
    node: u64,
    promise: Promise,
}

impl FileSystem {
    /// `gate` is what the client was given as the kernel's caches. The client follows with
    /// [`FileSystem::serve`], before the mount.
    pub fn new(gate: Arc<Gate>) -> std::io::Result<FileSystem> {
        let context = Context {
            client: OnceLock::new(),
            gate,
            parked: Parked::start()?,
            granted: OnceLock::new(),
            retries: Retries::new(caller::call),
            told_names: ToldNames::default(),
            selinux: std::path::Path::new("/sys/fs/selinux").exists(),
        };
        Ok(FileSystem {
            context: Arc::new(context),
        })
    }

    /// Answers from `client` from now on.
    pub fn serve(&self, client: Client) {
        self.context.nodes().inherit(client.inherited_nodes());
        let (journal, attempts) = client.attempts();
        self.context.retries.inherit(journal, attempts);
        if self.context.client.set(client).is_err() {
            error!("a mount was given a second file system; the first one stays");
        }
    }

    /// Requests that wait for a server.
    pub fn parked(&self) -> usize {
        self.context.parked.len()
    }

    /// What the kernel agreed to.
    pub fn granted(&self) -> Option<Granted> {
        self.context.granted.get().copied()
    }
}

/// Set in the number of a request that the kernel sends again, to another process or to this one.
const SENT_AGAIN: u64 = 1 << 63;

fn is_sent_again(unique: u64) -> bool {
    unique & SENT_AGAIN != 0
}

/// A request's number as it was when it was sent first.
fn origin(unique: u64) -> u64 {
    unique & !SENT_AGAIN
}

impl Context {
    fn client(&self) -> Option<&Client> {
        self.client.get()
    }

    fn nodes(&self) -> &Nodes {
        &self.gate.nodes
    }

    /// A request says whether the kernel could move the directory that its thread was told of last.
    /// Where it could not, the thread looks every name up again.
    fn hear_of_move(&self, request: &Request<'_>) {
        let looks_up = matches!(
            request.op,
            Op::Lookup { .. } | Op::Getattr { .. } | Op::Statx { .. } | Op::Readlink
        );
        let sequel = self.nodes().asks(request.pid, request.nodeid);
        if sequel == Sequel::Elsewhere && looks_up {
            self.retries.told(request.pid, None);
        }
    }
}

impl Asked {
    /// The file of a node; None: one that the kernel has given back.
    fn file(&self, node: u64) -> Option<Fid> {
        self.context.nodes().file(node)
    }

    /// The request's number as it was when it was sent first.
    fn request(&self) -> u64 {
        origin(self.unique)
    }

    fn client(&self) -> Client {
        self.context
            .client
            .get()
            .expect("checked when the request came")
            .clone()
    }

    /// Runs `work` until it waits; what is answered later is answered by the thread that wakes it.
    fn run(self, work: impl Future<Output = ()> + Send + 'static) {
        match self.context.client().is_some_and(Client::is_remembered) {
            true => executor::spawn_for(origin(self.unique), work),
            false => executor::spawn(work),
        }
        self.context
            .parked
            .add(self.unique, self.thread, &self.promise);
    }

    /// Runs `work` on `fid` if the kernel's path there is still right; else the kernel must look the name up
    /// again. A call on a descriptor needs no name.
    fn run_at(
        self,
        fid: Fid,
        asks: (Reached, Question),
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.run_in_attempt(fid, asks, |_| work);
    }

    /// The same. `work` is told which attempt of the caller it belongs to.
    fn run_in_attempt<F>(
        self,
        fid: Fid,
        (reached, question): (Reached, Question),
        work: impl FnOnce(Nth) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let answer = self.clone();
        self.run(async move {
            let client = answer.client();
            let retries = &answer.context.retries;
            let is_found = retries.has_found(answer.thread, fid, question);
            let _pin = is_found.then(|| client.pin(fid));
            let begins = || match client.is_directory(fid) {
                true => retries.begins_at(answer.thread, fid),
                false => retries.begins_at_file(answer.thread, fid, question),
            };
            let is_second = is_found || begins();
            if !is_second
                && let Err(failure) = client.reached_rightly(fid, reached).await
                && !caller::has_by_descriptor(answer.thread, fid)
            {
                return answer.astray((fid, question), failure);
            }
            match is_second {
                true => work(Nth::Second).await,
                false => work(Nth::First).await,
            }
        });
    }

    /// How a change of names in one of these directories failed. One that the caller has come to in its
    /// second attempt, and that is gone by now, was removed during the call: there is no third attempt.
    fn failed_in(&self, dirs: &[Fid], failure: FsError) -> FsError {
        let retries = &self.context.retries;
        let has_come = |dir: &Fid| retries.has_come_to_directory(self.thread, *dir);
        match failure == FsError::Stale && dirs.iter().any(has_come) {
            true => FsError::NotFound,
            false => failure,
        }
    }

    /// The replier, if the caller still waits.
    fn replier(&self) -> Option<Replier> {
        let replier = take(&self.promise);
        self.context.parked.remove(self.unique);
        replier
    }

    fn error(&self, failure: FsError) {
        // Who is told that a file is gone looks its name up again, too.
        if failure == FsError::Stale {
            self.context.retries.told(self.thread, Some(self.request()));
        }
        self.refuse(failure);
    }

    /// Answers what was asked about a file to which its name leads no more.
    fn astray(&self, (fid, question): (Fid, Question), failure: FsError) {
        if failure == FsError::Stale {
            let asked = (fid, question);
            self.context
                .retries
                .told_of(self.thread, self.request(), asked);
        }
        self.refuse(failure);
    }

    /// Answers that `name` in `dir` is to be looked up again, with all other names of the call.
    fn look_again(&self, dir: Fid, name: &Name) {
        let retries = &self.context.retries;
        retries.told_at(self.thread, self.request(), (dir, name));
        self.refuse(FsError::Stale);
    }

    fn refuse(&self, failure: FsError) {
        if let Some(replier) = self.replier() {
            replier.error(errno(failure));
        }
    }

    /// Answers a call that has no result but success.
    fn done(&self, result: Result<(), FsError>) {
        match result {
            Ok(()) => drop(self.replier().map(Replier::done)),
            Err(failure) => self.error(failure),
        }
    }

    /// Answers a call that has changed something. Where its caller was told before that it is interrupted,
    /// the kernel takes what was before for true.
    fn changed(&self, changed: impl FnOnce() -> Unheard, answer: impl FnOnce(Replier) -> Delivery) {
        self.context.retries.ended(self.thread);
        if self.replier().map(answer) != Some(Delivery::Taken) {
            self.client().unheard(changed());
        }
    }

    /// Answers a call that has changed the file, and has no result but success.
    fn changed_file(&self, fid: Fid, result: Result<(), FsError>) {
        match result {
            Ok(()) => self.changed(|| Unheard::file(fid), Replier::done),
            Err(failure) => self.error(failure),
        }
    }

    /// The place of a name in the directory that is asked about.
    fn place(&self, name: &Name) -> Place {
        Place::new(self.node, name.as_bytes())
    }

    /// The node by which the kernel is told of `entry`, which `name` leads to.
    fn tell(&self, name: &Name, entry: &Entry, telling: Telling) -> Told {
        let fid = entry.fid;
        let nodes = self.context.nodes();
        let told = match entry.attr.kind {
            FileKind::Directory => {
                let make = |node| self.client().further_node(node, fid);
                nodes.tell((self.place(name), fid), telling, make)
            }
            _ => None,
        };
        let told = told.unwrap_or(Told::of_file(fid));
        if told.must_move {
            nodes.must_move(self.thread, told.node);
        }
        told
    }

    /// Whether the kernel may be told of a directory that it would have to move. Not where another call was
    /// told of it and has yet to digest that: the kernel would move it back.
    fn telling(&self, name: &Name, entry: &Entry) -> Telling {
        let (fid, nodes) = (entry.fid, self.context.nodes());
        let is_trial = entry.attr.kind == FileKind::Directory
            && nodes.would_move(self.place(name), fid).is_some_and(|from| {
                !self.context.retries.is_second(self.thread)
                    && caller::looks_again(self.thread)
                    && self.context.gate.is_digested(fid, from)
            });
        match is_trial {
            true => Telling::Trial,
            false => Telling::Final,
        }
    }

    /// Answers with what `name` in `dir` was found to lead to.
    fn found(&self, dir: Fid, name: &Name, result: Result<Entry, FsError>) {
        let telling = result
            .as_ref()
            .map_or(Telling::Final, |entry| self.telling(name, entry));
        let tell = |entry: &Entry| self.tell(name, entry, telling);
        self.entry(dir, Answering::Lookup, result, tell);
    }

    /// Answers with what was made as `name` in `dir`.
    fn made(&self, dir: Fid, name: &Name, result: Result<Entry, FsError>) {
        let made = result.as_ref().ok().map(|entry| entry.fid);
        let tell = |entry: &Entry| self.tell(name, entry, Telling::Final);
        let taken = self.entry(dir, Answering::Change, result, tell);
        if let (Some(fid), Delivery::Refused) = (made, taken) {
            self.client().unheard(Unheard::made(dir, name.clone(), fid));
        }
    }

    /// Answers with a directory that was found without a name.
    fn found_unnamed(&self, dir: Fid, result: Result<Entry, FsError>) {
        let nodes = self.context.nodes();
        let tell = |entry: &Entry| nodes.tell_unnamed(self.node, entry.fid);
        self.entry(dir, Answering::Lookup, result, tell);
    }

    /// Gives a reference back that the kernel was not given.
    fn untell(&self, node: u64, fid: Fid) {
        self.context.nodes().forget(node, 1);
        self.client().forget(fid, 1);
    }

    /// Answers with an entry of `dir`; nobody waiting or wanting it, the reference is given back.
    fn entry(
        &self,
        dir: Fid,
        answering: Answering,
        result: Result<Entry, FsError>,
        tell: impl FnOnce(&Entry) -> Told,
    ) -> Delivery {
        let entry = match result {
            Ok(entry) => entry,
            Err(failure) => {
                self.hear_of_name(answering, None);
                self.error(failure);
                return Delivery::Refused;
            }
        };
        let Some(replier) = self.replier() else {
            self.client().forget(entry.fid, 1);
            return Delivery::Refused;
        };
        let mut passage = self.context.gate.pass();
        let current = self.client().stamp() == entry.stamp;
        let watched = passage.note(self.thread, dir, entry.fid);
        let is_covered = entry.attr_valid && current;
        self.tell_rights(&mut passage, entry.fid, (&entry.attr, is_covered));
        let told = tell(&entry);
        let mut shaped = shape::entry_of(&entry, told, current, watched);
        let (fid, kind) = (entry.fid, entry.attr.kind);
        // They may be withdrawn before the call uses them. The question after them would look like one of
        // the next call.
        if answering == Answering::Lookup
            && kind != FileKind::Directory
            && self.context.retries.is_second(self.thread)
        {
            shaped.attributes_valid = Duration::ZERO;
        }
        self.hear_of_name(answering, Some(FoundName { fid, kind }));
        let delivery = replier.entry(&shaped);
        drop(passage);
        if delivery == Delivery::Refused {
            self.untell(told.node, entry.fid);
        }
        delivery
    }

    /// The caller is about to be answered about a name.
    fn hear_of_name(&self, answering: Answering, found: Option<FoundName>) {
        let retries = &self.context.retries;
        match answering {
            Answering::Lookup => retries.looked_up(self.thread, found),
            Answering::Change => retries.ended(self.thread),
        }
    }

    /// Answers RENAME. The kernel moves what it has at the places when it is told.
    fn renamed(&self, places: (Place, Place), moved: Moved, changed: impl FnOnce() -> Unheard) {
        self.changed(changed, |replier| {
            self.context.nodes().moves(places, moved);
            replier.done()
        });
    }

    /// Answers CREATE.
    fn created(
        &self,
        (dir, name): (Fid, Option<Name>),
        result: Result<(Entry, HandleId), FsError>,
        opened: Opened,
    ) {
        let (entry, handle) = match result {
            Ok(made) => made,
            Err(failure) => return self.error(failure),
        };
        let taken = self.replier().is_some_and(|replier| {
            let mut passage = self.context.gate.pass();
            let current = self.client().stamp() == entry.stamp;
            let watched = passage.note(self.thread, dir, entry.fid);
            let is_covered = entry.attr_valid && current;
            self.tell_rights(&mut passage, entry.fid, (&entry.attr, is_covered));
            let opened = Opened {
                handle: handle.0,
                ..opened
            };
            let told = Told::of_file(entry.fid);
            let entry = shape::entry_of(&entry, told, current, watched);
            replier.created(&entry, &opened) == Delivery::Taken
        });
        if !taken {
            self.client().forget(entry.fid, 1);
            self.client().release(handle);
            if let Some(name) = name {
                self.client().unheard(Unheard::made(dir, name, entry.fid));
            }
        }
    }

    /// Answers STATX.
    fn statx(&self, fid: Fid, stat: &client::Stat) {
        let Some(replier) = self.replier() else {
            return;
        };
        let mut passage = self.context.gate.pass();
        let current = self.client().stamp() == stat.stamp;
        let is_covered = stat.valid && current;
        self.tell_rights(&mut passage, fid, (&stat.attr, is_covered));
        let (valid, attributes) = shape::stat_of(fid, stat, current);
        replier.statx(valid, &attributes, Some(stat.attr.btime));
    }

    /// Answers with bytes.
    fn data(&self, bytes: &[u8]) {
        if let Some(replier) = self.replier() {
            replier.data(bytes);
        }
    }

    /// The same, the bytes being in pieces that follow each other.
    fn data_parts(&self, pieces: &[impl AsRef<[u8]>]) {
        if let Some(replier) = self.replier() {
            let parts: Vec<&[u8]> = pieces.iter().map(AsRef::as_ref).collect();
            replier.data_parts(&parts);
        }
    }

    /// Answers with bytes, or with their number where no buffer was given.
    fn sized_data(&self, bytes: &[u8], size: u32) {
        let Some(replier) = self.replier() else {
            return;
        };
        match bytes.len() as u32 {
            length if size == 0 => replier.xattr_size(length),
            length if length > size => replier.error(errno(FsError::Range)),
            _ => replier.data(bytes),
        };
    }

    fn written(&self, fid: Fid, bytes: u64) {
        self.changed(|| Unheard::file(fid), |replier| replier.written(bytes));
    }

    fn offset(&self, offset: u64) {
        if let Some(replier) = self.replier() {
            replier.offset(offset);
        }
    }

    fn status(&self, status: &crate::kernel::FileSystemStatus) {
        if let Some(replier) = self.replier() {
            replier.status(status);
        }
    }

    /// Answers OPEN or OPENDIR; false where nobody wants it any more.
    fn opened(&self, opened: Opened) -> bool {
        self.replier()
            .is_some_and(|replier| replier.opened(&opened) == Delivery::Taken)
    }

    /// Answers with the attributes that a change has led to.
    fn changed_stat(&self, fid: Fid, result: Result<client::Stat, FsError>) {
        if result.is_ok() {
            self.context.retries.ended(self.thread);
        }
        let stat = match result {
            Ok(stat) => stat,
            Err(failure) => return self.error(failure),
        };
        let taken = self.replier().map(|replier| {
            let mut passage = self.context.gate.pass();
            let current = self.client().stamp() == stat.stamp;
            self.tell_rights(&mut passage, fid, (&stat.attr, stat.valid && current));
            // The kernel takes what it is told here even if it was withdrawn before the thread has run again.
            // So it is told for no time, and asks when somebody wants to know.
            let (valid, attributes) = shape::stat_of(fid, &stat, false);
            replier.attributes(valid, &attributes)
        });
        if taken != Some(Delivery::Taken) {
            self.client().unheard(Unheard::file(fid));
        }
    }

    /// The caller is about to be told of these attributes, and whether a lock covers them.
    fn tell_rights(&self, passage: &mut Passage<'_>, fid: Fid, (attr, is_covered): (&Attr, bool)) {
        let hold = match is_covered {
            true => Hold::Covered,
            false => Hold::Uncovered,
        };
        passage.tell(self.thread, fid, (Rights::of(attr), hold));
    }

    /// Answers GETATTR. A caller whose permission the kernel would check by older attributes, as it drops the
    /// answer, looks its path up again.
    async fn looked(&self, (fid, attempt): (Fid, Nth), result: Result<client::Stat, FsError>) {
        let stat = match result {
            Ok(stat) => stat,
            Err(failure) => return self.error(failure),
        };
        let doubt = match attempt {
            Nth::First => Doubt::Matters,
            Nth::Second => Doubt::Passes,
        };
        if self.stat(fid, &stat, doubt) {
            return;
        }
        let is_directory = stat.attr.kind == FileKind::Directory;
        if !caller::checks_path(self.thread, is_directory) {
            self.stat(fid, &stat, Doubt::Passes);
            return;
        }
        let asked = (self.thread, Rights::of(&stat.attr));
        self.context.gate.nothing_is_late(fid, asked).await;
        self.astray((fid, Question::Attributes), FsError::Stale);
    }

    /// Answers with attributes. False: the kernel may drop the answer, and that matters.
    fn stat(&self, fid: Fid, stat: &client::Stat, doubt: Doubt) -> bool {
        let mut passage = self.context.gate.pass();
        let asked = (self.thread, self.request());
        let is_in_doubt = passage.are_in_doubt(fid, asked, Rights::of(&stat.attr));
        if is_in_doubt && doubt == Doubt::Matters {
            return false;
        }
        if let Some(replier) = self.replier() {
            let is_covered = self.client().stamp() == stat.stamp && stat.valid;
            self.tell_rights(&mut passage, fid, (&stat.attr, is_covered));
            let (valid, attributes) = shape::stat_of(fid, stat, is_covered && !is_in_doubt);
            replier.attributes(valid, &attributes);
        }
        true
    }
}

impl FileSystem {
    /// Begins what is asked. No `replier`: the caller was told that it is interrupted.
    fn begin(&self, request: &Request<'_>, replier: Option<Replier>) {
        let gate = &self.context.gate;
        gate.asks(request.pid, origin(request.unique));
        self.context.hear_of_move(request);
        trace!(unique = request.unique, thread = request.pid, nodeid = %Fid(request.nodeid), op = ?request.op, "asked");
        let Some(client) = self.context.client() else {
            replier.map(|replier| replier.error(crate::kernel::Errno::ENOTCONN));
            return;
        };
        if is_sent_again(request.unique) {
            let origin = origin(request.unique);
            client.asked_again(origin);
            self.context.retries.not_heard(request.pid, origin);
        }
        let asked = Asked {
            context: self.context.clone(),
            unique: request.unique,
            thread: request.pid,
            node: request.nodeid,
            promise: Arc::new(Mutex::new(replier)),
        };
        requests::dispatch(asked, request);
    }
}

impl Handler for FileSystem {
    fn init(&self, _offer: &InitOffer) -> InitWish {
        InitWish::default()
    }

    fn ready(&self, granted: &Granted, notifier: &Notifier) {
        info!(minor = granted.minor, "the kernel agreed to the mount");
        // Set once: the handshake happens once.
        let _ = self.context.granted.set(*granted);
        if let Err(cause) = self.context.gate.open(notifier) {
            error!("no thread to tell the kernel what to forget: {cause}");
        }
    }

    fn take_over(&self) {
        if let Some(client) = self.context.client() {
            client.take_over();
        }
    }

    fn handle(&self, request: Request<'_>, replier: Replier) {
        self.begin(&request, Some(replier));
    }

    fn handle_early(&self, request: Request<'_>, replier: Replier) -> Early {
        let waits_for_nothing = match &request.op {
            // Comes under the locks of the process before, which go with the takeover.
            Op::Write(write) => write.from_cache,
            // A close that a server holds up could not be ended: its caller may be past all signals.
            Op::Flush { .. } => true,
            _ => false,
        };
        if waits_for_nothing {
            self.handle(request, replier);
            return Early::Served;
        }
        let promise = Arc::new(Mutex::new(Some(replier)));
        let parked = &self.context.parked;
        parked.add(request.unique, request.pid, &promise);
        Early::Held
    }

    fn handle_held(&self, request: Request<'_>) {
        let replier = self.context.parked.begin(request.unique);
        // What the process before has begun of a call that was interrupted since is brought to its end.
        if replier.is_some() || is_sent_again(request.unique) {
            self.begin(&request, replier);
        }
    }

    fn wakes(&self) {
        self.context.client().inspect(|client| client.wakes());
    }

    fn attend(&self) -> bool {
        self.context.client().is_some_and(Client::attend)
    }

    fn sleeps(&self) {
        self.context.client().inspect(|client| client.sleeps());
    }

    fn forget(&self, nodeid: u64, lookups: u64) {
        if let Some(client) = self.context.client() {
            let fid = self.context.nodes().forget(nodeid, lookups);
            fid.inspect(|fid| client.forget(*fid, lookups));
        }
    }

    fn interrupt(&self, unique: u64) -> Heard {
        self.context.parked.interrupt(unique)
    }

    fn destroy(&self) {
        self.context.parked.close();
    }
}
