//! `ls -l` for values of `statahead_max` and `batch_max`. A cold directory comes in pages with attributes,
//! where only the former matters. So names are listed plainly first, as the talk's file system always does.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::experiment::Experiment;
use super::lab::{Lab, seconds_at};
use super::mode::{Mode, Window};
use crate::error::Result;
use crate::link::LinkSettings;
use crate::report::{Axis, Cell, Column, Figure, Section, Series, Table};
use crate::workload::effort::Effort;
use crate::workload::flat::list;
use crate::workload::quiet::quiet;

/// Values of `statahead_max`. The least a mount takes as its first window is 8.
const WINDOWS: [u64; 5] = [8, 64, 256, 1024, 8192];
/// Values of `batch_max`; none is larger than the window.
const BATCHES: [u64; 5] = [1, 8, 64, 256, 1024];
/// As in the talk's network.
const BANDWIDTH: u64 = 1_000_000_000;
/// A round trip that makes the number of requests show.
const RTT: Duration = Duration::from_millis(1);

/// One directory of this size.
#[derive(Debug, Clone)]
pub struct Grid {
    /// Files in it.
    pub files: u64,
    /// For each cell.
    pub effort: Effort,
}

fn pairs() -> impl Iterator<Item = Window> {
    let batches = |window| BATCHES.into_iter().filter(move |batch| *batch <= window);
    WINDOWS
        .into_iter()
        .flat_map(move |window| batches(window).map(move |batch| Window::new(window, batch)))
}

fn known(window: Window) -> String {
    format!("ls -l, names known, {}", Mode::Flat(Some(window)))
}

/// The batches are as they come.
fn unknown(statahead_max: u64) -> String {
    format!("ls -l, cold, statahead_max {statahead_max}")
}

/// Each run after a listing that brought names alone.
fn take_known(lab: &mut Lab, window: Window, directory: &Path) -> Result<()> {
    let label = known(window);
    for _ in 0..lab.runs {
        if !lab.start(Mode::Off, &label)? {
            break;
        }
        let mut names = names(directory);
        if lab
            .building(|m| m.command(&label, &mut names, &[0], &|| None))?
            .is_none()
        {
            break;
        }
        lab.tune(&Mode::Flat(Some(window)).settings())?;
        if !lab.take(&label, &mut list(directory))? {
            break;
        }
    }
    Ok(())
}

/// Lists names without asking for anything else.
fn names(directory: &Path) -> Command {
    let mut names = quiet("ls");
    names.arg("-f").arg(directory);
    names
}

impl Experiment for Grid {
    fn name(&self) -> &'static str {
        "grid"
    }

    fn link(&self) -> LinkSettings {
        LinkSettings {
            rtt: RTT,
            bandwidth: Some(BANDWIDTH),
            ..LinkSettings::default()
        }
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, lab: &mut Lab, directory: &Path) -> Result<()> {
        lab.tunable()?.set_round_trip(Duration::ZERO)?;
        let directory = directory.join("grid");
        let name = |number| format!("file{number:08}");
        let directory = lab.make_files(directory, self.files, &name)?;
        lab.tunable()?.set_round_trip(RTT)?;
        for window in WINDOWS {
            let mode = Mode::Flat(Some(Window::new(window, window.min(256))));
            lab.take_cold(mode, &unknown(window), &|| list(&directory))?;
        }
        for window in pairs() {
            take_known(lab, window, &directory)?;
        }
        Ok(())
    }

    fn section(&self, runs: Column) -> Section {
        Section {
            bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "ls -l of {} files for statahead_max and batch_max, {:?} from the server",
                self.files, RTT
            ),
            tables: vec![
                table("Seconds", &runs, Cell::seconds),
                table("Request frames", &runs, |sample| {
                    Cell::count(sample, |sample| sample.rpcs)
                }),
            ],
            figures: vec![figure(&runs)],
            notes: vec![
                "the talk's tuple (i, j): statahead_max is i, batch_max is j, j no larger than i"
                    .to_owned(),
                "names known: a plain listing came before, so that attributes come in batches; \
                 cold: pages of the directory carry attributes, and there are no batches"
                    .to_owned(),
            ],
            runs: vec![runs],
        }
    }
}

fn table(what: &str, runs: &Column, cell: impl Fn(Option<crate::report::Sample>) -> Cell) -> Table {
    let batches = BATCHES.iter().map(|batch| format!("batch_max {batch}"));
    let head = ["statahead_max".to_owned(), "cold".to_owned()];
    let title = format!("{what}; from the third column on with the names known");
    let mut table = Table::new(title, head.into_iter().chain(batches));
    for window in WINDOWS {
        let known = BATCHES.iter().map(|&batch| match batch <= window {
            true => cell(runs.result(&known(Window::new(window, batch)))),
            false => Cell::from(""),
        });
        let first = [Cell::Count(window), cell(runs.result(&unknown(window)))];
        table.rows.push(first.into_iter().chain(known).collect());
    }
    table
}

fn figure(runs: &Column) -> Figure {
    let known = BATCHES.iter().map(|&batch| {
        let windows = WINDOWS.iter().filter(|window| batch <= **window);
        let point =
            |&window: &u64| seconds_at(window as f64, runs, &known(Window::new(window, batch)));
        Series {
            name: format!("names known, batch_max {batch}"),
            points: windows.filter_map(point).collect(),
        }
    });
    let cold = WINDOWS.iter();
    let cold = Series {
        name: "cold".to_owned(),
        points: cold
            .filter_map(|&window| seconds_at(window as f64, runs, &unknown(window)))
            .collect(),
    };
    Figure {
        name: "grid".to_owned(),
        title: "ls -l for statahead_max and batch_max".to_owned(),
        x: Axis::logarithmic("statahead_max", "entries"),
        y: Axis::logarithmic("time", "s"),
        series: known.chain(std::iter::once(cold)).collect(),
    }
}
