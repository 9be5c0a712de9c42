//! Within a crate, files import each other downwards only: a file never imports, even through others, a file
//! that imports it.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::repository::{ALLOWANCES, Repository};
use crate::source::Source;

/// From a file to one that it imports something of.
pub(super) type Arrow<'a> = (&'a str, &'a str);
/// Where the arrow is drawn first.
pub(super) type Arrows<'a> = BTreeMap<Arrow<'a>, usize>;

/// Names the arrows that close circles and are not on the list, and those on it that close none.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let arrows = arrows(&repository.sources);
    let listed = listed(&repository.allowances);
    let mut left = arrows.clone();
    left.retain(|arrow, _| !listed.contains_key(arrow));
    let closing = closing(&left).into_iter().map(|arrow| {
        let what = format!(
            "imports {}, which needs this file; move what is needed to a file below both",
            arrow.1
        );
        Finding::new(arrow.0, left[&arrow], what)
    });
    let idle = listed.iter().filter(|(arrow, _)| {
        let closes = reached(&left, arrow.1).contains(arrow.0);
        !arrows.contains_key(*arrow) || !closes
    });
    let idle = idle.map(|((from, to), line)| {
        let what = format!("{from} {to} closes no circle any more; remove the line");
        Finding::new(ALLOWANCES, *line, what)
    });
    closing.chain(idle).collect()
}

/// Lines `arrow FROM TO` of the list of exceptions, and where they are.
fn listed(allowances: &str) -> Arrows<'_> {
    let mut listed = Arrows::new();
    for (line, content) in (1..).zip(allowances.lines()) {
        let words: Vec<&str> = content.split_whitespace().collect();
        if let ["arrow", from, to] = words[..] {
            listed.insert((from, to), line);
        }
    }
    listed
}

/// The modules of all crates: crate and path of names, and the file.
type Modules<'a> = BTreeMap<(&'a str, Vec<&'a str>), &'a str>;

/// Crate and names of the module that a file is; programs beside the crate's root are none.
fn module_of(path: &str) -> Option<(&str, Vec<&str>)> {
    let (home, inner) = path.split_once("/src/")?;
    let mut names: Vec<&str> = inner.strip_suffix(".rs")?.split('/').collect();
    if names[0] == "bin" {
        return None;
    }
    if let Some(&("mod" | "lib" | "main")) = names.last() {
        names.pop();
    }
    Some((home, names))
}

pub(super) fn arrows(sources: &[Source]) -> Arrows<'_> {
    let tests: BTreeSet<String> = sources.iter().flat_map(Source::test_module_files).collect();
    let product = || {
        let product = sources
            .iter()
            .filter(|s| !s.is_test && !tests.contains(&s.path));
        product.filter_map(|source| Some((source, module_of(&source.path)?)))
    };
    let modules: Modules = product()
        .map(|(source, module)| (module, source.path.as_str()))
        .collect();
    let mut arrows = Arrows::new();
    for (source, (home, names)) in product() {
        for mention in &source.mentions {
            let to = target(&modules, home, &names, &mention.path);
            if let Some(to) = to.filter(|to| *to != source.path) {
                arrows.entry((&source.path, to)).or_insert(mention.line);
            }
        }
    }
    arrows
}

/// The file of this crate that has what a path names, as far as modules go.
fn target<'a>(modules: &Modules<'a>, home: &str, own: &[&str], path: &str) -> Option<&'a str> {
    let mut words = path.split("::").peekable();
    let mut names = own.to_vec();
    let is_rooted = match *words.peek()? {
        "crate" => {
            names.clear();
            words.next().is_some()
        }
        "self" => words.next().is_some(),
        "super" => true,
        _ => false,
    };
    if !path.contains("::") {
        // Declared, or no module at all.
        return None;
    }
    while words.next_if_eq(&"super").is_some() {
        names.pop()?;
    }
    let mut file = modules.get(&(home, names.clone()));
    let from = names.len();
    for word in words {
        names.push(word);
        match modules.get(&(home, names.clone())) {
            Some(found) => file = Some(found),
            None => break,
        }
    }
    // A path that begins with a name is of another crate, unless that is a module below.
    let is_below = names.len() > from && modules.contains_key(&(home, names[..=from].to_vec()));
    file.copied().filter(|_| is_rooted || is_below)
}

