//! The control socket of a mount: statistics and tunables, for the other verbs of this program.
//!
//! One line of JSON in, one out, over a Unix socket that only the mount's user and root can open.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base::Fid;
use client::{Mounted, WalkReport, params, stats::Snapshot};
use fuse::kernel::Mount;
use fuse::kernel::mount::{DeviceNumber, mounts, resolve};
use fuse::translate::FileSystem;
use nix::sys::socket::{Shutdown, shutdown};
use serde::{Deserialize, Serialize};
use wire::SizeState;
use wire::mdt::WalkLevel;

/// What is asked of a mount.
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
    /// Set one.
    SetParam {
        /// Its name without the prefix.
        name: String,
        /// Its value.
        value: u64,
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
    /// Drop idle locks and what they cover, as a fresh mount.
    DropCaches,
}

/// What a mount answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Status`].
    Status(Status),
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
    /// To [`Question::PrefetchFiles`]: how many were fetched.
    Files(u64),
    /// Done.
    Done,
    /// It could not be done.
    Failed(String),
}

/// A tunable.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ParamValue {
    /// `llite.FSNAME.NAME`.
    pub name: String,
    /// Now.
    pub value: u64,
    /// Unless set.
    pub default: u64,
    /// What it does.
    pub help: String,
}

/// A mount's state.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// The file system's name.
    pub fsname: String,
    /// The serving process.
    pub pid: u32,
    /// Each target and how things stand with it.
    pub targets: BTreeMap<String, String>,
    /// Files known, files open, directories open, locks held.
    pub sizes: [usize; 4],
    /// Calls of programs that wait for an answer.
    pub parked: usize,
}

/// What questions are about.
pub struct Served {
    /// The file system.
    pub mounted: Arc<Mutex<Mounted>>,
    /// The calls under way.
    pub files: Arc<FileSystem>,
}

