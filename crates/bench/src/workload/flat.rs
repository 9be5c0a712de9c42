//! One directory with very many empty files: made, listed, removed.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::measured::{Measurement, Plan, measure};
use super::quiet::quiet;
use super::system::System;
use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::progress::{Event, Progress};
use crate::report::{Column, Sample};

/// Rows of the report.
pub const CREATE: &str = "create";
/// `ls -l` with nothing cached.
pub const LIST_COLD: &str = "ls -l, cold";
/// Again at once.
pub const LIST_WARM: &str = "ls -l, warm";
/// Removing them one by one.
pub const UNLINK: &str = "unlink";
/// All rows in order.
pub const STEPS: [&str; 4] = [CREATE, LIST_COLD, LIST_WARM, UNLINK];

/// More files than this in one directory is beyond every file system compared with.
pub const FILES_MAX: u64 = 100_000_000;
/// Files between two looks at the stop flag and the clock.
const TURN: u64 = 64;

/// What to measure.
#[derive(Debug, Clone)]
pub struct FlatConfig {
    /// Files to create.
    pub files: u64,
    /// That is all there is to do.
    pub only_create: bool,
    /// How often; the report shows medians.
    pub runs: u32,
    /// How long a step may take; creating stops there and the rest goes on with what there is.
    pub cap: Duration,
    /// Set to end early.
    pub stop: StopFlag,
}

/// Measures one system. Seconds are for all files; samples say how many those were.
pub fn flat(
    system: &mut dyn System,
    config: &FlatConfig,
    progress: &mut Progress,
) -> Result<Column> {
    if !(1..=FILES_MAX).contains(&config.files) {
        return Err(BenchError::Invalid(format!(
            "a directory gets between 1 and {FILES_MAX} files, not {}",
            config.files
        )));
    }
    let plan = Plan {
        runs: config.runs,
        cap: config.cap,
        stop: &config.stop,
    };
    measure(system, &plan, progress, &|measurement, directory| {
        run(measurement, directory, config)
    })
}

fn run(measurement: &mut Measurement, directory: &Path, config: &FlatConfig) -> Result<()> {
    let create = |number| File::create_new(path(directory, number)).map(|_| ());
    let made = each(measurement, CREATE, config.files, &create)?;
    if config.only_create {
        return Ok(());
    }
    for step in [LIST_COLD, LIST_WARM] {
        if step == LIST_COLD && !measurement.make_cold(step)? {
            continue;
        }
        let mut list = list(directory);
        if let Some(mut sample) = measurement.command(step, &mut list, &[0], &|| None)? {
            sample.entries = Some(made);
            measurement.keep(step, sample);
        }
    }
    let unlink = |number| fs::remove_file(path(directory, number));
    each(measurement, UNLINK, made, &unlink)?;
    Ok(())
}

/// `ls -l` of a directory, for nobody to read.
pub(super) fn list(directory: &Path) -> Command {
    let mut list = quiet("ls");
    list.arg("-l").arg(directory);
    list
}

/// Does something for each file until the cap, and returns for how many it was done.
pub(super) fn each(
    measurement: &mut Measurement,
    step: &str,
    files: u64,
    work: &dyn Fn(u64) -> io::Result<()>,
) -> Result<u64> {
    let before = measurement.system.rpcs_sent();
    let start = Instant::now();
    let mut shown = start;
    let (mut done, mut capped) = (0, false);
    while done < files && !capped {
        for _ in 0..TURN.min(files - done) {
            work(done).during(|| format!("{step} of file {done}"))?;
            done += 1;
        }
        measurement.stop.check()?;
        capped = done < files && start.elapsed() >= measurement.cap;
        if shown.elapsed() >= Duration::from_millis(500) {
            shown = Instant::now();
            let name = measurement.system.name();
            let line = format!("{name}: {step}: {done} of {files} files");
            (measurement.progress)(Event::Live(line));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let sample = Sample {
        seconds,
        rpcs: measurement.rpcs_since(before),
        capped,
        entries: Some(done),
        ..Sample::default()
    };
    measurement.keep(step, sample);
    Ok(done)
}

fn path(directory: &Path, number: u64) -> std::path::PathBuf {
    directory.join(format!("file{number:08}"))
}
