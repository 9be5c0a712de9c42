//! `glint umount` and `glint down`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use fuse::kernel::mount::{Unmount, resolve, unmount, users};

use crate::control::{Answer, Asked, Endpoint, Question};
use crate::output::{complain, note, say};

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

/// How long a mount that is taken off by force may still write.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// How long it may take before it is said what it waits for.
const SILENCE: Duration = Duration::from_secs(5);

impl Umount {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        if self.force
            && let Some(ending) = Endpoint::of_ending(&self.point)
        {
            return self.abandon(&ending);
        }
        let endpoint = Endpoint::of_mount(&self.point).ok();
        let process = endpoint.as_ref().map_or(Process::Ended, Process::of);
        let using = match resolve(&self.point) {
            Ok(point) => users(&point),
            Err(_) => Vec::new(),
        };
        if !using.is_empty() && !self.force {
            complain(format!("{} is in use by:", self.point.display()));
            using.iter().for_each(|user| note(format!("  {user}")));
            return Err("end these, or use --force; nothing was changed".to_owned());
        }
        // Asked before: its process may end as soon as it is unmounted.
        let ending = endpoint.as_ref().map(|at| at.begin(&Question::Ending));
        let how = match self.force {
            true => Unmount::Abort,
            false => Unmount::Clean,
        };
        let done = unmount(&self.point, how).map_err(|error| error.to_string())?;
        if let (Unmount::Lazy, Some(endpoint)) = (done, &endpoint) {
            end_service(endpoint)?;
        }
        if let Some(pid) = process.awaited(self.force) {
            wait_for(pid, endpoint.as_ref(), &self.point)?;
        }
        if self.force && !using.is_empty() {
            say("what these had open is lost to them, with what they had not written yet:");
            using.iter().for_each(|user| say(format!("  {user}")));
        }
        let point = self.point.display();
        let lost = process.ending(ending).map_err(|reason| {
            format!(
                "{point} is unmounted, but whether its servers have all of it is not known: {reason}"
            )
        })?;
        match lost {
            // So it was wished.
            Some(lost) if done == Unmount::Lazy => say(format!("{point} unmounted; {lost}")),
            Some(lost) => return Err(format!("{point} is unmounted, but {lost}")),
            None => say(format!("{point} unmounted")),
        }
        Ok(())
    }

    /// Of a mount that is off already.
    fn abandon(&self, ending: &Endpoint) -> Result<(), String> {
        let pid = pid_of(ending)?;
        ending.ask(&Question::Abandon)?;
        wait_for(pid, None, &self.point)?;
        say(format!(
            "{} unmounted; what its servers had not taken yet is lost",
            self.point.display()
        ));
        Ok(())
    }
}

/// Ends the process of a mount that is off, and with it what its users have open. The kernel lets
/// only root do that without it. What servers take at once they get first.
fn end_service(endpoint: &Endpoint) -> Result<(), String> {
    if let Ok(asked) = endpoint.begin(&Question::Sync) {
        // Whatever is not written by then is lost, and told of at the end.
        let _ = asked.within(LAST_WRITES).answer();
    }
    match endpoint.ask(&Question::Abandon)? {
        Answer::Done => Ok(()),
        _ => Err(format!("{} answered something else", endpoint.name)),
    }
}

/// The process that serves a mount.
enum Process {
    /// There is none any more.
    Ended,
    Answers(u32),
    /// Somebody listens in its place, and does not answer.
    Silent {
        pid: Option<u32>,
        reason: String,
    },
}

impl Process {
    fn of(endpoint: &Endpoint) -> Process {
        match pid_of(endpoint) {
            Ok(pid) => Process::Answers(pid),
            Err(_) if !endpoint.is_there() => Process::Ended,
            Err(reason) => Process::Silent {
                pid: endpoint.process(),
                reason,
            },
        }
    }

    /// Whose end is waited for. By force, one that is silent is not.
    fn awaited(&self, force: bool) -> Option<u32> {
        match self {
            Process::Answers(pid) => Some(*pid),
            Process::Silent { pid, .. } if !force => *pid,
            Process::Silent { .. } | Process::Ended => None,
        }
    }

    /// What is lost, if anything is, as it was `asked`. Fails where that could not be heard.
    fn ending(self, asked: Option<Result<Asked<'_>, String>>) -> Result<Option<String>, String> {
        match (self, asked) {
            (Process::Ended, _) | (_, None) => Ok(None),
            (_, Some(Err(reason))) => Err(reason),
            (Process::Answers(_), Some(Ok(asked))) => match asked.answer() {
                Ok(Answer::Ended(lost)) => Ok(lost),
                // One that was killed, or is older, tells nothing of its end.
                _ => Ok(None),
            },
            (Process::Silent { reason, .. }, Some(Ok(asked))) => {
                match asked.within(LAST_WRITES).answer() {
                    Ok(Answer::Ended(lost)) => Ok(lost),
                    _ => Err(reason),
                }
            }
        }
    }
}

/// The number of the process that serves a mount, by its own answer.
fn pid_of(endpoint: &Endpoint) -> Result<u32, String> {
    match endpoint.ask(&Question::Status)? {
        Answer::Status(status) => Ok(status.pid),
        _ => Err(format!("{} answered something else", endpoint.name)),
    }
}

/// The serving process writes what is left before it ends. What that waits for is said once.
fn wait_for(pid: u32, endpoint: Option<&Endpoint>, point: &Path) -> Result<(), String> {
    let (start, mut said) = (Instant::now(), false);
    while storage::is_running(pid) {
        if start.elapsed() > PATIENCE {
            return Err(format!("process {pid} still writes; it goes on by itself"));
        }
        if start.elapsed() > SILENCE && !said {
            said = true;
            let awaited = endpoint.map(awaited).unwrap_or_default();
            complain(format!(
                "{0} is off, and process {pid} still writes what is left{awaited}; `glint \
                 umount --force {0}` ends it at once, and what is left is lost",
                point.display()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The targets that a mount waits for, for people.
fn awaited(endpoint: &Endpoint) -> String {
    let Ok(Answer::Status(status)) = endpoint.ask(&Question::Status) else {
        return String::new();
    };
    let away = status.targets.iter().filter(|(_, how)| *how != "connected");
    let away: Vec<String> = away
        .map(|(target, how)| format!("{target} ({how})"))
        .collect();
    match away.is_empty() {
        true => String::new(),
        false => format!(", but these are away: {}", away.join(", ")),
    }
}
