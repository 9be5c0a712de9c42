//! What experiments have in common: making a cell cold in its mode, measuring it, and reading it
//! back from a column.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::mode::Mode;
use crate::error::{BenchError, During, Result};
use crate::progress::{Event, Progress};
use crate::report::{Column, Point, Sample};
use crate::workload::effort::Effort;
use crate::workload::flat;
use crate::workload::measured::{Measurement, Plan, measure};
use crate::workload::system::{Setting, System, Tunable};

/// How long making the files of an experiment may take: it is not what is measured.
const BUILD_CAP: Duration = Duration::from_secs(3600);

/// Where a column says why it ends early.
pub(super) const REST: &str = "the rest was not measured";

/// Measures an experiment. An error that is no interrupt ends it, and what was measured until then is
/// kept.
pub(super) fn conduct(
    system: &mut dyn System,
    effort: &Effort,
    progress: &mut Progress,
    run: &dyn Fn(&mut Lab<'_, '_, '_>, &Path) -> Result<()>,
) -> Result<Column> {
    let plan = Plan {
        // The files are made once for all cells.
        runs: 1,
        cap: effort.cap,
        stop: &effort.stop,
    };
    measure(system, &plan, progress, &|measurement, directory| {
        let runs = effort.runs;
        let mut lab = Lab { measurement, runs };
        let done = run(&mut lab, directory);
        effort.stop.check()?;
        if let Err(error) = done {
            (measurement.progress)(Event::Line(format!("{REST}: {error}")));
            measurement.column.skip(REST, error.to_string());
        }
        Ok(())
    })
}

/// The measurement of one experiment's cells.
pub struct Lab<'l, 'm, 'p> {
    pub(super) measurement: &'l mut Measurement<'m, 'p>,
    pub(super) runs: u32,
}

impl Lab<'_, '_, '_> {
    pub(super) fn tunable(&mut self) -> Result<&mut dyn Tunable> {
        let name = self.measurement.system.name().to_owned();
        self.measurement.system.tunable().ok_or_else(|| {
            BenchError::unavailable(format!("{name} cannot be tuned"), "measure Glint")
        })
    }

    pub(super) fn tune(&mut self, settings: &[Setting]) -> Result<()> {
        self.tunable()?.tune(settings)
    }

    /// Makes a directory of empty files, named by their numbers.
    pub(super) fn make_files(
        &mut self,
        directory: PathBuf,
        files: u64,
        name: &dyn Fn(u64) -> String,
    ) -> Result<PathBuf> {
        self.make_named(directory, files, name, &|path| {
            fs::File::create_new(path).map(|_| ())
        })
    }

    /// The same, each made by `make`.
    pub(super) fn make_with(
        &mut self,
        directory: PathBuf,
        files: u64,
        make: &dyn Fn(PathBuf) -> io::Result<()>,
    ) -> Result<PathBuf> {
        let name = |number| format!("file{number:08}");
        self.make_named(directory, files, &name, make)
    }

    fn make_named(
        &mut self,
        directory: PathBuf,
        files: u64,
        name: &dyn Fn(u64) -> String,
        make: &dyn Fn(PathBuf) -> io::Result<()>,
    ) -> Result<PathBuf> {
        fs::create_dir(&directory).during(|| format!("making {}", directory.display()))?;
        let label = format!("making {files} files");
        let made = self.building(|measurement| {
            flat::each(measurement, &label, files, &|number| {
                make(directory.join(name(number)))
            })
        })?;
        match made == files {
            true => Ok(directory),
            false => Err(BenchError::Invalid(format!(
                "only {made} of {files} files could be made within {BUILD_CAP:?}"
            ))),
        }
    }

    /// Does something without the cells' time limit.
    pub(super) fn building<T>(
        &mut self,
        work: impl FnOnce(&mut Measurement) -> Result<T>,
    ) -> Result<T> {
        let cap = std::mem::replace(&mut self.measurement.cap, BUILD_CAP);
        let done = work(self.measurement);
        self.measurement.cap = cap;
        done
    }

    /// Nothing is cached, and the mode holds. False when that cannot be had, which is noted.
    pub(super) fn start(&mut self, mode: Mode, label: &str) -> Result<bool> {
        self.tune(&mode.settings())?;
        self.measurement.make_cold(label)
    }

    /// Measures one run. False if the cell is done with: it failed, or was stopped at the limit.
    pub(super) fn take(&mut self, label: &str, command: &mut Command) -> Result<bool> {
        let sample = self.measurement.command(label, command, &[0], &|| None)?;
        if let Some(sample) = sample {
            self.measurement.keep(label, sample);
        }
        Ok(sample.is_some_and(|sample| !sample.capped))
    }

    /// A whole cell: each run with nothing cached.
    pub(super) fn take_cold(
        &mut self,
        mode: Mode,
        label: &str,
        command: &dyn Fn() -> Command,
    ) -> Result<()> {
        for _ in 0..self.runs {
            if !self.start(mode, label)? || !self.take(label, &mut command())? {
                break;
            }
        }
        Ok(())
    }
}

/// The point of a cell, if there is one; counts of a run that was stopped are none.
pub(super) fn seconds_at(x: f64, column: &Column, label: &str) -> Option<Point> {
    column.result(label).map(|sample| Point {
        x,
        y: sample.seconds,
        at_least: sample.capped,
    })
}

/// The same for requests.
pub(super) fn requests_at(x: f64, column: &Column, label: &str) -> Option<Point> {
    let sample = column.result(label).filter(|sample| !sample.capped)?;
    sample.rpcs.map(|rpcs| Point {
        x,
        y: rpcs as f64,
        at_least: false,
    })
}

/// How many times faster the cell is than the baseline. Nothing, if the cell was stopped; at least
/// that, if the baseline was.
pub(super) fn speedup_at(
    x: f64,
    baseline: Option<Sample>,
    sample: Option<Sample>,
) -> Option<Point> {
    let sample = sample.filter(|sample| !sample.capped && sample.seconds > 0.0)?;
    baseline.map(|baseline| Point {
        x,
        y: baseline.seconds / sample.seconds,
        at_least: baseline.capped,
    })
}