/// Answers while it lives.
pub struct ControlServer {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    listener: UnixListener,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Where the sockets of a user's mounts are, one per mount, named by its device number.
fn directory_of(user: nix::unistd::Uid) -> PathBuf {
    match user.is_root() {
        true => PathBuf::from("/run/glint"),
        false => std::env::temp_dir().join(format!("glint-{user}")),
    }
}

/// This user's directory for sockets and logs; made if it is not there, and open to nobody else.
pub fn directory() -> Result<PathBuf, String> {
    let user = nix::unistd::geteuid();
    let path = directory_of(user);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(&path).map_err(failed)?;
    let found = std::fs::symlink_metadata(&path).map_err(failed)?;
    if !found.is_dir() || found.uid() != user.as_raw() {
        return Err(format!(
            "{} belongs to another user; remove it",
            path.display()
        ));
    }
    let owner_only = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(&path, owner_only).map_err(failed)?;
    Ok(path)
}

fn socket_in(directory: &Path, major: u32, minor: u32) -> PathBuf {
    directory.join(format!("{major}:{minor}.sock"))
}

impl ControlServer {
    /// Listens for a mount.
    pub fn start(mount: &Mount, served: Served) -> Result<ControlServer, String> {
        let number = mount.number().ok_or("the mount is gone already")?;
        let path = socket_in(&directory()?, number.major, number.minor);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        // A socket left by a dead process; its device number is ours now.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let identity = identity(&path);
        let accepting = listener.try_clone().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            for stream in accepting.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if let Err(error) = answer_one(&stream, &served) {
                    tracing::debug!("control: {error}");
                }
            }
        };
        let thread = std::thread::Builder::new().name("control".to_owned());
        let thread = thread.spawn(work).map_err(failed)?;
        Ok(ControlServer {
            path,
            identity,
            listener,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The device number may be another mount's by now, and the path with it.
        if identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
        // On Linux, shutting a listening socket down wakes whoever waits in accept.
        let woken = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let (Ok(()), Some(thread)) = (woken, self.thread.take()) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Which file a path leads to: its device and inode number.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn answer_one(stream: &UnixStream, served: &Served) -> Result<(), Box<dyn std::error::Error>> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    if line.is_empty() {
        return Ok(());
    }
    let answer = match serde_json::from_str(&line) {
        Ok(question) => answer(question, served),
        Err(error) => Answer::Failed(format!("not a question: {error}")),
    };
    let mut out = stream;
    writeln!(out, "{}", serde_json::to_string(&answer)?)?;
    Ok(())
}

fn answer(question: Question, served: &Served) -> Answer {
    let (client, fsname) = {
        let mounted = served
            .mounted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        (mounted.client().clone(), mounted.config().fsname.clone())
    };
    let done = |result: Result<(), String>| match result {
        Ok(()) => Answer::Done,
        Err(reason) => Answer::Failed(reason),
    };
    match question {
        Question::Status => Answer::Status(Status {
            fsname,
            pid: std::process::id(),
            targets: client.targets().into_iter().collect(),
            sizes: client.sizes(),
            parked: served.files.parked(),
        }),
        Question::Stats => Answer::Stats(Box::new(client.stats())),
        Question::Walks => Answer::Walks(client.walks()),
        Question::Clear => {
            client.counters().clear();
            Answer::Done
        }
        Question::ListParams => Answer::Params(list_params(&fsname, client.params())),
        Question::SetParam { name, value } => done(client.params().set(&name, value)),
        Question::PathOf { fid } => path_of(client, fid),
        Question::SizeOnMdt { fid } => size_on_mdt(client, Fid(fid)),
        Question::Sync => {
            let synced = client::executor::block_on(async move { client.sync().await });
            done(synced.map_err(|error| error.to_string()))
        }
        Question::PrefetchTree { levels } => prefetch_tree(client, levels),
        Question::PrefetchFiles { fids } => {
            let fids: Vec<Fid> = fids.into_iter().map(Fid).collect();
            let fetch = async move { client.prefetch_files(&fids).await };
            Answer::Files(client::executor::block_on(fetch))
        }
        Question::DropCaches => {
            client.drop_caches();
            Answer::Done
        }
    }
}

fn list_params(fsname: &str, values: &params::Params) -> Vec<ParamValue> {
    let value = |param: &params::Param| ParamValue {
        name: format!("llite.{fsname}.{}", param.name),
        value: values.get(param.name).unwrap_or_default(),
        default: param.default_value(),
        help: param.help.to_owned(),
    };
    params::ALL.iter().map(value).collect()
}

fn prefetch_tree(client: client::Client, levels: Vec<WalkLevel>) -> Answer {
    let part = client::executor::block_on(async move { client.prefetch_tree(levels).await });
    match part {
        Ok(part) => Answer::Tree {
            directories: u64::from(part.directories),
            entries: part.entries,
            next: part.next,
        },
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn size_on_mdt(client: client::Client, fid: Fid) -> Answer {
    let known = async move { client.size_on_mdt(fid).await };
    match client::executor::block_on(known) {
        Ok(attr) => Answer::SizeOnMdt {
            exact: attr.size_state == SizeState::Strict,
            size: attr.size,
            blocks: attr.blocks,
        },
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn path_of(client: client::Client, fid: u64) -> Answer {
    let found = client::executor::block_on(async move { client.path_of(Fid(fid)).await });
    match found {
        Ok(path) => Answer::Path(String::from_utf8_lossy(&path).into_owned()),
        Err(error) => Answer::Failed(error.to_string()),
    }
}

/// Asks the mount at (or above) `path`.
pub fn ask(path: &Path, question: &Question) -> Result<Answer, String> {
    let socket = socket_at(path)?;
    let failed = |error: std::io::Error| {
        format!(
            "the mount at {} does not answer ({}): {error}",
            path.display(),
            socket.display()
        )
    };
    let stream = UnixStream::connect(&socket).map_err(failed)?;
    let line = serde_json::to_string(question).map_err(|error| error.to_string())?;
    writeln!(&stream, "{line}").map_err(failed)?;
    let mut reply = String::new();
    BufReader::new(&stream)
        .read_line(&mut reply)
        .map_err(failed)?;
    match serde_json::from_str(&reply) {
        Ok(Answer::Failed(reason)) => Err(reason),
        Ok(answer) => Ok(answer),
        Err(error) => Err(format!(
            "the mount gave an answer that can't be read: {error}"
        )),
    }
}

fn socket_at(path: &Path) -> Result<PathBuf, String> {
    let ours = mount_of(path)?;
    let socket = |user| socket_in(&directory_of(user), ours.number.major, ours.number.minor);
    let own = socket(nix::unistd::geteuid());
    if own.exists() || !nix::unistd::geteuid().is_root() {
        return Ok(own);
    }
    // Root asks anybody's mount.
    Ok(socket(nix::unistd::Uid::from_raw(ours.user)))
}

/// The Glint mount that a path is on.
pub struct OnMount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// The path, seen from there.
    pub inside: PathBuf,
    number: DeviceNumber,
    user: u32,
}

/// Which mount a path is on.
pub fn mount_of(path: &Path) -> Result<OnMount, String> {
    let resolved = resolve(path).map_err(|error| error.to_string())?;
    let all = mounts().map_err(|error| error.to_string())?;
    let ours = all
        .into_iter()
        .filter(|mount| resolved.starts_with(&mount.point))
        .max_by_key(|mount| mount.point.as_os_str().len())
        .filter(|mount| mount.kind == "fuse.glint")
        .ok_or_else(|| format!("{} is not on a Glint mount", path.display()))?;
    let inside = resolved
        .strip_prefix(&ours.point)
        .unwrap_or(&resolved)
        .to_owned();
    Ok(OnMount {
        user: user_of(&ours.point),
        point: ours.point,
        inside,
        number: ours.number,
    })
}

/// The user who mounted there, from the mount's options.
fn user_of(point: &Path) -> u32 {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut lines = table.lines().filter(|line| {
        line.split(' ')
            .nth(1)
            .is_some_and(|listed| Path::new(listed) == point)
    });
    let user = lines
        .next_back()
        .and_then(|line| line.split("user_id=").nth(1));
    let digits = user.and_then(|text| text.split(|c: char| !c.is_ascii_digit()).next());
    digits
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

/// Every Glint mount on this machine.
pub fn mount_points() -> Result<Vec<PathBuf>, String> {
    let all = mounts().map_err(|error| error.to_string())?;
    Ok(all
        .into_iter()
        .filter(|m| m.kind == "fuse.glint")
        .map(|m| m.point)
        .collect())
}
