//! `glint mount`

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::SystemClock;
use clap::Args;
use client::{MountConfig, Patience};
use fuse::kernel::KernelLevel;
use fuse::kernel::mount::{Unmount, unmount};
use rpc::{Address, Key, Link, Policy};
use storage::TargetKey;

use crate::daemon::{self, Daemon};
use crate::foreground::Stop;
use crate::memory;
use crate::mounting::{MountWish, Mounting};
use crate::supervisor::Supervision;

/// Said when servers are away at the end.
const LEAVING: &str = "still waiting for servers to take what they do not have yet; stop it once \
                       more to leave at once: what was written since the last fsync may be lost";

/// Mount a file system that others serve. Stays in the foreground until it is unmounted, by
/// `glint umount`, `umount`, or SIGTERM; nothing is lost then. While its servers are away it waits
/// for them; SIGTERM once more leaves at once.
#[derive(Args)]
pub struct MountVerb {
    /// Where the MGS is: HOST:PORT or unix:/PATH; several, separated by commas, are tried in turn.
    #[arg(value_delimiter = ',', required = true, num_args = 1)]
    servers: Vec<Address>,
    /// Where to mount.
    point: PathBuf,
    /// The file with the file system's key (DIR/key of a server), needed over TCP.
    #[arg(long)]
    key: Option<PathBuf>,
    /// Options, separated by commas: hard (default: calls wait for servers that are away), soft and
    /// timeout=SECONDS (they fail with EIO after 30 s, or that long), ro, allow_other,
    /// lazysize (sizes of files that are open for writing elsewhere may be old, and cost less),
    /// kernel=5.14|6.1 (use no more of the kernel than these have).
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<MountOption>,
    /// End with a failure if the MGS, or then the MDT, does not answer within so many seconds. Without
    /// this the mount waits for it.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Speak to servers beyond this machine although connections are not encrypted.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    daemon: Daemon,
    #[command(flatten)]
    supervision: Supervision,
    /// End when standard input ends.
    #[arg(long, hide = true)]
    with_parent: bool,
}

/// One word of `-o`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountOption {
    Hard,
    Soft,
    Timeout(Duration),
    ReadOnly(bool),
    AllowOther,
    LazySize,
    Kernel(KernelLevel),
    /// Every frame takes this much longer for a round trip: for measurements.
    Delay(Duration),
}

impl FromStr for MountOption {
    type Err = String;

    fn from_str(text: &str) -> Result<MountOption, String> {
        Ok(match text.split_once('=').unwrap_or((text, "")) {
            ("hard", "") => MountOption::Hard,
            ("soft", "") => MountOption::Soft,
            ("timeout", seconds) => {
                let seconds = seconds.parse();
                let seconds = seconds.map_err(|_| "timeout= takes a number of seconds")?;
                MountOption::Timeout(Duration::from_secs(seconds))
            }
            ("ro", "") => MountOption::ReadOnly(true),
            ("rw", "") => MountOption::ReadOnly(false),
            ("allow_other", "") => MountOption::AllowOther,
            ("lazysize", "") => MountOption::LazySize,
            ("kernel", "5.14") => MountOption::Kernel(KernelLevel::Linux5_14),
            ("kernel", "6.1") => MountOption::Kernel(KernelLevel::Linux6_1),
            ("delay", time) => {
                let time = bench::link::parse_duration(time);
                MountOption::Delay(time.map_err(|error| error.to_string())?)
            }
            _ => {
                return Err(
                    "there are hard, soft, timeout=SECONDS, ro, rw, allow_other, lazysize, \
                            kernel=5.14 and kernel=6.1"
                        .to_owned(),
                );
            }
        })
    }
}

impl MountOption {
    /// Both are words on the same matter, and differ.
    fn contradicts(&self, other: &MountOption) -> bool {
        use MountOption::{Hard, Soft};
        let is_same_matter = match (self, other) {
            (Hard, Soft) | (Soft, Hard) => true,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        };
        is_same_matter && self != other
    }
}

/// As it is written after `-o`.
impl fmt::Display for MountOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountOption::Hard => f.write_str("hard"),
            MountOption::Soft => f.write_str("soft"),
            MountOption::Timeout(time) => write!(f, "timeout={}", time.as_secs()),
            MountOption::ReadOnly(true) => f.write_str("ro"),
            MountOption::ReadOnly(false) => f.write_str("rw"),
            MountOption::AllowOther => f.write_str("allow_other"),
            MountOption::LazySize => f.write_str("lazysize"),
            MountOption::Kernel(KernelLevel::Linux5_14) => f.write_str("kernel=5.14"),
            MountOption::Kernel(KernelLevel::Linux6_1) => f.write_str("kernel=6.1"),
            // Only tests ask for others, and not by a word.
            MountOption::Kernel(other) => write!(f, "kernel={other:?}"),
            MountOption::Delay(time) => write!(f, "delay={time:?}"),
        }
    }
}

/// What `-o` said.
#[derive(Debug)]
pub struct Options {
    pub policy: Policy,
    pub delay: Option<Arc<Link>>,
    read_only: bool,
    allow_other: bool,
    lazy_size: bool,
    kernel: KernelLevel,
}

