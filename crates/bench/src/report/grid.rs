//! A grid of words, as text or Markdown.

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

/// Three significant digits; no finer than a millisecond, which starting a program takes.
pub(super) fn digits(number: f64) -> String {
    match number {
        n if n < 1.0 => format!("{n:.3}"),
        n if n < 10.0 => format!("{n:.2}"),
        n if n < 100.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}
