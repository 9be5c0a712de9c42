//! A process of glint with a log.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// How long a process may take to start, or to end cleanly.
pub const START_AND_END: Duration = Duration::from_secs(30);

/// A child with a log.
pub struct Process {
    pub child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, which is glint.
    pub fn start(log: PathBuf, command: &mut Command) -> Process {
        let file = File::create(&log).expect("a log can be made");
        let second = file.try_clone().expect("a second handle");
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(second)
            .spawn()
            .expect("glint runs");
        Process { child, log }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it has said.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What follows `words` on the line that it prints when it is ready.
    pub fn ready(&mut self, words: &str) -> String {
        let ready = self.ready_or_ended(words);
        ready.unwrap_or_else(|said| panic!("glint ended:\n{said}"))
    }

    /// The same; or what it said when it ended instead.
    pub fn ready_or_ended(&mut self, words: &str) -> Result<String, String> {
        let start = Instant::now();
        loop {
            let said = self.said();
            let line = said
                .lines()
                .find_map(|line| Some(line.split_once(words)?.1.to_owned()));
            // Only a whole line tells the whole address.
            if let Some(rest) = line.filter(|_| said.ends_with('\n')) {
                return Ok(rest);
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Err(self.said());
            }
            if start.elapsed() > START_AND_END {
                self.kill();
                panic!("glint did not start:\n{said}");
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// Nothing where it has ended: its number may be another's by now.
    pub fn signal(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill(Pid::from_raw(self.pid() as i32), signal);
        }
    }

    /// Stops it where it is. All its threads have stopped when this returns.
    pub fn freeze(&mut self) {
        self.signal(Signal::SIGSTOP);
        let start = Instant::now();
        while !self.is_frozen() && start.elapsed() < START_AND_END {
            sleep(Duration::from_millis(1));
        }
    }

    /// It has stopped, or ended.
    fn is_frozen(&mut self) -> bool {
        let looks = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        let seen = waitid(Id::Pid(Pid::from_raw(self.pid() as i32)), looks);
        seen != Ok(WaitStatus::StillAlive) || !matches!(self.child.try_wait(), Ok(None))
    }

    /// Whether it ends within `limit`.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < limit {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            sleep(Duration::from_millis(10));
        }
        false
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}
