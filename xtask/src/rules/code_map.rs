//! ARCHITECTURE.md's code map has a heading for every crate, and no other.

use crate::finding::Finding;
use crate::metadata::Workspace;
use crate::repository::Repository;

const PATH: &str = "ARCHITECTURE.md";

/// Compares the headings `### crates/…` and `### tests/…` with the workspace, both ways.
pub fn check(repository: &Repository, workspace: &Workspace) -> Vec<Finding> {
    let Some(map) = repository.document(PATH) else {
        return vec![Finding::new(PATH, 0, "is not there; write the code map")];
    };
    let headings = map.headings.iter().filter(|heading| heading.depth == 3);
    let mapped: Vec<(&str, usize)> = headings
        .filter_map(|heading| Some((heading.text.split([' ', ':']).next()?, heading.line)))
        .filter(|(folder, _)| {
            let folders = ["crates/", "tests/"];
            folders.iter().any(|one| folder.starts_with(one)) || *folder == "xtask"
        })
        .collect();
    let missing = workspace.crates.iter().filter_map(|one| {
        let known = mapped.iter().any(|(folder, _)| *folder == one.folder);
        let what = format!(
            "no heading `### {}`; add the crate to the code map",
            one.folder
        );
        (!known).then(|| Finding::new(PATH, 0, what))
    });
    let unknown = mapped.iter().filter_map(|(folder, line)| {
        let known = workspace.crates.iter().any(|one| one.folder == *folder);
        let what = format!("there is no crate in {folder}; remove the heading");
        (!known).then(|| Finding::new(PATH, *line, what))
    });
    missing.chain(unknown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Crate;
    use crate::rules::fixture::repository;

    #[test]
    fn finds_a_missing_and_a_dead_heading() {
        let repository = repository(&[(PATH, "### crates/base: ids\n\n### crates/gone\n")]);
        let folders = ["crates/base", "crates/wire"];
        let crates = folders.map(|folder| Crate {
            folder: folder.to_owned(),
            ..Crate::default()
        });
        let workspace = Workspace {
            crates: crates.into(),
        };
        let findings = check(&repository, &workspace);
        assert_eq!(findings.len(), 2);
        assert!(findings[0].what.contains("crates/wire"));
        assert!(findings[1].what.contains("crates/gone") && findings[1].line == 3);
    }
}
