//! `glint mount`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::SystemClock;
use clap::Args;
use client::MountConfig;
use fuse::kernel::KernelLevel;
use fuse::kernel::mount::Unmount;
use rpc::{Address, Key, Policy};
use storage::TargetKey;

use super::wait::{stop_flag, wait};
use crate::mounting::{MountWish, Mounting};

/// Mount a file system that others serve. Stays in the foreground until it is unmounted.
#[derive(Args)]
pub struct MountVerb {
    /// Where the MGS is: HOST:PORT or unix:/PATH; several, separated by commas, are tried in turn.
    #[arg(value_delimiter = ',')]
    servers: Vec<Address>,
    /// Where to mount.
    point: PathBuf,
    /// The file with the file system's key (DIR/key of a server), needed over TCP.
    #[arg(long)]
    key: Option<PathBuf>,
    /// Options: hard (default), soft, timeout=SECONDS, ro, allow_other, kernel=5.14|6.1.
    #[arg(short = 'o', value_delimiter = ',')]
    options: Vec<String>,
    /// Speak to servers beyond this machine although connections are not encrypted.
    #[arg(long)]
    insecure: bool,
}

/// What `-o` said.
pub struct Options {
    pub policy: Policy,
    pub read_only: bool,
    pub allow_other: bool,
    pub kernel: KernelLevel,
}

impl Options {
    /// Reads them.
    pub fn parse(options: &[String]) -> Result<Options, String> {
        let mut parsed = Options {
            policy: Policy::Hard,
            read_only: false,
            allow_other: false,
            kernel: KernelLevel::Running,
        };
        let (mut soft, mut timeout) = (false, 30);
        for option in options {
            match option.split_once('=').unwrap_or((option, "")) {
                ("hard", "") => soft = false,
                ("soft", "") => soft = true,
                ("timeout", seconds) => {
                    timeout = seconds
                        .parse()
                        .map_err(|_| format!("timeout={seconds} is not a number of seconds"))?;
                }
                ("ro", "") => parsed.read_only = true,
                ("rw", "") => parsed.read_only = false,
                ("allow_other", "") => parsed.allow_other = true,
                ("kernel", "5.14") => parsed.kernel = KernelLevel::Linux5_14,
                ("kernel", "6.1") => parsed.kernel = KernelLevel::Linux6_1,
                _ => {
                    return Err(format!(
                        "-o {option} is not known; there are hard, soft, timeout=SECONDS, ro, \
                         allow_other, kernel=5.14 and kernel=6.1"
                    ));
                }
            }
        }
        if soft {
            parsed.policy = Policy::Soft { timeout: Duration::from_secs(timeout) };
        }
        Ok(parsed)
    }
}

/// Reads a key file.
pub fn load_key(path: &Path) -> Result<Key, String> {
    let key = TargetKey::load(path).map_err(|error| error.to_string())?;
    Ok(Key::new(*key.as_bytes()))
}

impl MountVerb {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let stop = stop_flag()?;
        let options = Options::parse(&self.options)?;
        let config = MountConfig {
            addresses: self.servers,
            reach: Arc::new(|text| text.parse().ok()),
            uuid: rpc::new_client_uuid().map_err(|error| error.to_string())?,
            key: self.key.as_deref().map(load_key).transpose()?,
            insecure: self.insecure,
            policy: options.policy,
        };
        let wish = MountWish {
            point: self.point,
            allow_other: options.allow_other || nix::unistd::geteuid().is_root(),
            read_only: options.read_only,
            kernel: options.kernel,
        };
        let mut mounting = Mounting::start(&config, &wish, Arc::new(SystemClock::default()))?;
        println!("mounted at {}", mounting.point().display());
        loop {
            wait(&stop, || mounting.has_ended());
            match mounting.stop(Unmount::Clean) {
                Ok(()) => return Ok(()),
                Err(reason) => eprintln!("glint: {reason}; still mounted"),
            }
            stop.store(false, std::sync::atomic::Ordering::SeqCst);
        }
    }
}
