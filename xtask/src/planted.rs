//! `cargo xtask planted`: puts each bug of `crates/sim/planted` alone into a copy of the workspace, and
//! measures how soon `glint-sim` finds it.

mod catalogue;
mod hunt;
mod workshop;

use std::path::Path;
use std::time::Duration;

use catalogue::Bug;
use hunt::{Hunt, Sighting};
use workshop::Workshop;

/// What a median may be at most, as the project promises.
const MEDIAN_MAX: Duration = Duration::from_secs(60);
/// How far apart the seeds are at which runs begin: none comes to another's.
const SEEDS_APART: u64 = 1_000_000;
/// The usual number of runs of each bug.
const RUNS: u64 = 3;
/// How long each of them takes at most, as a rule.
const LIMIT: Duration = Duration::from_secs(120);

/// What is asked for.
struct Wish {
    /// Nothing: all of them, and the tree without any.
    only: Vec<String>,
    runs: u64,
    limit: Duration,
}

/// Plants and hunts as `arguments` say, writes a table to standard output, and returns a one-line summary.
///
/// Without any bug the same seeds must find nothing: else a violation that is found with a bug says nothing.
pub fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let wish = Wish::parse(arguments)?;
    let bugs = wish.pick(catalogue::read(root)?)?;
    let workshop = Workshop::open(root)?;
    println!("| bug | crate | median, s | clusters | found | first seen as |");
    println!("|---|---|---|---|---|---|");
    let mut missed = Vec::new();
    if wish.only.is_empty() {
        workshop.build(None)?;
        let sound = wish.hunt(&workshop)?;
        println!("{}", row("*none*", "", &sound));
        if sound.found() > 0 {
            return Err("there are violations without any bug; mend these first".to_owned());
        }
    }
    for bug in &bugs {
        let found = match workshop.build(Some(bug)) {
            Ok(()) => wish.hunt(&workshop)?,
            Err(error) => {
                eprintln!("{error}");
                Hunt::default()
            }
        };
        println!("{}", row(&bug.name, bug.krate(), &found));
        if found.median().is_none_or(|median| median > MEDIAN_MAX) {
            missed.push(bug.name.as_str());
        }
    }
    match missed.is_empty() {
        true => Ok(format!("{} bugs, each found in time", bugs.len())),
        false => Err(format!(
            "{} of {} bugs are not found in a median of {} s: {}",
            missed.len(),
            bugs.len(),
            MEDIAN_MAX.as_secs(),
            missed.join(", ")
        )),
    }
}

/// A row of the table.
fn row(name: &str, krate: &str, hunt: &Hunt) -> String {
    let median = match hunt.median() {
        Some(median) => format!("{:.1}", median.as_secs_f64()),
        None => "-".to_owned(),
    };
    let clusters = hunt.median_clusters();
    let clusters = clusters.map_or("-".to_owned(), |clusters| clusters.to_string());
    let (found, runs) = (hunt.found(), hunt.runs.len());
    let sign = hunt.first_sign().unwrap_or("");
    format!("| {name} | {krate} | {median} | {clusters} | {found}/{runs} | {sign} |")
}

impl Wish {
    fn parse(arguments: &[String]) -> Result<Wish, String> {
        let mut wish = Wish {
            only: Vec::new(),
            runs: RUNS,
            limit: LIMIT,
        };
        let mut left = arguments.iter();
        while let Some(flag) = left.next() {
            let value = left.next().ok_or(format!("{flag} wants a value"))?;
            let number = || match value.parse::<u64>() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("{flag} wants a number above zero, not {value:?}")),
            };
            match flag.as_str() {
                "--only" => wish.only.push(value.clone()),
                "--runs" => wish.runs = number()?,
                "--limit" => wish.limit = Duration::from_secs(number()?),
                _ => {
                    return Err(format!(
                        "there is no {flag}, only --only, --runs and --limit"
                    ));
                }
            }
        }
        Ok(wish)
    }

    /// The bugs that are asked for, in the list's order.
    fn pick(&self, bugs: Vec<Bug>) -> Result<Vec<Bug>, String> {
        let unknown = |name: &&String| !bugs.iter().any(|bug| bug.name == **name);
        if let Some(name) = self.only.iter().find(unknown) {
            return Err(format!("no planted bug is called {name}"));
        }
        let is_meant = |bug: &Bug| self.only.is_empty() || self.only.contains(&bug.name);
        Ok(bugs.into_iter().filter(is_meant).collect())
    }

    fn hunt(&self, workshop: &Workshop) -> Result<Hunt, String> {
        let seeds = (0..self.runs).map(|run| 1 + run * SEEDS_APART);
        let runs = seeds.map(|seed| Sighting::wait_for(&workshop.simulator(), self.limit, seed));
        Ok(Hunt {
            runs: runs.collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(text: &str) -> Result<Wish, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        Wish::parse(&words)
    }

    #[test]
    fn arguments_are_taken_or_refused_with_a_reason() {
        let asked = wish("--only a --runs 5 --only b --limit 7").unwrap();
        assert_eq!((asked.runs, asked.limit.as_secs()), (5, 7));
        assert_eq!(asked.only, ["a", "b"]);
        for bad in ["--runs", "--runs 0", "--limit x", "--seeds 3"] {
            assert!(wish(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bug_nobody_has_planted_is_refused() {
        let bugs = || catalogue::parse("x.txt", catalogue::EXAMPLE).unwrap();
        assert_eq!(wish("").unwrap().pick(bugs()).unwrap().len(), 2);
        let one = wish("--only second").unwrap().pick(bugs()).unwrap();
        assert_eq!(one[0].name, "second");
        assert!(wish("--only third").unwrap().pick(bugs()).is_err());
    }
}
