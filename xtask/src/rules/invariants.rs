//! Every `Invariant:` of ARCHITECTURE.md names a test that exists.

use std::collections::BTreeSet;

use crate::finding::Finding;
use crate::repository::Repository;

const PATH: &str = "ARCHITECTURE.md";
const MARK: &str = "Invariant:";
/// After it come test functions (or files of tests) between backquotes.
const TESTS: &str = "Tests:";

/// Looks at each paragraph that begins with the mark, list items too.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let Some(document) = repository.document(PATH) else {
        return Vec::new();
    };
    let sources = repository.sources.iter();
    let tests: BTreeSet<&str> = sources
        .flat_map(|source| source.tests.iter().map(String::as_str))
        .collect();
    let paragraphs = document.paragraphs();
    let invariants = paragraphs.iter().filter(|(_, text)| {
        let start = text.trim_start_matches(|c: char| !c.is_alphabetic());
        start.starts_with(MARK)
    });
    invariants
        .flat_map(|(line, text)| {
            let wrong = problems(text, &tests, &repository.paths);
            wrong
                .into_iter()
                .map(|what| Finding::new(PATH, *line, what))
        })
        .collect()
}

fn problems(text: &str, tests: &BTreeSet<&str>, paths: &BTreeSet<String>) -> Vec<String> {
    let named = text.rsplit_once(TESTS).map(|(_, rest)| rest);
    let named: Vec<&str> = named
        .unwrap_or_default()
        .split('`')
        .skip(1)
        .step_by(2)
        .collect();
    if named.is_empty() {
        return vec![format!(
            "an invariant without a test; end it with `{TESTS}` and names"
        )];
    }
    let missing = named
        .iter()
        .filter(|name| !tests.contains(**name) && !paths.contains(**name));
    missing
        .map(|name| format!("there is no test `{name}`; write it or mend the name"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    #[test]
    fn invariants_need_tests_that_exist() {
        let text = "**Invariant:** good. Tests: `holds`,\n`crates/x/tests/t.rs`.\n\n\
                    Invariant: bad. Tests: `gone`\n\nInvariant: naked, `holds`.\n";
        let test = "//! T.\n#[test]\nfn holds() {}\n";
        let findings = check(&repository(&[(PATH, text), ("crates/x/tests/t.rs", test)]));
        let lines: Vec<_> = findings.iter().map(|f| f.line).collect();
        assert_eq!(lines, [4, 6]);
    }
}
