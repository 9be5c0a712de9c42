//! Tests that documents name exist.

use std::collections::BTreeSet;

use crate::document::Document;
use crate::finding::Finding;
use crate::repository::Repository;

/// Of so many words only tests have names, and files of stories that a test reads.
const WORDS_MIN: usize = 5;

/// Looks at each long name between backquotes, of any document.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let sources = repository.sources.iter();
    let tests = sources.flat_map(|source| source.tests.iter().map(String::as_str));
    let stems = repository.paths.iter().map(|path| stem(path));
    let known: BTreeSet<&str> = tests.chain(stems).collect();
    let is_there = |name: &str| known.contains(name) || is_made(repository, name);
    let documents = repository.documents.iter();
    documents
        .flat_map(|document| {
            let missing = names(document).filter(|(_, name)| !is_there(name));
            missing.map(|(line, name)| {
                let what = format!("there is no test `{name}`; write it or mend the name");
                Finding::new(&document.path, line, what)
            })
        })
        .collect()
}

/// The file's name up to its ending.
fn stem(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file)
}

/// What looks like a test's name, with its line.
fn names(document: &Document) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(document.text.lines());
    let quoted =
        lines.flat_map(|(line, text)| text.split('`').skip(1).step_by(2).map(move |q| (line, q)));
    quoted.filter(|(_, name)| is_long_name(name))
}

fn is_long_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.chars().all(plain) && name.split('_').count() >= WORDS_MIN
}

/// A macro makes tests of functions, of which the list of tests does not know.
fn is_made(repository: &Repository, name: &str) -> bool {
    let function = format!("fn {name}(");
    let mut sources = repository.sources.iter().filter(|source| source.is_test);
    sources.any(|source| source.text.contains(&function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    #[test]
    fn names_of_tests_that_are_gone_are_found() {
        let readme = "| `what_is_there_is_found`, `a_short_name` |\n\
                      | `what_is_gone_is_not_found` (`x`) |\n\
                      `a_story_that_a_test_reads` `one_that_a_macro_makes`\n";
        let test = "//! T.\n#[test]\nfn what_is_there_is_found() {}\n\
                    fn one_that_a_macro_makes(place: Place) {}\n";
        let files = [
            ("tests/README.md", readme),
            ("crates/x/tests/t.rs", test),
            ("crates/x/tests/a_story_that_a_test_reads.md", ""),
        ];
        let findings = check(&repository(&files));
        let lines: Vec<_> = findings.iter().map(|f| f.line).collect();
        assert_eq!(lines, [2]);
    }
}
