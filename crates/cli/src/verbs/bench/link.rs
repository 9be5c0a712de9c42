//! `glint bench link`

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::link::{parse_loss, run_behind_link, send_control};
use bench::{Link, LinkConfig, LinkSettings, StopFlag};
use clap::Args;

use super::walk::{Bandwidth, bandwidth, duration};
use crate::output::{note, say_lines};

/// Run a command whose only network is an emulated link to this machine. Needs root.
///
/// The command finds the address at which it reaches servers of this machine (those that listen on
/// 0.0.0.0) in $GLINT_LINK_SERVER, and the socket through which the link is changed while it runs in
/// $GLINT_LINK_CONTROL: `glint bench link --control SOCKET --set rtt=20ms`.
///
/// The exit code is the command's.
#[derive(Args)]
pub struct LinkVerb {
    /// Round trip, as in 5ms.
    #[arg(long, default_value = "0", value_parser = duration)]
    rtt: Duration,
    /// By how much a round trip varies, either way.
    #[arg(long, default_value = "0", value_parser = duration)]
    jitter: Duration,
    /// As in 1gbit, or unlimited.
    #[arg(long, default_value = "unlimited", value_parser = bandwidth)]
    bandwidth: Bandwidth,
    /// Packets lost, as in 0.1%.
    #[arg(long, default_value = "0%", value_parser = loss)]
    loss: u32,
    /// The socket of a running link, to see or change it.
    #[arg(long, value_name = "SOCKET", conflicts_with = "command")]
    control: Option<PathBuf>,
    /// With --control: what to change, as in rtt=20ms.
    #[arg(long, value_name = "KEY=VALUE", requires = "control")]
    set: Vec<String>,
    /// The command and its arguments.
    #[arg(last = true, required_unless_present = "control")]
    command: Vec<OsString>,
}

fn loss(text: &str) -> Result<u32, String> {
    parse_loss(text).map_err(|error| error.to_string())
}

impl LinkVerb {
    /// Does it.
    pub fn run(self) -> Result<ExitCode, String> {
        if let Some(socket) = &self.control {
            let answer = change(socket, &self.set)?;
            say_lines(answer.trim_end());
            return Ok(ExitCode::SUCCESS);
        }
        let settings = LinkSettings {
            rtt: self.rtt,
            jitter: self.jitter,
            bandwidth: self.bandwidth.0,
            loss_ppm: self.loss,
        };
        let stop = StopFlag::on_termination().map_err(|error| error.to_string())?;
        let config = LinkConfig {
            settings,
            ..LinkConfig::default()
        };
        let code = run_behind_link(config, &self.command, &stop, announce);
        let code = code.map_err(|error| error.to_string())?;
        // Exit codes have eight bits.
        Ok(ExitCode::from(code as u8))
    }
}

fn announce(link: &Link, control: &Path) {
    let (server, settings) = (link.server_address(), link.settings());
    note(format!(
        "this machine is {server} for the command: {settings}; control {}",
        control.display()
    ));
}

fn change(socket: &Path, pairs: &[String]) -> Result<String, String> {
    let line = match pairs.is_empty() {
        true => "get".to_owned(),
        false => format!("set {}", pairs.join(" ").replace('=', " ")),
    };
    send_control(socket, &line).map_err(|error| error.to_string())
}
