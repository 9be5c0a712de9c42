//! Child processes that are always ended: on a time limit, on the stop flag, on drop.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::pidfd::PidFd;

/// How often a waiting caller looks at the stop flag and shows progress.
const TURN: Duration = Duration::from_millis(100);
/// How long a killed process may take to disappear: one that is stuck in a file system's call cannot.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// How much of a program's complaints is kept.
const COMPLAINT_BYTES: u64 = 2048;

/// A running process, to look at what it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId(pub u32);

impl ProcessId {
    /// Bytes of memory that it has now.
    pub fn memory(self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kibibytes * 1024)
    }

    /// Seconds of CPU that all its threads have used so far, in the kernel too.
    pub fn cpu(self) -> Option<f64> {
        let clock = clock_getcpuclockid(Pid::from_raw(self.0 as i32)).ok()?;
        Some(Duration::from(clock.now().ok()?).as_secs_f64())
    }
}

/// A running child, alone or with its process group. Killed on drop.
#[derive(Debug)]
pub struct Running {
    child: Child,
    ended: PidFd,
    name: String,
    group: bool,
    reaped: bool,
}

impl Running {
    /// Starts a command in the caller's process group, so that it shares the terminal.
    pub fn start(command: &mut Command) -> Result<Running> {
        Running::spawn(command, false)
    }

    /// Starts a command in a process group of its own. Its children end with it, and a terminal's Ctrl-C does
    /// not reach it directly.
    pub fn start_group(command: &mut Command) -> Result<Running> {
        Running::spawn(command.process_group(0), true)
    }

    fn spawn(command: &mut Command, group: bool) -> Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|error| not_started(&name, error))?;
        match PidFd::of(&child) {
            Ok(ended) => Ok(Running {
                child,
                ended,
                name,
                group,
                reaped: false,
            }),
            Err(error) => {
                // Without it the child could not be watched: it must not run on.
                let _ = child.kill().and_then(|()| child.wait());
                Err(error).during(|| format!("watching {name}"))
            }
        }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// True when it has ended, false when `patience` passed first.
    pub fn ended_within(&self, patience: Duration) -> Result<bool> {
        self.ended
            .ended_within(patience)
            .during(|| format!("waiting for {}", self.name))
    }

    /// Waits until it ends.
    pub fn reap(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait();
        self.reaped = true;
        status.during(|| format!("waiting for {}", self.name))
    }

    /// Asks it to end, waits for `grace`, then kills it.
    pub fn terminate(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < grace {
            if self.ended_within(TURN)? {
                break;
            }
        }
        self.kill()
    }

    /// Kills it, with its group if it has one.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGKILL);
        let start = Instant::now();
        while start.elapsed() < KILL_PATIENCE {
            if self.ended_within(TURN)? {
                return self.reap();
            }
        }
        // It is left to the kernel: waiting for it could take for ever.
        self.reaped = true;
        Err(BenchError::Failed {
            program: self.name.clone(),
            ending: format!(
                "(process {}) does not end: it is stuck in a system call",
                self.id()
            ),
            said: String::new(),
        })
    }

    /// The id is ours until `reap`, so no other process can be hit.
    fn signal(&self, signal: Signal) {
        if self.reaped {
            return;
        }
        let pid = Pid::from_raw(self.child.id() as i32);
        // Fails only if everything there has ended already.
        let _ = if self.group {
            killpg(pid, signal)
        } else {
            kill(pid, signal)
        };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            // What it is stuck in cannot be mended here.
            let _ = self.kill();
        }
    }
}

/// How a measured program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this exit code.
    Exit(i32),
    /// By a signal that was not ours.
    Signal(i32),
    /// It was killed at its time limit.
    Capped,
}

/// A measured run of a program.
#[derive(Debug, Clone)]
pub struct Timed {
    /// From just before its start until its end.
    pub elapsed: Duration,
    /// How it ended.
    pub ending: Ending,
    /// The last it wrote to its error stream.
    pub complaint: String,
}

impl Timed {
    /// An error unless the program was capped or ended with one of these exit codes.
    pub fn expect(self, program: &str, codes: &[i32]) -> Result<Timed> {
        let ending = match self.ending {
            Ending::Capped => return Ok(self),
            Ending::Exit(code) if codes.contains(&code) => return Ok(self),
            Ending::Exit(code) => format!("failed with exit code {code}"),
            Ending::Signal(number) => format!("was ended by signal {number}"),
        };
        Err(BenchError::Failed {
            program: program.into(),
            ending,
            said: self.complaint,
        })
    }
}

