//! `glint up`

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use base::limits::CALLBACK_DEADLINE;
use base::{Clock, SystemClock, TargetName};
use clap::Args;
use client::MountConfig;
use fuse::kernel::mount::{MountError, Unmount, check_point, is_same_or_below, unmount};
use rpc::Address;
use storage::{State, TargetDir};

use super::format::format;
use super::mount::{MountOption, Options};
use super::serve::absolute;
use crate::daemon::{self, Daemon};
use crate::descriptors::Descriptors;
use crate::foreground::Stop;
use crate::memory;
use crate::mounting::Mounting;
use crate::output::complain;
use crate::server::{ServeConfig, Serving, WhenFenced};
use crate::supervisor::Supervision;

/// How long it may take to take a mount off whose targets are served elsewhere.
const OFF_PATIENCE: Duration = Duration::from_secs(5);

/// Format DIR if it is empty, serve it, and mount it at MNT, in one process.
///
/// Stays in the foreground until `glint down MNT` or SIGTERM; nothing is lost then. With --daemon, as
/// root, another process goes on if it is killed. An ordinary user may do it too, where fusermount3
/// is installed.
#[derive(Args)]
pub struct Up {
    /// Where the file system is stored.
    #[arg(long)]
    dir: PathBuf,
    /// Where to mount it.
    #[arg(long)]
    mount: PathBuf,
    /// Where others can mount it too: HOST:PORT or unix:/PATH.
    #[arg(long, value_delimiter = ',')]
    listen: Vec<Address>,
    /// Listen beyond this machine although connections are not encrypted.
    #[arg(long)]
    insecure: bool,
    /// Options as of `glint mount`.
    #[arg(short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    options: Vec<MountOption>,
    #[command(flatten)]
    daemon: Daemon,
    #[command(flatten)]
    supervision: Supervision,
}

impl Up {
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
        let dir = absolute(&self.dir)?;
        // A mount that is gone on with answers nobody who looks at it before this process serves it.
        if takeover.as_ref().is_none_or(|left| left.incarnation() == 1) {
            self.refuse_early()?;
        }
        if TargetDir::inspect(&dir).map_err(|error| error.to_string())? == State::Empty {
            let targets = vec![TargetName::MGS, TargetName::mdt(0), TargetName::ost(0)];
            format(&dir, &targets, "glint", None)?;
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let point = Arc::new(OnceLock::new());
        let config = ServeConfig {
            dirs: vec![dir.clone()],
            listen: self.listen,
            insecure: self.insecure,
            undurable: false,
            also: Vec::new(),
            mgs: Vec::new(),
            machine: None,
            when_fenced: when_fenced(point.clone()),
            timeout: CALLBACK_DEADLINE,
            mount_outlives: takeover.is_some(),
            mounts: true,
            descriptors,
        };
        let mut serving = Serving::start(&config, clock.clone())?;
        let options = Options::of(&self.options)?;
        let config = MountConfig {
            addresses: vec![serving.here()],
            reach: serving.reach(),
            secret: match &takeover {
                Some(takeover) => takeover.secret(),
                None => rpc::new_client_secret().map_err(|error| error.to_string())?,
            },
            key: None,
            insecure: false,
            policy: options.policy,
            patience: Arc::new(|_| true),
            takeover,
            clocks: rpc::Clocks::default(),
        };
        let (wish, beside) = (options.wish(self.mount, None), (serving.targets(), &*dir));
        let mut mounting = Mounting::start(
            &config,
            &wish,
            Some(beside),
            (held, descriptors),
            (clock, &stop),
        )?;
        let _ = point.set(mounting.point().to_owned());
        let (dir, point) = (self.dir.display(), mounting.point().display().to_string());
        daemon::ready(&format!("{dir} mounted at {point}"));
        // Of a target that stops the others serve on, the MGS at least.
        mounting.serve(&stop, || serving.look_for_stopped());
        let outcome = serving.outcome();
        serving.stop();
        outcome.and(mounting.outcome())
    }

    /// What can't work is refused before anything is made.
    fn refuse_early(&self) -> Result<(), String> {
        let (dir, mount) = (&self.dir, &self.mount);
        let words = |error: MountError| error.to_string();
        if is_same_or_below(dir, mount).map_err(words)? {
            return Err(format!(
                "{} is inside {}: the file system can't store itself in its own mount; choose \
                 another --dir",
                dir.display(),
                mount.display()
            ));
        }
        if is_same_or_below(mount, dir).map_err(words)? {
            return Err(format!(
                "{} is inside {}: only targets belong there; choose another --mount",
                mount.display(),
                dir.display()
            ));
        }
        let point = check_point(mount).map_err(words)?;
        let failed = |error| format!("{}: {error}", mount.display());
        match std::fs::read_dir(&point).map_err(failed)?.next() {
            None => Ok(()),
            Some(_) => Err(format!(
                "{} is not empty: what is in it could not be reached while the file system is mounted \
                 there; choose an empty directory",
                mount.display()
            )),
        }
    }
}

/// Ends the process, as whatever is still done here is done in somebody else's targets. Before that
/// the mount at `point`, if it is there, so that no dead one is left: all calls on it fail.
fn when_fenced(point: Arc<OnceLock<PathBuf>>) -> WhenFenced {
    let first = Mutex::new(());
    Arc::new(move |cause| {
        // Of several targets one is told of.
        let _first = first.lock().unwrap_or_else(PoisonError::into_inner);
        complain(cause);
        if let Some(point) = point.get().cloned() {
            let (done, is_done) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let off = unmount(&point, Unmount::Abort);
                let _ = done.send(off.map_err(|error| error.to_string()));
            });
            match is_done.recv_timeout(OFF_PATIENCE) {
                Ok(Ok(_)) => {}
                Ok(Err(reason)) => complain(reason),
                Err(_) => complain("the mount could not be taken off in time"),
            }
        }
        std::process::exit(1);
    })
}
