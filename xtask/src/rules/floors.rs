//! Folders of a crate are floors, which ARCHITECTURE lists: a file imports from its own floor and lower ones.

use super::circles;
use crate::document::Document;
use crate::finding::Finding;
use crate::repository::Repository;

/// Where the floors are listed.
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// How such a line begins; after it the crate and its floors stand in backticks, the lowest first.
const BEGINS: &str = "Floors of ";

/// A crate's floors, the lowest first.
struct Floors<'a> {
    home: &'a str,
    names: Vec<&'a str>,
}

/// Names imports of a higher floor, and files on none.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let Some(document) = repository.document(ARCHITECTURE) else {
        return Vec::new();
    };
    let all = listed(document);
    let arrows = circles::arrows(&repository.sources);
    let mut findings = Vec::new();
    for floors in &all {
        let homeless = repository.sources.iter().filter(|source| {
            !source.is_test
                && folder(floors.home, &source.path).is_some_and(|name| !floors.has(name))
        });
        findings.extend(homeless.map(|source| {
            let what = format!("is on none of the floors that {ARCHITECTURE} lists");
            Finding::new(&source.path, 1, what)
        }));
        for ((from, to), line) in &arrows {
            if let (Some(own), Some(other)) = (floors.of(from), floors.of(to))
                && other > own
            {
                let what = format!(
                    "imports {to}, which is on a higher floor ({} is above {})",
                    floors.names[other], floors.names[own]
                );
                findings.push(Finding::new(from, *line, what));
            }
        }
    }
    findings
}

fn listed(document: &Document) -> Vec<Floors<'_>> {
    let begins = document.text.match_indices(BEGINS);
    let floors = begins.filter_map(|(at, _)| {
        let rest = &document.text[at + BEGINS.len()..];
        let paragraph = rest.split("\n\n").next()?;
        let mut quoted = paragraph.split('`').skip(1).step_by(2);
        let home = quoted.next()?;
        let names = quoted.collect();
        Some(Floors { home, names })
    });
    floors.collect()
}

/// The folder, or the file beside the crate's root, that a path leads through.
fn folder<'p>(home: &str, path: &'p str) -> Option<&'p str> {
    let inner = path.strip_prefix(home)?.strip_prefix("/src/")?;
    let first = inner.split('/').next()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(name, "lib" | "main" | "bin")).then_some(name)
}

impl Floors<'_> {
    fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    fn of(&self, path: &str) -> Option<usize> {
        let name = folder(self.home, path)?;
        self.names.iter().position(|floor| *floor == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    fn found(lower: &str, more: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![
            (
                ARCHITECTURE,
                "# X\n\nFloors of `crates/x`, the lowest first: `cache`, `calls`.\n",
            ),
            (
                "crates/x/src/lib.rs",
                "mod cache;\nmod calls;\nuse calls::B;\n",
            ),
            ("crates/x/src/cache/mod.rs", lower),
            (
                "crates/x/src/calls.rs",
                "use crate::cache::A;\npub struct B;\n",
            ),
        ];
        files.extend(more);
        let findings = check(&repository(&files));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_imports_of_lower_floors_only() {
        assert_eq!(found("pub struct A;\n", &[]), Vec::<String>::new());
        let found = found("pub struct A;\nuse crate::calls::B;\n", &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/x/src/cache/mod.rs:2: imports crates/x/src/calls.rs"));
    }

    #[test]
    fn a_file_on_no_floor_is_named() {
        let found = found(
            "pub struct A;\n",
            &[("crates/x/src/elsewhere.rs", "fn f() {}\n")],
        );
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/x/src/elsewhere.rs:1: is on none"));
    }
}
