//! The control socket of a mount or a server: statistics and tunables, for the other verbs of this program.
//! One line of JSON in, one out, over a Unix socket.

mod asking;
pub mod ending;
mod listening;
mod of_extents;
pub mod of_mount;
pub mod of_targets;
mod whereabouts;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{NameRange, WalkReport, stats::Snapshot};
use nix::sys::socket::{MsgFlags, Shutdown, getsockopt, recv, shutdown, sockopt};
use nix::unistd::{Uid, geteuid};
use serde::{Deserialize, Serialize};
use wire::mdt::WalkLevel;
use wire::ost::StoredExtent;

pub use asking::{Asked, ask, ask_all, is_served, path};
use asking::{LINE_BYTES_MAX, read_line};
use listening::Changing;
use whereabouts::public;
pub use whereabouts::{
    Endpoint, directory, made_private, mount_of, mount_of_entry, path_for_dir, path_for_mount,
    path_for_process,
};

/// What is asked of a mount, or of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Question {
    /// Who are you?
    Status,
    /// Counters.
    Stats,
    /// What is fetched ahead, walk by walk.
    Walks,
    /// Counters to zero.
    Clear,
    /// All tunables.
    ListParams,
    /// Set one that is a number.
    SetParam {
        /// Its name; of a mount's without the prefix.
        name: String,
        /// Its value.
        value: u64,
    },
    /// Start, change or stop a rule by which requests to a target wait.
    SetRule {
        /// The tunable's whole name.
        name: String,
        /// `start …`, `change …` or `stop …`.
        command: String,
    },
    /// A path of a FID.
    PathOf {
        /// The FID.
        fid: u64,
    },
    /// What the MDT knows of a file's size.
    SizeOnMdt {
        /// Its FID.
        fid: u64,
    },
    /// Where a file lies on its OST.
    Map {
        /// Its FID.
        fid: u64,
        /// From this byte on.
        offset: u64,
    },
    /// Make everything durable.
    Sync,
    /// How did the mount end? Answered when it has.
    Ending,
    /// End at once, although not everything is written. For a mount that is off already.
    Abandon,
    /// Fetch the next part of a tree's names and attributes.
    PrefetchTree {
        /// Where it goes on: [`WalkLevel`]s.
        levels: Vec<WalkLevel>,
    },
    /// Fetch the bytes of files.
    PrefetchFiles {
        /// Their FIDs.
        fids: Vec<u64>,
    },
    /// Fetch the attributes of numbered names, at most [`client::RANGE_PART_MAX`].
    PrefetchRange {
        /// The FID of their directory.
        dir: u64,
        /// The names.
        range: NameRange,
    },
    /// Drop idle locks and what they cover, as a fresh mount.
    DropCaches,
}

/// What it answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Status`], of a mount.
    Status(Status),
    /// To [`Question::Status`], of a server.
    Serving(ServerStatus),
    /// To [`Question::Stats`].
    Stats(Box<Snapshot>),
    /// To [`Question::Walks`].
    Walks(Vec<WalkReport>),
    /// To [`Question::ListParams`].
    Params(Vec<ParamValue>),
    /// To [`Question::PathOf`]: its bytes, which need not be text.
    Path(Vec<u8>),
    /// To [`Question::SizeOnMdt`].
    SizeOnMdt {
        /// It is exact.
        exact: bool,
        /// Bytes.
        size: u64,
        /// Units of 512 bytes.
        blocks: u64,
    },
    /// To [`Question::Map`].
    Map {
        /// The OST's number.
        ost: u16,
        /// Ascending.
        extents: Vec<StoredExtent>,
        /// From where on there may be more; none: these are all.
        next: Option<u64>,
    },
    /// To [`Question::PrefetchTree`].
    Tree {
        /// Directories fetched.
        directories: u64,
        /// Entries of them.
        entries: u64,
        /// Where the tree goes on; empty at its end.
        next: Vec<WalkLevel>,
    },
    /// To [`Question::PrefetchFiles`], how many were fetched; to [`Question::PrefetchRange`], how many
    /// there are.
    Files(u64),
    /// To [`Question::Ending`]: what is lost, if anything is.
    Ended(Option<String>),
    /// Done.
    Done,
    /// It could not be done.
    Failed(String),
}

