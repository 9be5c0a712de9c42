//! A picture of places: rows of cells, each the darker the more of it is in use.

use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Result};

/// Of a cell, in pixels.
const CELL: (i32, i32) = (7, 7);
/// Around the cells, and above them for the title.
const MARGIN: i32 = 16;
const TOP: i32 = 48;
/// Shades that are drawn: cells that differ less look the same.
const SHADES: u8 = 8;

/// Cells, from the upper left to the lower right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bitmap {
    /// Of its file, without an ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Cells in a row.
    pub columns: u32,
    /// A shade, from 0 (free) to 255 (used), and how many cells in a row have it.
    pub runs: Vec<(u8, u32)>,
}

impl Bitmap {
    /// Of cells.
    pub fn new(name: &str, title: &str, columns: u32, cells: &[u8]) -> Bitmap {
        let mut runs: Vec<(u8, u32)> = Vec::new();
        for cell in cells {
            match runs.last_mut() {
                Some((shade, count)) if shade == cell => *count += 1,
                _ => runs.push((*cell, 1)),
            }
        }
        Bitmap {
            name: name.to_owned(),
            title: title.to_owned(),
            columns: columns.max(1),
            runs,
        }
    }

    /// Its file.
    pub fn file_name(&self) -> String {
        format!("{}.svg", self.name)
    }

    /// As a picture. The same bitmap is the same text.
    pub fn svg(&self) -> Result<String> {
        let cells: u32 = self.runs.iter().map(|(_, count)| count).sum();
        let rows = cells.div_ceil(self.columns) as i32;
        let width = 2 * MARGIN + self.columns as i32 * CELL.0;
        let height = TOP + rows * CELL.1 + MARGIN;
        let mut text = String::new();
        let drawn = {
            let root = SVGBackend::with_string(&mut text, (width as u32, height as u32));
            let root = root.into_drawing_area();
            self.draw(&root).and_then(|()| root.present())
        };
        drawn.map_err(|error| BenchError::Invalid(format!("drawing {}: {error}", self.name)))?;
        Ok(text)
    }

    fn draw(&self, root: &Area) -> std::result::Result<(), DrawingAreaErrorKind<std::io::Error>> {
        root.fill(&WHITE)?;
        let title = Text::new(self.title.clone(), (MARGIN, 18), ("sans-serif", 16));
        root.draw(&title)?;
        let mut at = 0;
        for (shade, count) in &self.runs {
            let mut left = *count;
            while left > 0 {
                let column = at % self.columns;
                let here = left.min(self.columns - column);
                let x = MARGIN + column as i32 * CELL.0;
                let y = TOP + (at / self.columns) as i32 * CELL.1;
                let corner = (x + here as i32 * CELL.0, y + CELL.1 - 1);
                let cell = Rectangle::new([(x, y), corner], colour(*shade).filled());
                root.draw(&cell)?;
                (at, left) = (at + here, left - here);
            }
        }
        Ok(())
    }
}

type Area<'s> = DrawingArea<SVGBackend<'s>, plotters::coord::Shift>;

/// From light grey to dark blue.
fn colour(shade: u8) -> RGBColor {
    let step = u32::from(shade / (u8::MAX / SHADES + 1));
    let part = step * 255 / u32::from(SHADES - 1);
    let between = |light: u32, dark: u32| ((light * (255 - part) + dark * part) / 255) as u8;
    RGBColor(between(226, 0), between(232, 60), between(236, 130))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_of_a_row_is_a_rectangle() {
        let cells = [0, 0, 255, 255, 255, 0];
        let bitmap = Bitmap::new("map", "a < b", 4, &cells);
        assert_eq!(bitmap.runs, [(0, 2), (255, 3), (0, 1)]);
        let svg = bitmap.svg().unwrap();
        let of = |colour: &str| svg.matches(&format!("fill=\"{colour}\"")).count();
        // Free: at both ends; used: in both rows.
        assert_eq!((of("#E2E8EC"), of("#003C82")), (2, 2), "{svg}");
        assert!(svg.contains("a &lt; b"), "{svg}");
        assert_eq!(svg, bitmap.svg().unwrap());
    }
}
