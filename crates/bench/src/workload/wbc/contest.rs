//! What all parts have in common.

use std::path::Path;
use std::process::Command;

use crate::error::Result;
use crate::link::LinkSettings;
use crate::progress::Progress;
use crate::report::{Cell, Column, Sample, Section, Table};
use crate::workload::effort::Effort;
use crate::workload::measured::{Measurement, Plan, measure};
use crate::workload::system::System;

/// One part: the same work on each system.
///
/// | part | the talk's | rows |
/// |---|---|---|
/// | [`Commands`](super::Commands) | real-world workloads | command-line programs on a source tree |
/// | [`Metadata`](super::Metadata) | single node metadata performance | creates, stats, removes, by tasks |
/// | [`Profiles`](super::Profiles) | filebench | varmail, fileserver, webserver |
/// | [`Pathological`](super::Pathological) | pathological workload | eight trees unpacked by four mounts |
/// | [`RoundTrips`](super::RoundTrips) | | programs that change a tree, by round trip |
pub trait Contest {
    /// In one word.
    fn name(&self) -> &'static str;

    /// Between mounts and their server.
    fn link(&self) -> LinkSettings {
        LinkSettings::default()
    }

    /// How often each row is measured, and for how long.
    fn effort(&self) -> &Effort;

    /// One run, in a new directory.
    fn run(&self, measurement: &mut Measurement<'_, '_>, directory: &Path) -> Result<()>;

    /// Draws what was measured, a column for each system.
    fn section(&self, runs: Vec<Column>) -> Section;

    /// Fills a system's column. What goes wrong is noted there; only an interrupt and a directory that
    /// can't be written end it without one.
    fn measure(&self, system: &mut dyn System, progress: &mut Progress) -> Result<Column> {
        let effort = self.effort();
        let plan = Plan {
            runs: effort.runs,
            cap: effort.cap,
            stop: &effort.stop,
        };
        measure(system, &plan, progress, &|measurement, directory| {
            self.run(measurement, directory)
        })
    }
}

/// Makes everything durable after work that took `sample`, and adds its time and requests. None if it failed,
/// which is noted for the step.
pub(super) fn synced(
    measurement: &mut Measurement,
    step: &str,
    sample: Sample,
) -> Result<Option<Sample>> {
    let mut sync = measurement.system.sync_command();
    let sync = measurement.command(step, &mut sync, &[0], &|| None)?;
    Ok(sync.map(|sync| added(sample, sync)))
}

/// One after the other.
fn added(first: Sample, second: Sample) -> Sample {
    let both = |first: Option<u64>, second: Option<u64>| Some(first? + second?);
    Sample {
        seconds: first.seconds + second.seconds,
        rpcs: both(first.rpcs, second.rpcs),
        capped: first.capped || second.capped,
        cpu: first
            .cpu
            .zip(second.cpu)
            .map(|(first, second)| first + second),
        server_cpu: first
            .server_cpu
            .zip(second.server_cpu)
            .map(|(first, second)| first + second),
        memory_peak: first.memory_peak.max(second.memory_peak),
        server_memory_peak: first.server_memory_peak.max(second.server_memory_peak),
        ..first
    }
}

/// Measures a program, and what makes its work durable. Whether it came to its end.
pub(super) fn take_synced(
    measurement: &mut Measurement,
    step: &str,
    command: &mut Command,
) -> Result<bool> {
    let Some(sample) = measurement.command(step, command, &[0], &|| None)? else {
        return Ok(false);
    };
    let Some(sample) = synced(measurement, step, sample)? else {
        return Ok(false);
    };
    measurement.keep(step, sample);
    Ok(!sample.capped)
}

/// A row for each step, a column for each system.
pub(super) fn table(
    title: &str,
    unit: &str,
    steps: &[String],
    runs: &[Column],
    cell: impl Fn(Option<Sample>) -> Cell,
) -> Table {
    let heads = runs.iter().map(|column| match unit.is_empty() {
        true => column.name.clone(),
        false => format!("{} {unit}", column.name),
    });
    let mut table = Table::new(title, std::iter::once("work".to_owned()).chain(heads));
    for step in steps {
        let cells = runs.iter().map(|column| cell(column.result(step)));
        let first = std::iter::once(Cell::Text(step.clone()));
        table.rows.push(first.chain(cells).collect());
    }
    table
}

/// Request frames, where a system counts them.
pub(super) fn requests(sample: Option<Sample>) -> Cell {
    Cell::count(sample, |sample| sample.rpcs)
}

/// Operations a second.
pub(super) fn rate(sample: Option<Sample>) -> Cell {
    let each = sample.filter(|sample| sample.seconds > 0.0);
    let each = each.and_then(|sample| Some(sample.entries? as f64 / sample.seconds));
    each.map_or(Cell::Missing, |rate| Cell::Count(rate.round() as u64))
}
