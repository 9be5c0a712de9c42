//! Results of the test programs: the tests of each as it ends, and a table of the longest.

use std::fmt::Write;
use std::time::Duration;

/// Programs in the table of the longest.
const SHOWN: usize = 20;
/// A program that takes longer is to have a reason in `.ci/long`.
const LONG: Duration = Duration::from_secs(20);

/// What came of one program.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The program.
    pub name: String,
    /// All its tests passed.
    pub is_success: bool,
    /// From start to end.
    pub wall: Duration,
    /// Its processor time and that of the processes it waited for; nothing if it had to be ended.
    pub processor: Option<Duration>,
    /// All it wrote.
    pub output: String,
}

impl Outcome {
    /// What the compiler and clippy complained about as the tests were built; it was shown then.
    pub fn of_warnings(warnings: usize) -> Outcome {
        Outcome {
            name: format!("warnings of the build ({warnings}, shown above)"),
            is_success: false,
            wall: Duration::ZERO,
            processor: None,
            output: String::new(),
        }
    }

    /// Tests that passed, were ignored, and failed, as their program counts them.
    fn counts(&self) -> [usize; 3] {
        let is_result = |line: &&str| {
            let mut words = line.split_whitespace();
            words.next() == Some("test") && line.contains(" ... ") && words.count() > 1
        };
        let mut counts = [0; 3];
        for line in self.output.lines().filter(is_result) {
            match line.rsplit(" ... ").next() {
                Some("ok") => counts[0] += 1,
                Some(end) if end.starts_with("ignored") => counts[1] += 1,
                Some("FAILED") => counts[2] += 1,
                _ => {}
            }
        }
        counts
    }

    /// Says which tests ran and what came of them; all that it wrote, where it failed.
    pub fn told(self) -> Outcome {
        println!("\n     Running {}", self.name);
        match self.is_success {
            true => self.verdicts().for_each(|line| println!("{line}")),
            false => println!("{}", self.output),
        }
        println!("{}", self.line());
        self
    }

    /// The lines in which the program says how many tests it runs, what came of each, and of all. A
    /// log that lacks them does not show that anything was tested.
    fn verdicts(&self) -> impl Iterator<Item = &str> {
        let is_verdict = |line: &&str| line.starts_with("running ") || line.starts_with("test ");
        self.output.lines().filter(is_verdict)
    }

    fn line(&self) -> String {
        let verdict = if self.is_success { "ok" } else { "FAILED" };
        let [passed, ignored, failed] = self.counts();
        let processor = match self.processor {
            Some(time) => format!("{:6.1}", time.as_secs_f64()),
            None => "     -".to_owned(),
        };
        format!(
            "{verdict:6} {wall:6.1} s, {processor} s of processor, {passed:3} passed, {ignored:2} ignored, \
             {failed} failed: {name}",
            wall = self.wall.as_secs_f64(),
            name = self.name,
        )
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Summary {
    outcomes: Vec<Outcome>,
}

impl Summary {
    /// One more.
    pub fn add(&mut self, mut outcome: Outcome) {
        if outcome.is_success {
            // Only the verdicts of its tests matter from here on.
            outcome.output.shrink_to_fit();
        }
        self.outcomes.push(outcome);
    }

    /// The programs that took longest; of those over `LONG` that `reasoned` does not name it says so.
    pub fn table(&self, reasoned: &[String]) -> String {
        let mut sorted: Vec<&Outcome> = self.outcomes.iter().collect();
        sorted.sort_by_key(|outcome| std::cmp::Reverse(outcome.wall));
        let mut table = format!("The {SHOWN} longest programs:\n");
        for outcome in sorted.into_iter().take(SHOWN) {
            let is_explained = outcome.wall <= LONG || reasoned.contains(&outcome.name);
            let note = match is_explained {
                true => "",
                false => " (over 20 s; make it shorter, or give the reason in .ci/long)",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{}{note}", outcome.line());
        }
        table
    }

    /// A line about all, or which have failed.
    pub fn verdict(&self, wall: Duration) -> Result<String, String> {
        let failed: Vec<&str> = self
            .outcomes
            .iter()
            .filter(|outcome| !outcome.is_success)
            .map(|outcome| outcome.name.as_str())
            .collect();
        let processor: Duration = self.outcomes.iter().filter_map(|o| o.processor).sum();
        let counts = self.outcomes.iter().map(Outcome::counts);
        let [passed, ignored, _] = counts.fold([0; 3], |sum, one| {
            [sum[0] + one[0], sum[1] + one[1], sum[2] + one[2]]
        });
        let all = format!(
            "{} programs, {passed} tests passed, {ignored} ignored, {:.0} s, {:.0} s of processor",
            self.outcomes.len(),
            wall.as_secs_f64(),
            processor.as_secs_f64(),
        );
        match failed.is_empty() {
            true => Ok(all),
            false => Err(format!("{all}; failed: {}", failed.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, is_success: bool, output: &str) -> Outcome {
        Outcome {
            name: name.to_owned(),
            is_success,
            wall: Duration::from_secs(2),
            processor: None,
            output: output.to_owned(),
        }
    }

    #[test]
    fn verdicts_of_tests_are_counted() {
        let said = "running 4 tests\ntest a ... ok\ntest b::c ... ignored, long\ntest d ... FAILED\n\
                    test result: FAILED. 1 passed\ntest of something else\ntest e has been running for over 60 seconds\n";
        assert_eq!(outcome("x", false, said).counts(), [1, 1, 1]);
    }

    #[test]
    fn a_log_names_each_test_and_the_result_of_all() {
        let said = "\nrunning 1 test\nsomething it says\ntest a::b ... ok\n\ntest result: ok. 1 passed; 0 failed;\n";
        let verdicts: Vec<_> = outcome("x", true, said)
            .verdicts()
            .map(str::to_owned)
            .collect();
        let expected = [
            "running 1 test",
            "test a::b ... ok",
            "test result: ok. 1 passed; 0 failed;",
        ];
        assert_eq!(verdicts, expected);
    }

    #[test]
    fn one_failure_fails_all_and_is_named() {
        let mut summary = Summary::default();
        summary.add(outcome("a", true, "test t ... ok\n"));
        assert!(summary.verdict(Duration::ZERO).is_ok());
        summary.add(outcome("b", false, ""));
        let said = summary.verdict(Duration::ZERO).unwrap_err();
        assert!(said.ends_with("failed: b"), "{said}");
    }

    #[test]
    fn a_long_program_without_a_reason_is_marked() {
        let mut summary = Summary::default();
        for name in ["reasoned", "not"] {
            let mut long = outcome(name, true, "");
            long.wall = LONG * 2;
            summary.add(long);
        }
        summary.add(outcome("short", true, ""));
        let table = summary.table(&["reasoned".to_owned()]);
        let marked: Vec<_> = table
            .lines()
            .filter(|line| line.contains(".ci/long"))
            .collect();
        assert!(
            matches!(&marked[..], [one] if one.contains("failed: not (over")),
            "{table}"
        );
    }
}