/// A tunable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ParamValue {
    /// `llite.FSNAME.NAME`, `mdt.FSNAME-MDT0.NAME`, `ost.FSNAME-OST0.NAME`.
    pub name: String,
    /// Now.
    pub value: Setting,
    /// Unless set.
    pub default: Setting,
    /// What it does.
    pub help: String,
}

/// The value of a tunable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Number(u64),
    /// Lines of text, none for an empty one.
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Number(number) => fmt::Display::fmt(number, f),
            Setting::Text(text) => f.write_str(text),
        }
    }
}

/// A mount's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The file system's name.
    pub fsname: String,
    /// The serving process.
    pub pid: u32,
    /// Where it is mounted, or was.
    #[serde(with = "asking::path")]
    pub mounted_at: PathBuf,
    /// It is off, and its process has yet to end.
    pub ending: bool,
    /// The mount's name for itself, as servers list it.
    pub uuid: String,
    /// Targets that the same process serves.
    pub serves: Option<ServerStatus>,
    /// Each target and how things stand with it.
    pub targets: BTreeMap<String, String>,
    /// Files known, files open, directories open, locks held.
    pub sizes: [usize; 4],
    /// Calls of programs that wait for an answer.
    pub parked: usize,
    /// Another process goes on if this one is killed: how often one has. None: none would.
    pub replaced: Option<u64>,
    /// Another would have, but the supervisor has ended.
    pub forsaken: bool,
}

/// A server's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The file system's name.
    pub fsname: String,
    /// The serving process.
    pub pid: u32,
    /// Its targets.
    pub targets: Vec<TargetStatus>,
}

/// How things stand with a target's clients since its restart. Clients are named by UUID, and by
/// address where they are here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TargetStatus {
    /// As in `MDT0`.
    pub target: String,
    /// It waits for clients that were here before.
    pub recovering: bool,
    /// For how long still.
    pub seconds_left: Option<u64>,
    /// Clients that are here.
    pub clients: usize,
    /// Clients of the life before that have come back.
    pub back: Vec<String>,
    /// Those that are waited for.
    pub awaited: Vec<String>,
    /// Those that did not come in time.
    pub given_up: Vec<String>,
    /// Requests that did again what a crash had taken, where that is counted.
    pub replayed: Option<u64>,
    /// Why it no longer serves.
    pub stopped: Option<String>,
}

impl Question {
    /// How long an answer may take. None: as long as servers need.
    fn deadline(&self) -> Option<Duration> {
        match self {
            Question::Status
            | Question::Stats
            | Question::Walks
            | Question::Clear
            | Question::Abandon
            | Question::ListParams
            | Question::SetParam { .. }
            | Question::SetRule { .. } => Some(ANSWER_AT_ONCE),
            Question::PathOf { .. }
            | Question::SizeOnMdt { .. }
            | Question::Map { .. }
            | Question::Sync
            | Question::Ending
            | Question::PrefetchTree { .. }
            | Question::PrefetchFiles { .. }
            | Question::PrefetchRange { .. }
            | Question::DropCaches => None,
        }
    }

    /// It changes nothing and tells no name: every process that may use the mount may ask it.
    fn is_for_everybody(&self) -> bool {
        matches!(
            self,
            Question::Status
                | Question::Stats
                | Question::Walks
                | Question::ListParams
                | Question::Sync
        )
    }
}

/// How long answers under way may take once there is nobody to ask any more.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long what needs no server may take, to the last byte: a process that has not answered by then
/// stands still.
const ANSWER_AT_ONCE: Duration = Duration::from_secs(5);
/// How long a question may take to come, to the last byte.
const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// Questions that are answered at the same time. Beyond: they wait in the socket's queue.
const QUESTIONS_MAX: usize = 16;
/// Those of users who are neither root nor the process's own. Beyond: refused at once.
const QUESTIONS_OF_OTHERS_MAX: usize = 8;
/// Of these, those of one user.
const QUESTIONS_OF_ONE_MAX: usize = 4;
/// What a refused one is told.
const BUSY: &str = "busy: ask again in a moment";

