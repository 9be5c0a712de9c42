//! `ls -l` of a directory in which programs write meanwhile, through another mount.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::appender::{Appenders, Work, name};
use super::experiment::Experiment;
use super::lab::{Lab, requests_at, seconds_at};
use super::mode::Mode;
use super::sizes::{Sizes, parse_find, parse_ls, wrong_afterwards, wrong_meanwhile};
use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::process::time;
use crate::progress::Event;
use crate::report::{Axis, Cell, Column, Figure, Point, Sample, Section, Series, Table};
use crate::workload::effort::Effort;
use crate::workload::flat::list;
use crate::workload::quiet::quiet;

const MODES: [Mode; 2] = [Mode::Off, Mode::Sas(None)];

/// How long removing the files that writers made may take.
const REMOVE_CAP: Duration = Duration::from_secs(60);

/// One directory, and so many writers.
#[derive(Debug, Clone)]
pub struct Writers {
    /// Files in the directory at first.
    pub files: u64,
    /// How many programs write in it.
    pub writers: Vec<u64>,
    /// For each cell.
    pub effort: Effort,
}

fn label(writers: u64, mode: Mode) -> String {
    format!("ls -l, {writers} writers, {mode}")
}

/// The check of all sizes afterwards.
fn check_label(writers: u64, mode: Mode) -> String {
    format!("sizes after {writers} writers, {mode}")
}

/// What was wrong with sizes, in any run.
fn wrong_label(writers: u64, mode: Mode) -> String {
    format!("WRONG: {}", label(writers, mode))
}

/// The directory as the first mount sees it, and what its files must be like.
struct Scene {
    directory: PathBuf,
    files: u64,
    sizes: Sizes,
}

impl Scene {
    /// One run. False if the cell is done with.
    fn measure(&mut self, lab: &mut Lab, writers: u64, mode: Mode) -> Result<bool> {
        let label = label(writers, mode);
        if !lab.start(mode, &label)? {
            return Ok(false);
        }
        let files = self.files;
        let work = Work { writers, files };
        let appenders = self.start_writers(lab, work)?;
        let listing = Output::new()?;
        let mut list = list(&self.directory);
        let on = lab.take(&label, list.stdout(listing.writer()?))?;
        let turns = match appenders {
            Some(appenders) => appenders.end()?,
            None => Vec::new(),
        };
        let before = self.sizes.clone();
        work.add(&turns, &mut self.sizes);
        let meanwhile = match on {
            true => wrong_meanwhile(&parse_ls(&listing.text()?), &before, &self.sizes),
            false => None,
        };
        let found = self.check(lab, &check_label(writers, mode), turns.iter().sum())?;
        let afterwards = found.and_then(|found| wrong_afterwards(&found, &self.sizes));
        if let Some(wrong) = meanwhile.or(afterwards) {
            (lab.measurement.progress)(Event::Line(format!("{label}: {wrong}")));
            let column = &mut lab.measurement.column;
            column.skip(&wrong_label(writers, mode), wrong);
        }
        self.remove_new(&lab.measurement.stop.clone())?;
        Ok(on)
    }

    fn start_writers(&self, lab: &mut Lab, work: Work) -> Result<Option<Appenders>> {
        if work.writers == 0 {
            return Ok(None);
        }
        let stop = lab.measurement.stop.clone();
        let root = lab.measurement.system.root();
        let below = self.directory.strip_prefix(root);
        let below = below.map_err(|error| BenchError::Invalid(error.to_string()))?;
        let directory = lab.tunable()?.beside()?.join(below);
        Appenders::start(work, &directory, &stop).map(Some)
    }

    /// Looks at every size once more, now that nobody writes. None if that failed, which is noted.
    fn check(&self, lab: &mut Lab, label: &str, turns: u64) -> Result<Option<Sizes>> {
        let found = Output::new()?;
        let mut find = quiet("find");
        find.arg(&self.directory);
        find.args(["-type", "f", "-printf", "%s %f\\n"]);
        find.stdout(found.writer()?);
        let sample = lab.building(|m| m.command(label, &mut find, &[0], &|| None))?;
        let Some(sample) = sample.filter(|sample| !sample.capped) else {
            return Ok(None);
        };
        let entries = Some(turns);
        lab.measurement.keep(label, Sample { entries, ..sample });
        Ok(Some(parse_find(&found.text()?)))
    }