impl Options {
    /// Says which words contradict each other.
    pub fn of(words: &[MountOption]) -> Result<Options, String> {
        refuse_contradictions(words)?;
        let mut options = Options {
            policy: Policy::Hard,
            delay: None,
            read_only: false,
            allow_other: nix::unistd::geteuid().is_root(),
            lazy_size: false,
            kernel: KernelLevel::Running,
        };
        let (mut soft, mut timeout) = (false, Duration::from_secs(30));
        for word in words {
            match word {
                MountOption::Hard => soft = false,
                MountOption::Soft => soft = true,
                MountOption::Timeout(time) => timeout = *time,
                MountOption::ReadOnly(only) => options.read_only = *only,
                MountOption::AllowOther => options.allow_other = true,
                MountOption::LazySize => options.lazy_size = true,
                MountOption::Kernel(level) => options.kernel = *level,
                MountOption::Delay(time) => options.delay = Some(Link::new(*time, None)),
            }
        }
        if soft {
            options.policy = Policy::Soft { timeout };
        }
        Ok(options)
    }

    /// What to ask of the kernel.
    pub fn wish(&self, point: PathBuf, timeout: Option<Duration>) -> MountWish {
        MountWish {
            point,
            allow_other: self.allow_other,
            read_only: self.read_only,
            lazy_size: self.lazy_size,
            kernel: self.kernel,
            timeout,
        }
    }
}

/// Of a matter on which there are two different words nobody can say which was meant.
fn refuse_contradictions(words: &[MountOption]) -> Result<(), String> {
    for (at, word) in words.iter().enumerate() {
        let other = words[..at].iter().find(|other| other.contradicts(word));
        if let Some(other) = other {
            return Err(format!(
                "-o {other} and -o {word} contradict each other; leave one of them out"
            ));
        }
    }
    Ok(())
}

/// Reads a key file.
fn load_key(path: &Path) -> Result<Key, String> {
    let key = TargetKey::load(path).map_err(|error| error.to_string())?;
    Ok(Key::new(*key.as_bytes()))
}

/// Says once what is waited for. Waits no longer than `timeout` and than nobody wants an end.
fn patience(servers: &[Address], timeout: Option<Duration>, stop: Stop) -> Patience {
    let servers: Vec<String> = servers.iter().map(Address::to_string).collect();
    let servers = servers.join(",");
    let said = AtomicBool::new(false);
    Arc::new(move |waited| {
        if !said.swap(true, Ordering::SeqCst) {
            eprintln!(
                "glint: waiting for the management service, which nobody serves at {servers} yet"
            );
        }
        let is_over = timeout.is_some_and(|timeout| waited >= timeout);
        !is_over && !stop.is_wished()
    })
}

impl MountVerb {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        if self.daemon.start()? {
            return Ok(());
        }
        let Some((heritage, held)) = self.supervision.part(&self.daemon)?.open()? else {
            return Ok(());
        };
        memory::prepare();
        let stop = Stop::on_signals()?;
        if self.with_parent {
            let point = self.point.clone();
            stop.with_parent(move || {
                // Its server may be gone for good; so is who wanted the mount.
                let _ = unmount(&point, Unmount::Abort);
            })?;
        }
        let options = Options::of(&self.options)?;
        let delayed = |address: Address| match &options.delay {
            Some(link) => address.delayed(link),
            None => address,
        };
        let link = options.delay.clone();
        let timeout = self.timeout.map(Duration::from_secs);
        let patience = patience(&self.servers, timeout, stop.clone());
        let config = MountConfig {
            addresses: self.servers.into_iter().map(delayed).collect(),
            reach: Arc::new(move |text| {
                let address: Address = text.parse().ok()?;
                Some(link.iter().fold(address, Address::delayed))
            }),
            uuid: match &heritage {
                Some(heritage) => heritage.uuid(),
                None => rpc::new_client_uuid().map_err(|error| error.to_string())?,
            },
            key: self.key.as_deref().map(load_key).transpose()?,
            insecure: self.insecure,
            policy: options.policy,
            patience,
            heritage,
            clocks: rpc::Clocks::default(),
        };
        let wish = options.wish(self.point, timeout);
        let clock = Arc::new(SystemClock::default());
        let mut mounting = Mounting::start(&config, &wish, None, held, clock)?;
        daemon::ready(&format!("mounted at {}", mounting.point().display()));
        loop {
            stop.wait(|| mounting.has_ended());
            let abort = mounting.abort();
            match stop.fulfil(|| mounting.stop(Unmount::Clean), LEAVING, abort) {
                Ok(()) => return mounting.outcome(),
                Err(reason) => eprintln!("glint: {reason}; still mounted"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<Options, String> {
        let words: Vec<MountOption> = words.iter().map(|word| word.parse().unwrap()).collect();
        Options::of(&words)
    }

    #[test]
    fn words_are_understood_in_any_order() {
        let policy = |words| options(words).unwrap().policy;
        assert_eq!(policy(&[]), Policy::Hard);
        let timeout = Duration::from_secs(7);
        assert_eq!(policy(&["timeout=7", "soft"]), Policy::Soft { timeout });
        assert!(options(&["ro", "ro"]).unwrap().read_only);
    }

    #[test]
    fn words_that_contradict_each_other_are_refused() {
        for words in [
            ["soft", "hard"],
            ["ro", "rw"],
            ["timeout=3", "timeout=4"],
            ["kernel=6.1", "kernel=5.14"],
        ] {
            let said = options(&words).unwrap_err();
            let both = format!("-o {} and -o {} contradict", words[0], words[1]);
            assert!(said.starts_with(&both), "{said}");
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        for wrong in ["", "sotf", "timeout=long", "ro=1", "kernel=2.4", "delay=5"] {
            assert!(wrong.parse::<MountOption>().is_err(), "{wrong:?}");
        }
    }
}
