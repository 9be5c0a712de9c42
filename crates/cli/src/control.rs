//! The control socket of a mount or a server: statistics and tunables, for the other verbs of this
//! program.
//!
//! One line of JSON in, one out, over a Unix socket that only the process's user and root can open.

pub mod ending;
pub mod of_mount;
pub mod of_targets;
mod whereabouts;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{NameRange, WalkReport, stats::Snapshot};
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, UnixAddr, recv, shutdown, socket,
};
use serde::{Deserialize, Serialize};
use wire::mdt::WalkLevel;

pub use whereabouts::{
    Endpoint, directory, made_private, mount_of, path_for_dir, path_for_mount, path_for_process,
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
    /// To [`Question::PathOf`].
    Path(String),
    /// To [`Question::SizeOnMdt`].
    SizeOnMdt {
        /// It is exact.
        exact: bool,
        /// Bytes.
        size: u64,
        /// Units of 512 bytes.
        blocks: u64,
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
            | Question::Sync
            | Question::Ending
            | Question::PrefetchTree { .. }
            | Question::PrefetchFiles { .. }
            | Question::PrefetchRange { .. }
            | Question::DropCaches => None,
        }
    }
}

/// How long answers under way may take once there is nobody to ask any more.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// How long what needs no server may take: a process that has not answered by then stands still.
const ANSWER_AT_ONCE: Duration = Duration::from_secs(2);
/// Questions that are answered at the same time. Beyond: they wait in the socket's queue.
const QUESTIONS_MAX: usize = 16;

/// Who knows the answers.
pub trait Answering: Send + Sync + 'static {
    /// The answer to one question.
    fn answer(&self, question: Question) -> Answer;

    /// To [`Question::Ending`], which waits as long as the answer `is_wanted`.
    fn ending(&self, _is_wanted: &dyn Fn() -> bool) -> Answer {
        Answer::Failed("this is no mount".to_owned())
    }
}

/// Answers while it lives.
pub struct ControlServer {
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
    /// Listens at `path`.
    pub fn start(path: PathBuf, answering: impl Answering) -> Result<ControlServer, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        // A socket left by a dead process; what it is named by is ours now.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let identity = identity(&path);
        let accepting = listener.try_clone().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || accept(&accepting, &stopped, &Arc::new(answering));
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(work).map_err(failed)?;
        Ok(ControlServer {
            path,
            identity,
            links: Vec::new(),
            listener,
            stop,
            thread: Some(thread),
        })
    }

    /// It is found at `path` too, which is in the same directory. A second name of the socket itself:
    /// when the process is killed it leads nowhere, whoever listens at the first name then.
    pub fn also_at(&mut self, path: PathBuf) -> Result<(), String> {
        let _ = std::fs::remove_file(&path);
        let linked = std::fs::hard_link(&self.path, &path);
        linked.map_err(|error| format!("{}: {error}", path.display()))?;
        self.links.push(path);
        Ok(())
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The device number may be another mount's by now, and the path with it.
        for path in self.links.iter().chain([&self.path]) {
            if identity(path) == self.identity {
                let _ = std::fs::remove_file(path);
            }
        }
        // On Linux, shutting a listening socket down wakes whoever waits in accept.
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
    answering: &Arc<impl Answering>,
) -> Vec<JoinHandle<()>> {
    let mut answers: Vec<JoinHandle<()>> = Vec::new();
    for stream in listener.incoming() {
        if stopped.load(Ordering::SeqCst) {
            break;
        }
        let Ok(stream) = stream else { continue };
        answers.retain(|thread| !thread.is_finished());
        while answers.len() >= QUESTIONS_MAX && !stopped.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
            answers.retain(|thread| !thread.is_finished());
        }
        let answering = answering.clone();
        let work = move || {
            if let Err(error) = answer_one(&stream, &*answering) {
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

fn answer_one(
    stream: &UnixStream,
    answering: &impl Answering,
) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(());
    }
    let answer = match serde_json::from_str(&line) {
        Ok(Question::Ending) => answering.ending(&|| is_wanted(stream)),
        Ok(question) => answering.answer(question),
        Err(error) => Answer::Failed(format!("not a question: {error}")),
    };
    let mut out = stream;
    writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    Ok(())
}

/// Whoever asked is still there.
fn is_wanted(stream: &UnixStream) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    !matches!(recv(stream.as_raw_fd(), &mut [0], flags), Ok(0))
}

/// Asks the mount at (or above) `path`.
pub fn ask(path: &Path, question: &Question) -> Result<Answer, String> {
    Endpoint::of_mount(path)?.ask(question)
}

impl Endpoint {
    /// Asks it. Fails where the process does not answer in time.
    pub fn ask(&self, question: &Question) -> Result<Answer, String> {
        match self.begin(question)?.answer()? {
            Answer::Failed(reason) => Err(reason),
            answer => Ok(answer),
        }
    }

    /// Asks it, and leaves the answer for later.
    pub fn begin(&self, question: &Question) -> Result<Asked<'_>, String> {
        let failed = |error: std::io::Error| self.failed(&error);
        let stream = connect(&self.socket).map_err(failed)?;
        let deadline = question.deadline();
        stream.set_read_timeout(deadline).map_err(failed)?;
        stream.set_write_timeout(deadline).map_err(failed)?;
        let line = serde_json::to_string(question).map_err(|error| error.to_string())?;
        writeln!(&stream, "{line}").map_err(failed)?;
        Ok(Asked { of: self, stream })
    }

    fn failed(&self, error: &std::io::Error) -> String {
        let (name, socket) = (&self.name, self.socket.display());
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "{name} has not answered for {} s: its process stands still ({socket})",
                ANSWER_AT_ONCE.as_secs(),
            ),
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => format!(
                "{name} does not answer: its process has died ({socket}); {}",
                self.remedy()
            ),
            _ => format!("{name} does not answer ({socket}): {error}"),
        }
    }

    /// Somebody listens there.
    fn is_there(&self) -> bool {
        match connect(&self.socket) {
            Ok(_) => true,
            // So many wait for an answer that nobody gives: it will be named as silent.
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// A question on its way.
pub struct Asked<'a> {
    of: &'a Endpoint,
    stream: UnixStream,
}

impl Asked<'_> {
    /// Waits for what it says, be it that it failed.
    pub fn answer(self) -> Result<Answer, String> {
        let mut reply = String::new();
        let read = BufReader::new(&self.stream).read_line(&mut reply);
        read.map_err(|error| self.of.failed(&error))?;
        let name = &self.of.name;
        serde_json::from_str(&reply)
            .map_err(|error| format!("{name} gave an answer that can't be read: {error}"))
    }
}

/// Asks all of them at once, so that silent ones cost one deadline together.
pub fn ask_all(endpoints: &[Endpoint], question: &Question) -> Vec<Result<Answer, String>> {
    std::thread::scope(|scope| {
        let asked: Vec<_> = endpoints
            .iter()
            .map(|endpoint| scope.spawn(|| endpoint.ask(question)))
            .collect();
        let answered = asked.into_iter().map(|asked| {
            let answer = asked.join();
            answer.unwrap_or_else(|_| Err("asking it panicked".to_owned()))
        });
        answered.collect()
    })
}

/// Does not wait for a process that accepts nobody: whose queue is full refuses.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    nix::sys::socket::connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
