//! Sizes of a directory's files: as programs print them, and what is wrong with them.

use std::collections::BTreeMap;

/// By name.
pub(super) type Sizes = BTreeMap<String, u64>;

/// What `find -printf '%s %f\n'` prints.
pub(super) fn parse_find(text: &str) -> Sizes {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .filter_map(|(size, name)| Some((name.to_owned(), size.parse().ok()?)))
        .collect()
}

/// What `ls -l` prints of files whose names have no spaces.
pub(super) fn parse_ls(text: &str) -> Sizes {
    let lines = text.lines().filter(|line| line.starts_with('-'));
    lines
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let size = words.get(4)?.parse().ok()?;
            Some(((*words.last()?).to_owned(), size))
        })
        .collect()
}

/// What is wrong with sizes that were listed while the files grew from `before` to `after`.
pub(super) fn wrong_meanwhile(listed: &Sizes, before: &Sizes, after: &Sizes) -> Option<String> {
    let missing = before.keys().filter(|name| !listed.contains_key(*name));
    let missing = missing.map(|name| format!("{name} is not listed"));
    let wrong = listed.iter().filter_map(|(name, size)| {
        let least = before.get(name).copied().unwrap_or(0);
        let most = after.get(name).copied().unwrap_or(0);
        (!(least..=most).contains(size))
            .then(|| format!("{name} has {size} bytes, not {least} to {most}"))
    });
    summary(missing.chain(wrong), "while they were written")
}

/// What is wrong with sizes that were found when nobody wrote any more.
pub(super) fn wrong_afterwards(found: &Sizes, after: &Sizes) -> Option<String> {
    let names = after
        .keys()
        .chain(found.keys().filter(|name| !after.contains_key(*name)));
    let wrong = names.filter_map(|name| {
        let (found, right) = (found.get(name), after.get(name));
        let bytes =
            |size: Option<&u64>| size.map_or("no file".to_owned(), |size| format!("{size} bytes"));
        (found != right).then(|| format!("{name} has {}, not {}", bytes(found), bytes(right)))
    });
    summary(wrong, "afterwards")
}

/// How many, and the first of them.
fn summary(wrong: impl Iterator<Item = String>, when: &str) -> Option<String> {
    let mut wrong = wrong.peekable();
    let first = wrong.peek()?.clone();
    Some(format!("{} wrong sizes {when}: {first}", wrong.count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(all: &[(&str, u64)]) -> Sizes {
        all.iter()
            .map(|(name, size)| ((*name).to_owned(), *size))
            .collect()
    }

    #[test]
    fn what_programs_print_is_read() {
        let ls = "total 4\n\
                  -rw-r--r-- 1 root root  64 Nov 22 16:08 file1\n\
                  drwxr-xr-x 2 root root 512 Nov 22 16:08 sub\n\
                  -rw-r--r-- 1 root root 128 Nov 22  2023 file2\n";
        let expected = sizes(&[("file1", 64), ("file2", 128)]);
        assert_eq!(parse_ls(ls), expected);
        assert_eq!(parse_find("64 file1\n128 file2\n"), expected);
    }

    #[test]
    fn sizes_may_grow_while_they_are_listed_and_are_exact_afterwards() {
        let before = sizes(&[("a", 1), ("b", 1)]);
        let after = sizes(&[("a", 3), ("b", 1), ("new", 2)]);
        let wrong = |listed: &[(&str, u64)]| wrong_meanwhile(&sizes(listed), &before, &after);
        assert_eq!(wrong(&[("a", 2), ("b", 1)]), None);
        assert_eq!(wrong(&[("a", 3), ("b", 1), ("new", 0)]), None);
        let said = wrong(&[("a", 0), ("b", 2), ("new", 3)]).unwrap();
        assert!(said.starts_with("3 wrong sizes while"), "{said}");
        assert!(wrong(&[("a", 2)]).unwrap().contains("b is not listed"));
        let wrong = |found: &[(&str, u64)]| wrong_afterwards(&sizes(found), &after);
        assert_eq!(wrong(&[("a", 3), ("b", 1), ("new", 2)]), None);
        let said = wrong(&[("a", 3), ("b", 0), ("other", 2)]).unwrap();
        assert!(
            said.contains("3 wrong sizes afterwards: b has 0 bytes, not 1 bytes"),
            "{said}"
        );
    }
}
