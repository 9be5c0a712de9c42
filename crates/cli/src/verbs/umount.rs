//! `glint umount` and `glint down`

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use fuse::kernel::mount::{
    DeviceNumber, MountUser, Unmount, at, elsewhere, mounts, resolve, unmount, users,
};

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

/// How long a mount that is taken off by force may still write, to servers that take it.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// How long that may take in all, whatever its process says.
const FORCED_MAX: Duration = Duration::from_secs(10);

/// How long it may take before it is said what it waits for.
const SILENCE: Duration = Duration::from_secs(5);

impl Umount {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let began = Instant::now();
        if self.force
            && let Some(ending) = Endpoint::of_ending(&self.point)
        {
            return self.abandon(&ending);
        }
        let endpoint = Endpoint::of_mount(&self.point).ok();
        let process = endpoint.as_ref().map_or(Process::Ended, Process::of);
        let point = resolve(&self.point).map_err(|error| error.to_string())?;
        let number = number_of(&point).ok_or_else(|| {
            let point = point.display();
            format!("nothing of Glint is mounted on {point}")
        })?;
        self.refuse_others(endpoint.as_ref())?;
        let using = self.users_in_the_way(&point)?;
        // Asked before: its process may end as soon as it is unmounted.
        let ending = endpoint.as_ref().map(|at| at.begin(&Question::Ending));
        let how = match self.force {
            true => Unmount::Abort,
            false => Unmount::Clean,
        };
        // This process may work in it. There is a root directory always.
        let _ = std::env::set_current_dir("/");
        let done = unmount(&point, how).map_err(|error| error.to_string())?;
        // From here on another mount may have the device number, and what is named by it.
        let awaited = process.awaited(self.force);
        let serving = endpoint.as_ref().zip(awaited);
        let serving = serving.map(|(endpoint, pid)| endpoint.of_process(pid));
        if done == Unmount::Lazy && !matches!(process, Process::Ended) {
            self.end_service(serving.as_ref())?;
        }
        // What listens in place of the process may keep an answer back, and live on.
        let left = || match self.force {
            true => FORCED_MAX.saturating_sub(began.elapsed()),
            false => PATIENCE,
        };
        let mut is_abandoned = done == Unmount::Lazy;
        if let Some(pid) = awaited {
            let waiting = Waiting {
                pid,
                endpoint: serving.as_ref(),
                point: &self.point,
                number: Some(number),
                force: self.force,
            };
            is_abandoned |= waiting.wait(left())?;
        }
        if self.force && !using.is_empty() {
            say("what these had open is lost to them, with what they had not written yet:");
            using.iter().for_each(|user| say(format!("  {user}")));
        }
        let ending = ending.map(|asked| asked.map(|asked| asked.within(left())));
        self.report(process.ending(ending), is_abandoned)
    }

    /// The kernel, too, lets only root and the mount's user take it off; fusermount3 says less of why.
    fn refuse_others(&self, endpoint: Option<&Endpoint>) -> Result<(), String> {
        let of_others = endpoint.filter(|endpoint| endpoint.is_of_others());
        of_others.map_or(Ok(()), |endpoint| {
            let (point, owner) = (self.point.display(), endpoint.owner());
            Err(match owner {
                0 => format!("{point} belongs to root: only root may unmount it"),
                owner => format!(
                    "{point} belongs to uid {owner}: only that user and root may unmount it"
                ),
            })
        })
    }

    /// The users of the mount on `point`. Processes that wait for this one are left out. `Err`: there are
    /// users, and without force they stay.
    fn users_in_the_way(&self, point: &Path) -> Result<Vec<MountUser>, String> {
        let askers = askers();
        let mut using = users(point);
        using.retain(|user| !askers.contains(&user.pid));
        if using.is_empty() || self.force {
            return Ok(using);
        }
        complain(format!("{} is in use by:", self.point.display()));
        using.iter().for_each(|user| note(format!("  {user}")));
        Err("end these, or use --force; nothing was changed".to_owned())
    }

    /// Says that it is unmounted, and what was `lost`.
    fn report(
        &self,
        lost: Result<Option<String>, String>,
        is_abandoned: bool,
    ) -> Result<(), String> {
        let point = self.point.display();
        match lost {
            Ok(None) => say(format!("{point} unmounted")),
            // So it was wished.
            Ok(Some(lost)) if is_abandoned => say(format!("{point} unmounted; {lost}")),
            Ok(Some(lost)) => return Err(format!("{point} is unmounted, but {lost}")),
            Err(reason) => {
                return Err(format!(
                    "{point} is unmounted, but whether its servers have all of it is not known: {reason}"
                ));
            }
        }
        Ok(())
    }

    /// Ends the process of a mount that is off, and with it what its users have open. The kernel lets
    /// only root do that without it. What servers take at once they get first.
    fn end_service(&self, serving: Option<&Endpoint>) -> Result<(), String> {
        let endpoint = serving.ok_or_else(|| {
            let point = self.point.display();
            format!(
                "{point} is off here, and its process, which can't be asked, goes on until nothing uses it"
            )
        })?;
        if let Ok(asked) = endpoint.begin(&Question::Sync) {
            // Whatever is not written by then is lost, and told of at the end.
            let _ = asked.within(LAST_WRITES).answer();
        }
        match endpoint.ask(&Question::Abandon)? {
            Answer::Done => Ok(()),
            _ => Err(format!("{} answered something else", endpoint.name)),
        }
    }

    /// Of a mount that is off already.
    fn abandon(&self, ending: &Endpoint) -> Result<(), String> {
        let pid = pid_of(ending)?;
        ending.ask(&Question::Abandon)?;
        if let Some(pid) = pid {
            let waiting = Waiting {
                pid,
                endpoint: None,
                point: &self.point,
                number: None,
                force: true,
            };
            waiting.wait(FORCED_MAX)?;
        }
        say(format!(
            "{} unmounted; what its servers had not taken yet is lost",
            self.point.display()
        ));
        Ok(())
    }
}

