//! `cargo xtask test`: builds all test programs, runs several at a time, and says how long each took.

mod admission;
mod meanwhile;
mod processors;
mod program;
mod running;
mod summary;

use std::collections::VecDeque;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use admission::{Admission, Machine};
use meanwhile::Meanwhile;
use processors::Processors;
use program::Program;
use running::{How, Running};
use summary::{Outcome, Summary};

/// How often running programs are looked at.
const TICK: Duration = Duration::from_millis(20);

/// The tests to run.
#[derive(Debug, PartialEq, Eq)]
struct Selection {
    /// Parts of names of programs; none: all programs.
    programs: Vec<String>,
    /// The crate whose tests alone are built and run.
    package: Option<String>,
    /// Part of the names of the tests to run.
    test: Option<String>,
    /// Programs that run at a time, at most.
    jobs: usize,
    /// The target of the Makefile that runs in their pauses.
    meanwhile: Option<String>,
}

impl Selection {
    fn parse(arguments: &[String]) -> Result<Selection, String> {
        let mut selection = Selection {
            programs: Vec::new(),
            package: None,
            test: None,
            jobs: admission::JOBS,
            meanwhile: None,
        };
        let mut left = arguments.iter();
        while let Some(argument) = left.next() {
            let mut value = || left.next().filter(|value| !value.is_empty()).cloned();
            match argument.as_str() {
                "--jobs" => {
                    let jobs = value().and_then(|jobs| jobs.parse().ok());
                    let jobs = jobs.filter(|jobs| *jobs > 0);
                    selection.jobs = jobs.ok_or("--jobs wants a number above zero")?;
                }
                "--crate" => {
                    selection.package = Some(value().ok_or("--crate wants the name of a crate")?);
                }
                "--name" => {
                    selection.test = Some(value().ok_or("--name wants a part of a test's name")?);
                }
                "--meanwhile" => {
                    let target = value().ok_or("--meanwhile wants a target of the Makefile")?;
                    selection.meanwhile = Some(target);
                }
                flag if flag.starts_with('-') => {
                    return Err(format!(
                        "there is no {flag}, only --crate CRATE, --name PART, --jobs N and \
                         --meanwhile TARGET"
                    ));
                }
                name => selection.programs.push(name.to_owned()),
            }
        }
        Ok(selection)
    }

    fn has(&self, program: &Program) -> Result<bool, String> {
        let names = &self.programs;
        let is_named = names.is_empty() || names.iter().any(|part| program.name.contains(part));
        match &self.test {
            Some(test) if is_named => program.has_test(test),
            _ => Ok(is_named),
        }
    }

    /// The selected programs; an error if there is none.
    fn of(&self, programs: VecDeque<Program>) -> Result<VecDeque<Program>, String> {
        let mut selected = VecDeque::new();
        for program in programs {
            if self.has(&program)? {
                selected.push_back(program);
            }
        }
        match selected.is_empty() {
            true => Err(format!(
                "no test matches {:?}; `cargo xtask test --crate CRATE` runs all tests of a crate",
                self.test.iter().chain(&self.programs).collect::<Vec<_>>()
            )),
            false => Ok(selected),
        }
    }
}

/// Builds and runs the tests that `arguments` select. Returns a one-line summary.
///
/// A program starts while a processor is idle: programs that wait run beside each other, programs that
/// compute do not. `.ci/long` names those that start first, `.ci/alone` those that run last, one by one.
pub fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let selection = Selection::parse(arguments)?;
    let built = program::build(root, selection.package.as_deref())?;
    let long = program::names_in(root, ".ci/long")?;
    let programs = program::in_order(selection.of(built.programs)?, &long);
    let alone = program::names_in(root, ".ci/alone")?;
    let (last, first) = programs
        .into_iter()
        .partition(|program| alone.contains(&program.name));
    let begun = Instant::now();
    let mut summary = Summary::default();
    if built.warnings > 0 {
        summary.add(Outcome::of_warnings(built.warnings).told());
    }
    let how = How {
        glint: built.glint.as_deref(),
        simulator: built.simulator.as_deref(),
        test: selection.test.as_deref(),
    };
    let meanwhile = selection.meanwhile.as_deref();
    let meanwhile = meanwhile.map(|target| Meanwhile::start(root, target));
    let meanwhile = meanwhile.transpose()?;
    let ran = run_programs(first, selection.jobs, how, &mut summary)
        .and_then(|()| run_programs(last, 1, how, &mut summary));
    if let Some(meanwhile) = meanwhile {
        summary.add(meanwhile.end()?.told());
    }
    ran?;
    println!("{}", summary.table(&long));
    summary.verdict(begun.elapsed())
}

/// Runs `programs`, at most `jobs` at a time.
fn run_programs(
    programs: VecDeque<Program>,
    jobs: usize,
    how: How,
    summary: &mut Summary,
) -> Result<(), String> {
    let mut waiting = programs;
    let mut admission = Admission::new(jobs);
    let mut processors = Processors::default();
    let mut running: Vec<Running> = Vec::new();
    let began = Instant::now();
    let mut newest = String::new();
    while !waiting.is_empty() || !running.is_empty() {
        let machine = Machine {
            running: running.len(),
            runs_newest: running.iter().any(|program| program.name() == newest),
            idle: processors.idle(began.elapsed())?,
        };
        if !waiting.is_empty()
            && admission.may_start(machine)
            && let Some(program) = waiting.pop_front()
        {
            processors.begin_anew();
            newest.clone_from(&program.name);
            running.push(Running::start(program, how)?);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_taken_or_refused_with_a_reason() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Selection::parse(&words)
        };
        let asked = parse("pairs --jobs 1 fsx").unwrap();
        assert_eq!((asked.jobs, asked.programs.len()), (1, 2));
        let gate = parse("--meanwhile check").unwrap();
        assert_eq!(gate.meanwhile.as_deref(), Some("check"));
        let one = parse("--crate base --name fid").unwrap();
        assert_eq!(one.package.as_deref(), Some("base"));
        assert_eq!(one.test.as_deref(), Some("fid"));
        for bad in [
            "--jobs",
            "--jobs 0",
            "--jobs x",
            "--seeds",
            "--crate",
            "--name",
            "--meanwhile",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn programs_without_the_named_test_are_left_out() {
        let program = |name: &str, script: &str| {
            let folder = std::env::temp_dir();
            let path = folder.join(format!("glint-xtask-{}-{name}", std::process::id()));
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            Program {
                name: name.to_owned(),
                path,
                folder,
            }
        };
        let programs = VecDeque::from([
            program("with", "echo a::fid_is_kept: test"),
            program("without", "echo a::other: test"),
        ]);
        let paths: Vec<_> = programs.iter().map(|one| one.path.clone()).collect();
        for path in &paths {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path, mode).unwrap();
        }
        let words = ["--name", "fid"].map(str::to_owned);
        let selected = Selection::parse(&words).unwrap().of(programs.clone());
        let none = ["--name", "nothing"].map(str::to_owned);
        let refused = Selection::parse(&none).unwrap().of(programs);
        paths
            .iter()
            .for_each(|path| std::fs::remove_file(path).unwrap());
        let names: Vec<_> = selected.unwrap().into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["with"]);
        assert!(refused.unwrap_err().contains("nothing"));
    }
}
