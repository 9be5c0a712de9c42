//! A report as a grid of words, and the grid as text or Markdown.

use super::{Column, Report, Sample};

/// Rows of cells of equal number; the first row is the head, the first column says what each row
/// is about.
pub(super) struct Grid {
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// Of at least one row.
    pub(super) fn new(rows: Vec<Vec<String>>) -> Grid {
        Grid { rows }
    }

    /// Under each system: seconds; the ratio to the baseline; microseconds for each entry; requests.
    /// The last three only where there are any.
    pub(super) fn of(report: &Report) -> Grid {
        let shown = |step: &&String| report.columns.iter().any(|column| mentions(column, step));
        let steps: Vec<&String> = report.steps.iter().filter(shown).collect();
        let mut rows = vec![vec!["step".to_string()]];
        rows.extend(steps.iter().map(|step| vec![step.to_string()]));
        let name = report.baseline.as_deref();
        let baseline = report
            .columns
            .iter()
            .find(|column| Some(column.name.as_str()) == name);
        for column in &report.columns {
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
        Grid { rows }
    }

    /// Columns aligned by spaces.
    pub(super) fn text(&self) -> String {
        let widths = self.widths();
        let line = |row: &Vec<String>| format!("{}\n", self.padded(row, &widths).join("  "));
        self.rows.iter().map(line).collect()
    }

    /// Columns between bars.
    pub(super) fn markdown(&self) -> String {
        let widths = self.widths();
        let line = |row: &Vec<String>| format!("| {} |\n", self.padded(row, &widths).join(" | "));
        let mut lines = self.rows.iter().map(line);
        let head = lines.next().unwrap_or_default();
        let rule = widths
            .iter()
            .enumerate()
            .map(|(column, width)| match column {
                0 => format!("|{}", "-".repeat(width + 2)),
                _ => format!("|{}:", "-".repeat(width + 1)),
            });
        format!(
            "{head}{}|\n{}",
            rule.collect::<String>(),
            lines.collect::<String>()
        )
    }

    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![0; self.rows[0].len()];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        widths
    }

    /// The first column to the left, numbers to the right.
    fn padded(&self, row: &[String], widths: &[usize]) -> Vec<String> {
        let cells = row.iter().zip(widths).enumerate();
        cells
            .map(|(column, (cell, &width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect()
    }
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

/// Three significant digits; no finer than a millisecond, which starting a program takes.
pub(super) fn digits(number: f64) -> String {
    match number {
        n if n < 1.0 => format!("{n:.3}"),
        n if n < 10.0 => format!("{n:.2}"),
        n if n < 100.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
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
