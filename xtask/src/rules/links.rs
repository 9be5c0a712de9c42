//! Links inside the repository lead somewhere.

use crate::document::{Document, Link};
use crate::finding::Finding;
use crate::repository::Repository;

/// Looks at each link that is no address elsewhere.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let documents = repository.documents.iter();
    documents
        .flat_map(|document| {
            let links = document.links.iter();
            links.filter_map(move |link| dead(repository, document, link))
        })
        .collect()
}

fn dead(repository: &Repository, document: &Document, link: &Link) -> Option<Finding> {
    if link.target.contains("://") || link.target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = match link.target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (link.target.as_str(), None),
    };
    let path = match file {
        "" => document.path.clone(),
        _ => resolve(&document.path, file),
    };
    let finding = |what: String| Some(Finding::new(&document.path, link.line, what));
    if !repository.paths.contains(&path) {
        return finding(format!("{path} is not there; mend the link"));
    }
    match (anchor, repository.document(&path)) {
        (Some(anchor), Some(to)) if !to.anchors().iter().any(|a| a == anchor) => {
            finding(format!("{path} has no heading #{anchor}; mend the link"))
        }
        _ => None,
    }
}

/// `target` as seen from the file `from`, relative to the workspace.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    #[test]
    fn dead_links_and_anchors_are_found() {
        let readme = "[a](docs/a.md#top) [b](docs/b.md) [c](https://c.example) [d](#none)\n";
        let files = [
            ("README.md", readme),
            ("docs/a.md", "# Top\n[r](../README.md)\n"),
        ];
        let findings = check(&repository(&files));
        assert_eq!(findings.len(), 2);
        assert!(findings[0].what.contains("docs/b.md"));
        assert!(findings[1].what.contains("#none"));
    }
}
