//! A fixed set of runs, the seeds that ever failed, and that a seed says all.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::process::Command;
use std::sync::Mutex;

use sim::faults::Kind;
use sim::history::Call;
use sim::processor::on_every_one;
use sim::run::{Plan, Report, run};

fn sound(plan: &Plan) -> Report {
    let report = run(plan);
    let which = format!("seed {} with faults of {:?}", plan.seed, plan.kinds);
    assert!(
        report.violations.is_empty(),
        "{which}: {:#?}\n{}",
        report.violations,
        report.trace()
    );
    assert!(report.is_full(plan), "{which}");
    assert!(!report.gave_up, "{which} is not decided");
    report
}

#[test]
fn a_seed_says_all() {
    let left = Mutex::new(Kind::ALL.to_vec());
    let digests = Mutex::new(Vec::new());
    let seeds = (3..).take_while(|_| !left.lock().unwrap().is_empty());
    on_every_one(seeds, |seed| {
        let first = run(&Plan::of(seed));
        let is_new = {
            let mut left = left.lock().unwrap();
            let before = left.len();
            left.retain(|kind| first.faults.iter().all(|fault| fault.kind != *kind));
            left.len() < before
        };
        if is_new {
            let second = run(&Plan::of(seed));
            assert!(first.trace() == second.trace(), "seed {seed}");
            assert_eq!(first.digest, second.digest, "seed {seed}");
        }
        digests.lock().unwrap().push(first.digest);
    });
    let mut digests = digests.into_inner().unwrap();
    let count = digests.len();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), count, "two seeds say the same");
}

/// Whatever differs from process to process: addresses, environment, who else is on the machine.
#[test]
fn a_seed_says_the_same_in_every_process() {
    let trace = |seed: &str, variable: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_glint-sim"));
        let run = command.args(["trace", seed]).env("ANYTHING", variable);
        let output = run.output().unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        output.stdout
    };
    // In every third no client is lost.
    on_every_one(["3", "4", "5", "7"], |seed| {
        let first = trace(seed, "short");
        assert!(first.len() > 10_000, "it tells of all calls");
        assert!(first == trace(seed, &"long".repeat(1_000)), "seed {seed}");
    });
}

#[test]
fn without_faults_nothing_is_wrong() {
    on_every_one(1..=10, |seed| {
        let plan = Plan {
            faults: 0,
            ..Plan::of(seed)
        };
        let report = run(&plan);
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
        assert!(report.faults.is_empty());
        assert!(
            report
                .history
                .iter()
                .any(|entry| entry.call.kind() == "get")
        );
    });
}

/// These are run in any case,
const SEEDS: RangeInclusive<u64> = 61..=130;
/// and these as long as a call has not met a kind of fault.
const MORE_SEEDS: RangeInclusive<u64> = 131..=600;

/// The run of `seed`, in which half of the faults are of the kinds `rare`. By chance alone the rarest call
/// takes many more runs to meet the rarest fault.
fn with_more_of(seed: u64, rare: &BTreeSet<Kind>) -> Plan {
    let mut plan = Plan::of(seed);
    let usual = plan.kinds.clone();
    let rare = usual.iter().filter(|kind| rare.contains(kind));
    let more: Vec<Kind> = rare.copied().cycle().take(usual.len()).collect();
    plan.kinds.extend(more);
    plan
}

#[test]
fn every_call_meets_every_fault_and_nothing_is_wrong() {
    let mut missing: BTreeSet<(&str, Kind)> = BTreeSet::new();
    for call in Call::KINDS {
        missing.extend(Kind::ALL.map(|kind| (*call, kind)));
    }
    let missing = Mutex::new(missing);
    let more = MORE_SEEDS.take_while(|_| !missing.lock().unwrap().is_empty());
    on_every_one(SEEDS.chain(more), |seed| {
        let plan = match SEEDS.contains(&seed) {
            true => Plan::of(seed),
            false => {
                let missing = missing.lock().unwrap();
                let rare: BTreeSet<Kind> = missing.iter().map(|(_, kind)| *kind).collect();
                drop(missing);
                with_more_of(seed, &rare)
            }
        };
        let met = sound(&plan).meetings();
        let mut missing = missing.lock().unwrap();
        missing.retain(|pair| !met.contains_key(pair));
    });
    let missing = missing.into_inner().unwrap();
    assert!(missing.is_empty(), "these never met: {missing:?}");
}

#[test]
fn what_failed_once_stays_mended() {
    let kept = include_str!("../seeds.txt").lines();
    let seeds = kept.filter(|line| !line.starts_with('#'));
    on_every_one(seeds, |line| {
        let seed = line.split_whitespace().next().expect("a seed");
        sound(&Plan::of(seed.parse().expect("a number")));
    });
}
