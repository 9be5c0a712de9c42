//! The gates that the compiler and clippy do not check, and `cargo xtask test`, which runs all tests. A
//! finding of a gate is one line, `file:line: what; how to mend it`, and any finding fails the gate.

mod document;
mod finding;
mod metadata;
mod planted;
mod program_list;
mod prose;
mod repository;
mod rules;
mod source;
mod testing;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use finding::Finding;
use metadata::Workspace;
use repository::Repository;

const USAGE: &str = "\
usage: cargo xtask GATE
  tidy      the code map, the layers, circles of imports, knowledge, sizes, words, plain words,
            SEMANTICS, invariants, names of tests and of test programs, links, examples
  licences  every dependency's licence is on the list
  planted   bugs put into a copy of the tree, one at a time, are found by simulated clusters;
            [--only NAME]... [--runs 3] [--limit 120 (seconds)]
  test      all tests, several programs at a time, and the time of each;
            [PART-OF-A-PROGRAM'S-NAME]... [--crate CRATE] [--name PART-OF-A-TEST'S-NAME] [--jobs 6]
            [--meanwhile TARGET-OF-THE-MAKEFILE (on idle processors)]";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let gate = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    let outcome = match (gate.as_str(), &arguments[..]) {
        ("tidy", []) => tidy(&root()),
        ("licences", []) => licences(&root()),
        ("planted", arguments) => {
            planted::run(&root(), arguments).map(|summary| (summary, Vec::new()))
        }
        ("test", arguments) => {
            testing::run(&root(), arguments).map(|summary| (summary, Vec::new()))
        }
        ("help" | "--help" | "-h", []) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok((summary, findings)) => report(&gate, &summary, findings),
        Err(error) => {
            eprintln!("{gate}: {error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome = Result<(String, Vec<Finding>), String>;

fn report(gate: &str, summary: &str, mut findings: Vec<Finding>) -> ExitCode {
    findings.sort();
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("{gate}: {summary}, all in order");
            ExitCode::SUCCESS
        }
        count => {
            eprintln!("{gate}: {summary}, {count} to mend");
            ExitCode::FAILURE
        }
    }
}

/// The workspace: the directory that holds this crate's.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

fn tidy(root: &Path) -> Outcome {
    let workspace = Workspace::read(root)?;
    let repository = Repository::read(root)?;
    let findings = rules::tidy(&repository, &workspace);
    let summary = format!(
        "{} crates, {} source files, {} documents",
        workspace.crates.len(),
        repository.sources.len(),
        repository.documents.len()
    );
    Ok((summary, findings))
}

fn licences(root: &Path) -> Outcome {
    let packages = metadata::foreign_packages(root)?;
    let findings = rules::licences::check(&packages);
    Ok((format!("{} dependencies", packages.len()), findings))
}
