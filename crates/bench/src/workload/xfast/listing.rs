//! `ls -l` of directories of several sizes: cold and warm, without prefetch and with it.

use std::path::Path;

use super::experiment::Experiment;
use super::lab::{Lab, seconds_at};
use super::mode::Mode;
use crate::error::Result;
use crate::report::{Axis, Cell, Column, Figure, Point, Section, Series, Table};
use crate::workload::effort::Effort;
use crate::workload::flat::list;

const MODES: [Mode; 2] = [Mode::Off, Mode::Sas(None)];

/// Directories of these sizes.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Files in each directory.
    pub files: Vec<u64>,
    /// For each cell.
    pub effort: Effort,
}

#[derive(Debug, Clone, Copy)]
enum Cache {
    Cold,
    Warm,
}

fn label(files: u64, mode: Mode, cache: Cache) -> String {
    match cache {
        Cache::Cold => format!("ls -l, {files} files, {mode}, cold"),
        Cache::Warm => format!("ls -l, {files} files, {mode}, warm"),
    }
}

/// Twice at once, the first time with nothing cached.
fn list_both(lab: &mut Lab, directory: &Path, files: u64, mode: Mode) -> Result<()> {
    let cold = label(files, mode, Cache::Cold);
    let warm = label(files, mode, Cache::Warm);
    for _ in 0..lab.runs {
        let on = lab.start(mode, &cold)?
            && lab.take(&cold, &mut list(directory))?
            && lab.take(&warm, &mut list(directory))?;
        if !on {
            break;
        }
    }
    Ok(())
}

impl Experiment for Listing {
    fn name(&self) -> &'static str {
        "flat"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, lab: &mut Lab, directory: &Path) -> Result<()> {
        for &files in &self.files {
            let directory = directory.join(files.to_string());
            let name = |number| format!("file{number:08}");
            let directory = lab.make_files(directory, files, &name)?;
            for mode in MODES {
                list_both(lab, &directory, files, mode)?;
            }
        }
        Ok(())
    }

    fn section(&self, runs: Column) -> Section {
        Section {
            bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: "ls -l of one directory, cold and warm, without prefetch and with it".to_owned(),
            tables: vec![self.table(&runs)],
            figures: vec![self.figure(&runs)],
            notes: vec![
                "cold: a fresh mount; warm: once more, at once".to_owned(),
                "off: statahead_max is 0, the talk's FLAT(1, 1); SAS: prefetch as it comes"
                    .to_owned(),
            ],
            runs: vec![runs],
        }
    }
}

impl Listing {
    fn table(&self, runs: &Column) -> Table {
        let head = [
            "files",
            "off, cold s",
            "off, warm s",
            "off RPCs",
            "SAS, cold s",
            "SAS, warm s",
            "SAS RPCs",
        ];
        let mut table = Table::new("Seconds, and request frames of the cold listing", head);
        for &files in &self.files {
            let cells = MODES.iter().flat_map(|mode| {
                let cold = runs.result(&label(files, *mode, Cache::Cold));
                let warm = runs.result(&label(files, *mode, Cache::Warm));
                [
                    Cell::seconds(cold),
                    Cell::seconds(warm),
                    Cell::count(cold, |sample| sample.rpcs),
                ]
            });
            let first = std::iter::once(Cell::Count(files));
            table.rows.push(first.chain(cells).collect());
        }
        table
    }

    fn figure(&self, runs: &Column) -> Figure {
        let series = |name: String, mode, cache| Series {
            name,
            points: self.points(runs, mode, cache),
        };
        let series = MODES.iter().flat_map(|mode| {
            [
                series(format!("{mode}, cold"), *mode, Cache::Cold),
                series(format!("{mode}, warm"), *mode, Cache::Warm),
            ]
        });
        Figure {
            name: "flat".to_owned(),
            title: "ls -l of one directory".to_owned(),
            x: Axis::logarithmic("files", ""),
            y: Axis::logarithmic("time", "s"),
            series: series.collect(),
        }
    }

    fn points(&self, runs: &Column, mode: Mode, cache: Cache) -> Vec<Point> {
        let files = self.files.iter();
        let point = |&files: &u64| seconds_at(files as f64, runs, &label(files, mode, cache));
        files.filter_map(point).collect()
    }
}
