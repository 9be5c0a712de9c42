//! The two documents that must stay short.

use crate::finding::Finding;
use crate::repository::Repository;

/// Lines of the map one reads first.
const ARCHITECTURE_LINES_MAX: usize = 400;
/// Abbreviations the house allows itself.
const ABBREVIATIONS_MAX: usize = 15;

/// Counts lines and rows.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(map) = repository.document("ARCHITECTURE.md") {
        let lines = map.text.lines().count();
        if lines > ARCHITECTURE_LINES_MAX {
            let what =
                format!("{lines} lines, at most {ARCHITECTURE_LINES_MAX}; move details to docs/");
            findings.push(Finding::new(&map.path, 0, what));
        }
    }
    if let Some(glossary) = repository.document("GLOSSARY.md") {
        let rows = glossary
            .text
            .lines()
            .filter(|line| line.starts_with("| **"));
        let rows = rows.count();
        if rows > ABBREVIATIONS_MAX {
            let what = format!("{rows} abbreviations, at most {ABBREVIATIONS_MAX}; spell one out");
            findings.push(Finding::new(&glossary.path, 0, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    #[test]
    fn long_maps_and_glossaries_are_found() {
        let (map, rows) = ("x\n".repeat(401), "| **A** | b |\n".repeat(16));
        let files = [
            ("ARCHITECTURE.md", map.as_str()),
            ("GLOSSARY.md", rows.as_str()),
        ];
        assert_eq!(check(&repository(&files)).len(), 2);
        let files = [
            ("ARCHITECTURE.md", "x\n"),
            ("GLOSSARY.md", "| **A** | b |\n"),
        ];
        assert!(check(&repository(&files)).is_empty());
    }
}
