//! How long files and functions may be, and the list of exceptions, which may only shrink.

use std::collections::BTreeMap;

use crate::finding::Finding;
use crate::repository::{ALLOWANCES, Repository};
use crate::source::Source;

/// Lines of code in a file.
const FILE_MAX: usize = 800;
/// Lines of code in a function.
const FUNCTION_MAX: usize = 70;
/// Lines of tests inside a file of the product; more get a file of their own.
const INLINE_TESTS_MAX: usize = 200;

/// An exception: what, and how many lines it may have.
struct Allowance<'a> {
    line: usize,
    key: (&'a str, &'a str),
    lines: usize,
}

/// Compares all sizes with the limits and the list.
pub fn check(repository: &Repository) -> Vec<Finding> {
    let (allowances, mut findings) = parse(&repository.allowances);
    let mut sizes = BTreeMap::new();
    for source in &repository.sources {
        findings.extend(inline_tests(source));
        let lines = source.lines + if source.is_test { source.test_lines } else { 0 };
        note(&mut sizes, (&source.path, ""), lines, 0);
        for function in source.functions.iter().filter(|_| !source.is_test) {
            let key = (source.path.as_str(), function.name.as_str());
            note(&mut sizes, key, function.lines, function.line);
        }
    }
    findings.extend(allowances.iter().filter_map(|a| outdated(a, &sizes)));
    findings.extend(sizes.iter().filter_map(|(key, (lines, at))| {
        let listed = allowances.iter().any(|a| a.key == *key);
        (*lines > limit(key) && !listed).then(|| too_long(*key, *lines, *at))
    }));
    findings
}

type Sizes<'a> = BTreeMap<(&'a str, &'a str), (usize, usize)>;

/// Of several functions of one name in a file the longest counts.
fn note<'a>(sizes: &mut Sizes<'a>, key: (&'a str, &'a str), lines: usize, at: usize) {
    let size = sizes.entry(key).or_default();
    *size = (*size).max((lines, at));
}

fn limit((_, function): &(&str, &str)) -> usize {
    if function.is_empty() {
        FILE_MAX
    } else {
        FUNCTION_MAX
    }
}

fn too_long(key: (&str, &str), lines: usize, at: usize) -> Finding {
    let (path, function) = key;
    let what = match function {
        "" => format!("{lines} lines of code, at most {FILE_MAX}; find the second noun in it"),
        _ => format!("`{function}` has {lines} lines, at most {FUNCTION_MAX}; name its steps"),
    };
    Finding::new(path, at, what)
}

fn inline_tests(source: &Source) -> Option<Finding> {
    let long = !source.is_test && source.test_lines > INLINE_TESTS_MAX;
    let what = format!(
        "{} lines of tests inside, at most {INLINE_TESTS_MAX}; give them a file of their own",
        source.test_lines
    );
    long.then(|| Finding::new(&source.path, 0, what))
}

fn outdated(allowance: &Allowance, sizes: &Sizes) -> Option<Finding> {
    let (lines, _) = sizes.get(&allowance.key).copied().unwrap_or_default();
    let (path, function) = allowance.key;
    let what = if lines <= limit(&allowance.key) {
        format!("{path} {function} needs no exception any more; remove the line")
    } else if lines < allowance.lines {
        format!("{path} {function} has shrunk to {lines}; lower the number")
    } else if lines > allowance.lines {
        format!("{path} {function} has grown to {lines}; the list may only shrink")
    } else {
        return None;
    };
    Some(Finding::new(ALLOWANCES, allowance.line, what))
}

/// Lines are `file PATH LINES`, `function PATH NAME LINES`, empty, or begin with `#`.
fn parse(text: &str) -> (Vec<Allowance<'_>>, Vec<Finding>) {
    let (mut allowances, mut findings) = (Vec::new(), Vec::new());
    for (line, content) in (1..).zip(text.lines()) {
        let words: Vec<&str> = content.split_whitespace().collect();
        let (key, lines) = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            // Of imports.
            ["arrow", _, _] => continue,
            ["file", path, lines] => ((path, ""), lines.parse()),
            ["function", path, name, lines] => ((path, name), lines.parse()),
            _ => (("", ""), "".parse()),
        };
        match lines {
            Ok(lines) => allowances.push(Allowance { line, key, lines }),
            Err(_) => findings.push(Finding::new(
                ALLOWANCES,
                line,
                "is neither `file PATH LINES`, `function PATH NAME LINES` nor `arrow FROM TO`",
            )),
        }
    }
    (allowances, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixture::repository;

    fn function(name: &str, statements: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    step();\n".repeat(statements))
    }

    fn findings(text: &str, allowances: &str) -> Vec<String> {
        let mut repository = repository(&[("crates/x/src/y.rs", text)]);
        repository.allowances = allowances.to_owned();
        check(&repository).into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn long_functions_and_files_are_found() {
        assert!(findings(&function("f", 68), "").is_empty());
        assert_eq!(findings(&function("f", 69), "").len(), 1);
        let many: String = (0..14).map(|i| function(&format!("f{i}"), 60)).collect();
        assert!(findings(&many, "")[0].contains("second noun"));
    }

    #[test]
    fn the_list_may_only_shrink() {
        let (text, line) = (function("f", 78), "function crates/x/src/y.rs f");
        assert!(findings(&text, &format!("# why\n{line} 80")).is_empty());
        assert!(findings(&text, &format!("{line} 90"))[0].contains("lower"));
        assert!(findings(&text, &format!("{line} 75"))[0].contains("only shrink"));
        assert!(findings(&function("f", 3), &format!("{line} 75"))[0].contains("remove"));
        assert!(findings("", "function")[0].contains("neither"));
    }

    #[test]
    fn long_tests_get_a_file_of_their_own() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", function("f", 210));
        assert!(findings(&tests, "")[0].contains("file of their own"));
    }
}
