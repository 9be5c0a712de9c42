//! Sentences of documents and comments, for the rule about plain words (docs/guide/develop.md, "Plain
//! words"). Tables, headings, fenced blocks and code between backquotes are no prose.

/// A paragraph, or an item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paragraph {
    /// Where it begins.
    pub line: usize,
    /// Follows a heading, or begins a comment of documentation.
    pub is_first: bool,
    /// Its words, of several lines.
    pub text: String,
}

/// A comment: lines of one kind without code between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// `//!`, `///` or `//`.
    pub marker: &'static str,
    /// Where it begins.
    pub line: usize,
    /// Its lines without the marker.
    pub lines: Vec<String>,
}

/// Paragraphs of `lines`, the first of which has the number `from`.
pub fn paragraphs<'l>(from: usize, lines: impl Iterator<Item = &'l str>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let (mut is_inside, mut is_first, mut is_fenced) = (false, true, false);
    for (line, content) in (from..).zip(lines) {
        let content = content.trim();
        let is_fence = content.starts_with("```");
        is_fenced ^= is_fence;
        if is_fence || is_fenced || content.is_empty() || content.starts_with('|') {
            is_inside = false;
            continue;
        }
        if content.starts_with('#') {
            (is_inside, is_first) = (false, true);
            continue;
        }
        match found.last_mut().filter(|_| is_inside && !is_item(content)) {
            Some(paragraph) => paragraph.text = format!("{} {content}", paragraph.text),
            None => found.push(Paragraph {
                line,
                is_first: std::mem::take(&mut is_first),
                text: content.to_owned(),
            }),
        }
        is_inside = true;
    }
    found
}

fn is_item(content: &str) -> bool {
    let number = content.trim_start_matches(|c: char| c.is_ascii_digit());
    content.starts_with("- ")
        || content.starts_with("* ")
        || (number.len() < content.len() && number.starts_with(". "))
}

/// The sentences of a paragraph.
pub fn sentences(text: &str) -> Vec<String> {
    let plain = without_code(text);
    let mut sentences = vec![String::new()];
    let mut words = plain.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if let Some(sentence) = sentences.last_mut() {
            sentence.push_str(word);
            sentence.push(' ');
        }
        let next = words.peek().and_then(|next| next.chars().next());
        if ends_sentence(word) && next.is_some_and(|next| !next.is_lowercase()) {
            sentences.push(String::new());
        }
    }
    sentences.retain(|sentence| !sentence.is_empty());
    sentences
}

fn ends_sentence(word: &str) -> bool {
    let bare = word.trim_end_matches(['*', ')', '"', '”', '_']);
    bare.ends_with(['.', '!', '?'])
}

/// Each piece of code as one word.
fn without_code(text: &str) -> String {
    let mut plain = String::new();
    for (number, part) in text.split('`').enumerate() {
        plain.push_str(if number % 2 == 0 { part } else { "code" });
    }
    plain
}

/// How many words a sentence has; signs between spaces are none.
pub fn words(sentence: &str) -> usize {
    let words = sentence.split_whitespace();
    words
        .filter(|word| word.contains(char::is_alphanumeric))
        .count()
}

/// The comments of a source that stand on lines of their own.
pub fn comments(text: &str) -> Vec<Comment> {
    let mut found: Vec<Comment> = Vec::new();
    let mut is_inside = false;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim_start();
        let marker = ["//!", "///", "//"]
            .into_iter()
            .find(|marker| content.starts_with(marker));
        let Some(marker) = marker else {
            is_inside = false;
            continue;
        };
        let words = content[marker.len()..].trim().to_owned();
        let last = found.last_mut();
        match last.filter(|last| is_inside && last.marker == marker) {
            Some(comment) => comment.lines.push(words),
            None => found.push(Comment {
                marker,
                line,
                lines: vec![words],
            }),
        }
        is_inside = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_where_the_next_begins() {
        let text = "One, e.g. this `a. B c` here. (Two is short.) Is it? 3 files";
        let counts: Vec<usize> = sentences(text).iter().map(|one| words(one)).collect();
        assert_eq!(counts, [5, 3, 2, 2]);
    }

    #[test]
    fn paragraphs_are_without_tables_headings_and_fences() {
        let text = "# A\nfirst\nline\n- an item\n  of two lines\n| a | b |\n```\nno\n```\n\nlast";
        let found = paragraphs(1, text.lines());
        let lines: Vec<_> = found.iter().map(|one| (one.line, one.is_first)).collect();
        assert_eq!(lines, [(2, true), (4, false), (11, false)]);
        assert_eq!(found[1].text, "- an item of two lines");
    }

    #[test]
    fn comments_are_lines_of_one_kind() {
        let text = "//! A.\n//! B.\n\nuse x; // no\n/// C.\n// D.\nfn f() {}\n";
        let found = comments(text);
        let kinds: Vec<_> = found
            .iter()
            .map(|one| (one.marker, one.lines.len()))
            .collect();
        assert_eq!(kinds, [("//!", 2), ("///", 1), ("//", 1)]);
    }
}
