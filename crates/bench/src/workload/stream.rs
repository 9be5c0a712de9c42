//! One large file: written in pieces of 1 MiB and made durable, then read with nothing cached.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::measured::{Measurement, Plan, measure};
use super::system::System;
use crate::caches::drop_caches;
use crate::error::{During, Result};
use crate::interrupt::StopFlag;
use crate::process::time;
use crate::progress::Progress;
use crate::report::{Column, Sample};

/// Rows of the report.
pub const WRITE: &str = "write + fsync";
/// The file read from its beginning to its end.
pub const READ_COLD: &str = "read, cold";
/// All rows in order.
pub const STEPS: [&str; 2] = [WRITE, READ_COLD];

/// What to measure.
#[derive(Debug, Clone)]
pub struct StreamConfig {
    /// The file's size in MiB.
    pub mebibytes: u64,
    /// How often; the report shows medians.
    pub runs: u32,
    /// How long a step may take.
    pub cap: Duration,
    /// A directory on the disk below: what is cached of it, by servers too, goes before the file is
    /// read. Root only.
    pub drop_caches: Option<PathBuf>,
    /// Set to end early.
    pub stop: StopFlag,
}

/// Measures one system.
pub fn stream(
    system: &mut dyn System,
    config: &StreamConfig,
    progress: &mut Progress,
) -> Result<Column> {
    let plan = Plan {
        runs: config.runs,
        cap: config.cap,
        stop: &config.stop,
    };
    measure(system, &plan, progress, &|measurement, directory| {
        let file = directory.join("file");
        run(measurement, &file, config)?;
        // Room for the next run, and for the next system.
        let _ = std::fs::remove_file(&file);
        Ok(())
    })
}

fn run(measurement: &mut Measurement, file: &Path, config: &StreamConfig) -> Result<()> {
    // Once unmeasured: a virtual machine gets memory from its host when it first touches it, and who
    // writes first would pay for all.
    time(
        &mut write(file, config),
        config.cap,
        &config.stop,
        &mut |_| {},
    )?;
    std::fs::remove_file(file).during(|| format!("removing {}", file.display()))?;
    step(measurement, WRITE, &mut write(file, config), config)?;
    if !measurement.make_cold(READ_COLD)? {
        return Ok(());
    }
    if let Some(disk) = &config.drop_caches {
        drop_caches(disk)?;
    }
    let mut read = dd(&file.to_string_lossy(), "/dev/null");
    step(measurement, READ_COLD, &mut read, config)
}

fn step(
    measurement: &mut Measurement,
    label: &str,
    command: &mut Command,
    config: &StreamConfig,
) -> Result<()> {
    if let Some(sample) = measurement.command(label, command, &[0], &|| None)? {
        let entries = Some(config.mebibytes);
        measurement.keep(label, Sample { entries, ..sample });
    }
    Ok(())
}

fn write(file: &Path, config: &StreamConfig) -> Command {
    let mut command = dd("/dev/zero", &file.to_string_lossy());
    command.arg(format!("count={}", config.mebibytes));
    command.arg("conv=fsync");
    command
}

fn dd(from: &str, to: &str) -> Command {
    let mut command = Command::new("dd");
    command.arg(format!("if={from}")).arg(format!("of={to}"));
    command.args(["bs=1M", "status=none"]);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}
