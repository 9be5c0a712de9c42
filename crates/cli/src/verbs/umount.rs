//! `glint umount` and `glint down`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use fuse::kernel::mount::{MountUser, Unmount, resolve, unmount, users};

use crate::control::{Answer, Asked, Endpoint, Question};
use crate::output::say;

/// Unmount. A mount that is in use stays as it is, and its users are listed.
#[derive(Args)]
pub struct Umount {
    /// Where it is mounted.
    point: PathBuf,
    /// Unmount although it is in use: open files are lost to their programs, and so is what they
    /// have not written yet.
    #[arg(long)]
    force: bool,
}

/// How long the serving process may take to write everything and end.
const PATIENCE: Duration = Duration::from_secs(120);

impl Umount {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let endpoint = Endpoint::of_mount(&self.point).ok();
        let pid = endpoint.as_ref().and_then(pid_of);
        let using = match resolve(&self.point) {
            Ok(point) => users(&point),
            Err(_) => Vec::new(),
        };
        if !using.is_empty() && !self.force {
            return Err(self.in_use_by(&using));
        }
        // Asked before: its process may end as soon as it is unmounted.
        let ending = endpoint.as_ref().map(|at| at.begin(&Question::Ending));
        let how = match self.force {
            true => Unmount::Abort,
            false => Unmount::Clean,
        };
        unmount(&self.point, how).map_err(|error| error.to_string())?;
        if let Some(pid) = pid {
            wait_for(pid)?;
        }
        if self.force && !using.is_empty() {
            say("what these had open is lost to them, with what they had not written yet:");
            using.iter().for_each(|user| say(format!("  {user}")));
        }
        let point = self.point.display();
        // One that was killed, or is older, tells nothing of its end.
        if let Some(Ok(Answer::Ended(Some(lost)))) = ending.and_then(Result::ok).map(Asked::answer)
        {
            return Err(format!("{point} is unmounted, but {lost}"));
        }
        say(format!("{point} unmounted"));
        Ok(())
    }

    fn in_use_by(&self, using: &[MountUser]) -> String {
        let mut lines = format!("{} is in use by:", self.point.display());
        using
            .iter()
            .for_each(|user| lines.push_str(&format!("\n  {user}")));
        lines.push_str("\nend these, or use --force; nothing was changed");
        lines
    }
}

/// The process that serves a mount, if it answers.
fn pid_of(endpoint: &Endpoint) -> Option<u32> {
    match endpoint.ask(&Question::Status) {
        Ok(Answer::Status(status)) => Some(status.pid),
        _ => None,
    }
}

/// A process that has ended may still wait for its parent to ask how (proc_pid_stat(5)).
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The serving process writes what is left before it ends.
fn wait_for(pid: u32) -> Result<(), String> {
    let start = Instant::now();
    while runs(pid) {
        if start.elapsed() > PATIENCE {
            return Err(format!("process {pid} still writes; it goes on by itself"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