/// All that is reached from a file.
fn reached<'a>(arrows: &Arrows<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = vec![from];
    while let Some(file) = next.pop() {
        for (_, to) in arrows.keys().filter(|(from, _)| *from == file) {
            if found.insert(*to) {
                next.push(to);
            }
        }
    }
    found
}

/// Few arrows without which there is no circle. Files of a circle are put in a row, those that import most
/// and are imported least first (Eades, Lin and Smyth 1993); what points back closes a circle.
fn closing<'a>(arrows: &Arrows<'a>) -> Vec<Arrow<'a>> {
    let files: BTreeSet<&str> = arrows.keys().flat_map(|(from, to)| [*from, *to]).collect();
    let reach: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|file| (*file, reached(arrows, file)))
        .collect();
    let is_closed = |(from, to): &Arrow| reach[to].contains(from);
    let mut left: BTreeSet<Arrow> = arrows.keys().copied().filter(is_closed).collect();
    let mut row: Vec<&str> = Vec::new();
    let inside = left.clone();
    while !left.is_empty() {
        let degree = |file: &str| {
            let out = left.iter().filter(|(from, _)| *from == file).count();
            let into = left.iter().filter(|(_, to)| *to == file).count();
            (into == 0, out as i64 - into as i64)
        };
        let waiting: BTreeSet<&str> = left.iter().flat_map(|(from, to)| [*from, *to]).collect();
        // Of several the last counts.
        let first = waiting.into_iter().rev().max_by_key(|file| degree(file));
        row.extend(first);
        left.retain(|(from, to)| Some(*from) != first && Some(*to) != first);
    }
    let place = |file: &str| row.iter().position(|one| *one == file).unwrap_or(row.len());
    let back = inside
        .into_iter()
        .filter(|(from, to)| place(from) > place(to));
    back.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    fn found(files: &[(&str, &str)], allowances: &str) -> Vec<String> {
        let mut repository = repository(files);
        repository.allowances = allowances.to_owned();
        let findings = check(&repository);
        findings.iter().map(ToString::to_string).collect()
    }

    const CIRCLE: [(&str, &str); 4] = [
        ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
        (
            "crates/x/src/a.rs",
            "use crate::b::c::C;\npub struct A(C);\n",
        ),
        ("crates/x/src/b/mod.rs", "pub mod c;\n"),
        (
            "crates/x/src/b/c.rs",
            "pub struct C;\nfn f(_: super::super::a::A) {}\n",
        ),
    ];

    #[test]
    fn a_circle_is_named_by_an_arrow_that_closes_it() {
        let found = found(&CIRCLE, "");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/x/src/b/c.rs:2: imports crates/x/src/a.rs"));
    }

    #[test]
    fn tests_may_import_what_is_above() {
        let mut files = CIRCLE;
        files[3].1 = "pub struct C;\n#[cfg(test)]\nmod tests {\n use crate::a::A;\n}\n";
        assert_eq!(found(&files, ""), Vec::<String>::new());
    }

    #[test]
    fn the_list_has_what_closes_a_circle_and_nothing_else() {
        let listed = "arrow crates/x/src/b/c.rs crates/x/src/a.rs\n";
        assert_eq!(found(&CIRCLE, listed), Vec::<String>::new());
        let more = format!("{listed}arrow crates/x/src/lib.rs crates/x/src/a.rs\n");
        let found = found(&CIRCLE, &more);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(":2: ") && found[0].contains("closes no circle"));
    }

    #[test]
    fn a_word_of_elsewhere_is_no_import() {
        let files = [
            (
                "crates/x/src/a.rs",
                "fn f() { let c = 1; std::mem::drop(c); }\n",
            ),
            ("crates/x/src/a/c.rs", "use super::f;\n"),
        ];
        assert_eq!(found(&files, ""), Vec::<String>::new());
    }
}
