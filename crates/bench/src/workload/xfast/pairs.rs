//! The same work with prefetch off and on, in turns: pairs, and the medians of their ratios.

use super::mode::Mode;
use crate::report::{Cell, Column, Sample};

/// Prefetch on may cost so many times what it costs off.
pub(super) const LIMIT: f64 = 1.05;

/// What is compared; the first of each pair is the baseline.
pub(super) const MODES: [Mode; 2] = [Mode::Off, Mode::Sas(None)];

/// The order of a pair: what comes second may find the servers warmer.
pub(super) fn order(pair: u32) -> [Mode; 2] {
    let [off, on] = MODES;
    match pair.is_multiple_of(2) {
        true => [off, on],
        false => [on, off],
    }
}

/// One thing measured of both halves of each pair.
pub(super) struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    /// Of the pairs of which both came to their end; labels by [`MODES`].
    pub(super) fn of(
        runs: &Column,
        label: impl Fn(Mode) -> String,
        what: impl Fn(&Sample) -> Option<f64>,
    ) -> Pairs {
        let [off, on] = MODES.map(|mode| runs.samples(&label(mode)));
        let pair = |(off, on): (&Sample, &Sample)| {
            let done = !off.capped && !on.capped;
            Some((what(off)?, what(on)?)).filter(|_| done)
        };
        Pairs(off.iter().zip(on).filter_map(pair).collect())
    }

    /// On divided by off, pair by pair. Two zeros are the same.
    pub(super) fn ratios(&self) -> Vec<f64> {
        let ratio = |(off, on): &(f64, f64)| match off == on {
            true => 1.0,
            false => on / off,
        };
        self.0.iter().map(ratio).collect()
    }

    /// The median off, the median on, the median ratio.
    pub(super) fn medians(&self) -> Option<[f64; 3]> {
        let off = median(self.0.iter().map(|pair| pair.0).collect())?;
        let on = median(self.0.iter().map(|pair| pair.1).collect())?;
        Some([off, on, median(self.ratios())?])
    }

    /// Those as cells, and a sign if the ratio passes the limit.
    pub(super) fn cells(&self, limited: bool) -> [Cell; 3] {
        let Some([off, on, ratio]) = self.medians() else {
            return [Cell::Missing, Cell::Missing, Cell::Missing];
        };
        let sign = match limited && ratio > LIMIT {
            true => " !",
            false => "",
        };
        let ratio = Cell::Text(format!("{ratio:.3}{sign}"));
        [Cell::Number(off), Cell::Number(on), ratio]
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    match values.len() % 2 {
        1 => Some(upper),
        _ => Some(f64::midpoint(values[values.len() / 2 - 1], upper)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(mode: Mode) -> String {
        format!("work, {mode}")
    }

    fn runs(pairs: &[(f64, f64)]) -> Column {
        let mut runs = Column::new("Glint");
        let sample = |seconds, capped| Sample {
            seconds,
            capped,
            ..Sample::default()
        };
        for (off, on) in pairs {
            runs.add(&label(Mode::Off), sample(*off, false));
            runs.add(&label(Mode::Sas(None)), sample(*on, *on > 50.0));
        }
        runs
    }

    #[test]
    fn ratios_are_of_pairs_and_not_of_medians() {
        let runs = runs(&[(1.0, 1.0), (2.0, 1.0), (4.0, 6.0), (1.0, 60.0)]);
        let pairs = Pairs::of(&runs, label, |sample| Some(sample.seconds));
        assert_eq!(pairs.ratios(), [1.0, 0.5, 1.5], "one was stopped");
        assert_eq!(pairs.medians(), Some([2.0, 1.0, 1.0]));
        assert_eq!(pairs.cells(true)[2], Cell::from("1.000"));
        assert_eq!(Pairs::of(&runs, label, |sample| sample.cpu).medians(), None);
    }

    #[test]
    fn what_passes_the_limit_has_a_sign_and_nothing_against_nothing_is_the_same() {
        let runs = runs(&[(1.0, 1.2), (0.0, 0.0), (1.0, 1.1), (1.0, 1.1)]);
        let pairs = Pairs::of(&runs, label, |sample| Some(sample.seconds));
        assert_eq!(pairs.ratios()[1], 1.0);
        assert_eq!(pairs.cells(true)[2], Cell::from("1.100 !"));
        assert_eq!(pairs.cells(false)[2], Cell::from("1.100"));
    }

    #[test]
    fn each_half_comes_first_as_often() {
        assert_eq!(order(0), MODES);
        assert_eq!(order(1), [MODES[1], MODES[0]]);
    }
}
