//! Plain words: lines, sentences, opening comments and decisions have a length that a reader can follow.
//! Files that are longer are listed in `xtask/allow-prose.txt`, which may only shrink.

use std::collections::BTreeMap;

use crate::document::Document;
use crate::finding::Finding;
use crate::prose::{Comment, comments, paragraphs, sentences, words};
use crate::repository::{PROSE_ALLOWANCES, Repository};
use crate::source::Source;

/// Characters of a line of prose.
const LINE_MAX: usize = 110;
/// Words of any sentence, and of the first one of a section or of a comment.
const SENTENCE_MAX: usize = 40;
const FIRST_MAX: usize = 25;
/// Lines of a file's opening comment.
const OPENING_MAX: usize = 3;
/// Lines of a decision: a page.
const DECISION_MAX: usize = 60;
/// Of so many places a finding says where they are.
const PLACES_SHOWN: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Wide,
    Long,
    First,
    Opening,
    Decision,
}

impl Kind {
    const ALL: [Kind; 5] = [
        Kind::Wide,
        Kind::Long,
        Kind::First,
        Kind::Opening,
        Kind::Decision,
    ];

    /// Its word in the list of exceptions.
    fn word(self) -> &'static str {
        match self {
            Kind::Wide => "wide",
            Kind::Long => "long",
            Kind::First => "first",
            Kind::Opening => "opening",
            Kind::Decision => "decision",
        }
    }

    fn what(self) -> String {
        match self {
            Kind::Wide => format!("lines of prose over {LINE_MAX} characters; wrap them"),
            Kind::Long => format!("sentences over {SENTENCE_MAX} words; take them apart"),
            Kind::First => {
                format!("first sentences over {FIRST_MAX} words; name the thing, then stop")
            }
            Kind::Opening => {
                format!("lines of the opening comment over {OPENING_MAX}; move them to docs/")
            }
            Kind::Decision => {
                format!("lines over a page of {DECISION_MAX}; move them to docs/measurements/")
            }
        }
    }
}

/// Where prose is too long, by kind and file.
type Places<'a> = BTreeMap<(Kind, &'a str), Vec<usize>>;

/// Compares all prose with the limits and the list.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let mut places = Places::new();
    for document in repository.documents.iter().filter(|one| !is_history(one)) {
        measure_document(document, &mut places);
    }
    for source in &repository.sources {
        measure_source(source, &mut places);
    }
    let (listed, mut findings) = parse(&repository.prose_allowances);
    for ((kind, path), lines) in &places {
        let allowed = listed.get(&(*kind, *path)).map_or(0, |(count, _)| *count);
        if lines.len() > allowed {
            findings.push(too_many(*kind, path, lines, allowed));
        }
    }
    for ((kind, path), (allowed, line)) in &listed {
        let count = places.get(&(*kind, *path)).map_or(0, Vec::len);
        if count < *allowed {
            let what = format!(
                "{} {path} has shrunk to {count}; lower the number",
                kind.word()
            );
            findings.push(Finding::new(PROSE_ALLOWANCES, *line, what));
        }
    }
    findings
}

/// Old entries of the list of changes stay as they were published.
fn is_history(document: &Document) -> bool {
    document.path == "CHANGELOG.md"
}

fn too_many(kind: Kind, path: &str, lines: &[usize], allowed: usize) -> Finding {
    let shown = lines.iter().take(PLACES_SHOWN).map(usize::to_string);
    let shown = shown.collect::<Vec<_>>().join(", ");
    let what = format!(
        "{} {}: {} (allowed: {allowed}; lines {shown}, …)",
        kind.word(),
        lines.len(),
        kind.what()
    );
    Finding::new(path, lines.first().copied().unwrap_or_default(), what)
}

fn measure_document<'a>(document: &'a Document, places: &mut Places<'a>) {
    let path = document.path.as_str();
    let mut note = |kind, line| places.entry((kind, path)).or_default().push(line);
    let mut is_fenced = false;
    for (line, content) in (1..).zip(document.text.lines()) {
        is_fenced ^= content.trim_start().starts_with("```");
        let is_prose = !is_fenced && !content.starts_with('|');
        if is_prose && content.chars().count() > LINE_MAX {
            note(Kind::Wide, line);
        }
        if path.starts_with("docs/adr/") && line > DECISION_MAX {
            note(Kind::Decision, line);
        }
    }
    for paragraph in paragraphs(1, document.text.lines()) {
        let sentences = sentences(&paragraph.text);
        for (number, sentence) in sentences.iter().enumerate() {
            let count = words(sentence);
            if count > SENTENCE_MAX {
                note(Kind::Long, paragraph.line);
            } else if paragraph.is_first && number == 0 && count > FIRST_MAX {
                note(Kind::First, paragraph.line);
            }
        }
    }
}

fn measure_source<'a>(source: &'a Source, places: &mut Places<'a>) {
    let path = source.path.as_str();
    let mut note = |kind, line| places.entry((kind, path)).or_default().push(line);
    for (line, content) in (1..).zip(source.text.lines()) {
        let is_comment = content.trim_start().starts_with("//");
        if is_comment && content.chars().count() > LINE_MAX {
            note(Kind::Wide, line);
        }
    }
    for comment in comments(&source.text) {
        measure_comment(&comment, &mut note);
    }
}

