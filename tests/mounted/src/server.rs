//! A process of `glint serve`, which is killed and started again and again.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::binary::glint;
use crate::process::{Process, START_AND_END};
use crate::watchdog::Watchdog;

/// Serves the same directories at the same address each time.
pub struct Server {
    targets: Vec<PathBuf>,
    address: String,
    options: Vec<String>,
    /// Each life has a file there that begins with this.
    log: PathBuf,
    lives: usize,
    process: Option<Process>,
    watchdog: Watchdog,
}

impl Server {
    /// Of `targets`, to listen at `address`; it does not run yet.
    pub fn new(
        targets: Vec<PathBuf>,
        address: String,
        options: Vec<String>,
        log: PathBuf,
        watchdog: Watchdog,
    ) -> Server {
        Server {
            targets,
            address,
            options,
            log,
            lives: 0,
            process: None,
            watchdog,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Serves again, as soon as this returns.
    pub fn restart(&mut self) {
        self.begin();
        self.wait_until_ready();
    }

    /// Begins to serve; it may have to wait for another that has not begun.
    pub fn begin(&mut self) {
        let log = format!("{}.{}.log", self.log.display(), self.lives);
        self.lives += 1;
        let mut serve = Command::new(glint());
        serve.args(["serve", "--listen", &self.address]);
        serve.args(&self.options).args(&self.targets);
        self.process = Some(Process::start(log.into(), &mut serve));
    }

    /// Waits until it serves.
    pub fn wait_until_ready(&mut self) {
        let process = self.process.as_mut().expect("it has begun");
        let rest = process.ready("serving ");
        let (_, address) = rest.split_once(" at ").expect("the address is told");
        self.address = address.to_owned();
        self.watchdog.add(process.pid(), None);
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        let mut process = self.take();
        process.kill();
        self.watchdog.remove(process.pid());
    }

    /// Ends it cleanly.
    pub fn stop(&mut self) {
        let mut process = self.take();
        process.signal(Signal::SIGTERM);
        let ended = process.ends_within(START_AND_END);
        self.watchdog.remove(process.pid());
        assert!(ended, "the server did not end");
    }

    /// The same, at the end of a test, if it runs; what was not clean.
    pub fn end(&mut self) -> Option<String> {
        let mut process = self.process.take()?;
        process.signal(Signal::SIGTERM);
        if process.ends_within(START_AND_END) {
            return None;
        }
        process.kill();
        Some(format!("a server did not end:\n{}", process.said()))
    }

    /// Waits until it ends by itself, or one of its targets stops, as it must soon. The others
    /// serve on until it is ended, with a failure. What it said.
    pub fn gives_up(&mut self) -> String {
        let mut process = self.take();
        let start = Instant::now();
        while start.elapsed() < START_AND_END
            && matches!(process.child.try_wait(), Ok(None))
            && !process.said().contains(" has stopped, ")
        {
            sleep(Duration::from_millis(10));
        }
        if process.said().contains(" has stopped, ") {
            process.signal(Signal::SIGTERM);
        }
        let ended = process.ends_within(START_AND_END);
        self.watchdog.remove(process.pid());
        let status = process.child.try_wait().expect("a child can be waited for");
        process.kill();
        assert!(ended, "the server goes on:\n{}", process.said());
        assert_eq!(status.and_then(|status| status.code()), Some(1));
        process.said()
    }

    /// What it has said in this life.
    pub fn said(&self) -> String {
        self.process.as_ref().map(Process::said).unwrap_or_default()
    }

    /// Stops it where it is: it answers nobody.
    pub fn freeze(&mut self) {
        if let Some(process) = &mut self.process {
            process.freeze();
        }
    }

    /// It goes on.
    pub fn thaw(&mut self) {
        self.signal(Signal::SIGCONT);
    }

    /// What `glint param` says of it, or says against it.
    pub fn param(&self, words: &[&str]) -> Result<String, String> {
        let mut param = Command::new(glint());
        param.args(["param", "--dir"]).arg(&self.targets[0]);
        let output = param.args(words).output().expect("glint runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(process) = &mut self.process {
            process.signal(signal);
        }
    }

    fn take(&mut self) -> Process {
        self.process.take().expect("a server runs")
    }
}
