//! What was measured, as one table: aligned text, Markdown, or JSON. Several experiments make a
//! [`Document`] of tables and figures.

mod document;
mod dots;
mod figure;
mod grid;
mod plot;
mod spread;
mod table;
mod verdict;

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};
use grid::Grid;

pub use document::{Document, Figures, Section};
pub use figure::{Axis, Figure, Point, Scale, Series};
pub use table::{Cell, Table};
pub use verdict::{Bound, Line, Verdict};

/// What a client says about what it fetched, and fetched ahead, by Lustre's names where it has them.
/// Counts; those of a sample are of its time alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statahead {
    /// Requests for the attributes of one name or file; in a batch each counts.
    pub stats: u64,
    /// Requests for a page of a directory.
    pub pages: u64,
    /// Times a walk had to wait for the network: what it needed was not at hand.
    pub walk_stalls: u64,
    /// Requests for a stretch of a tree: many directories in one answer.
    pub statahead_tree_walks: u64,
    /// Directories that came in these.
    pub statahead_tree_total: u64,
    /// Of these then read.
    pub statahead_tree_hit: u64,
    /// Walks of trees that were followed.
    pub tree_walks_followed: u64,
    /// Directories walked with statahead.
    pub statahead_total: u64,
    /// Walks given up because guesses were wrong.
    pub statahead_wrong: u64,
    /// Entries asked for in batches.
    pub statahead_entries: u64,
    /// Batches sent.
    pub statahead_batches: u64,
    /// Entries that were at hand when they were asked for, in directories closed since.
    pub hit_total: u64,
    /// Entries that were not.
    pub miss_total: u64,
}

impl Statahead {
    /// What was added since.
    #[must_use]
    pub fn since(&self, before: &Statahead) -> Statahead {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        Statahead {
            stats: less(self.stats, before.stats),
            pages: less(self.pages, before.pages),
            walk_stalls: less(self.walk_stalls, before.walk_stalls),
            statahead_tree_walks: less(self.statahead_tree_walks, before.statahead_tree_walks),
            statahead_tree_total: less(self.statahead_tree_total, before.statahead_tree_total),
            statahead_tree_hit: less(self.statahead_tree_hit, before.statahead_tree_hit),
            tree_walks_followed: less(self.tree_walks_followed, before.tree_walks_followed),
            statahead_total: less(self.statahead_total, before.statahead_total),
            statahead_wrong: less(self.statahead_wrong, before.statahead_wrong),
            statahead_entries: less(self.statahead_entries, before.statahead_entries),
            statahead_batches: less(self.statahead_batches, before.statahead_batches),
            hit_total: less(self.hit_total, before.hit_total),
            miss_total: less(self.miss_total, before.miss_total),
        }
    }
}

/// One measured run of one step.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// From start to end, or to when it was stopped.
    pub seconds: f64,
    /// Requests the client sent meanwhile.
    pub rpcs: Option<u64>,
    /// It was stopped at the time limit: it would have taken longer.
    pub capped: bool,
    /// The part of the tree (0 to 1) that was there to work on, if it was not the whole.
    pub part: Option<f64>,
    /// What it was done for, where a time for each is of interest.
    pub entries: Option<u64>,
    /// Bytes of memory that the client's process took meanwhile, less what it gave back.
    pub memory: Option<i64>,
    /// Seconds of CPU that the client's process used meanwhile.
    pub cpu: Option<f64>,
    /// The same of the servers' process.
    pub server_cpu: Option<f64>,
    /// The most memory that the client's process was seen to have meanwhile, in bytes.
    pub memory_peak: Option<u64>,
    /// The same of the servers' process.
    pub server_memory_peak: Option<u64>,
    /// What the client fetched ahead meanwhile.
    pub statahead: Option<Statahead>,
}

impl Sample {
    /// Seconds of CPU that client and servers used.
    pub fn all_cpu(&self) -> Option<f64> {
        Some(self.cpu? + self.server_cpu?)
    }
}

/// The runs of one step on one system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepRuns {
    /// The row.
    pub step: String,
    /// Every run.
    pub samples: Vec<Sample>,
    /// Why there are none, or fewer than asked for.
    pub skipped: Option<String>,
}

/// One system's column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// The system.
    pub name: String,
    /// In the order they were first met.
    pub steps: Vec<StepRuns>,
    /// Why nothing was measured at all.
    pub absent: Option<String>,
}