/// Runs a command in its own process group and measures it; kills the group at `cap` or when `stop` is set.
/// Calls `watch` about ten times a second. Its error stream is kept; its output is the caller's to direct.
pub fn time(
    command: &mut Command,
    cap: Duration,
    stop: &StopFlag,
    watch: &mut dyn FnMut(Duration),
) -> Result<Timed> {
    stop.check()?;
    let complaints = tempfile::tempfile().during(|| "making a temporary file")?;
    let stderr = complaints.try_clone().during(|| "using a temporary file")?;
    let start = Instant::now();
    let mut child = Running::start_group(command.stderr(Stdio::from(stderr)))?;
    let ending = loop {
        let left = cap.saturating_sub(start.elapsed());
        if child.ended_within(left.min(TURN))? {
            break None;
        }
        if stop.is_set() {
            child.kill()?;
            return Err(BenchError::Interrupted);
        }
        if left.is_zero() {
            break Some(Ending::Capped);
        }
        watch(start.elapsed());
    };
    let elapsed = start.elapsed();
    let ending = match ending {
        Some(capped) => {
            child.kill()?;
            capped
        }
        None => ending_of(child.reap()?),
    };
    Ok(Timed {
        elapsed,
        ending,
        complaint: last_words(complaints),
    })
}

/// Runs a helper program to its end and returns its output.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| not_started(&name, error))?;
    if !output.status.success() {
        return Err(BenchError::Failed {
            program: name,
            ending: format!("failed ({})", output.status),
            said: String::from_utf8_lossy(&output.stderr).trim().to_string(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn ending_of(status: ExitStatus) -> Ending {
    use std::os::unix::process::ExitStatusExt;
    match status.code() {
        Some(code) => Ending::Exit(code),
        None => Ending::Signal(status.signal().unwrap_or(0)),
    }
}

fn not_started(program: &str, error: std::io::Error) -> BenchError {
    if error.kind() == std::io::ErrorKind::NotFound {
        return BenchError::unavailable(
            format!("the program {program} is not installed"),
            "install the package that has it",
        );
    }
    BenchError::Io {
        doing: format!("starting {program}"),
        source: error,
    }
}

/// The end of what a program wrote.
fn last_words(mut file: File) -> String {
    let mut words = Vec::new();
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let from = bytes.saturating_sub(COMPLAINT_BYTES);
    // Unreadable complaints are no complaints.
    let _ = file
        .seek(SeekFrom::Start(from))
        .and_then(|_| file.read_to_end(&mut words));
    String::from_utf8_lossy(&words).trim().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::null());
        command
    }

    fn timed(script: &str, cap: Duration, stop: &StopFlag) -> Result<Timed> {
        time(&mut shell(script), cap, stop, &mut |_| {})
    }

    #[test]
    fn what_a_process_uses_is_told_while_it_runs() {
        let myself = ProcessId(std::process::id());
        let before = myself.cpu().unwrap();
        while myself.cpu().unwrap() < before + 0.001 {
            std::hint::black_box(vec![1; 4096]);
        }
        assert!(myself.memory().unwrap() > 1 << 20);
        let none = ProcessId(1 << 23);
        assert_eq!((none.cpu(), none.memory()), (None, None));
    }

    #[test]
    fn measures_and_keeps_the_complaint() {
        let long = Duration::from_secs(60);
        let ran = timed("echo oh no >&2; exit 3", long, &StopFlag::new()).unwrap();
        assert_eq!(
            (ran.ending, ran.complaint.as_str()),
            (Ending::Exit(3), "oh no")
        );
        assert!(ran.clone().expect("sh", &[0, 3]).is_ok());
        let error = ran.expect("sh", &[0]).unwrap_err().to_string();
        assert_eq!(error, "sh failed with exit code 3: oh no");
    }

    #[test]
    fn the_cap_kills_the_whole_group() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let cap = Duration::from_millis(500);
        let ran = timed(&script, cap, &StopFlag::new()).unwrap();
        assert_eq!(ran.ending, Ending::Capped);
        assert!(ran.elapsed >= cap && ran.elapsed < cap * 20, "{ran:?}");
        let grandchild = std::fs::read_to_string(file).unwrap();
        let status = format!("/proc/{}/stat", grandchild.trim());
        let running = || {
            std::fs::read_to_string(&status)
                .is_ok_and(|stat| !stat.contains(") Z") && !stat.contains(") X"))
        };
        let start = Instant::now();
        while running() {
            assert!(start.elapsed() < Duration::from_secs(10), "still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_stop_flag_ends_it() {
        let stop = StopFlag::new();
        let seen = stop.clone();
        let mut command = shell("sleep 600");
        let result = time(&mut command, Duration::from_secs(600), &stop, &mut |_| {
            seen.set()
        });
        assert!(matches!(result, Err(BenchError::Interrupted)));
        assert!(matches!(
            timed("true", Duration::from_secs(9), &stop),
            Err(BenchError::Interrupted)
        ));
    }

    #[test]
    fn a_missing_program_is_named() {
        let mut command = Command::new("no-such-program-here");
        let error = output(&mut command).unwrap_err().to_string();
        assert!(
            error.contains("no-such-program-here is not installed"),
            "{error}"
        );
    }

    #[test]
    fn dropping_kills() {
        let child = Running::start_group(&mut shell("sleep 600")).unwrap();
        let path = format!("/proc/{}", child.id());
        drop(child);
        assert!(!std::path::Path::new(&path).exists());
    }
}
