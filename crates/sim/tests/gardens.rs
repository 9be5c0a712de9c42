//! Trees that grow under write leases, while servers, mounts and networks fail.

use sim::processor::on_every_one;
use sim::run::{Plan, run};

/// Runs of trees; those that ever failed come first.
#[test]
fn trees_are_as_their_gardeners_made_them() {
    on_every_one(1..=16, |seed| {
        let plan = Plan::with_gardens(seed);
        let report = run(&plan);
        assert!(
            report.violations.is_empty(),
            "seed {seed}: {:#?}\n{}",
            report.violations,
            report.trace()
        );
    });
}
