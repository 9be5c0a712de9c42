//! A table of measured cells.

use serde::{Deserialize, Serialize};

use super::column::Sample;
use super::grid::{Grid, digits};

/// One place in a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// What a row or column is about.
    Text(String),
    /// How many.
    Count(u64),
    /// In the unit that the head names.
    Number(f64),
    /// It was stopped there: the whole is more than this.
    MoreThan(f64),
    /// It was not measured; the notes say why.
    Missing,
}

impl Cell {
    /// The time of a cell.
    pub fn seconds(sample: Option<Sample>) -> Cell {
        match sample {
            Some(sample) if sample.capped => Cell::MoreThan(sample.seconds),
            Some(sample) => Cell::Number(sample.seconds),
            None => Cell::Missing,
        }
    }

    /// A count of a run that came to its end; of one that was stopped it would say little.
    pub fn count(sample: Option<Sample>, of: impl Fn(&Sample) -> Option<u64>) -> Cell {
        let sample = sample.filter(|sample| !sample.capped);
        sample
            .and_then(|sample| of(&sample))
            .map_or(Cell::Missing, Cell::Count)
    }

    /// The CPU of a run that came to its end, in seconds.
    pub fn cpu(sample: Option<Sample>) -> Cell {
        let sample = sample.filter(|sample| !sample.capped);
        sample
            .and_then(|sample| sample.cpu)
            .map_or(Cell::Missing, Cell::Number)
    }

    fn words(&self) -> String {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => count.to_string(),
            Cell::Number(number) => digits(*number),
            Cell::MoreThan(number) => format!("> {}", digits(*number)),
            Cell::Missing => "-".to_owned(),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

/// Rows of as many cells as the head has; the first column says what a row is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// With units.
    pub head: Vec<String>,
    /// Each of the head's length.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// To be filled.
    pub fn new<S: Into<String>>(
        title: impl Into<String>,
        head: impl IntoIterator<Item = S>,
    ) -> Table {
        Table {
            title: title.into(),
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.iter().map(Cell::words).collect());
        Grid::new(std::iter::once(self.head.clone()).chain(rows).collect()).markdown()
    }

    /// Whether any cell was stopped at the limit.
    pub(super) fn has_capped(&self) -> bool {
        let mut cells = self.rows.iter().flatten();
        cells.any(|cell| matches!(cell, Cell::MoreThan(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capped_run_is_more_than_its_time_and_counts_nothing() {
        let whole = Sample {
            seconds: 2.0,
            rpcs: Some(7),
            ..Sample::default()
        };
        let capped = Sample {
            capped: true,
            seconds: 120.0,
            ..whole
        };
        let mut table = Table::new("t", ["mode", "s", "RPCs"]);
        for (name, sample) in [("on", Some(whole)), ("off", Some(capped)), ("none", None)] {
            let rpcs = Cell::count(sample, |sample| sample.rpcs);
            table
                .rows
                .push(vec![name.into(), Cell::seconds(sample), rpcs]);
        }
        let expected = "\
| mode |     s | RPCs |
|------|------:|-----:|
| on   |  2.00 |    7 |
| off  | > 120 |    - |
| none |     - |    - |
";
        assert_eq!(table.markdown(), expected);
        assert!(table.has_capped());
    }
}
