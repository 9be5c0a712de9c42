//! `glint up`

use std::path::PathBuf;
use std::sync::Arc;

use base::{Clock, SystemClock, TargetName};
use clap::Args;
use client::MountConfig;
use fuse::kernel::mount::{Unmount, is_same_or_below};
use rpc::{Address, MemPort};
use storage::{State, TargetDir};

use super::format::format;
use super::mount::Options;
use super::wait::{stop_flag, wait};
use crate::mounting::{MountWish, Mounting};
use crate::server::{ServeConfig, Serving};

/// Format DIR if it is empty, serve it, and mount it at MNT, in one process.
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
    #[arg(short = 'o', value_delimiter = ',')]
    options: Vec<String>,
}

impl Up {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let stop = stop_flag()?;
        let options = Options::parse(&self.options)?;
        if is_same_or_below(&self.dir, &self.mount).map_err(|error| error.to_string())? {
            return Err(format!(
                "{} is inside {}: the file system can't store itself in its own mount; choose \
                 another --dir",
                self.dir.display(),
                self.mount.display()
            ));
        }
        if TargetDir::inspect(&self.dir).map_err(|error| error.to_string())? == State::Empty {
            let targets = vec![TargetName::MGS, TargetName::mdt(0), TargetName::ost(0)];
            format(&self.dir, targets, "glint", None)?;
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let port = MemPort::new("up");
        let config = ServeConfig {
            dirs: vec![self.dir.clone()],
            listen: self.listen,
            insecure: self.insecure,
            mgs: Vec::new(),
            port: Some(port.clone()),
        };
        let mut serving = Serving::start(&config, clock.clone())?;
        let here = Address::Mem(port);
        let reach = here.clone();
        let config = MountConfig {
            addresses: vec![here],
            reach: Arc::new(move |_| Some(reach.clone())),
            uuid: rpc::new_client_uuid().map_err(|error| error.to_string())?,
            key: None,
            insecure: false,
            policy: options.policy,
        };
        let wish = MountWish {
            point: self.mount,
            allow_other: options.allow_other || nix::unistd::geteuid().is_root(),
            read_only: options.read_only,
            kernel: options.kernel,
        };
        let mut mounting = Mounting::start(&config, &wish, clock)?;
        println!("{} mounted at {}", self.dir.display(), mounting.point().display());
        loop {
            wait(&stop, || mounting.has_ended() || serving.stopped().is_some());
            match mounting.stop(Unmount::Clean) {
                Ok(()) => break,
                Err(reason) => eprintln!("glint: {reason}; still mounted"),
            }
            stop.store(false, std::sync::atomic::Ordering::SeqCst);
        }
        serving.stop();
        Ok(())
    }
}
