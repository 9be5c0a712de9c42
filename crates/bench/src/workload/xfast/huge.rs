//! One directory with more files than anybody wants. It works, in time by the number of files, and
//! in memory that does not grow with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{Mode as Permissions, SFlag, mknodat};

use super::experiment::Experiment;
use super::lab::{Lab, seconds_at};
use super::mode::Mode;
use crate::error::Result;
use crate::report::{Axis, Cell, Column, Figure, Point, Sample, Section, Series, Table};
use crate::workload::effort::Effort;
use crate::workload::quiet::quiet;

/// The same work on so many times the files may take this many times as long.
const LINEAR: f64 = 1.2;
/// A tenth of the files comes first, to compare with.
const TIMES: u64 = 10;

/// Two directories.
#[derive(Debug, Clone)]
pub struct Huge {
    /// Files in the larger one; a tenth in the other.
    pub files: u64,
    /// For each cell.
    pub effort: Effort,
}

#[derive(Debug, Clone, Copy)]
enum Program {
    Find,
    Names,
}

impl Program {
    const ALL: [Program; 2] = [Program::Find, Program::Names];

    fn words(self) -> &'static str {
        match self {
            Program::Find => "find -uid 0",
            Program::Names => "ls -U",
        }
    }

    fn command(self, directory: &Path) -> Command {
        let script = match self {
            Program::Find => "find \"$1\" -uid 0 | wc -l",
            Program::Names => "ls -U \"$1\" | wc -l",
        };
        let mut shell = quiet("sh");
        shell.args(["-c", script, "sh"]).arg(directory);
        shell
    }

    fn label(self, files: u64) -> String {
        format!("{}, {files} files", self.words())
    }
}

impl Huge {
    fn sizes(&self) -> [u64; 2] {
        [(self.files / TIMES).max(1), self.files]
    }

    fn table(&self, runs: &Column) -> Table {
        let head = [
            "work",
            "files",
            "s",
            "us a file",
            "RPCs",
            "mount: peak MiB",
            "servers: peak MiB",
            "time, times a tenth",
        ];
        let mut table = Table::new("Medians", head);
        for program in Program::ALL {
            for files in self.sizes() {
                let sample = runs.result(&program.label(files));
                let tenth = runs.result(&program.label(self.sizes()[0]));
                table.rows.push(vec![
                    program.words().into(),
                    Cell::Count(files),
                    Cell::seconds(sample),
                    number(sample, |sample| Some(sample.seconds * 1e6 / files as f64)),
                    Cell::count(sample, |sample| sample.rpcs),
                    number(sample, |sample| sample.memory_peak.map(mebibytes)),
                    number(sample, |sample| sample.server_memory_peak.map(mebibytes)),
                    self.growth(files, sample, tenth),
                ]);
            }
        }
        table
    }

    /// How many times as long as the tenth, with a sign where that is too much.
    fn growth(&self, files: u64, sample: Option<Sample>, tenth: Option<Sample>) -> Cell {
        let [small, large] = self.sizes();
        let done = |sample: Option<Sample>| sample.filter(|sample| !sample.capped);
        let (Some(sample), Some(tenth)) = (done(sample), done(tenth)) else {
            return Cell::Missing;
        };
        if files != large || tenth.seconds <= 0.0 {
            return "".into();
        }
        let times = sample.seconds / tenth.seconds;
        let limit = LINEAR * (large as f64 / small as f64);
        let sign = if times > limit { " !" } else { "" };
        Cell::Text(format!("{times:.1}{sign}"))
    }

    fn figure(&self, runs: &Column) -> Figure {
        let series = |program: Program| {
            let point = |files: u64| -> Option<Point> {
                seconds_at(files as f64, runs, &program.label(files))
            };
            Series {
                name: program.words().to_owned(),
                points: self.sizes().into_iter().filter_map(point).collect(),
            }
        };
        Figure {
            name: "huge".to_owned(),
            title: "one directory, cold".to_owned(),
            x: Axis::logarithmic("files", ""),
            y: Axis::logarithmic("time", "s"),
            series: Program::ALL.map(series).into(),
        }
    }
}

/// Without opening it, which would cost as much again.
fn make(path: PathBuf) -> std::io::Result<()> {
    let permissions = Permissions::from_bits_truncate(0o644);
    let made = mknodat(AT_FDCWD, &path, SFlag::S_IFREG, permissions, 0);
    made.map_err(std::io::Error::from)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Of a run that came to its end.
fn number(sample: Option<Sample>, of: impl Fn(&Sample) -> Option<f64>) -> Cell {
    let sample = sample.filter(|sample| !sample.capped);
    sample
        .and_then(|sample| of(&sample))
        .map_or(Cell::Missing, Cell::Number)
}

impl Experiment for Huge {
    fn name(&self) -> &'static str {
        "huge"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, lab: &mut Lab, directory: &Path) -> Result<()> {
        for files in self.sizes() {
            let directory = lab.make_with(directory.join(files.to_string()), files, &make)?;
            for program in Program::ALL {
                let label = program.label(files);
                lab.take_cold(Mode::Sas(None), &label, &|| program.command(&directory))?;
            }
        }
        Ok(())
    }

    fn section(&self, runs: Column) -> Section {
        Section {
bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!("{} files in one directory, and a tenth of them", self.files),
            tables: vec![self.table(&runs)],
            figures: vec![self.figure(&runs)],
            notes: vec![
                "cold: a fresh mount, what is printed counted by wc; peak: the most that was seen, ten times a second".to_owned(),
                format!("\"!\": more than {LINEAR} times as long as in proportion to the files"),
            ],
            runs: vec![runs],
        }
    }
}