/// The process that serves a mount.
enum Process {
    /// There is none any more.
    Ended,
    /// Whose number is not known if it is in another namespace.
    Answers(Option<u32>),
    /// Somebody listens in its place, and does not answer.
    Silent { pid: Option<u32>, reason: String },
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
            Process::Answers(pid) => *pid,
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

/// The number of the process that serves a mount and answers. The kernel names it, not the answer: a
/// false answer could name any process.
fn pid_of(endpoint: &Endpoint) -> Result<Option<u32>, String> {
    let asked = endpoint.begin(&Question::Status)?;
    let pid = asked.process();
    match asked.answer()? {
        Answer::Status(_) => Ok(pid),
        Answer::Failed(reason) => Err(reason),
        _ => Err(format!("{} answered something else", endpoint.name)),
    }
}

/// The file system of FUSE that is mounted there: one whose process is dead may say no more of itself.
fn number_of(point: &Path) -> Option<DeviceNumber> {
    let mounts = mounts().ok()?;
    let entry = at(&mounts, point).filter(|entry| entry.is_fuse())?;
    Some(entry.number)
}

/// This process and those that ask through it, umount(8) and its helper: they leave with it.
fn askers() -> Vec<u32> {
    let (mut askers, mut next) = (
        vec![std::process::id()],
        nix::unistd::getppid().as_raw() as u32,
    );
    while is_umount(next) && !askers.contains(&next) {
        askers.push(next);
        next = parent(next).unwrap_or_default();
    }
    askers
}

fn is_umount(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end() == "umount" || name.starts_with("umount.")
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// The serving process writes what is left before it ends.
struct Waiting<'a> {
    pid: u32,
    endpoint: Option<&'a Endpoint>,
    point: &'a Path,
    number: Option<DeviceNumber>,
    force: bool,
}

impl Waiting<'_> {
    /// Waits for its end. By force, it is told to end if it writes for long: true. Else it is said once what
    /// it waits for.
    fn wait(&self, patience: Duration) -> Result<bool, String> {
        let (pid, start) = (self.pid, Instant::now());
        let (mut was_long, mut is_abandoned) = (false, false);
        while storage::is_running(pid) {
            if start.elapsed() > patience {
                return Err(format!("process {pid} still writes; it goes on by itself"));
            }
            if start.elapsed() > SILENCE && !was_long {
                was_long = true;
                self.check_nobody_keeps_it()?;
                if !self.force {
                    self.complain();
                }
            }
            // One that is busy may not have heard it.
            if was_long && self.force && !is_abandoned {
                is_abandoned = self.abandon();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(is_abandoned)
    }

    fn check_nobody_keeps_it(&self) -> Result<(), String> {
        let mut keepers = self.number.map(elsewhere).unwrap_or_default();
        keepers.retain(|there| there.is_inside);
        let Some(keeper) = keepers.first() else {
            return Ok(());
        };
        Err(format!(
            "{0} is off here, but used in {keeper}, and process {1} serves it there; end what uses \
             it, or use `glint umount --force {0}`",
            self.point.display(),
            self.pid
        ))
    }

    fn abandon(&self) -> bool {
        let asked = self
            .endpoint
            .map(|endpoint| endpoint.ask(&Question::Abandon));
        matches!(asked, Some(Ok(Answer::Done)))
    }

    fn complain(&self) {
        let awaited = self.endpoint.map(awaited).unwrap_or_default();
        complain(format!(
            "{0} is off, and process {1} still writes what is left{awaited}; `glint umount --force \
             {0}` ends it at once, and what is left is lost",
            self.point.display(),
            self.pid
        ));
    }
}

/// The targets that a mount waits for, for people.
fn awaited(endpoint: &Endpoint) -> String {
    let Ok(Answer::Status(status)) = endpoint.ask(&Question::Status) else {
        return String::new();
    };
    // One that the mount has left has all that it is to have.
    let is_away = |how: &str| !["connected", "left"].contains(&how);
    let away = status.targets.iter().filter(|(_, how)| is_away(how));
    let away: Vec<String> = away
        .map(|(target, how)| format!("{target} ({how})"))
        .collect();
    match away.is_empty() {
        true => String::new(),
        false => format!(", but these are away: {}", away.join(", ")),
    }
}
