//! Several systems side by side: as text, Markdown or JSON.

use serde::{Deserialize, Serialize};

use super::column::{Column, Sample};
use super::grid::{Grid, digits};
use super::machine::machine;
use crate::error::{BenchError, Result};

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
        self.grid().text()
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let table = self.grid().markdown();
        let notes = self.notes("- ");
        format!("### {}\n\n{}\n\n{table}{notes}", self.title, self.machine)
    }

    /// Everything, each run included.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::Invalid(format!("a number that JSON has not: {error}")))
    }

    /// Under each system: seconds; the ratio to the baseline; microseconds for each entry; requests.
    /// The last three only where there are any.
    fn grid(&self) -> Grid {
        let shown = |step: &&String| self.columns.iter().any(|column| mentions(column, step));
        let steps: Vec<&String> = self.steps.iter().filter(shown).collect();
        let mut rows = vec![vec!["step".to_string()]];
        rows.extend(steps.iter().map(|step| vec![step.to_string()]));
        let name = self.baseline.as_deref();
        let baseline = self
            .columns
            .iter()
            .find(|column| Some(column.name.as_str()) == name);
        for column in &self.columns {
            let results: Vec<Option<Sample>> =
                steps.iter().map(|step| column.result(step)).collect();
            let mut push = |head: String, cell: &dyn Fn(usize) -> String| {
                rows[0].push(head);
                for (number, row) in rows[1..].iter_mut().enumerate() {
                    row.push(cell(number));
                }
            };
            push(format!("{} s", column.name), &|row| seconds(results[row]));
            if let Some(baseline) = baseline.filter(|baseline| baseline.name != column.name) {
                push(format!("x {}", baseline.name), &|row| {
                    ratio(results[row], baseline.result(steps[row]))
                });
            }
            if results
                .iter()
                .flatten()
                .any(|sample| sample.entries.is_some())
            {
                push("us each".into(), &|row| each(results[row]));
            }
            if results.iter().flatten().any(|sample| sample.rpcs.is_some()) {
                push("RPCs".into(), &|row| requests(results[row]));
            }
        }
        Grid::new(rows)
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

fn mentions(column: &Column, step: &str) -> bool {
    column.steps.iter().any(|runs| runs.step == step)
}

fn seconds(sample: Option<Sample>) -> String {
    let Some(sample) = sample else {
        return "-".into();
    };
    let capped = if sample.capped { ">" } else { "" };
    let part = if sample.part.is_some() { "*" } else { "" };
    format!("{capped}{}{part}", digits(sample.seconds))
}

/// Only of like with like: both to the end, on the same tree.
fn ratio(sample: Option<Sample>, baseline: Option<Sample>) -> String {
    let (Some(sample), Some(baseline)) = (sample, baseline) else {
        return "-".into();
    };
    let unlike = sample.part.is_some() || baseline.part.is_some() || baseline.capped;
    if unlike || baseline.seconds <= 0.0 || sample.entries != baseline.entries {
        return "-".into();
    }
    let more = if sample.capped { ">" } else { "" };
    format!("{more}{:.2}", sample.seconds / baseline.seconds)
}

fn each(sample: Option<Sample>) -> String {
    let of = |sample: Sample| {
        let entries = sample.entries.filter(|&entries| entries > 0)?;
        Some(format!("{:.1}", sample.seconds * 1e6 / entries as f64))
    };
    sample.and_then(of).unwrap_or_else(|| "-".into())
}

fn requests(sample: Option<Sample>) -> String {
    let rpcs = sample.and_then(|sample| sample.rpcs);
    rpcs.map_or_else(|| "-".into(), |rpcs| rpcs.to_string())
}
