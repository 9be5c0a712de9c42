//! Processes of supervised mounts are killed while others write to the same files.

use std::sync::Mutex;

use sim::processor::on_every_one;
use sim::workers::{plan, run};

/// Seeds that failed once, each with what it was.
const KEPT: &[(u64, &str)] = &[
    (5, SECOND_LOCK),
    (6, SECOND_LOCK),
    (8, SECOND_LOCK),
    (9, SECOND_LOCK),
    (28, SECOND_LOCK),
];
const SECOND_LOCK: &str =
    "what was written under a lock went with another that was being given back";

fn sound(seed: u64) {
    let plan = plan(seed);
    let report = run(&plan);
    let (violations, trace) = (&report.violations, report.trace());
    assert!(
        violations.is_empty(),
        "seed {seed}: {violations:#?}\n{trace}"
    );
    assert!(report.is_full(&plan), "seed {seed}");
    assert!(!report.gave_up, "seed {seed} is not decided");
}

#[test]
fn a_write_that_has_returned_outlives_the_processes_of_all_mounts() {
    on_every_one(1..=10, sound);
}

#[test]
fn what_failed_once_stays_mended() {
    on_every_one(KEPT, |(seed, what)| {
        println!("{seed}: {what}");
        sound(*seed);
    });
}

#[test]
fn a_seed_says_all() {
    let reports = Mutex::new(Vec::new());
    on_every_one(0..2, |_| reports.lock().unwrap().push(run(&plan(7))));
    let reports = reports.into_inner().unwrap();
    let [first, second] = &reports[..] else {
        panic!("two runs");
    };
    assert!(first.trace() == second.trace());
    assert_eq!(first.digest, second.digest);
}
