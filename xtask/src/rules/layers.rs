//! The direction of dependencies: the whole house in one table.

use crate::finding::Finding;
use crate::metadata::{Crate, Dependency, Workspace};

/// Which crates a crate may depend on: those of the layers below, and the siblings named here. What
/// is not named may not be.
struct Place {
    name: &'static str,
    layer: u8,
    siblings: &'static [&'static str],
}

const fn place(name: &'static str, layer: u8, siblings: &'static [&'static str]) -> Place {
    Place {
        name,
        layer,
        siblings,
    }
}

const PLACES: &[Place] = &[
    place("threads", 0, &[]),
    place("base", 0, &[]),
    place("layout", 1, &[]),
    place("wire", 1, &["layout"]),
    place("memory", 1, &[]),
    place("awake", 1, &[]),
    place("handover", 1, &[]),
    place("allocator", 1, &[]),
    place("storage", 1, &["memory", "allocator"]),
    place("dlm", 2, &[]),
    place("rpc", 2, &[]),
    // The servers and the client speak only through `wire`.
    place("mds", 3, &[]),
    place("oss", 3, &[]),
    place("client", 3, &[]),
    place("fuse", 4, &[]),
    place("bench", 4, &[]),
    place("cli", 4, &["fuse", "bench"]),
    // Everything of ours that it tests, it runs as a process.
    place("mounted", 5, &[]),
    place("history", 5, &["mounted"]),
    // It runs the real client and servers together.
    place("sim", 5, &[]),
];

/// The oracle sees only what calls and answers are made of; tests of any crate may see the oracle.
const ORACLE: &str = "model";
const ORACLE_SEES: &[&str] = &["base", "layout", "wire"];

/// The gates see none of the product.
const GATES: &str = "xtask";

/// Crates of others that only these crates of ours may use, tests excepted.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("clap", &["cli"]),
    ("corosensei", &["sim"]),
    ("plotters", &["bench"]),
    ("redb", &["storage"]),
    ("rustix", &["cli", "model", "oss"]),
    ("syn", &[GATES]),
    ("tar", &["bench"]),
];

/// Compares every edge of the graph with the tables.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let crates = workspace.crates.iter();
    crates
        .flat_map(|one| edges(one).chain(unknown(one)))
        .collect()
}

fn manifest(one: &Crate) -> String {
    format!("{}/Cargo.toml", one.folder)
}

fn unknown(one: &Crate) -> Option<Finding> {
    let known = find(&one.name).is_some() || [ORACLE, GATES].contains(&one.name.as_str());
    let what = format!(
        "`{}` has no layer; add it to xtask/src/rules/layers.rs",
        one.name
    );
    (!known).then(|| Finding::new(&manifest(one), 0, what))
}

fn find(name: &str) -> Option<&'static Place> {
    PLACES.iter().find(|place| place.name == name)
}

fn edges(one: &Crate) -> impl Iterator<Item = Finding> {
    one.dependencies.iter().filter_map(|to| {
        let refused = match to.is_ours() {
            true => !may_see(one, to),
            false => !may_use(one, to),
        };
        let what = format!(
            "`{}` may not depend on `{}`; move what is needed down a layer",
            one.name, to.name
        );
        refused.then(|| Finding::new(&manifest(one), 0, what))
    })
}

fn may_see(one: &Crate, to: &Dependency) -> bool {
    if one.name == ORACLE {
        return ORACLE_SEES.contains(&to.name.as_str());
    }
    if to.name == ORACLE {
        return to.is_for_tests();
    }
    match (find(&one.name), find(&to.name)) {
        (Some(from), Some(to)) => to.layer < from.layer || from.siblings.contains(&to.name),
        _ => false,
    }
}

fn may_use(one: &Crate, to: &Dependency) -> bool {
    let rule = LIBRARIES.iter().find(|(library, _)| *library == to.name);
    rule.is_none_or(|(_, users)| users.contains(&one.name.as_str()) || to.is_for_tests())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(from: &str, to: &str, ours: bool, kind: Option<&str>) -> usize {
        let dependency = Dependency {
            name: to.to_owned(),
            kind: kind.map(str::to_owned),
            path: ours.then(|| format!("/x/{to}")),
        };
        let one = Crate {
            name: from.to_owned(),
            folder: format!("crates/{from}"),
            dependencies: vec![dependency],
        };
        check(&Workspace { crates: vec![one] }).len()
    }

    #[test]
    fn dependencies_point_down() {
        assert_eq!(findings("mds", "dlm", true, None), 0);
        assert_eq!(findings("dlm", "mds", true, None), 1);
        assert_eq!(findings("wire", "layout", true, None), 0);
        assert_eq!(findings("layout", "wire", true, None), 1);
    }

    #[test]
    fn servers_and_client_never_see_each_other_even_in_tests() {
        for (from, to) in [("mds", "oss"), ("client", "mds"), ("oss", "client")] {
            assert_eq!(findings(from, to, true, None), 1, "{from} -> {to}");
            assert_eq!(findings(from, to, true, Some("dev")), 1, "{from} -> {to}");
        }
    }

    #[test]
    fn the_oracle_is_for_tests() {
        assert_eq!(findings("mds", ORACLE, true, Some("dev")), 0);
        assert_eq!(findings("mds", ORACLE, true, None), 1);
        assert_eq!(findings(ORACLE, "mds", true, None), 1);
    }

    #[test]
    fn libraries_have_owners_and_crates_have_layers() {
        assert_eq!(findings("mds", "redb", false, None), 1);
        assert_eq!(findings("storage", "redb", false, None), 0);
        assert_eq!(findings("mds", "serde", false, None), 0);
        assert_eq!(findings("novel", "serde", false, None), 1);
    }
}
