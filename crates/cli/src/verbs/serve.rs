//! `glint serve`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::SystemClock;
use base::limits::CALLBACK_DEADLINE;
use clap::Args;
use rpc::Address;

use crate::control::{Audience, ControlServer, path_for_dir};
use crate::daemon::{self, Daemon};
use crate::descriptors::Descriptors;
use crate::foreground::Stop;
use crate::memory;
use crate::output::complain;
use crate::server::{ServeConfig, Serving};

/// Serve the targets of directories until SIGTERM, which is a clean stop.
///
/// Several processes, each with directories of its own, make one file system: one of them serves
/// the MGS, and the others are told where it is with --mgs. The directories of the others are made
/// with `glint format --join`, so that all have one key.
#[derive(Args)]
pub struct Serve {
    /// Directories made with `glint format`.
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// Where to listen: HOST:PORT or unix:/PATH; port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:7988", value_delimiter = ',')]
    listen: Vec<Address>,
    /// Addresses at which other processes serve the same directories at other times: mounts look for
    /// the targets there, too, when this one does not answer.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    also: Vec<Address>,
    /// Where the MGS is, if it is not in one of the directories; several are tried in turn.
    #[arg(long, value_delimiter = ',')]
    mgs: Vec<Address>,
    /// Listen beyond this machine although connections are not encrypted.
    #[arg(long)]
    insecure: bool,
    /// Seconds a mount may take to give a lock on bytes back before it is evicted, so that others
    /// go on. It may take half as long again for one on names and attributes, and so may a mount
    /// that is gone to come back. (Lustre's `timeout`.)
    #[arg(long, value_name = "SECONDS", default_value_t = CALLBACK_DEADLINE.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Act as on another machine, of this name: its `flock`s are not seen here. For tests of
    /// storage that machines share.
    #[arg(long, hide = true)]
    machine: Option<String>,
    #[command(flatten)]
    daemon: Daemon,
    /// Say that changes of names are durable before they are, and commit as late as can be. A crash
    /// takes everything: it is there to be measured beside.
    #[arg(long, hide = true)]
    undurable: bool,
    /// End when standard input ends.
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl Serve {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        if self.daemon.start()? {
            return Ok(());
        }
        memory::prepare();
        memory::check_addresses()?;
        let descriptors = Descriptors::raise()?;
        let stop = Stop::on_signals()?;
        if self.with_parent {
            stop.with_parent(|| ())?;
        }
        let config = ServeConfig {
            dirs: self
                .dirs
                .iter()
                .map(|dir| absolute(dir))
                .collect::<Result<_, _>>()?,
            listen: self.listen,
            insecure: self.insecure,
            undurable: self.undurable,
            also: self.also,
            mgs: self.mgs,
            machine: self.machine,
            when_fenced: Arc::new(|cause| {
                // Whatever is still done here is done in somebody else's target.
                complain(cause);
                std::process::exit(1);
            }),
            timeout: Duration::from_secs(self.timeout),
            mount_outlives: false,
            mounts: false,
            descriptors,
        };
        let clock = Arc::new(SystemClock::default());
        let mut serving = stop.or_begin(|| Serving::start(&config, clock))?;
        let control = answer_questions(&config.dirs, &serving);
        let _control = control.unwrap_or_else(|reason| {
            tracing::warn!("goes on, but `glint param --dir` does not reach it: {reason}");
            None
        });
        let addresses: Vec<String> = serving.addresses().iter().map(Address::to_string).collect();
        daemon::ready(&format!(
            "serving {} at {}",
            serving.config().fsname,
            addresses.join(",")
        ));
        stop.wait(|| {
            let stopped = serving.look_for_stopped();
            !serving.serves_beside(&stopped)
        });
        let outcome = serving.outcome();
        serving.stop();
        outcome
    }
}

/// A process answers for all its targets, whichever of its directories is named.
fn answer_questions(dirs: &[PathBuf], serving: &Serving) -> Result<Option<ControlServer>, String> {
    let mut control: Option<ControlServer> = None;
    for dir in dirs {
        let path = path_for_dir(dir)?;
        match &mut control {
            Some(control) => control.also_at(path)?,
            None => {
                control = Some(ControlServer::start(
                    path,
                    Audience::Own,
                    serving.targets(),
                )?)
            }
        }
    }
    Ok(control)
}

/// A daemon leaves the directory it was started in.
pub fn absolute(path: &std::path::Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}
