//! A report as a picture: a row for each step, a mark for each system at the seconds that the step took.
//! Drawn by `glint bench demo`.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::prelude::*;

use super::column::Sample;
use super::comparison::Report;
use super::figure::Axis;
use super::plot::{COLOURS, LEGEND_WIDTH, RADIUS, draw_legend};
use super::spread::Spread;
use crate::error::{BenchError, Result};

const WIDTH: u32 = 1000;
/// From one row to the next, in pixels.
const ROW: i32 = 26;
/// Above the first row, and below the last.
const TOP: i32 = 56;
const BOTTOM: i32 = 48;
/// From the left edge to the names of rows, and to the marks.
const NAMES_LEFT: i32 = 16;
const MARKS_LEFT: i32 = 170;
const SECONDS_SHOWN: usize = 10;

type Area<'s> = DrawingArea<SVGBackend<'s>, Shift>;
type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The steps that were measured, from the top, with the result of each system.
struct Rows<'r>(Vec<(&'r str, Vec<Option<Sample>>)>);

impl Report {
    /// The report as SVG. Seconds are spread by their logarithms; a triangle is a step that was stopped.
    pub fn svg(&self) -> Result<String> {
        let rows = Rows::of(self);
        let height = TOP + rows.height() + BOTTOM;
        let mut text = String::new();
        let drawn = {
            let root = SVGBackend::with_string(&mut text, (WIDTH, height as u32));
            let root = root.into_drawing_area();
            draw(self, &rows, &root)
                .and_then(|()| root.present())
                .map_err(|error| BenchError::Invalid(format!("drawing the report: {error}")))
        };
        drawn.map(|()| text)
    }
}

impl<'r> Rows<'r> {
    fn of(report: &'r Report) -> Rows<'r> {
        let results = |step: &'r String| {
            let columns = report.columns.iter();
            let results: Vec<_> = columns.map(|column| column.result(step)).collect();
            (step.as_str(), results)
        };
        let rows = report.steps.iter().map(results);
        Rows(
            rows.filter(|row| row.1.iter().any(Option::is_some))
                .collect(),
        )
    }

    fn height(&self) -> i32 {
        ROW * self.0.len() as i32
    }

    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.0.iter().flat_map(|row| row.1.iter().flatten())
    }
}

fn draw(report: &Report, rows: &Rows, root: &Area) -> Drawn {
    root.fill(&WHITE)?;
    root.draw(&words(&report.title, (NAMES_LEFT, 14), 15))?;
    let (picture, legend) = root.split_horizontally(WIDTH - LEGEND_WIDTH);
    let spread = Spread::of(
        &Axis::logarithmic("time", "s"),
        rows.samples().map(|sample| sample.seconds),
    );
    let right = (WIDTH - LEGEND_WIDTH) as i32 - 20;
    let at = |seconds: f64| spread.map(&seconds, (MARKS_LEFT, right));
    draw_seconds(&picture, &spread, rows.height(), &at)?;
    for ((name, results), top) in rows.0.iter().zip((0..).map(|row| TOP + row * ROW)) {
        let middle = top + ROW / 2;
        let line = PathElement::new([(MARKS_LEFT, middle), (right, middle)], BLACK.mix(0.1));
        picture.draw(&line)?;
        picture.draw(&words(name, (NAMES_LEFT, middle - 8), 14))?;
        for (sample, colour) in results.iter().zip(COLOURS.iter().cycle()) {
            let Some(sample) = sample else { continue };
            let place = (at(sample.seconds), middle);
            match sample.capped {
                true => picture.draw(&TriangleMarker::new(place, 2 * RADIUS, colour.filled()))?,
                false => picture.draw(&Circle::new(place, RADIUS + 1, colour.filled()))?,
            }
        }
    }
    let names = report.columns.iter().map(|column| column.name.as_str());
    draw_legend(names, rows.samples().any(|sample| sample.capped), &legend)
}

/// A line and a number at each round value, and the unit below them.
fn draw_seconds(picture: &Area, spread: &Spread, height: i32, at: &dyn Fn(f64) -> i32) -> Drawn {
    for value in spread.round_values(SECONDS_SHOWN) {
        let (x, bottom) = (at(value), TOP + height);
        let line = PathElement::new([(x, TOP), (x, bottom)], BLACK.mix(0.2));
        picture.draw(&line)?;
        picture.draw(&words(&spread.format_ext(&value), (x - 8, bottom + 6), 13))?;
    }
    let unit = (MARKS_LEFT, TOP + height + 24);
    picture.draw(&words(
        "seconds, cold and warm as a program sees them",
        unit,
        13,
    ))
}

fn words<'t>(text: &str, at: (i32, i32), size: i32) -> Text<'t, (i32, i32), String> {
    Text::new(text.to_owned(), at, ("sans-serif", size))
}
