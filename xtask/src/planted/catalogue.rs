//! The list of planted bugs: text files that say which lines of a source are replaced by which.

use std::fs;
use std::path::Path;

/// Where the list is.
const FOLDER: &str = "crates/sim/planted";

/// One bug.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bug {
    /// What it is called by.
    pub name: String,
    /// The source, relative to the workspace.
    pub path: String,
    /// What is not true any more.
    pub breaks: String,
    old: String,
    new: String,
}

impl Bug {
    /// The crate it is in.
    pub fn krate(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }

    /// The source with the bug in it.
    pub fn plant(&self, source: &str) -> Result<String, String> {
        let Bug { name, path, .. } = self;
        match source.matches(&self.old).count() {
            1 => Ok(source.replacen(&self.old, &self.new, 1)),
            count => Err(format!(
                "{path}: the lines that {name} replaces are there {count} times, not once; \
                 bring {FOLDER} up to date"
            )),
        }
    }
}

/// The whole list, by file and place.
pub fn read(root: &Path) -> Result<Vec<Bug>, String> {
    let failed = |error: std::io::Error| format!("cannot read {FOLDER}: {error}");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER)).map_err(failed)? {
        files.push(entry.map_err(failed)?.path());
    }
    files.sort();
    let mut bugs: Vec<Bug> = Vec::new();
    for file in files {
        let shown = file.strip_prefix(root).unwrap_or(&file).display();
        for bug in parse(
            &shown.to_string(),
            &fs::read_to_string(&file).map_err(failed)?,
        )? {
            if bugs.iter().any(|known| known.name == bug.name) {
                return Err(format!("{shown}: {} is the name of two bugs", bug.name));
            }
            bugs.push(bug);
        }
    }
    Ok(bugs)
}

/// Reads the bugs of one file of the list. Empty lines and lines with a `#` in front count between bugs only.
///
/// ```text
/// bug NAME
/// in crates/…/src/….rs
/// breaks what is not true any more
/// <<<
/// lines of the source, which are there once
/// ===
/// what stands there instead
/// >>>
/// ```
pub fn parse(file: &str, text: &str) -> Result<Vec<Bug>, String> {
    let (mut bugs, mut lines) = (Vec::new(), (1..).zip(text.lines()));
    while let Some((at, line)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("{file}:{at}: {what}");
        let mut field = |first: Option<&str>, word: &str| {
            let line = first.or_else(|| lines.next().map(|(_, line)| line));
            let value = line.and_then(|line| line.strip_prefix(word)?.strip_prefix(' '));
            let value = value.filter(|value| !value.trim().is_empty());
            value
                .map(str::to_owned)
                .ok_or_else(|| wrong(&format!("a bug begins here without its line {word:?}")))
        };
        let mut bug = Bug {
            name: field(Some(line), "bug")?,
            path: field(None, "in")?,
            breaks: field(None, "breaks")?,
            ..Bug::default()
        };
        let mut lines_until = |end: &str| {
            let mut block = String::new();
            for (_, line) in lines.by_ref() {
                match line {
                    _ if line == end => return Ok(block),
                    "<<<" | "===" | ">>>" => break,
                    _ => block += line,
                }
                block.push('\n');
            }
            Err(wrong(&format!("a bug begins here without its {end}")))
        };
        if !lines_until("<<<")?.is_empty() {
            return Err(wrong("behind what this bug breaks there is no <<<"));
        }
        (bug.old, bug.new) = (lines_until("===")?, lines_until(">>>")?);
        if bug.old.trim().is_empty() || bug.old == bug.new {
            return Err(wrong("this bug replaces nothing, or leaves it as it is"));
        }
        bugs.push(bug);
    }
    Ok(bugs)
}

/// Two bugs.
#[cfg(test)]
pub const EXAMPLE: &str = "\
# Why.
bug first
in crates/dlm/src/lib.rs
breaks the sum
<<<
    a + b
===
    a - b
>>>

bug second
in crates/rpc/src/lib.rs
breaks the call
<<<
    call();
===
>>>
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_bug_is_planted_where_its_lines_are_there_once() {
        let bugs = parse("x.txt", EXAMPLE).unwrap();
        assert_eq!((bugs[0].krate(), bugs[1].krate()), ("dlm", "rpc"));
        let planted = bugs[0].plant("fn f() {\n    a + b\n}\n").unwrap();
        assert_eq!(planted, "fn f() {\n    a - b\n}\n");
        assert_eq!(bugs[1].plant("    call();\n").unwrap(), "");
        for source in ["", "    a + b\n    a + b\n", "        a +\nb\n"] {
            let error = bugs[0].plant(source).unwrap_err();
            assert!(error.contains("first") && error.contains("dlm/src/lib.rs"));
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        for (from, to) in [
            ("in crates/dlm/src/lib.rs\n", ""),
            ("breaks the sum", "breaks "),
            ("<<<\n    a", "    a"),
            ("===\n    a - b\n", ""),
            ("a - b", "a + b"),
        ] {
            let error = parse("x.txt", &EXAMPLE.replacen(from, to, 1)).unwrap_err();
            assert!(error.starts_with("x.txt:2: "), "{from:?}: {error}");
        }
        let open = EXAMPLE.trim_end().trim_end_matches(">>>");
        assert!(parse("x.txt", open).is_err());
    }

    #[test]
    fn every_planted_bug_is_in_the_tree_once_and_each_core_has_some() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let bugs = read(root).unwrap();
        let mut of_crate: BTreeMap<&str, usize> = BTreeMap::new();
        for bug in &bugs {
            let source = fs::read_to_string(root.join(&bug.path));
            let source = source.unwrap_or_else(|error| panic!("{}: {error}", bug.path));
            bug.plant(&source).unwrap();
            *of_crate.entry(bug.krate()).or_default() += 1;
        }
        assert!(bugs.len() >= 25, "{} bugs", bugs.len());
        for krate in ["dlm", "rpc", "mds", "client"] {
            assert!(of_crate.get(krate) >= Some(&4), "{krate}: {of_crate:?}");
        }
    }
}
