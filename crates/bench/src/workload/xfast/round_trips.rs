//! `find -uid 0` over a source tree, at several round trips to the server.

use std::path::Path;
use std::time::Duration;

use super::experiment::Experiment;
use super::lab::{Lab, requests_at, seconds_at, speedup_at};
use super::mode::Mode;
use super::trees::make_trees;
use crate::error::Result;
use crate::link::LinkSettings;
use crate::report::{Axis, Cell, Column, Figure, Point, Sample, Section, Series, Table};
use crate::tree::SourceTree;
use crate::workload::effort::Effort;
use crate::workload::walk::find;

/// One tree, far away.
#[derive(Debug, Clone)]
pub struct RoundTrips {
    /// The tree.
    pub tree: SourceTree,
    /// How far.
    pub rtts: Vec<Duration>,
    /// Bits per second of the link.
    pub bandwidth: Option<u64>,
    /// For each cell.
    pub effort: Effort,
}

fn label(mode: Mode, rtt: Duration) -> String {
    format!("find -uid 0, {mode}, {rtt:?}")
}

fn milliseconds(rtt: Duration) -> f64 {
    rtt.as_secs_f64() * 1e3
}

impl RoundTrips {
    fn link_note(&self) -> String {
        let bandwidth = match self.bandwidth {
            Some(bits) => format!("{} Mbit/s", bits as f64 / 1e6),
            None => "no limit".to_owned(),
        };
        format!(
            "the link has {bandwidth}, where the measurement may make one (as root); elsewhere a \
             transport delays each frame"
        )
    }

    fn table(&self, title: &str, runs: &Column, cell: impl Fn(Option<Sample>) -> Cell) -> Table {
        let rtts = self.rtts.iter();
        let rtts = rtts.map(|rtt| format!("{} ms", milliseconds(*rtt)));
        let mut table = Table::new(title, std::iter::once("mode".to_owned()).chain(rtts));
        for mode in Mode::OF_TREES {
            let cells = self.rtts.iter();
            let cells = cells.map(|rtt| cell(runs.result(&label(mode, *rtt))));
            let first = std::iter::once(Cell::Text(mode.to_string()));
            table.rows.push(first.chain(cells).collect());
        }
        table
    }

    fn figure(
        &self,
        name: &str,
        title: &str,
        y: Axis,
        point: impl Fn(Mode, Duration) -> Option<Point>,
    ) -> Figure {
        let series = Mode::OF_TREES.iter().map(|mode| Series {
            name: mode.to_string(),
            points: {
                let points = self.rtts.iter().filter_map(|rtt| point(*mode, *rtt));
                points.collect()
            },
        });
        Figure {
            name: name.to_owned(),
            title: title.to_owned(),
            x: Axis::logarithmic("round trip", "ms"),
            y,
            series: series.collect(),
        }
    }

    fn figures(&self, runs: &Column) -> Vec<Figure> {
        let time = self.figure(
            "rtt-time",
            "cold find -uid 0, by round trip",
            Axis::logarithmic("time", "s"),
            |mode, rtt| seconds_at(milliseconds(rtt), runs, &label(mode, rtt)),
        );
        let requests = self.figure(
            "rtt-requests",
            "requests of a cold find -uid 0, by round trip",
            Axis::logarithmic("request frames", ""),
            |mode, rtt| requests_at(milliseconds(rtt), runs, &label(mode, rtt)),
        );
        let speedup = self.figure(
            "rtt-speedup",
            "how many times faster than with prefetch off",
            Axis::logarithmic("off / mode", "times"),
            |mode, rtt| {
                let off = runs.result(&label(Mode::Off, rtt));
                speedup_at(milliseconds(rtt), off, runs.result(&label(mode, rtt)))
            },
        );
        vec![time, speedup, requests]
    }
}

impl Experiment for RoundTrips {
    fn name(&self) -> &'static str {
        "rtt"
    }

    fn link(&self) -> LinkSettings {
        LinkSettings {
            // So that there is a link, however near the server is at first.
            rtt: self.rtts.first().copied().unwrap_or_default(),
            bandwidth: self.bandwidth,
            ..LinkSettings::default()
        }
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, lab: &mut Lab, directory: &Path) -> Result<()> {
        // The files are made from near.
        lab.tunable()?.set_round_trip(Duration::ZERO)?;
        if !lab.measurement.make_cold("making the tree")? {
            return Ok(());
        }
        let source = directory.join("src");
        let Some(source) = make_trees(lab, &self.tree, 1, source)? else {
            return Ok(());
        };
        for &rtt in &self.rtts {
            lab.tunable()?.set_round_trip(rtt)?;
            for mode in Mode::OF_TREES {
                lab.take_cold(mode, &label(mode, rtt), &|| find(&source))?;
            }
        }
        // Whatever is left to do is done from near again.
        lab.tunable()?.set_round_trip(Duration::ZERO)
    }

    fn section(&self, runs: Column) -> Section {
        let count = &self.tree.count;
        let requests = |sample| Cell::count(sample, |sample: &Sample| sample.rpcs);
        Section {
            bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "cold find -uid 0 over {}: {} entries in {} directories, by round trip",
                self.tree.origin,
                count.entries(),
                count.directories
            ),
            tables: vec![
                self.table("Seconds", &runs, Cell::seconds),
                self.table("Request frames", &runs, requests),
            ],
            figures: self.figures(&runs),
            notes: vec![
                "off: statahead_max is 0, the talk's baseline".to_owned(),
                self.link_note(),
            ],
            runs: vec![runs],
        }
    }
}
