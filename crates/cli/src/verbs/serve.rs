//! `glint serve`

use std::path::PathBuf;
use std::sync::Arc;

use base::SystemClock;
use clap::Args;
use rpc::Address;

use super::wait::{stop_flag, wait};
use crate::server::{ServeConfig, Serving};

/// Serve the targets of directories until SIGTERM, which is a clean stop.
#[derive(Args)]
pub struct Serve {
    /// Directories made with `glint format`.
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// Where to listen: HOST:PORT or unix:/PATH; port 0 takes a free one, which is printed.
    #[arg(long, default_value = "127.0.0.1:7988", value_delimiter = ',')]
    listen: Vec<Address>,
    /// Where the MGS is, if it is not in one of the directories.
    #[arg(long, value_delimiter = ',')]
    mgs: Vec<Address>,
    /// Listen beyond this machine although connections are not encrypted.
    #[arg(long)]
    insecure: bool,
}

impl Serve {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let stop = stop_flag()?;
        let config = ServeConfig {
            dirs: self.dirs,
            listen: self.listen,
            insecure: self.insecure,
            mgs: self.mgs,
            port: None,
        };
        let mut serving = Serving::start(&config, Arc::new(SystemClock::default()))?;
        let addresses: Vec<String> =
            serving.addresses().iter().map(Address::to_string).collect();
        println!("serving {} at {}", serving.config().fsname, addresses.join(","));
        wait(&stop, || serving.stopped().is_some());
        let stopped = serving.stopped();
        serving.stop();
        match stopped {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }
}
