//! What processes that were killed have left behind, known by their ids in its names.

use std::fs;
use std::path::{Path, PathBuf};

/// Entries of `directory` named `<prefix><pid>-…` whose process is gone. None if it cannot be read.
pub(crate) fn left_behind(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| is_stale(name, prefix))
        })
        .map(|entry| entry.path())
        .collect()
}

fn is_stale(name: &str, prefix: &str) -> bool {
    let pid = name
        .strip_prefix(prefix)
        .and_then(|rest| rest.split('-').next())
        .and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_processes_are_stale() {
        let stale = |name: &str| is_stale(name, "glint-");
        assert!(!stale(&format!("glint-{}-0a", std::process::id())));
        // Above the kernel's largest process id.
        assert!(stale("glint-4194305-0a"));
        assert!(!stale("glint-x-a"));
        assert!(!stale("other-4194305-a"));
    }
}
