//! `glint mount`

mod options;
mod source;
pub mod system_mount;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::SystemClock;
use clap::Args;
use client::{MountConfig, Patience};
use fuse::kernel::mount::{Unmount, unmount};
use rpc::{Address, Key};
use storage::TargetKey;

use crate::daemon::{self, Daemon};
use crate::descriptors::Descriptors;
use crate::foreground::Stop;
use crate::memory;
use crate::mounting::{MountWish, Mounting};
use crate::output::complain;
use crate::supervisor::Supervision;

/// Mount a file system that others serve. Stays in the foreground until it is unmounted, by
/// `glint umount`, `umount`, or SIGTERM; nothing is lost then. While its servers are away it waits
/// for them; SIGTERM once more leaves at once.
#[derive(Args)]
pub struct MountVerb {
    /// Where the MGS is: HOST:PORT or unix:/PATH; several, separated by commas, are tried in turn. With
    /// :/NAME or :/ behind them, as in fstab, it must be the file system of that name, or any.
    source: Source,
    /// Where to mount.
    point: PathBuf,
    /// The file with the file system's key (DIR/key of a server), needed over TCP.
    #[arg(long)]
    key: Option<PathBuf>,
    /// Options, separated by commas. hard (the default): calls wait for servers that are away. soft: calls
    /// fail with EIO after 30 s; timeout=SECONDS: after that time. ro, allow_other. key=FILE, insecure: as
    /// --key and --insecure. lazysize: sizes of files that are open for writing elsewhere may be old, and
    /// cost less. kernel=5.14|6.1: use no newer features of the kernel. Of mount(8): noexec, noatime, and for
    /// root suid and dev (without these setuid bits have no effect, and no device can be opened). nosuid,
    /// nodev, rw, exec, defaults, _netdev, nofail, auto, noauto, user and x-… change nothing.
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

pub use options::{MountOption, Options};
use source::Source;

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
            complain(format!(
                "waiting for the management service: no server has it at {servers} yet"
            ));
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
        memory::check_addresses()?;
        let descriptors = Descriptors::raise()?;
        let Some((takeover, held)) = self.supervision.part(&self.daemon)?.open()? else {
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
        let insecure = self.insecure || options.insecure;
        let key = self.key.as_deref().or(options.key.as_deref());
        let Source {
            text,
            addresses,
            name,
        } = self.source;
        let delayed = |address: Address| match &options.delay {
            Some(link) => address.delayed(link),
            None => address,
        };
        let link = options.delay.clone();
        let timeout = self.timeout.map(Duration::from_secs);
        let patience = patience(&addresses, timeout, stop.clone());
        let config = MountConfig {
            addresses: addresses.into_iter().map(delayed).collect(),
            reach: Arc::new(move |text| {
                let address: Address = text.parse().ok()?;
                Some(link.iter().fold(address, Address::delayed))
            }),
            secret: match &takeover {
                Some(takeover) => takeover.secret(),
                None => rpc::new_client_secret().map_err(|error| error.to_string())?,
            },
            key: key.map(load_key).transpose()?,
            insecure,
            policy: options.policy,
            patience,
            takeover,
            clocks: rpc::Clocks::default(),
        };
        let wish = MountWish {
            source: Some(text),
            name,
            ..options.wish(self.point, timeout)
        };
        let clock = Arc::new(SystemClock::default());
        let mut mounting =
            Mounting::start(&config, &wish, None, (held, descriptors), (clock, &stop))?;
        daemon::ready(&format!("mounted at {}", mounting.point().display()));
        mounting.serve(&stop, Vec::new);
        mounting.outcome()
    }
}
