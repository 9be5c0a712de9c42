//! Programs that change a source tree, at several round trips to the server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::commands::{program, untar};
use super::contest::{Contest, requests, take_synced};
use crate::error::{BenchError, Result};
use crate::link::LinkSettings;
use crate::report::{Axis, Cell, Column, Figure, Point, Sample, Section, Series, Table};
use crate::tree::SourceTree;
use crate::workload::effort::Effort;
use crate::workload::measured::Measurement;

/// One tree, far away.
#[derive(Debug, Clone)]
pub struct RoundTrips {
    /// The tree.
    pub tree: SourceTree,
    /// How far.
    pub rtts: Vec<Duration>,
    /// For each row.
    pub effort: Effort,
}

/// What is done at each round trip.
const WORKS: [&str; 3] = ["tar -x", "cp -r", "rm -r"];

fn label(work: &str, rtt: Duration) -> String {
    format!("{work}, sync, {rtt:?}")
}

fn milliseconds(rtt: Duration) -> f64 {
    rtt.as_secs_f64() * 1e3
}

impl RoundTrips {
    /// None where there was nothing to do it on.
    fn take(
        &self,
        measurement: &mut Measurement,
        directory: &Path,
        rtt: Duration,
    ) -> Result<Option<()>> {
        let place = directory.join(format!("{rtt:?}"));
        if !measurement.make_cold(&label(WORKS[0], rtt))? || !made(measurement, &place, rtt)? {
            return Ok(None);
        }
        let (tree, copy) = (place.join(&self.tree.top), place.join("copy"));
        let mut untar = untar(&self.tree.tar, &place)?;
        if !take_synced(measurement, &label(WORKS[0], rtt), &mut untar)? {
            return Ok(None);
        }
        let mut cp = program("cp", &["-r"], &[&tree, &copy]);
        if !take_synced(measurement, &label(WORKS[1], rtt), &mut cp)?
            || !measurement.make_cold(&label(WORKS[2], rtt))?
        {
            return Ok(None);
        }
        let mut rm = program("rm", &["-r"], &[&tree]);
        take_synced(measurement, &label(WORKS[2], rtt), &mut rm)?;
        Ok(Some(()))
    }

    fn table(&self, title: &str, runs: &[Column], cell: impl Fn(Option<Sample>) -> Cell) -> Table {
        let rtts = self.rtts.iter();
        let rtts = rtts.map(|rtt| format!("{} ms", milliseconds(*rtt)));
        let mut table = Table::new(title, std::iter::once("work".to_owned()).chain(rtts));
        for work in WORKS {
            for column in runs {
                let cells = self.rtts.iter();
                let cells = cells.map(|rtt| cell(column.result(&label(work, *rtt))));
                let first = Cell::Text(format!("{work}, {}", column.name));
                table
                    .rows
                    .push(std::iter::once(first).chain(cells).collect());
            }
        }
        table
    }

    fn figure(&self, work: &str, runs: &[Column]) -> Figure {
        let series = runs.iter().map(|column| {
            let points = self.rtts.iter().filter_map(|rtt| {
                let sample = column.result(&label(work, *rtt))?;
                Some(Point {
                    x: milliseconds(*rtt),
                    y: sample.seconds,
                    at_least: sample.capped,
                })
            });
            Series {
                name: column.name.clone(),
                points: points.collect(),
            }
        });
        Figure {
            name: format!("wbc-rtt-{}", work.split(' ').next().unwrap_or(work)),
            title: format!("{work} and sync, by round trip"),
            x: Axis::linear("round trip", "ms"),
            y: Axis::logarithmic("time", "s"),
            series: series.collect(),
        }
    }
}

/// The directory for one round trip. A system that has no link is measured without any.
fn made(measurement: &mut Measurement, place: &PathBuf, rtt: Duration) -> Result<bool> {
    match std::fs::create_dir(place) {
        Ok(()) => Ok(true),
        Err(source) => {
            let error = BenchError::Io {
                doing: format!("making {}", place.display()),
                source,
            };
            measurement
                .column
                .skip(&label(WORKS[0], rtt), error.to_string());
            Ok(false)
        }
    }
}

impl Contest for RoundTrips {
    fn name(&self) -> &'static str {
        "rtt"
    }

    fn link(&self) -> LinkSettings {
        LinkSettings {
            // So that there is a link, however near the server is at first.
            rtt: self.rtts.last().copied().unwrap_or_default(),
            ..LinkSettings::default()
        }
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, measurement: &mut Measurement<'_, '_>, directory: &Path) -> Result<()> {
        for &rtt in &self.rtts {
            let name = measurement.system.name().to_owned();
            let tunable = measurement.system.tunable().ok_or_else(|| {
                BenchError::unavailable(format!("{name} has no link"), "measure Glint")
            })?;
            tunable.set_round_trip(rtt)?;
            if self.take(measurement, directory, rtt)?.is_none() {
                continue;
            }
        }
        // Whatever is left to do is done from near.
        match measurement.system.tunable() {
            Some(tunable) => tunable.set_round_trip(Duration::ZERO),
            None => Ok(()),
        }
    }

    fn section(&self, runs: Vec<Column>) -> Section {
        let count = &self.tree.count;
        Section {
bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "{}: {} entries in {} directories, by round trip",
                self.tree.origin,
                count.entries(),
                count.directories
            ),
            tables: vec![
                self.table("Seconds", &runs, Cell::seconds),
                self.table("Request frames", &runs, requests),
            ],
            figures: WORKS.map(|work| self.figure(work, &runs)).to_vec(),
            notes: vec![
                "each with the time that it takes until everything is durable; rm -r after a new mount"
                    .to_owned(),
            ],
            runs,
        }
    }
}
