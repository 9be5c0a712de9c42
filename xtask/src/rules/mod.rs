//! The rules of `cargo xtask tidy`, one file each.

mod circles;
mod code_map;
mod documents;
mod examples;
mod floors;
mod invariants;
mod knowledge;
mod layers;
pub mod licences;
mod links;
mod plain_words;
mod semantics;
mod sizes;
mod test_names;
mod test_programs;
mod words;

use crate::finding::Finding;
use crate::metadata::Workspace;
use crate::repository::Repository;

/// Everything but the licences.
pub fn tidy(repository: &Repository, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(code_map::check(repository, workspace));
    findings.extend(layers::check(workspace));
    findings.extend(circles::check(repository));
    findings.extend(floors::check(repository));
    findings.extend(knowledge::check(repository));
    findings.extend(sizes::check(repository));
    findings.extend(words::check(repository, workspace));
    findings.extend(plain_words::check(repository));
    findings.extend(semantics::check(repository));
    findings.extend(invariants::check(repository));
    findings.extend(test_names::check(repository));
    findings.extend(test_programs::check(repository));
    findings.extend(links::check(repository));
    findings.extend(documents::check(repository));
    findings.extend(examples::check(repository));
    findings
}

#[cfg(test)]
mod fixture {
    use crate::document::Document;
    use crate::repository::Repository;
    use crate::source::Source;

    /// A repository of these files.
    pub fn repository(files: &[(&str, &str)]) -> Repository {
        let mut repository = Repository::default();
        for (path, text) in files {
            match path.ends_with(".rs") {
                true => repository.sources.push(Source::parse(path, text).unwrap()),
                false => repository.documents.push(Document::new(path, text)),
            }
            repository.paths.insert((*path).to_owned());
        }
        repository
    }
}
