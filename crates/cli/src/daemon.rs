//! `--daemon`: the program starts itself again in a session of its own, waits until the child is ready or has
//! ended, and says so. The child inherits nothing that the caller has open; its log goes to a file.
#![allow(
    unsafe_code,
    reason = "closing what the caller has open has no safe wrapper"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;
use nix::libc;
use nix::unistd::{User, geteuid};

use crate::control;
use crate::logging;
use crate::output::{announce, note, say};

/// In the environment of the child.
const CHILD: &str = "GLINT_DAEMON";

/// What a verb that stays takes.
#[derive(Args, Clone)]
pub struct Daemon {
    /// Go to the background as soon as all is ready, and say the process id.
    #[arg(long)]
    daemon: bool,
    /// Where a daemon logs, and beside it, as FILE.1, what was before [default:
    /// /var/log/glint/daemon-PID.log, for users below ~/.local/state/glint].
    #[arg(long, value_name = "FILE", requires = "daemon")]
    log: Option<PathBuf>,
}

impl Daemon {
    /// True in the process that has nothing more to do: the daemon runs.
    pub fn start(&self) -> Result<bool, String> {
        if !self.daemon {
            return Ok(false);
        }
        if is_child() {
            nix::unistd::setsid().map_err(|error| format!("cannot leave the terminal: {error}"))?;
            return Ok(false);
        }
        let log = match &self.log {
            Some(log) => log.clone(),
            None => log_directory()?.join(format!("daemon-{}.log", std::process::id())),
        };
        launch(&log).map(|()| true)
    }
}

impl Daemon {
    /// This process runs in the background.
    pub fn is_daemon(&self) -> bool {
        self.daemon
    }
}

/// Where this user's daemons log: on disk, for what they said is wanted after a restart, too.
fn log_directory() -> Result<PathBuf, String> {
    let user = geteuid();
    if user.is_root() {
        return control::made_private(PathBuf::from("/var/log/glint"));
    }
    let home = User::from_uid(user).ok().flatten().map(|user| user.dir);
    let home = home.filter(|home| home.is_dir());
    match home.map(|home| control::made_private(home.join(".local/state/glint"))) {
        Some(Ok(dir)) => Ok(dir),
        // A user without a home has what there is for sockets.
        _ => control::directory(),
    }
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Everything is up: says so, to the process that started us.
pub fn ready(line: &str) {
    announce(line);
    if is_child() {
        // The parent has heard it and ends; later words go where the log goes.
        let _ = nix::unistd::dup2_stdout(std::io::stderr());
        // Not to hold up the unmounting of where we were started.
        let _ = nix::unistd::chdir("/");
    }
}

fn launch(path: &PathBuf) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let log = logging::open(path).map_err(failed)?;
    let before = log.metadata().map_err(failed)?.len() as usize;
    let mut child = spawn(log, path).map_err(|error| format!("cannot start a daemon: {error}"))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(failed)?;
    }
    if line.is_empty() {
        let status = child.wait().map_err(failed)?;
        let said = fs::read(path).unwrap_or_default();
        let said = String::from_utf8_lossy(said.get(before..).unwrap_or_default()).into_owned();
        let mut lines: Vec<&str> = said.trim().lines().collect();
        let Some(last) = lines.pop() else {
            return Err(format!("the daemon ended: {status}"));
        };
        lines.into_iter().for_each(note);
        return Err(last.trim_start_matches("glint: ").to_owned());
    }
    say(format!(
        "{} (pid {}, log {})",
        line.trim_end(),
        child.id(),
        path.display()
    ));
    Ok(())
}

/// The first descriptor that is no standard stream.
const FIRST: u32 = 3;

/// Nothing but the standard streams goes on to other programs from now on.
fn keep_to_ourselves() -> std::io::Result<()> {
    let flags = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
    // SAFETY: closes nothing; sets a flag of each descriptor, which is looked at when another program
    // is started.
    match unsafe { libc::close_range(FIRST, u32::MAX, flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn spawn(log: File, path: &Path) -> std::io::Result<Child> {
    keep_to_ourselves()?;
    let mut arguments = std::env::args_os();
    arguments.next();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).env(CHILD, "1");
    command.env(logging::LOG_FILE, std::path::absolute(path)?);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
}
