//! Examples in the documentation of code: nothing runs them, so there are none.

use crate::finding::Finding;
use crate::repository::Repository;
use crate::source::Source;

/// Looks at doc comments for text that rustdoc would take for a Rust example.
pub fn check(repository: &Repository) -> Vec<Finding> {
    repository.sources.iter().flat_map(check_source).collect()
}

fn check_source(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fenced = false;
    for (line, text) in (1..).zip(source.text.lines()) {
        let text = text.trim_start();
        let doc = text.strip_prefix("///").or(text.strip_prefix("//!"));
        let Some(doc) = doc else {
            fenced = false;
            continue;
        };
        let fence = doc.trim_start().strip_prefix("```");
        let is_example = match fence {
            Some(language) => !fenced && language.trim() != "text",
            // A space, and the four that make a block of code.
            None => !fenced && doc.starts_with("     ") && !doc.trim().is_empty(),
        };
        fenced ^= fence.is_some();
        if is_example {
            let what = "an example that no gate runs; make it a test, or a block of ```text";
            findings.push(Finding::new(&source.path, line, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    #[test]
    fn examples_are_found_and_figures_are_not() {
        let lines = [
            "//! A figure:",
            "//!",
            "//! ```text",
            "//!      a -> b",
            "//! ```",
            "",
            "/// An example:",
            "/// ```",
            "/// assert!(true);",
            "/// ```",
            "pub fn a() {}",
            "",
            "/// Another:",
            "///",
            "///     assert!(true);",
            "pub fn b() {}",
            "",
            "/// ```rust",
            "/// ```",
            "pub fn c() {}",
        ];
        let text = lines.join("\n");
        let findings = check(&repository(&[("crates/x/src/lib.rs", &text[..])]));
        let found: Vec<_> = findings.iter().map(|found| found.line).collect();
        assert_eq!(found, [8, 15, 18]);
    }
}
