//! The lists of test programs name programs that exist.

use crate::finding::Finding;
use crate::program_list::names;
use crate::repository::Repository;

/// Looks for the source of each program that a list names, and for the target of each `make TARGET`.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let lists = repository.program_lists.iter();
    lists
        .flat_map(|(path, text)| {
            names(text).filter_map(move |(line, name)| {
                let what = match name {
                    Ok(name) if exists(repository, name) => return None,
                    Ok(name) => format!("no test program is called {name}; correct or remove it"),
                    Err(entry) => format!("{entry:?} is not `NAME: reason`; give the reason"),
                };
                Some(Finding::new(path, line, what))
            })
        })
        .collect()
}

/// `CRATE::TARGET` is a file below the crate's `tests`, `CRATE` the crate's own tests.
fn exists(repository: &Repository, name: &str) -> bool {
    if let Some(target) = name.strip_prefix("make ") {
        let rule = format!("{target}:");
        return repository
            .makefile
            .lines()
            .any(|line| line.starts_with(&rule));
    }
    let ends = match name.split_once("::") {
        Some((package, target)) => vec![
            format!("/{package}/tests/{target}.rs"),
            format!("/{package}/tests/{target}/main.rs"),
        ],
        None => vec![format!("/{name}/Cargo.toml")],
    };
    let mut paths = repository.paths.iter();
    paths.any(|path| ends.iter().any(|end| format!("/{path}").ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    #[test]
    fn names_of_no_program_are_found() {
        let mut repository = repository(&[
            ("tests/mounted/tests/pairs.rs", "//! A.\n"),
            ("tests/mounted/tests/listings/main.rs", "//! A.\n"),
        ]);
        repository.paths.insert("xtask/Cargo.toml".to_owned());
        repository.makefile = "check: build\n\tcargo check\n".to_owned();
        let list = "# why\n\nmounted::pairs: it waits\nmounted::listings: so does this\nxtask: builds\n\
                    make check: too\n";
        repository.program_lists.insert(".ci/long", list.to_owned());
        assert_eq!(check(&repository), []);
        let list = "mounted::pair: it waits\nmounted::pairs\nmounted::pairs: \nmake chec: builds\nmounted: not\n";
        repository.program_lists.insert(".ci/long", list.to_owned());
        let found = check(&repository);
        let places: Vec<_> = found.iter().map(|finding| finding.line).collect();
        assert_eq!(places, [1, 2, 3, 4, 5]);
        assert!(found[0].what.contains("mounted::pair;"));
        assert!(found[1].what.contains("reason"));
    }
}
