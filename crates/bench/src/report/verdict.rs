//! Measured numbers beside what they must be: one line for each promise, and whether it is kept.

use serde::{Deserialize, Serialize};

use super::grid::Grid;
use super::machine::machine;
use crate::error::{BenchError, Result};

/// What a number must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Bound {
    /// The value itself, at most.
    Value(f64),
    /// The value divided by the reference, at most.
    Ratio(f64),
}

/// One promise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The work.
    pub work: String,
    /// What was measured; `None` where it could not be.
    pub value: Option<f64>,
    /// Of the value and of the reference.
    pub unit: String,
    /// What it is compared with, and what that measured.
    pub reference: Option<(String, Option<f64>)>,
    /// What must hold.
    pub bound: Bound,
}

impl Line {
    /// The value divided by the reference.
    pub fn ratio(&self) -> Option<f64> {
        let (_, reference) = self.reference.as_ref()?;
        let reference = reference.filter(|reference| *reference > 0.0)?;
        Some(self.value? / reference)
    }

    /// Whether the promise is kept; `None` where that is not known.
    pub fn holds(&self) -> Option<bool> {
        Some(match self.bound {
            Bound::Value(most) => self.value? <= most,
            Bound::Ratio(most) => self.ratio()? <= most,
        })
    }

    fn cells(&self) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), digits);
        let (name, reference) = match &self.reference {
            Some((name, value)) => (name.as_str(), number(*value)),
            None => ("", String::new()),
        };
        let ratio = self
            .ratio()
            .map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let limit = match self.bound {
            Bound::Value(most) => digits(most),
            Bound::Ratio(most) => format!("x {most:.2}"),
        };
        let verdict = match self.holds() {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "not measured",
        };
        vec![
            self.work.clone(),
            number(self.value),
            self.unit.clone(),
            reference,
            name.to_owned(),
            ratio,
            limit,
            verdict.to_owned(),
        ]
    }
}

/// Four significant digits; whole numbers as they are.
fn digits(number: f64) -> String {
    match number.abs() {
        _ if number.fract() == 0.0 => format!("{number:.0}"),
        n if n < 10.0 => format!("{number:.3}"),
        n if n < 100.0 => format!("{number:.2}"),
        n if n < 1000.0 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was measured.
    pub title: String,
    /// The machine and how busy it was.
    pub machine: String,
    /// In the order they were promised.
    pub lines: Vec<Line>,
}

impl Verdict {
    /// Nothing measured yet, on this machine.
    pub fn new(title: impl Into<String>) -> Verdict {
        Verdict {
            title: title.into(),
            machine: machine(),
            lines: Vec::new(),
        }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        format!("{}\n{}\n\n{}", self.title, self.machine, self.grid().text())
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let table = self.grid().markdown();
        format!("### {}\n\n{}\n\n{table}", self.title, self.machine)
    }

    /// Everything.
    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::Invalid(format!("a number that JSON has not: {error}")))
    }

    fn grid(&self) -> Grid {
        let head = [
            "work",
            "measured",
            "",
            "reference",
            "",
            "ratio",
            "limit",
            "",
        ];
        let head = head.map(str::to_owned).to_vec();
        let lines = self.lines.iter().map(Line::cells);
        Grid::new(std::iter::once(head).chain(lines).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: Option<f64>, reference: Option<f64>, bound: Bound) -> Line {
        Line {
            work: "cold find".to_owned(),
            value,
            unit: "s".to_owned(),
            reference: Some(("ext4".to_owned(), reference)),
            bound,
        }
    }

    #[test]
    fn what_is_not_measured_is_neither_kept_nor_broken() {
        let ratio = |value, reference| line(value, reference, Bound::Ratio(2.0)).holds();
        assert_eq!(ratio(Some(2.0), Some(1.0)), Some(true));
        assert_eq!(ratio(Some(2.1), Some(1.0)), Some(false));
        assert_eq!(ratio(None, Some(1.0)), None);
        assert_eq!(ratio(Some(1.0), None), None);
        assert_eq!(ratio(Some(1.0), Some(0.0)), None);
        let value = line(Some(5.0), None, Bound::Value(5.0));
        assert_eq!((value.holds(), value.ratio()), (Some(true), None));
    }

    #[test]
    fn a_table_says_it_all() {
        let mut verdict = Verdict::new("numbers");
        let bound = Bound::Ratio(2.0);
        verdict.lines = vec![line(Some(1.5), Some(0.5), bound), line(None, None, bound)];
        let text = verdict.text();
        for word in [
            "cold find",
            "1.500",
            "0.500",
            "ext4",
            "3.00",
            "x 2.00",
            "FAIL",
            "not measured",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(verdict.markdown().contains("| cold find"));
        assert!(verdict.json().unwrap().contains("\"Ratio\": 2.0"));
    }
}
