//! The supervisor of a mount. It holds the memory and the descriptors that the mount's process
//! needs, starts one, and starts another where that does not end by itself
//! (docs/adr/0011-supervisor.md). It does nothing else, so that nothing befalls it.

mod crash_loop;
mod remains;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Instant;

use clap::Args;
use client::{Left, TakeoverState};
use fuse::kernel::mount::abandon;
use fuse::kernel::{Device, SessionConfig};
use handover::{Region, bequeath, inherited};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use self::crash_loop::{CrashLoop, Ended, Next};
use self::remains::Remains;
use crate::daemon::Daemon;

/// Where it was asked for in vain.
const NOT_ROOT: &str = "only root can have a supervised mount, for the kernel hands the mount of an \
                        ordinary user to one process: leave out --supervisor";
/// Where it would be usual.
const ORDINARY_USER: &str = "mounted by an ordinary user, and so not supervised: if this process is \
                             killed, no other goes on, and calls fail until it is mounted anew";
/// In the environment of a worker: the supervisor's process, then the numbers of the memory's
/// descriptor and the devices'.
const WORKER: &str = "GLINT_WORKER";
/// This very program, whatever has become of its file since.
const PROGRAM: &str = "/proc/self/exe";
/// How often it is looked whether the worker was killed and can't end, of which no signal tells.
const LOOK_MS: u16 = 250;

/// What a verb that mounts takes.
#[derive(Args, Clone)]
pub struct Supervision {
    /// If the process that serves the mount is killed, let another go on, and programs with it. As root
    /// only; usual with --daemon.
    #[arg(long, conflicts_with = "no_supervisor")]
    supervisor: bool,
    /// Do without that.
    #[arg(long)]
    no_supervisor: bool,
    /// How much the process that goes on may find, in MiB.
    #[arg(long, hide = true, default_value_t = 4096, value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    supervisor_mib: u64,
}

/// What this process has to do.
pub enum Part {
    /// Nothing more: it was the supervisor, and the mount has ended.
    Done,
    /// Serve the mount, with nobody behind it.
    Alone,
    /// Serve the mount, as the supervisor's worker.
    Worker(Inheritance),
}

impl Supervision {
    /// Finds out which process of the mount this is, and is the supervisor until the end if it is that.
    pub fn part(&self, daemon: &Daemon) -> Result<Part, String> {
        if let Some(inheritance) = Inheritance::take()? {
            return Ok(Part::Worker(inheritance));
        }
        let usual = daemon.is_daemon() && !self.no_supervisor;
        match (nix::unistd::geteuid().is_root(), self.supervisor) {
            (true, wished) if wished || usual => {
                Supervisor::start(self.supervisor_mib << 20)?.run()?;
                return Ok(Part::Done);
            }
            (false, true) => return Err(NOT_ROOT.to_owned()),
            (false, false) if usual => tracing::warn!("{ORDINARY_USER}"),
            _ => {}
        }
        Ok(Part::Alone)
    }
}

/// What the process before left, and what its supervisor holds, where there are such.
pub type Opened = (Option<Arc<TakeoverState>>, Option<Held>);

impl Part {
    /// What the process before left, and what its supervisor holds. None: nothing more is to be done.
    pub fn open(self) -> Result<Option<Opened>, String> {
        match self {
            Part::Done => Ok(None),
            Part::Alone => Ok(Some((None, None))),
            Part::Worker(inheritance) => {
                let (takeover, held) = inheritance.open()?;
                let takeover = Arc::new(takeover);
                // Whatever makes this process fail, the next one has it: it is never dropped.
                std::mem::forget(takeover.clone());
                Ok(Some((Some(takeover), Some(held))))
            }
        }
    }
}

/// Holds on to what a worker leaves.
pub struct Supervisor {
    memory: OwnedFd,
    devices: Vec<Device>,
    numbers: String,
    signals: SignalFd,
    /// Those before that could not end yet.
    held_up: Vec<Child>,
    /// Paths among the arguments may begin there.
    started_in: PathBuf,
}

/// How a worker came to serve no more.
enum Death {
    /// It is gone.
    Ended(ExitStatus),
    /// It was killed, or failed, and waits in the kernel for an answer that the next one will give.
    HeldUp { failed: bool },
}

impl Death {
    /// What the supervisor ends with if no other goes on.
    fn code(&self) -> i32 {
        match self {
            Death::Ended(status) => status.code().unwrap_or(1),
            Death::HeldUp { .. } => 1,
        }
    }

