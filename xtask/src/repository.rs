//! All sources and documents of the workspace, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::document::Document;
use crate::program_list::LISTS;
use crate::source::Source;

/// The workspace's files.
#[derive(Debug, Default)]
pub struct Repository {
    /// Rust files, sorted by path.
    pub sources: Vec<Source>,
    /// Markdown files, sorted by path.
    pub documents: Vec<Document>,
    /// Every file and folder, relative to the workspace, for links.
    pub paths: BTreeSet<String>,
    /// Exceptions of the rules about sizes and circles.
    pub allowances: String,
    /// Exceptions of the rule about plain words.
    pub prose_allowances: String,
    /// Text of each list of test programs, by path.
    pub program_lists: BTreeMap<&'static str, String>,
    /// Text of the Makefile.
    pub makefile: String,
}

/// The lists of exceptions, which may only shrink.
pub const ALLOWANCES: &str = "xtask/allow.txt";
pub const PROSE_ALLOWANCES: &str = "xtask/allow-prose.txt";

const SKIPPED: [&str; 3] = ["target", "demo-data", "node_modules"];

impl Repository {
    /// Reads everything below `root` but build results and hidden folders.
    pub fn read(root: &Path) -> Result<Repository, String> {
        let mut paths = BTreeSet::new();
        walk(root, "", &mut paths)?;
        let mut repository = Repository {
            allowances: read(root, ALLOWANCES)?,
            prose_allowances: read(root, PROSE_ALLOWANCES)?,
            makefile: read(root, "Makefile")?,
            ..Repository::default()
        };
        for list in LISTS {
            repository.program_lists.insert(list, read(root, list)?);
        }
        for path in &paths {
            if path.ends_with(".rs") {
                let text = read(root, path)?;
                repository.sources.push(Source::parse(path, &text)?);
            } else if path.ends_with(".md") {
                let text = read(root, path)?;
                repository.documents.push(Document::new(path, &text));
            }
        }
        repository.paths = paths;
        repository.mark_test_modules();
        Ok(repository)
    }

    /// Files that a `#[cfg(test)] mod name;` declares are tests as a whole.
    fn mark_test_modules(&mut self) {
        let declared: BTreeSet<String> = self
            .sources
            .iter()
            .flat_map(Source::test_module_files)
            .collect();
        for source in &mut self.sources {
            let folder = format!("{}/", source.path.trim_end_matches(".rs"));
            source.is_test |= declared.contains(&source.path)
                || declared.iter().any(|file| {
                    let parent = file.trim_end_matches(".rs").trim_end_matches("/mod");
                    folder.starts_with(&format!("{parent}/"))
                });
        }
    }

    /// The document at `path`.
    pub fn document(&self, path: &str) -> Option<&Document> {
        self.documents.iter().find(|document| document.path == path)
    }
}

fn read(root: &Path, path: &str) -> Result<String, String> {
    fs::read_to_string(root.join(path)).map_err(|error| format!("cannot read {path}: {error}"))
}

fn walk(root: &Path, folder: &str, paths: &mut BTreeSet<String>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot list {folder:?}: {error}");
    for entry in fs::read_dir(root.join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".cargo");
        if hidden || SKIPPED.contains(&name.as_str()) {
            continue;
        }
        let path = match folder {
            "" => name,
            _ => format!("{folder}/{name}"),
        };
        if entry.path().is_dir() {
            walk(root, &path, paths)?;
        }
        paths.insert(path);
    }
    Ok(())
}