impl Column {
    /// A column to be filled.
    pub fn new(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            steps: Vec::new(),
            absent: None,
        }
    }

    /// A column of a system that could not be measured.
    pub fn absent(name: impl Into<String>, why: impl Into<String>) -> Column {
        Column {
            absent: Some(why.into()),
            ..Column::new(name)
        }
    }

    /// Keeps a sample.
    pub fn add(&mut self, step: &str, sample: Sample) {
        self.runs(step).samples.push(sample);
    }

    /// Says why a step was not run.
    pub fn skip(&mut self, step: &str, why: String) {
        self.runs(step).skipped = Some(why);
    }

    /// The median of a step's runs, with the most requests that any of them made; if any was
    /// capped, that one.
    pub fn result(&self, step: &str) -> Option<Sample> {
        let runs = self.steps.iter().find(|runs| runs.step == step)?;
        if let Some(capped) = runs.samples.iter().find(|sample| sample.capped) {
            return Some(*capped);
        }
        let mut sorted = runs.samples.clone();
        sorted.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let middle = Sample {
            rpcs: sorted.iter().filter_map(|sample| sample.rpcs).max(),
            ..*sorted.get(sorted.len() / 2)?
        };
        if sorted.len() % 2 == 1 {
            return Some(middle);
        }
        let below = sorted[sorted.len() / 2 - 1];
        Some(Sample {
            seconds: f64::midpoint(below.seconds, middle.seconds),
            ..middle
        })
    }

    /// Every run of a step.
    pub fn samples(&self, step: &str) -> &[Sample] {
        let runs = self.steps.iter().find(|runs| runs.step == step);
        runs.map_or(&[], |runs| &runs.samples)
    }

    /// Adds the runs of another measurement of the same system.
    pub fn extend(&mut self, later: Column) {
        for StepRuns {
            step,
            samples,
            skipped,
        } in later.steps
        {
            let runs = self.runs(&step);
            runs.samples.extend(samples);
            runs.skipped = skipped.or(runs.skipped.take());
        }
        self.absent = later.absent.or(self.absent.take());
    }

    fn runs(&mut self, step: &str) -> &mut StepRuns {
        let at = self.steps.iter().position(|runs| runs.step == step);
        let at = at.unwrap_or_else(|| {
            self.steps.push(StepRuns {
                step: step.to_string(),
                samples: Vec::new(),
                skipped: None,
            });
            self.steps.len() - 1
        });
        &mut self.steps[at]
    }
}

/// The whole table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was measured, on what, over what link.
    pub title: String,
    /// The machine and how busy it was.
    pub machine: String,
    /// The rows, in order. Rows that no column has are left out.
    pub steps: Vec<String>,
    /// One for each system.
    pub columns: Vec<Column>,
    /// The name of the column that the others are divided by.
    pub baseline: Option<String>,
}

impl Report {
    /// An empty table with these rows.
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        steps: impl IntoIterator<Item = S>,
    ) -> Report {
        Report {
            title: title.into(),
            machine: machine(),
            steps: steps.into_iter().map(Into::into).collect(),
            columns: Vec::new(),
            baseline: None,
        }
    }

    /// Keeps a column, or more runs of one that is there.
    pub fn keep(&mut self, column: Column) {
        match self.column(&column.name) {
            Some(at) => self.columns[at].extend(column),
            None => self.columns.push(column),
        }
    }

    /// Puts a column in the place of the one of its name.
    pub fn replace(&mut self, column: Column) {
        match self.column(&column.name) {
            Some(at) => self.columns[at] = column,
            None => self.columns.push(column),
        }
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let table = self.table();
        format!(
            "{}\n{}\n\n{table}{}",
            self.title,
            self.machine,
            self.notes("  ")
        )
    }

    /// The table alone, for a terminal.
    pub fn table(&self) -> String {
        Grid::of(self).text()
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let table = Grid::of(self).markdown();
        let notes = self.notes("- ");
        format!("### {}\n\n{}\n\n{table}{notes}", self.title, self.machine)
    }

    /// Everything, each run included.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::Invalid(format!("a number that JSON has not: {error}")))
    }

    /// What the signs in the table mean, and why cells are empty.
    fn notes(&self, bullet: &str) -> String {
        let mut notes = Vec::new();
        let all = self.columns.iter().flat_map(|column| &column.steps);
        if all
            .flat_map(|runs| &runs.samples)
            .any(|sample| sample.capped)
        {
            notes.push("\">\" means stopped at the time limit: it takes longer".to_string());
        }
        for column in &self.columns {
            notes.extend(column_notes(column));
        }
        if notes.is_empty() {
            return String::new();
        }
        let lines = notes.into_iter().map(|note| format!("{bullet}{note}\n"));
        format!("\n{}", lines.collect::<String>())
    }
}

/// What holds for one column: a partial tree, and each reason with the steps it holds for.
fn column_notes(column: &Column) -> Vec<String> {
    if let Some(why) = &column.absent {
        return vec![format!("{}: not run: {why}", column.name)];
    }
    let mut samples = column.steps.iter().flat_map(|runs| &runs.samples);
    let part = samples.find_map(|sample| sample.part).map(|part| {
        let percent = part * 100.0;
        let name = &column.name;
        format!("{name}: \"*\" means on {percent:.1} % of the tree, as far as tar had come")
    });
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for runs in &column.steps {
        let Some(why) = &runs.skipped else { continue };
        match reasons.iter_mut().find(|(reason, _)| reason == why) {
            Some((_, steps)) => steps.push(&runs.step),
            None => reasons.push((why, vec![&runs.step])),
        }
    }
    let line = |(why, steps): (&str, Vec<&str>)| {
        format!("{}: not run: {why} ({})", column.name, steps.join("; "))
    };
    part.into_iter()
        .chain(reasons.into_iter().map(line))
        .collect()
}

/// Processors, kernel and load, from /proc.
fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or("?").to_string();
    format!(
        "{processors} processors, Linux {}, load {load}",
        kernel.trim()
    )
}

#[cfg(test)]
mod tests;