    fn was_killed(&self) -> bool {
        match self {
            Death::Ended(status) => status.signal() == Some(Signal::SIGKILL as i32),
            Death::HeldUp { failed } => !failed,
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Death::Ended(status) => write!(f, "{status}"),
            Death::HeldUp { .. } => f.write_str(
                "all but a thread that the kernel holds up until another answers what it did not",
            ),
        }
    }
}

/// What a worker gets.
pub struct Inheritance {
    memory: OwnedFd,
    devices: Vec<OwnedFd>,
    by: Watcher,
}

/// The supervisor, as its worker sees it.
#[derive(Debug, Clone, Copy)]
pub struct Watcher(Pid);

impl Watcher {
    /// It lives, and would let another go on. The process that outlives it becomes another's child.
    pub fn watches(self) -> bool {
        nix::unistd::getppid() == self.0
    }
}

/// What a worker has in common with its supervisor.
pub struct Held {
    /// Whence the kernel's requests come.
    pub devices: Vec<Device>,
    /// The supervisor.
    pub by: Watcher,
}

impl Inheritance {
    /// Of this process; `None`: it is no worker.
    pub fn take() -> Result<Option<Inheritance>, String> {
        let Ok(numbers) = std::env::var(WORKER) else {
            return Ok(None);
        };
        let wrong = |_| format!("{WORKER} is for glint itself to set, not '{numbers}'");
        let numbers: Vec<RawFd> = numbers
            .split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map_err(wrong)?;
        let mut numbers = numbers.into_iter();
        let by = Watcher(Pid::from_raw(numbers.next().unwrap_or_default()));
        let descriptors = numbers.map(inherited);
        let mut descriptors = descriptors
            .collect::<Result<Vec<OwnedFd>, _>>()
            .map_err(|error| format!("the supervisor left nothing: {error}"))?;
        // Inherited from the supervisor, which waits for its signals.
        SigSet::all()
            .thread_unblock()
            .map_err(|errno| format!("cannot take signals: {errno}"))?;
        let memory = descriptors.remove(0);
        Ok(Some(Inheritance {
            memory,
            devices: descriptors,
            by,
        }))
    }

    /// Looks what is in the memory.
    pub fn open(self) -> Result<(TakeoverState, Held), String> {
        let failed = |error: std::io::Error| format!("what the supervisor left: {error}");
        let region = Region::map(&self.memory).map_err(failed)?;
        let secret = rpc::new_client_secret().map_err(failed)?;
        let takeover = TakeoverState::open(region, secret);
        let takeover = takeover.ok_or("the supervisor's memory is of another version of glint")?;
        let devices = self.devices.into_iter().map(Device::from_fd);
        let devices = devices.collect::<Result<_, _>>().map_err(failed)?;
        let by = self.by;
        Ok((takeover, Held { devices, by }))
    }
}

impl Supervisor {
    /// Makes what a worker needs, with `bytes` of memory. Only what is used takes room.
    pub fn start(bytes: u64) -> Result<Supervisor, String> {
        let failed = |error: std::io::Error| {
            format!("cannot supervise: {error}; --no-supervisor does without")
        };
        let memory = Region::create(bytes).map_err(failed)?;
        let devices = (0..SessionConfig::default().readers).map(|_| Device::open());
        let devices = devices
            .collect::<Result<Vec<Device>, _>>()
            .map_err(failed)?;
        let memory_number = bequeath(&memory).map_err(failed)?;
        let mut numbers = format!("{},{memory_number}", std::process::id());
        for device in &devices {
            numbers += &format!(",{}", bequeath(device).map_err(failed)?);
        }
        let mut signals = SigSet::empty();
        for signal in [
            Signal::SIGCHLD,
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
        ] {
            signals.add(signal);
        }
        signals
            .thread_block()
            .map_err(|errno| failed(errno.into()))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signals = SignalFd::with_flags(&signals, flags);
        Ok(Supervisor {
            memory,
            devices,
            numbers,
            signals: signals.map_err(|errno| failed(errno.into()))?,
            held_up: Vec::new(),
            started_in: std::env::current_dir().unwrap_or_default(),
        })
    }

