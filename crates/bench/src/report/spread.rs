//! How the values of an axis lie on the pixels of a picture, and which of them are written beside it.

use std::ops::{Range, RangeInclusive};

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::figure::{Axis, Scale};

/// Room beyond the outermost values, as a part of the axis.
const MARGIN: f64 = 0.05;
/// A decade has values at these times a power of ten; fewer where many decades are shown.
const MANTISSAS: [&[f64]; 3] = [&[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]];

/// An axis with its ends.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spread {
    scale: Scale,
    /// In evenly spread numbers: of the logarithms, if it is logarithmic.
    ends: Range<f64>,
}

impl Spread {
    /// Has room for all these, which have a place on the axis.
    pub(super) fn of(axis: &Axis, values: impl Iterator<Item = f64>) -> Spread {
        let values = values.map(|value| even(axis.scale, value));
        let ends = values.fold(None, |ends: Option<(f64, f64)>, value| match ends {
            Some((low, high)) => Some((low.min(value), high.max(value))),
            None => Some((value, value)),
        });
        let (low, high) = ends.unwrap_or((0.0, 1.0));
        let ends = match axis.scale {
            Scale::Linear => (low.min(0.0), high.max(0.0)),
            Scale::Logarithmic => (low, high),
        };
        let width = ends.1 - ends.0;
        let room = if width > 0.0 { width * MARGIN } else { 0.5 };
        let below = match axis.scale {
            Scale::Linear if ends.0 == 0.0 => 0.0,
            _ => room,
        };
        Spread {
            scale: axis.scale,
            ends: ends.0 - below..ends.1 + room,
        }
    }

    /// Round values within the ends, no more than `most` of them if that can be.
    pub(super) fn round_values(&self, most: usize) -> Vec<f64> {
        match self.scale {
            Scale::Linear => self.round_steps(most),
            Scale::Logarithmic => {
                let sets = MANTISSAS
                    .iter()
                    .map(|mantissas| self.round_decades(mantissas));
                let fallback = self.round_decades(&[1.0]);
                let mut fitting = sets.filter(|values| values.len() <= most);
                fitting.next().unwrap_or(fallback)
            }
        }
    }

    fn round_steps(&self, most: usize) -> Vec<f64> {
        let width = self.ends.end - self.ends.start;
        let least = width / most.max(1) as f64;
        let power = 10f64.powf(least.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|mantissa| mantissa * power);
        let step = steps.into_iter().find(|step| *step >= least);
        let step = step.unwrap_or(10.0 * power);
        let inside = whole_numbers(&(self.ends.start / step..self.ends.end / step));
        inside.map(|number| f64::from(number) * step).collect()
    }

    fn round_decades(&self, mantissas: &[f64]) -> Vec<f64> {
        // One more below, whose multiples may be inside.
        let decades = whole_numbers(&(self.ends.start - 1.0..self.ends.end));
        let values = decades.flat_map(|decade| {
            let power = 10f64.powi(decade);
            mantissas.iter().map(move |mantissa| mantissa * power)
        });
        values
            .filter(|value| self.ends.contains(&value.log10()))
            .collect()
    }
}

fn even(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Logarithmic => value.log10(),
    }
}

fn whole_numbers(within: &Range<f64>) -> RangeInclusive<i32> {
    within.start.ceil() as i32..=within.end.floor() as i32
}

impl Ranged for Spread {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (even(self.scale, *value) - self.ends.start) / (self.ends.end - self.ends.start);
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        self.round_values(hint.max_num_points())
    }

    fn range(&self) -> Range<f64> {
        match self.scale {
            Scale::Linear => self.ends.clone(),
            Scale::Logarithmic => 10f64.powf(self.ends.start)..10f64.powf(self.ends.end),
        }
    }
}

impl ValueFormatter<f64> for Spread {
    fn format_ext(&self, value: &f64) -> String {
        let (number, unit) = match value.abs() {
            n if n >= 1e6 => (value / 1e6, " M"),
            n if n >= 1e4 => (value / 1e3, " k"),
            _ => (*value, ""),
        };
        // The products of a round step are not always round.
        let text = format!("{number:.6}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        format!("{text}{unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(axis: &Axis, values: &[f64], most: usize) -> Vec<String> {
        let spread = Spread::of(axis, values.iter().copied());
        let round = spread.round_values(most);
        round.iter().map(|value| spread.format_ext(value)).collect()
    }

    #[test]
    fn linear_axes_begin_at_zero_and_have_round_values() {
        let axis = Axis::linear("writers", "");
        assert_eq!(
            written(&axis, &[2.0, 10.0], 6),
            ["0", "2", "4", "6", "8", "10"]
        );
        assert_eq!(written(&axis, &[0.3], 4), ["0", "0.1", "0.2", "0.3"]);
        assert_eq!(written(&axis, &[], 4), ["0", "0.5", "1"]);
        assert_eq!(written(&axis, &[2_000_000.0], 3), ["0", "1 M", "2 M"]);
    }

    #[test]
    fn logarithmic_axes_have_round_values_of_every_decade() {
        let axis = Axis::logarithmic("round trip", "ms");
        assert_eq!(
            written(&axis, &[0.1, 200.0], 12),
            [
                "0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50", "100", "200"
            ]
        );
        assert_eq!(written(&axis, &[0.1, 200.0], 5), ["0.1", "1", "10", "100"]);
        assert_eq!(written(&axis, &[1000.0], 5), ["500", "1000", "2000"]);
    }

    #[test]
    fn values_lie_where_they_belong() {
        let spread = Spread::of(&Axis::logarithmic("x", ""), [1.0, 100.0].into_iter());
        let at = |value: f64| spread.map(&value, (0, 1000));
        assert_eq!(at(10.0), 500);
        assert!(at(1.0) > 0 && at(100.0) < 1000);
        assert_eq!(spread.map(&10.0, (1000, 0)), 500);
    }
}
