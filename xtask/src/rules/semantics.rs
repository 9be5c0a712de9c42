//! Every promise of SEMANTICS.md has an id that a test names, and tests name no other ids.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::repository::Repository;
use crate::source::Source;

const PATH: &str = "SEMANTICS.md";
/// In a comment or string: this, then ids apart by commas or spaces.
const MARK: &str = "SEMANTICS:";
/// At the end of a heading: the promise is not proved, and the document says so.
const UNPROVED: &str = "(no test yet)";

/// Compares the headings `### area.name` with what sources name.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let Some(document) = repository.document(PATH) else {
        return vec![Finding::new(
            PATH,
            0,
            "is not there; write what is promised",
        )];
    };
    let headings = document.headings.iter().filter_map(|heading| {
        let id = heading.text.split([' ', ':']).next()?;
        let admitted = heading.text.ends_with(UNPROVED);
        is_id(id).then_some((id, (heading.line, admitted)))
    });
    let promised: BTreeMap<&str, (usize, bool)> = headings.collect();
    let sources = repository.sources.iter();
    let named: Vec<Named> = sources.flat_map(named).collect();
    let unproved = promised.iter().filter_map(|(id, (line, admitted))| {
        let proved = named.iter().any(|named| named.by_a_test && named.id == *id);
        let what = match admitted {
            true => format!("a test names `{id}`; take `{UNPROVED}` away"),
            false => format!("no test names `{id}`; write one with `// {MARK} {id}`"),
        };
        (proved == *admitted).then(|| Finding::new(PATH, *line, what))
    });
    let unknown = named.iter().filter_map(|named| {
        let known = promised.contains_key(named.id);
        let what = format!(
            "{PATH} has no section `{}`; add it or mend the id",
            named.id
        );
        (!known).then(|| Finding::new(named.path, named.line, what))
    });
    unproved.chain(unknown).collect()
}

struct Named<'a> {
    id: &'a str,
    path: &'a str,
    line: usize,
    by_a_test: bool,
}

fn named(source: &Source) -> Vec<Named<'_>> {
    let lines = (1..).zip(source.text.lines());
    let marked = lines.filter_map(|(line, text)| Some((line, text.split_once(MARK)?.1)));
    marked
        .flat_map(|(line, rest)| {
            words(rest).map(move |id| Named {
                id,
                path: &source.path,
                line,
                by_a_test: source.is_test_line(line),
            })
        })
        .collect()
}

/// The ids that `rest` begins with.
fn words(rest: &str) -> impl Iterator<Item = &str> {
    let parts = rest
        .split([' ', ',', '"', ';', ')'])
        .map(|word| word.trim_matches('.'));
    parts
        .filter(|word| !word.is_empty())
        .take_while(|word| is_id(word))
}

/// `area.name`, lower case.
fn is_id(word: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    word.split_once('.')
        .is_some_and(|(area, name)| plain(area) && plain(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    #[test]
    fn promises_without_tests_and_tests_without_promises_are_found() {
        let document = "### op.rename: moves\n\n### op.link\n\n### Plain words\n\n\
                        ### op.later (no test yet)\n\n### op.done (no test yet)\n";
        let mark = MARK;
        let test = format!("//! T.\n// {mark} op.rename, op.gone, op.done and more words\n");
        let product = format!("//! P.\n// {mark} op.link\n");
        let files = [
            (PATH, document),
            ("crates/x/tests/t.rs", &test),
            ("crates/x/src/p.rs", &product),
        ];
        let findings = check(&repository(&files));
        let said: Vec<_> = findings.iter().map(|f| (f.line, f.what.as_str())).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].0 == 9 && said[0].1.contains("op.done"));
        assert!(said[1].0 == 3 && said[1].1.contains("op.link"));
        assert!(said[2].0 == 2 && said[2].1.contains("op.gone"));
    }
}
