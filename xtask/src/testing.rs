//! `cargo xtask test`: builds all test programs, runs them, several at a time, and says what each took.
//!
//! A program starts while a processor is idle, so programs that wait run beside each other and those
//! that compute don't. Programs that measure time are named in `.ci/alone` and run last, one by one.

mod admission;
mod processors;
mod program;
mod running;
mod summary;

use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use admission::{Admission, Machine};
use processors::Processors;
use program::Program;
use running::Running;
use summary::{Outcome, Summary};

/// How often running programs are looked at.
const TICK: Duration = Duration::from_millis(100);

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
struct Wish {
    /// Parts of names of programs; nothing: all programs, and the examples in the documentation.
    only: Vec<String>,
    /// Programs that run at a time, at most.
    jobs: usize,
}

impl Wish {
    fn parse(arguments: &[String]) -> Result<Wish, String> {
        let mut wish = Wish {
            only: Vec::new(),
            jobs: admission::JOBS,
        };
        let mut left = arguments.iter();
        while let Some(argument) = left.next() {
            match argument.as_str() {
                "--jobs" => {
                    let jobs = left.next().and_then(|jobs| jobs.parse().ok());
                    let jobs = jobs.filter(|jobs| *jobs > 0);
                    wish.jobs = jobs.ok_or("--jobs wants a number above zero")?;
                }
                flag if flag.starts_with('-') => {
                    return Err(format!("there is no {flag}, only --jobs N"));
                }
                name => wish.only.push(name.to_owned()),
            }
        }
        Ok(wish)
    }

    fn wants(&self, program: &Program) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| program.name.contains(part))
    }
}

/// Builds and runs what `arguments` ask for; says what came of it in a line.
pub fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let wish = Wish::parse(arguments)?;
    let built = program::build_all(root)?;
    let mut programs = built.programs;
    programs.retain(|program| wish.wants(program));
    if programs.is_empty() {
        return Err(format!(
            "no test program is called {}",
            wish.only.join(" or ")
        ));
    }
    let alone = program::names_alone(root)?;
    let (last, first) = programs
        .into_iter()
        .partition(|program| alone.contains(&program.name));
    let begun = Instant::now();
    let mut summary = Summary::default();
    let glint = built.glint.as_deref();
    run_programs(first, wish.jobs, glint, &mut summary)?;
    run_programs(last, 1, glint, &mut summary)?;
    if wish.only.is_empty() {
        summary.add(run_examples(root)?);
    }
    println!("{}", summary.table());
    summary.verdict(begun.elapsed())
}

/// Runs `programs`, at most `jobs` at a time, with `glint` as the binary under test.
fn run_programs(
    programs: VecDeque<Program>,
    jobs: usize,
    glint: Option<&Path>,
    summary: &mut Summary,
) -> Result<(), String> {
    let mut waiting = programs;
    let mut admission = Admission::new(jobs);
    let mut processors = Processors::default();
    let mut running: Vec<Running> = Vec::new();
    let began = Instant::now();
    while !waiting.is_empty() || !running.is_empty() {
        let machine = Machine {
            running: running.len(),
            idle: processors.idle(began.elapsed())?,
        };
        if !waiting.is_empty()
            && admission.may_start(began.elapsed(), machine)
            && let Some(program) = waiting.pop_front()
        {
            running.push(Running::start(program, glint)?);
        }
        let mut left = Vec::new();
        for program in running {
            match program.poll()? {
                Ok(outcome) => summary.add(outcome.told()),
                Err(program) => left.push(program),
            }
        }
        running = left;
        thread::sleep(TICK);
    }
    Ok(())
}

/// The examples in the documentation, which only cargo can run.
fn run_examples(root: &Path) -> Result<Outcome, String> {
    let began = Instant::now();
    let status = Command::new(program::cargo())
        .args(["test", "--quiet", "--doc", "--workspace"])
        .current_dir(root)
        .status()
        .map_err(|error| format!("cannot run cargo test --doc: {error}"))?;
    Ok(Outcome::of_examples(status.success(), began.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_taken_or_refused_with_a_reason() {
        let wish = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Wish::parse(&words)
        };
        let asked = wish("pairs --jobs 1 fsx").unwrap();
        assert_eq!((asked.jobs, asked.only.len()), (1, 2));
        for bad in ["--jobs", "--jobs 0", "--jobs x", "--seeds"] {
            assert!(wish(bad).is_err(), "{bad}");
        }
    }
}