fn measure_comment(comment: &Comment, note: &mut impl FnMut(Kind, usize)) {
    if comment.line == 1 && comment.marker == "//!" {
        let lines = (1..).zip(&comment.lines);
        let lines = lines.filter(|(_, line)| !line.is_empty()).skip(OPENING_MAX);
        lines.for_each(|(line, _)| note(Kind::Opening, line));
    }
    let is_documentation = comment.marker != "//";
    for paragraph in paragraphs(comment.line, comment.lines.iter().map(String::as_str)) {
        for (number, sentence) in sentences(&paragraph.text).iter().enumerate() {
            let is_first = is_documentation && paragraph.line == comment.line && number == 0;
            let count = words(sentence);
            if count > SENTENCE_MAX {
                note(Kind::Long, paragraph.line);
            } else if is_first && count > FIRST_MAX {
                note(Kind::First, paragraph.line);
            }
        }
    }
}

/// How many places of a kind a file may have, and the line that says so.
type Listed<'a> = BTreeMap<(Kind, &'a str), (usize, usize)>;

/// Lines are `KIND PATH COUNT`, empty, or begin with `#`.
fn parse(text: &str) -> (Listed<'_>, Vec<Finding>) {
    let (mut listed, mut findings) = (Listed::new(), Vec::new());
    for (line, content) in (1..).zip(text.lines()) {
        let words: Vec<&str> = content.split_whitespace().collect();
        let entry = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [kind, path, count] => {
                let kind = Kind::ALL.into_iter().find(|one| one.word() == kind);
                kind.zip(count.parse().ok())
                    .map(|(kind, count)| (kind, path, count))
            }
            _ => None,
        };
        match entry {
            Some((kind, path, count)) => {
                listed.insert((kind, path), (count, line));
            }
            None => {
                let kinds = Kind::ALL.map(Kind::word).join(", ");
                let what = format!("is not `KIND PATH COUNT`; a kind is one of {kinds}");
                findings.push(Finding::new(PROSE_ALLOWANCES, line, what));
            }
        }
    }
    (listed, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    fn findings(path: &str, text: &str, allowances: &str) -> Vec<String> {
        let mut repository = repository(&[(path, text)]);
        repository.prose_allowances = allowances.to_owned();
        check(&repository).into_iter().map(|f| f.what).collect()
    }

    fn sentence(words: usize) -> String {
        format!("A{}.", " word".repeat(words - 1))
    }

    #[test]
    fn long_prose_of_documents_is_found() {
        let wide = format!("# A\nShort.\n\n{}\n", "x".repeat(LINE_MAX + 1));
        let long = format!(
            "# A\nShort.\n\nAn opening. {}\n",
            sentence(SENTENCE_MAX + 1)
        );
        let first = format!("# A\n\n{}\n", sentence(FIRST_MAX + 1));
        for (text, kind) in [
            (wide, "wide 1"),
            (long.replace(" word word", " word\nword"), "long 1"),
            (first, "first 1"),
        ] {
            let found = findings("docs/x.md", &text, "");
            assert!(
                found.iter().any(|what| what.starts_with(kind)),
                "{kind}: {found:?}"
            );
        }
        let page = "x.\n\n".repeat(DECISION_MAX);
        assert!(findings("docs/x.md", &page, "").is_empty());
        assert!(findings("docs/adr/1.md", &page, "")[0].starts_with("decision 60"));
        let table = format!("| {} |\n```\n{}\n```\n", "x".repeat(200), "y".repeat(200));
        assert!(findings("docs/x.md", &table, "").is_empty());
    }

    #[test]
    fn long_prose_of_comments_is_found() {
        let opening = "//! A.\n//! B.\n//!\n//! C.\n//! D.\n";
        assert!(findings("crates/x/src/y.rs", opening, "")[0].starts_with("opening 1"));
        let words = sentence(FIRST_MAX + 1).replace(" word word", " word\n/// word");
        let first = format!("//! A.\n/// {words}\nfn f() {{}}\n");
        assert!(findings("crates/x/src/y.rs", &first, "")[0].starts_with("first 1"));
        // A remark inside code may begin as it likes, but not go on for ever.
        let remark = first.replace("/// ", "// ");
        assert!(findings("crates/x/src/y.rs", &remark, "").is_empty());
        let words = sentence(SENTENCE_MAX + 1).replace(" word word", " word\n// word");
        let long = format!("//! A.\n// {words}\nfn f() {{}}\n");
        assert!(findings("crates/x/src/y.rs", &long, "")[0].starts_with("long 1"));
    }

    #[test]
    fn the_list_may_only_shrink() {
        let text = "//! A.\n//! B.\n//! C.\n//! D.\n";
        let path = "crates/x/src/y.rs";
        assert!(findings(path, text, &format!("# why\nopening {path} 1\n")).is_empty());
        assert!(findings(path, text, &format!("opening {path} 2\n"))[0].contains("lower"));
        assert!(findings(path, "//! A.\n", &format!("opening {path} 1\n"))[0].contains("lower"));
        assert!(findings(path, text, "opening x")[0].contains("KIND PATH COUNT"));
    }
}