/// Who knows the answers.
pub trait Answering: Send + Sync + 'static {
    /// The answer to one question.
    fn answer(&self, question: Question) -> Answer;

    /// The answer to one that another user asks, and that is for everybody.
    fn answer_to_others(&self, question: Question) -> Answer {
        self.answer(question)
    }

    /// To [`Question::Ending`], which waits as long as the answer `is_wanted`.
    fn ending(&self, _is_wanted: &dyn Fn() -> bool) -> Answer {
        Answer::Failed("this is no mount".to_owned())
    }
}

/// Who may ask, besides root and the process's own user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Nobody.
    Own,
    /// Everybody, what is for everybody: the mount is there for other users.
    Everybody,
}

/// Where questions come.
struct Desk<A> {
    answering: A,
    visitors: Arc<Visitors>,
}

/// The questions under way of users who are neither root nor the process's own, by user.
#[derive(Default)]
struct Visitors(Mutex<HashMap<Uid, usize>>);

/// One of these questions, until it is dropped.
struct Visit {
    visitors: Arc<Visitors>,
    user: Uid,
}

impl Visitors {
    fn questions(&self) -> MutexGuard<'_, HashMap<Uid, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None: too many are under way.
    fn admit(self: &Arc<Self>, user: Uid) -> Option<Visit> {
        let mut questions = self.questions();
        let own = questions.get(&user).copied().unwrap_or_default();
        let all: usize = questions.values().sum();
        if own >= QUESTIONS_OF_ONE_MAX || all >= QUESTIONS_OF_OTHERS_MAX {
            return None;
        }
        questions.insert(user, own + 1);
        let visitors = self.clone();
        Some(Visit { visitors, user })
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut questions = self.visitors.questions();
        match questions.remove(&self.user) {
            None | Some(1) => {}
            Some(number) => {
                questions.insert(self.user, number - 1);
            }
        }
    }
}

/// Answers while it lives.
pub struct ControlServer {
    own: Door,
    /// Where others ask: however many come there, root and the process's own user find theirs free.
    _public: Option<Door>,
}

/// A socket at which questions are heard while it lives.
struct Door {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    /// Other names of it.
    links: Vec<PathBuf>,
    listener: UnixListener,
    stop: Arc<AtomicBool>,
    /// Gives back the threads of answers under way.
    thread: Option<JoinHandle<Vec<JoinHandle<()>>>>,
}

impl ControlServer {
    /// Listens at `path`, and beside it where `audience` is more than the process's own user and root.
    pub fn start(
        path: PathBuf,
        audience: Audience,
        answering: impl Answering,
    ) -> Result<ControlServer, String> {
        let desk = Arc::new(Desk {
            answering,
            visitors: Arc::default(),
        });
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let changing = Changing::of(&directory);
        changing.remove_dead(&directory);
        let public = match audience {
            Audience::Own => None,
            Audience::Everybody => Some(Door::open(public(&path), audience, &desk)?),
        };
        let own = Door::open(path, Audience::Own, &desk)?;
        Ok(ControlServer {
            own,
            _public: public,
        })
    }

    /// It is found at `path` too, which is in the same directory. A second name of the socket itself:
    /// when the process is killed it leads nowhere, no matter which process listens at the first
    /// name then.
    pub fn also_at(&mut self, path: PathBuf) -> Result<(), String> {
        let _changing = path.parent().map(Changing::of);
        let _ = std::fs::remove_file(&path);
        let linked = std::fs::hard_link(&self.own.path, &path);
        linked.map_err(|error| format!("{}: {error}", path.display()))?;
        self.own.links.push(path);
        Ok(())
    }
}