    /// Sees to it that a worker serves the mount, until that ends.
    pub fn run(mut self) -> Result<(), String> {
        // Not to hold up the unmounting of where we were started.
        let _ = nix::unistd::chdir("/");
        let ended = self.serve();
        self.abandon();
        match ended? {
            0 => Ok(()),
            // The worker has said why.
            code => std::process::exit(code),
        }
    }

    /// The same; with what the last worker ended.
    fn serve(&mut self) -> Result<i32, String> {
        let mut crash_loop = CrashLoop::default();
        let mut first = true;
        loop {
            let began = Instant::now();
            let worker = self.start_worker(first)?;
            first = false;
            let (death, asked) = self.wait(worker)?;
            let left = self.left();
            if death.code() == 0 || asked || !left.served {
                return Ok(death.code());
            }
            let ended = Ended {
                began,
                at: Instant::now(),
                incarnation: left.incarnation,
                settled: left.settled,
                killed: death.was_killed(),
            };
            match crash_loop.after(ended) {
                Next::GiveUp { row } => {
                    return Err(format!(
                        "the process that serves the mount ended {row} times in a row as soon as it \
                         began ({death}): giving up; what was not durable is lost"
                    ));
                }
                Next::GoOn { pause } => {
                    tracing::error!(
                        "the process that serves the mount ended: {death}; another goes on"
                    );
                    std::thread::sleep(pause);
                }
            }
        }
    }

    fn start_worker(&self, first: bool) -> Result<Child, String> {
        let mut command = Command::new(PROGRAM);
        command
            .args(std::env::args_os().skip(1))
            .env(WORKER, &self.numbers)
            .stdin(Stdio::null());
        if self.started_in.is_dir() {
            command.current_dir(&self.started_in);
        }
        if !first {
            // The process that started us has heard that all is ready.
            command.stdout(Stdio::null());
        }
        let started = command.spawn();
        started.map_err(|error| format!("cannot start a process to serve the mount: {error}"))
    }

    /// Waits until it serves no more; true: it was asked to end.
    fn wait(&mut self, mut worker: Child) -> Result<(Death, bool), String> {
        let failed = |error: std::io::Error| format!("cannot wait for the worker: {error}");
        let process = Pid::from_raw(worker.id() as i32);
        let (mut asked, mut remained) = (false, None);
        loop {
            if let Some(status) = worker.try_wait().map_err(failed)? {
                return Ok((Death::Ended(status), asked));
            }
            self.bury();
            match self.signal().map_err(failed)? {
                Some(Signal::SIGCHLD) => {}
                Some(signal) => {
                    asked = true;
                    let _ = kill(process, signal);
                }
                None => {
                    let remains = Remains::of(process);
                    if let Some(certain) = remains.as_ref().filter(|_| remains == remained) {
                        take_from(certain);
                        self.held_up.push(worker);
                        let failed = certain.failed();
                        return Ok((Death::HeldUp { failed }, asked));
                    }
                    remained = remains;
                }
            }
        }
    }

    /// The next signal; None: for some time there was none.
    fn signal(&self) -> std::io::Result<Option<Signal>> {
        let mut awaited = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut awaited, PollTimeout::from(LOOK_MS)) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let came = self.signals.read_signal()?;
        Ok(came.and_then(|came| Signal::try_from(came.ssi_signo as i32).ok()))
    }

    /// Those that were held up and have ended since are gone for good.
    fn bury(&mut self) {
        self.held_up
            .retain_mut(|worker| matches!(worker.try_wait(), Ok(None)));
    }

    /// Nobody serves the mount any more. As long as a worker can't end the kernel does not see that,
    /// and calls would wait for ever.
    fn abandon(&mut self) {
        self.bury();
        let device = self.devices.first().filter(|_| !self.held_up.is_empty());
        if let Some(Err(error)) = device.map(abandon) {
            tracing::error!("calls on the mount wait for nobody: {error}; umount -f ends them");
        }
    }

    fn left(&self) -> Left {
        let nothing = Left {
            served: false,
            settled: false,
            incarnation: 0,
        };
        Region::map(&self.memory).map_or(nothing, |memory| Left::in_memory(&memory))
    }
}

/// What `remains` of a killed worker, and keeps nobody waiting from now on.
fn take_from(remains: &Remains) {
    if let Err(error) = remains.let_go() {
        tracing::warn!(
            "connections and locks of the process that was killed stay until it has ended, and may \
             keep the next one from serving: {error}"
        );
    }
}
