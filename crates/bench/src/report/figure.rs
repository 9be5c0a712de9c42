//! A figure: series of measured points over two axes.

use serde::{Deserialize, Serialize};

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By their logarithms; what is not above zero has no place there.
    Logarithmic,
}

/// One direction of a figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// What is shown.
    pub label: String,
    /// In what unit; empty for counts.
    pub unit: String,
    /// How.
    pub scale: Scale,
}

impl Axis {
    /// Evenly spread.
    pub fn linear(label: &str, unit: &str) -> Axis {
        Axis {
            label: label.to_owned(),
            unit: unit.to_owned(),
            scale: Scale::Linear,
        }
    }

    /// Over orders of magnitude.
    pub fn logarithmic(label: &str, unit: &str) -> Axis {
        Axis {
            scale: Scale::Logarithmic,
            ..Axis::linear(label, unit)
        }
    }

    /// With the unit.
    pub(super) fn caption(&self) -> String {
        match self.unit.is_empty() {
            true => self.label.clone(),
            false => format!("{} ({})", self.label, self.unit),
        }
    }

    pub(super) fn has_place_for(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }
}

/// One measured value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// How much.
    pub y: f64,
    /// The measurement was stopped: the truth is above.
    pub at_least: bool,
}

/// What is joined by a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// From left to right. What could not be measured is not there.
    pub points: Vec<Point>,
}

/// A figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Of its file, without an ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// In the legend's order.
    pub series: Vec<Series>,
}

impl Figure {
    /// Every point that has a place on both axes.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> + '_ {
        let all = self.series.iter().flat_map(|series| &series.points);
        all.copied().filter(|point| self.shows(point))
    }

    pub(super) fn shows(&self, point: &Point) -> bool {
        self.x.has_place_for(point.x) && self.y.has_place_for(point.y)
    }

    /// Its file.
    pub fn file_name(&self) -> String {
        format!("{}.svg", self.name)
    }
}