impl Door {
    fn open(
        path: PathBuf,
        audience: Audience,
        desk: &Arc<Desk<impl Answering>>,
    ) -> Result<Door, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        // Of a process that is on its end; what it is named by is ours now.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let mode = match audience {
            Audience::Own => 0o600,
            Audience::Everybody => 0o666,
        };
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode).map_err(failed)?;
        let identity = identity(&path);
        let accepting = listener.try_clone().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, desk) = (stop.clone(), desk.clone());
        let work = move || accept(&accepting, &stopped, audience, &desk);
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(work).map_err(failed)?;
        Ok(Door {
            path,
            identity,
            links: Vec::new(),
            listener,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The device number may be another mount's by now, and the path with it.
        for path in self.links.iter().chain([&self.path]) {
            if identity(path) == self.identity {
                let _ = std::fs::remove_file(path);
            }
        }
        // On Linux, shutting a listening socket down wakes the thread that waits in accept.
        let woken = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let (Ok(()), Some(thread)) = (woken, self.thread.take()) {
            // A thread that panicked has said so already.
            let answers = thread.join().unwrap_or_default();
            let began = Instant::now();
            let is_under_way = || answers.iter().any(|answer| !answer.is_finished());
            while is_under_way() && began.elapsed() < LAST_ANSWERS {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Which file a path leads to: its device and inode number.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Answers each question on a thread of its own: one may wait for servers, while another asks why.
fn accept(
    listener: &UnixListener,
    stopped: &AtomicBool,
    audience: Audience,
    desk: &Arc<Desk<impl Answering>>,
) -> Vec<JoinHandle<()>> {
    let mut answers: Vec<JoinHandle<()>> = Vec::new();
    for stream in listener.incoming() {
        if stopped.load(Ordering::SeqCst) {
            break;
        }
        let Ok(stream) = stream else { continue };
        let Some(asks) = desk.admit(&stream) else {
            continue;
        };
        answers.retain(|thread| !thread.is_finished());
        while answers.len() >= QUESTIONS_MAX && !stopped.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
            answers.retain(|thread| !thread.is_finished());
        }
        let desk = desk.clone();
        let work = move || {
            if let Err(error) = desk.answer_one(&stream, &asks, audience) {
                tracing::debug!("control: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("answer".to_owned());
        match thread.spawn(work) {
            Ok(thread) => answers.push(thread),
            Err(error) => tracing::warn!("control: {error}"),
        }
    }
    answers
}

/// The user who asks.
enum Asks {
    /// Root, or the process's own.
    Own,
    Other(#[expect(dead_code, reason = "counts until it is dropped")] Visit),
}

impl<A: Answering> Desk<A> {
    /// None: one too many, who is told so without a thread.
    fn admit(&self, stream: &UnixStream) -> Option<Asks> {
        let user = Uid::from_raw(getsockopt(stream, sockopt::PeerCredentials).ok()?.uid());
        if user.is_root() || user == geteuid() {
            return Some(Asks::Own);
        }
        let visit = self.visitors.admit(user);
        if visit.is_none() {
            let told = stream
                .set_nonblocking(true)
                .and_then(|()| reply(stream, &Answer::Failed(BUSY.to_owned())));
            // The process that asked may have gone.
            told.unwrap_or_else(|error| tracing::debug!("control: {error}"));
        }
        visit.map(Asks::Other)
    }

    fn answer_one(
        &self,
        stream: &UnixStream,
        asks: &Asks,
        audience: Audience,
    ) -> std::io::Result<()> {
        let answer = hear(stream)?.and_then(|question| match (asks, question) {
            (Asks::Own, Question::Ending) => Ok(self.answering.ending(&|| is_wanted(stream))),
            (Asks::Own, question) => Ok(self.answering.answer(question)),
            (Asks::Other(_), question)
                if question.is_for_everybody() && audience == Audience::Everybody =>
            {
                Ok(self.answering.answer_to_others(question))
            }
            (Asks::Other(_), _) => Err(Some(match geteuid() {
                root if root.is_root() => "only root may ask that".to_owned(),
                own => format!("only root and uid {own} may ask that"),
            })),
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(None) => return Ok(()),
            Err(Some(refusal)) => Answer::Failed(refusal),
        };
        stream.set_write_timeout(Some(ASKED_WITHIN))?;
        reply(stream, &answer)
    }
}

fn reply(mut stream: &UnixStream, answer: &Answer) -> std::io::Result<()> {
    writeln!(stream, "{}", serde_json::to_string(answer)?)
}

/// A question; `Err(None)`: the other end went away without one.
fn hear(stream: &UnixStream) -> std::io::Result<Result<Question, Option<String>>> {
    let until = Some(Instant::now() + ASKED_WITHIN);
    let line = read_line(stream, until, LINE_BYTES_MAX)?;
    if line.is_empty() {
        return Ok(Err(None));
    }
    let question = serde_json::from_slice(&line);
    Ok(question.map_err(|error| Some(format!("not a question: {error}"))))
}

/// The process that asked is still there.
fn is_wanted(stream: &UnixStream) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    !matches!(recv(stream.as_raw_fd(), &mut [0], flags), Ok(0))
}
