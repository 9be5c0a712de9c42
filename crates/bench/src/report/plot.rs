//! Figures as SVG, by `plotters` with its SVG backend alone (docs/adr/0001-libraries.md).

use plotters::coord::Shift;
use plotters::prelude::*;

use super::figure::{Figure, Point, Series};
use super::spread::Spread;
use crate::error::{BenchError, Result};

/// Width and height in pixels.
const SIZE: (u32, u32) = (1000, 520);
/// Of these the legend's, beside the picture: inside, it would lie on points.
pub(super) const LEGEND_WIDTH: u32 = 220;
/// From one line of the legend to the next, and from its top to the first.
const LEGEND_LINE: i32 = 22;
const LEGEND_TOP: i32 = 56;
/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito, 2008).
pub(super) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
];
/// Of a marker, in pixels.
pub(super) const RADIUS: u32 = 4;
/// Values written on an axis, at most.
const LABELS_MAX: usize = 12;

impl Figure {
    /// As a picture. The same figure is the same text. A filled circle is a median. A triangle is where a run
    /// was stopped; the true value is above it.
    pub fn svg(&self) -> Result<String> {
        let mut text = String::new();
        let drawn = {
            let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            draw(self, &root).and_then(|()| root.present().map_err(|error| failed(self, error)))
        };
        drawn.map(|()| text)
    }
}

type Area<'s> = DrawingArea<SVGBackend<'s>, Shift>;
type Chart<'c, 's> = ChartContext<'c, SVGBackend<'s>, Cartesian2d<Spread, Spread>>;

fn failed(figure: &Figure, error: impl std::fmt::Display) -> BenchError {
    BenchError::Invalid(format!("drawing {}: {error}", figure.name))
}

fn draw(figure: &Figure, root: &Area) -> Result<()> {
    let error = |error| failed(figure, error);
    root.fill(&WHITE).map_err(error)?;
    let (picture, legend) = root.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    let x = Spread::of(&figure.x, figure.points().map(|point| point.x));
    let y = Spread::of(&figure.y, figure.points().map(|point| point.y));
    let mut chart = ChartBuilder::on(&picture)
        .caption(&figure.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)
        .map_err(error)?;
    chart
        .configure_mesh()
        .x_desc(figure.x.caption())
        .y_desc(figure.y.caption())
        .x_labels(LABELS_MAX)
        .y_labels(LABELS_MAX)
        .light_line_style(TRANSPARENT)
        .draw()
        .map_err(error)?;
    for (series, colour) in coloured(figure) {
        let shown = series.points.iter().copied();
        let shown: Vec<Point> = shown.filter(|point| figure.shows(point)).collect();
        draw_series(&mut chart, &shown, colour).map_err(error)?;
    }
    let names = figure.series.iter().map(|series| series.name.as_str());
    let is_stopped = figure.points().any(|point| point.at_least);
    draw_legend(names, is_stopped, &legend).map_err(error)
}

fn coloured(figure: &Figure) -> impl Iterator<Item = (&Series, RGBColor)> {
    figure.series.iter().zip(COLOURS.iter().copied().cycle())
}

type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw_series(chart: &mut Chart, shown: &[Point], colour: RGBColor) -> Drawn {
    let line = shown.iter().map(|point| (point.x, point.y));
    chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
    let (stopped, whole): (Vec<&Point>, Vec<&Point>) =
        shown.iter().partition(|point| point.at_least);
    let circle = |point: &Point| Circle::new((point.x, point.y), RADIUS, colour.filled());
    chart.draw_series(whole.into_iter().map(circle))?;
    let triangle =
        |point: &Point| TriangleMarker::new((point.x, point.y), 2 * RADIUS, colour.filled());
    chart.draw_series(stopped.into_iter().map(triangle))?;
    Ok(())
}

/// A line for each series, and one for the meaning of triangles, if there are any.
pub(super) fn draw_legend<'n>(
    names: impl Iterator<Item = &'n str>,
    is_stopped: bool,
    area: &Area,
) -> Drawn {
    let words = |text: &str, y: i32| Text::new(text.to_owned(), (36, y - 7), ("sans-serif", 14));
    let mut y = LEGEND_TOP;
    for (name, colour) in names.zip(COLOURS.iter().cycle()) {
        area.draw(&PathElement::new([(6, y), (30, y)], colour.stroke_width(2)))?;
        area.draw(&words(name, y))?;
        y += LEGEND_LINE;
    }
    if is_stopped {
        let grey = BLACK.mix(0.5);
        area.draw(&TriangleMarker::new((18, y), 2 * RADIUS, grey.filled()))?;
        area.draw(&words("stopped, the truth is above", y))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Axis;

    fn figure() -> Figure {
        let point = |x, y, at_least| Point { x, y, at_least };
        let series = |name: &str, points| Series {
            name: name.to_owned(),
            points,
        };
        Figure {
            name: "rtt".to_owned(),
            title: "find <everything> & more".to_owned(),
            x: Axis::logarithmic("round trip", "ms"),
            y: Axis::linear("requests", ""),
            series: vec![
                series("off", vec![point(1.0, 5.0, false), point(10.0, 60.0, true)]),
                series(
                    "on",
                    vec![
                        point(1.0, 4.0, false),
                        point(10.0, 8.0, false),
                        point(0.0, 8.0, false),
                    ],
                ),
            ],
        }
    }

    #[test]
    fn a_line_for_each_series_and_a_mark_for_each_point_that_has_a_place() {
        let svg = figure().svg().unwrap();
        let count = |part: &str| svg.matches(part).count();
        assert_eq!(count("<circle"), 3, "{svg}");
        // And one in the legend.
        assert_eq!(count("<polygon"), 2, "{svg}");
        assert!(svg.contains("stopped, the truth is above"), "{svg}");
        // One in the picture and one in the legend.
        for colour in ["#000000", "#E69F00"] {
            let lines = svg.lines().filter(|line| line.starts_with("<polyline"));
            let mine = lines.filter(|line| line.contains(colour) && line.contains("\"2\""));
            assert_eq!(mine.count(), 2, "{svg}");
        }
        for words in [
            "find &lt;everything&gt; &amp; more",
            "round trip (ms)",
            "requests",
            "off",
            "on",
        ] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg, figure().svg().unwrap());
    }

    #[test]
    fn nothing_measured_is_an_empty_picture() {
        let empty = Figure {
            series: Vec::new(),
            ..figure()
        };
        assert!(!empty.svg().unwrap().contains("<circle"));
    }
}
