//! `glint` processes of a measurement: children that tell when they are ready, and end with us.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use base::TargetName;
use bench::process::{ProcessId, Running};
use bench::{Link, StopFlag};
use rpc::DEFAULT_PORT;
use storage::KeyKind;

use crate::verbs::format::format;

/// How long a process may take to be ready.
const START_PATIENCE: Duration = Duration::from_secs(60);
const TURN: Duration = Duration::from_millis(20);

/// A `glint` process with a log.
pub struct Child {
    running: Running,
    log: PathBuf,
    verb: &'static str,
}

impl Child {
    /// Starts `glint` with a command made by `Namespace::command` or `Command::new`, and waits for
    /// the line that begins with `words`; what follows them is returned.
    pub fn start(
        command: &mut Command,
        verb: &'static str,
        log: PathBuf,
        words: &str,
        stop: &StopFlag,
    ) -> Result<(Child, String), String> {
        let failed = |error: std::io::Error| format!("{}: {error}", log.display());
        let file = File::create(&log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        // It ends when its standard input does, so also if this process is killed.
        command
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(errors)
            .arg("--with-parent");
        let running = Running::start_group(command).map_err(|error| error.to_string())?;
        let mut child = Child { running, log, verb };
        let rest = child.ready(words, stop)?;
        Ok((child, rest))
    }

    fn ready(&mut self, words: &str, stop: &StopFlag) -> Result<String, String> {
        let start = Instant::now();
        while start.elapsed() < START_PATIENCE {
            stop.check().map_err(|error| error.to_string())?;
            let said = self.said();
            let line = said.lines().find_map(|line| line.strip_prefix(words));
            if let Some(rest) = line.filter(|_| said.ends_with('\n')) {
                return Ok(rest.to_owned());
            }
            if self
                .running
                .ended_within(TURN)
                .map_err(|error| error.to_string())?
            {
                // How it ended is in its log.
                let _ = self.running.reap();
                return Err(format!("glint {} ended: {}", self.verb, self.said().trim()));
            }
        }
        Err(format!(
            "glint {} was not ready in time: {}",
            self.verb,
            self.said().trim()
        ))
    }

    /// Its process.
    pub fn process(&self) -> ProcessId {
        ProcessId(self.running.id())
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it has ended by itself, and kills it if it does not.
    pub fn ended(&mut self, patience: Duration, stop: &StopFlag) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < patience {
            stop.check().map_err(|error| error.to_string())?;
            if self
                .running
                .ended_within(TURN)
                .map_err(|error| error.to_string())?
            {
                let status = self.running.reap().map_err(|error| error.to_string())?;
                return self.judge(status);
            }
        }
        // It is no use any more; the complaint below says why.
        let _ = self.running.kill();
        Err(format!(
            "glint {} did not end within {} s",
            self.verb,
            patience.as_secs()
        ))
    }

    fn judge(&self, status: ExitStatus) -> Result<(), String> {
        match status.success() {
            true => Ok(()),
            false => Err(format!(
                "glint {} failed: {}",
                self.verb,
                self.said().trim()
            )),
        }
    }

    /// Asks it to end, and kills it if it does not.
    pub fn terminate(&mut self, patience: Duration) {
        // What happens here is past caring: everything is thrown away.
        let _ = self.running.terminate(patience);
    }
}

/// A file system served by one process from a directory of its own, perhaps behind a link.
pub struct Served<'l> {
    server: Child,
    dir: PathBuf,
    link: Option<&'l Link>,
    address: String,
}

impl<'l> Served<'l> {
    /// Formats `dir`, which does not exist yet, and serves it, with `flags`, at the far end of the
    /// link, or on loopback.
    pub fn start(
        dir: &Path,
        link: Option<&'l Link>,
        flags: &[&str],
        stop: &StopFlag,
    ) -> Result<Served<'l>, String> {
        let store = dir.join("store");
        let targets = [TargetName::MGS, TargetName::mdt(0), TargetName::ost(0)];
        format(&store, &targets, "glint", None)?;
        let mut command = command(link.map(Link::server))?;
        command.arg("serve").arg(&store).args(flags);
        command.env("GLINT_LOG", "warn");
        match link {
            // The link is private to this measurement.
            Some(link) => command
                .arg("--listen")
                .arg(format!("{}:{DEFAULT_PORT}", link.server_address()))
                .arg("--insecure"),
            None => command.args(["--listen", "127.0.0.1:0"]),
        };
        let log = dir.join("serve.log");
        let (server, rest) = Child::start(&mut command, "serve", log, "serving glint at ", stop)?;
        Ok(Served {
            server,
            dir: dir.to_owned(),
            link,
            address: rest.trim().to_owned(),
        })
    }

    /// The servers' process.
    pub fn process(&self) -> ProcessId {
        self.server.process()
    }

    /// The link, if there is one.
    pub fn link(&self) -> Option<&'l Link> {
        self.link
    }

    /// A mount at `point`: through the link, or beside it.
    pub fn mount(&self, point: &Path, way: Way, stop: &StopFlag) -> Result<Child, String> {
        let side = match way {
            Way::Link | Way::Delay(_) => self.link.map(Link::client),
            Way::Beside => self.link.map(Link::server),
        };
        let mut command = command(side)?;
        command.arg("mount").arg(&self.address).arg(point);
        command
            .arg("--key")
            .arg(KeyKind::Client.path_in(&self.dir.join("store")));
        if self.link.is_some() {
            command.arg("--insecure");
        }
        if let Way::Delay(rtt) = way {
            command.args(["-o", &format!("delay={}us", rtt.as_micros())]);
        }
        let log = point.with_extension("log");
        Child::start(&mut command, "mount", log, "mounted at ", stop).map(|(child, _)| child)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        // To make durable what is thrown away would take a while.
        self.server.terminate(Duration::ZERO);
    }
}

/// How a mount reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the link, if there is one.
    Link,
    /// With this round trip added to each frame, where no link can be made.
    Delay(Duration),
    /// Past the link.
    Beside,
}

fn command(namespace: Option<&bench::Namespace>) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(match namespace {
        Some(namespace) => namespace.command(program),
        None => Command::new(program),
    })
}
