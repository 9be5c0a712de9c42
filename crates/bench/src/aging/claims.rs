//! The paper's statements, and whether they hold of measured tables.

use super::paper::{Aged, Rates};
use super::parameters::TARGETS_OF_UNIT;
use super::wear::{Tidied, Worn};

/// Below this part of its clean rate a table has "fallen dramatically".
const DRAMATIC: f64 = 0.6;
/// Space in runs of a table's own size dominates from this part on.
const DOMINANT: f64 = 0.5;
/// "A little slower" when clean: not below this part of the 1 MiB table's rate.
const A_LITTLE: f64 = 0.8;

/// One statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// In few words.
    pub statement: String,
    /// What it needs.
    pub needs: String,
    /// What was measured.
    pub measured: String,
    /// Whether that is enough.
    pub holds: bool,
}

fn claim(statement: &str, needs: &str, measured: String, holds: bool) -> Claim {
    Claim {
        statement: statement.to_owned(),
        needs: needs.to_owned(),
        measured,
        holds,
    }
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn both(rates: Rates) -> String {
    format!(
        "{} write, {} read",
        percent(rates.write),
        percent(rates.read)
    )
}

/// A table of `mib` among those measured.
fn of(aged: &[Aged], mib: u64) -> Option<&Aged> {
    let name = format!("{mib} MiB");
    aged.iter().find(|aged| aged.name == name)
}

/// Every statement that these tables can decide.
pub fn claims(aged: &[Aged]) -> Vec<Claim> {
    let small = of(aged, 1).map(falls);
    let large = of(aged, 8).map(stays);
    let ours = of(aged, 64).map(|aged| {
        let statement = "64 MiB: rates stay (ours)";
        stays_above(aged, statement, 0.97, 0.95)
    });
    let all = [dominated(aged), slower(aged), ordered(aged), small];
    let mut claims: Vec<Claim> = all.into_iter().flatten().collect();
    claims.extend(large.into_iter().flatten());
    claims.extend(ours);
    claims
}

/// Figures 3 to 6.
fn dominated(aged: &[Aged]) -> Option<Claim> {
    let tables = [1, 2, 4, 8];
    let parts = tables.map(|mib| of(aged, mib).map(|aged| aged.part_in_runs_of(mib)));
    let parts: Vec<f64> = parts.into_iter().collect::<Option<_>>()?;
    let words: Vec<String> = parts.iter().copied().map(percent).collect();
    Some(claim(
        "contiguous space is dominated by runs of the table's size (1, 2, 4, 8 MiB)",
        "half of it and more",
        words.join(", "),
        parts.iter().all(|part| *part >= DOMINANT),
    ))
}

/// Section VIII, first sentence.
fn slower(aged: &[Aged]) -> Option<Claim> {
    let first = of(aged, 1)?.clean.write;
    let parts = [2, 4, 8].map(|mib| of(aged, mib).map(|aged| aged.clean.write / first));
    let parts: Vec<f64> = parts.into_iter().collect::<Option<_>>()?;
    let words: Vec<String> = parts.iter().copied().map(percent).collect();
    Some(claim(
        "larger tables write a little slower when clean (2, 4, 8 MiB)",
        "80 to 100 % of 1 MiB's rate",
        words.join(", "),
        parts.iter().all(|part| (A_LITTLE..1.0).contains(part)),
    ))
}

/// Section IX, first sentence.
fn ordered(aged: &[Aged]) -> Option<Claim> {
    let worst = [1, 2, 4, 8].map(|mib| of(aged, mib).map(Aged::worst));
    let worst: Vec<Rates> = worst.into_iter().collect::<Option<_>>()?;
    let words: Vec<String> = worst.iter().copied().map(both).collect();
    let mut pairs = worst.windows(2);
    Some(claim(
        "1 MiB is the worst table, and each larger one is better (least of all steps)",
        "ascending",
        words.join("; "),
        pairs.all(|two| two[0].write < two[1].write && two[0].read < two[1].read),
    ))
}

fn falls(aged: &Aged) -> Claim {
    let first = aged.first();
    claim(
        "1 MiB: both rates fall dramatically at 5 % free",
        "below 60 % of clean",
        both(first),
        first.write < DRAMATIC && first.read < DRAMATIC,
    )
}

fn stays(aged: &Aged) -> Vec<Claim> {
    let least = |of: fn(&Rates) -> f64| {
        let rates = aged.steps.iter().map(|step| of(&step.rates));
        rates.fold(f64::INFINITY, f64::min) * TARGETS_OF_UNIT / 1000.0
    };
    let (write, read) = (least(|rates| rates.write), least(|rates| rates.read));
    let of_unit = |what: &str, rate: f64, needed: f64| {
        claim(
            &format!("8 MiB: {what} always above {needed} GB/s a unit"),
            &format!("above {needed} GB/s"),
            format!("{rate:.2} GB/s"),
            rate > needed,
        )
    };
    vec![
        stays_above(aged, "8 MiB: rates stay (A, B)", 0.89, 0.82),
        of_unit("writing (C)", write, 4.0),
        of_unit("reading (D)", read, 5.0),
    ]
}

/// At every step both rates are at least these parts of the clean ones.
pub fn stays_above(aged: &Aged, statement: &str, write: f64, read: f64) -> Claim {
    let worst = aged.worst();
    claim(
        statement,
        &format!("{:.0} % write, {:.0} % read", write * 100.0, read * 100.0),
        both(worst),
        worst.write >= write && worst.read >= read,
    )
}

/// Reading a worn tree takes at most three times as long as reading its fresh copy.
pub fn reads_back(worn: &[Worn]) -> Option<Claim> {
    let last = worn.last()?;
    let ratio = last.aged / last.fresh;
    Some(claim(
        "read back as it comes (ours)",
        "at most 3 times a fresh copy",
        format!("{ratio:.2} times"),
        ratio <= 3.0,
    ))
}

/// After idle time it takes hardly longer than reading the copy.
pub fn reads_back_tidied(tidied: &[Tidied]) -> Option<Claim> {
    let last = tidied.last()?;
    let ratio = last.read / last.fresh;
    Some(claim(
        "read back after idle time (ours)",
        "at most 1.1 times a fresh copy",
        format!("{ratio:.2} times, after {:.0} s of work", last.seconds),
        ratio <= 1.1,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::paper::{Contiguous, Step};
    use super::*;

    fn aged(mib: u64, clean: f64, parts: [f64; 2]) -> Aged {
        let rates = |part: f64| Rates {
            write: clean * part,
            read: clean * part,
        };
        let step = |part: f64| Step {
            free: 5.0,
            rates: rates(part),
        };
        Aged {
            name: format!("{mib} MiB"),
            clean: rates(1.0),
            steps: parts.map(step).to_vec(),
            contiguous: vec![Contiguous {
                mib,
                runs: 1,
                part: 0.9,
            }],
            maps: Vec::new(),
        }
    }

    fn failing(tables: &[Aged]) -> Vec<String> {
        let failed = claims(tables).into_iter().filter(|claim| !claim.holds);
        failed.map(|claim| claim.statement).collect()
    }

    #[test]
    fn each_statement_can_hold_and_can_fail() {
        let good = [
            aged(1, 700.0, [0.3, 0.5]),
            aged(2, 690.0, [0.6, 0.7]),
            aged(4, 680.0, [0.8, 0.8]),
            aged(8, 670.0, [0.94, 0.95]),
            aged(64, 660.0, [0.98, 0.99]),
        ];
        assert_eq!(claims(&good).len(), 8);
        assert_eq!(failing(&good), Vec::<String>::new());
        let bad = [
            aged(1, 400.0, [0.9, 0.99]),
            aged(2, 410.0, [0.6, 0.7]),
            aged(4, 420.0, [0.8, 0.8]),
            aged(8, 430.0, [0.5, 0.8]),
            aged(64, 440.0, [0.9, 0.9]),
        ];
        let mut without_size = bad;
        for table in &mut without_size {
            table.contiguous.clear();
        }
        assert_eq!(failing(&without_size).len(), 8);
        assert_eq!(claims(&good[4..]).len(), 1);
    }
}