    /// So that each run begins with as many files.
    fn remove_new(&mut self, stop: &StopFlag) -> Result<()> {
        self.sizes.retain(|name, _| !name.starts_with("new"));
        let mut remove = quiet("sh");
        remove.args(["-c", "rm -f \"$1\"/new*", "rm"]);
        remove.arg(&self.directory);
        time(&mut remove, REMOVE_CAP, stop, &mut |_| {})?.expect("rm", &[0])?;
        Ok(())
    }
}

/// What a program prints, kept in a file.
struct Output(File);

impl Output {
    fn new() -> Result<Output> {
        let file = tempfile::tempfile().during(|| "making a temporary file")?;
        Ok(Output(file))
    }

    fn writer(&self) -> Result<File> {
        self.0.try_clone().during(|| "using a temporary file")
    }

    fn text(mut self) -> Result<String> {
        let mut text = String::new();
        self.0
            .rewind()
            .and_then(|()| self.0.read_to_string(&mut text))
            .during(|| "reading what a program has printed")?;
        Ok(text)
    }
}

impl Experiment for Writers {
    fn name(&self) -> &'static str {
        "writers"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, lab: &mut Lab, directory: &Path) -> Result<()> {
        let directory = lab.make_files(directory.join("busy"), self.files, &name)?;
        let mut scene = Scene {
            directory,
            files: self.files,
            sizes: (0..self.files).map(|number| (name(number), 0)).collect(),
        };
        for &writers in &self.writers {
            for mode in MODES {
                for _ in 0..lab.runs {
                    if !scene.measure(lab, writers, mode)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn section(&self, runs: Column) -> Section {
        let time = self.figure(
            "writers-time",
            Axis::linear("time", "s"),
            |writers, label| seconds_at(writers, &runs, label),
        );
        let requests = self.figure(
            "writers-requests",
            Axis::linear("request frames", ""),
            |writers, label| requests_at(writers, &runs, label),
        );
        Section {
            bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "cold ls -l of {} files in which others write meanwhile",
                self.files
            ),
            tables: vec![self.table(&runs)],
            figures: vec![time, requests],
            notes: vec![
                "writers: shells in one other mount, as fast as they can, each opening a file, \
                 appending a line and closing it; one turn in eight at first makes a file"
                    .to_owned(),
                "sizes: each that was listed was one that the file had then; afterwards all were \
                 exact, on the listing mount, before its caches were dropped"
                    .to_owned(),
                "off: statahead_max is 0; CPU: of the listing mount's process; appends: while the \
                 writers ran"
                    .to_owned(),
            ],
            runs: vec![runs],
        }
    }
}

impl Writers {
    fn table(&self, runs: &Column) -> Table {
        let heads = MODES.iter().flat_map(|mode| {
            ["s", "RPCs", "CPU s", "sizes", "appends"].map(|what| format!("{mode} {what}"))
        });
        let head = std::iter::once("writers".to_owned()).chain(heads);
        let mut table = Table::new("Medians", head);
        for &writers in &self.writers {
            let cells = MODES.iter().flat_map(|mode| {
                let listed = runs.result(&label(writers, *mode));
                let check = check_label(writers, *mode);
                [
                    Cell::seconds(listed),
                    Cell::count(listed, |sample| sample.rpcs),
                    Cell::cpu(listed),
                    verdict(runs, &check, &wrong_label(writers, *mode)),
                    Cell::count(runs.result(&check), |sample| sample.entries),
                ]
            });
            let first = std::iter::once(Cell::Count(writers));
            table.rows.push(first.chain(cells).collect());
        }
        table
    }

    fn figure(&self, name: &str, y: Axis, point: impl Fn(f64, &str) -> Option<Point>) -> Figure {
        let series = MODES.iter().map(|mode| {
            let writers = self.writers.iter();
            let points =
                writers.filter_map(|&writers| point(writers as f64, &label(writers, *mode)));
            Series {
                name: mode.to_string(),
                points: points.collect(),
            }
        });
        Figure {
            name: name.to_owned(),
            title: format!("cold ls -l of {} files while others write", self.files),
            x: Axis::linear("writers", ""),
            y,
            series: series.collect(),
        }
    }
}

/// One wrong size in any run is wrong.
fn verdict(runs: &Column, check: &str, wrong: &str) -> Cell {
    match runs.steps.iter().any(|runs| runs.step == wrong) {
        true => Cell::from("WRONG"),
        false => runs
            .result(check)
            .map_or(Cell::Missing, |_| Cell::from("right")),
    }
}
