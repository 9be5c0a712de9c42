//! Processes of supervised mounts are killed while others write to the same files.

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
    (1..=20).for_each(sound);
}

#[test]
fn what_failed_once_stays_mended() {
    for (seed, what) in KEPT {
        println!("{seed}: {what}");
        sound(*seed);
    }
}

#[test]
fn a_seed_says_all() {
    let (first, second) = (run(&plan(7)), run(&plan(7)));
    assert!(first.trace() == second.trace());
    assert_eq!(first.digest, second.digest);
}
