//! Headers, words that promise later work, and names that say nothing.

use crate::finding::Finding;
use crate::metadata::Workspace;
use crate::repository::Repository;
use crate::source::Source;

/// Joined here, so that this file may name them.
const PROMISES: [&str; 4] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("for ", "now"),
];

/// What a file, folder, module or crate is never called.
const EMPTY_NAMES: [&str; 9] = [
    "utils", "util", "common", "manager", "helpers", "helper", "misc", "stuff", "shared",
];

/// Looks at every source and every name.
pub fn check(repository: &Repository, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &repository.sources {
        findings.extend(header(source));
        findings.extend(promises(source));
        findings.extend(empty_name(&source.path));
    }
    let crates = workspace.crates.iter();
    findings.extend(crates.filter_map(|one| empty_name(&format!("{}/Cargo.toml", one.folder))));
    findings
}

fn header(source: &Source) -> Option<Finding> {
    let first = source.text.lines().next().unwrap_or_default();
    let what = "does not begin with `//!`; say in a sentence what the file holds";
    (!first.starts_with("//!")).then(|| Finding::new(&source.path, 1, what))
}

fn promises(source: &Source) -> Vec<Finding> {
    let lines = (1..).zip(source.text.lines());
    lines
        .filter_map(|(line, content)| {
            let word = PROMISES.iter().find(|word| has_word(content, word))?;
            let what = format!("`{word}`; do it, or say what is not there in README or SEMANTICS");
            Some(Finding::new(&source.path, line, what))
        })
        .collect()
}

fn has_word(content: &str, word: &str) -> bool {
    let edge = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    content.match_indices(word).any(|(at, _)| {
        edge(content[..at].chars().next_back()) && edge(content[at + word.len()..].chars().next())
    })
}

fn empty_name(path: &str) -> Option<Finding> {
    let mut parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
    let name = parts.find(|part| EMPTY_NAMES.contains(part))?;
    let what = format!("`{name}` says nothing; find the noun");
    Some(Finding::new(path, 0, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    fn findings(path: &str, text: &str) -> usize {
        check(&repository(&[(path, text)]), &Workspace::default()).len()
    }

    #[test]
    fn finds_missing_headers_promises_and_empty_names() {
        assert_eq!(findings("crates/x/src/y.rs", "//! Y.\n"), 0);
        assert_eq!(findings("crates/x/src/y.rs", "fn f() {}\n"), 1);
        for word in PROMISES {
            assert_eq!(
                findings("crates/x/src/y.rs", &format!("//! Y.\n// {word} y\n")),
                1
            );
        }
        assert_eq!(findings("crates/x/src/utils.rs", "//! Y.\n"), 1);
        assert_eq!(findings("crates/x/src/manager/y.rs", "//! Y.\n"), 1);
    }

    #[test]
    fn words_have_edges() {
        assert!(!has_word("let fooXXXbar = 1;", PROMISES[2]));
        assert!(!has_word("wait for nowhere", PROMISES[3]));
    }
}
