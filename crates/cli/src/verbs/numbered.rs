//! Numbered names as people write them: `shot%04d.exr` with the numbers 1 to 240.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use client::NameRange;

/// What a pattern looks like.
const PATTERN: &str = "the pattern of --range has one %d, or one like %04d, in place of the number; \
                       write %% for a percent sign";

/// The names that a pattern, the first number and the last one stand for.
pub fn range(words: &[OsString], step: u64) -> Result<NameRange, String> {
    let [pattern, first, last] = words else {
        return Err("--range takes PATTERN FIRST LAST".to_owned());
    };
    let (prefix, width, suffix) = parts(pattern.as_bytes()).ok_or(PATTERN)?;
    let range = NameRange {
        prefix,
        suffix,
        width,
        first: number(first)?,
        last: number(last)?,
        step,
    };
    if range.last < range.first {
        return Err(format!(
            "--range goes from {} to {}, which is less; names go up",
            range.first, range.last
        ));
    }
    match range.check() {
        Ok(_) => Ok(range),
        Err(_) => Err(
            "--range: these are no names of files (at most 255 bytes, no '/', 18 digits), or more than \
             a thousand million"
                .to_owned(),
        ),
    }
}

fn number(word: &OsString) -> Result<u64, String> {
    let parsed = word.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("--range: {} is not a number", word.display()))
}

/// What comes before the number, how many digits that has at least, and what comes after.
fn parts(pattern: &[u8]) -> Option<(Vec<u8>, usize, Vec<u8>)> {
    let mut texts = vec![Vec::new()];
    let (mut width, mut rest) = (0, pattern);
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let text = texts.last_mut()?;
        match (*first, rest.first()) {
            (b'%', Some(b'%')) => {
                text.push(b'%');
                rest = &rest[1..];
            }
            (b'%', _) => {
                let end = rest.iter().position(|byte| !byte.is_ascii_digit())?;
                (width, rest) = (digits(&rest[..end])?, rest[end..].strip_prefix(b"d")?);
                texts.push(Vec::new());
            }
            (byte, _) => text.push(byte),
        }
    }
    let [prefix, suffix] = <[Vec<u8>; 2]>::try_from(texts).ok()?;
    Some((prefix, width, suffix))
}

/// The `04` of `%04d`: nothing, or a zero and how many digits.
fn digits(width: &[u8]) -> Option<usize> {
    match width {
        [] => Some(0),
        [b'0', width @ ..] => std::str::from_utf8(width).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(pattern: &str) -> Option<(String, usize, String)> {
        let (prefix, width, suffix) = parts(pattern.as_bytes())?;
        let text = |bytes| String::from_utf8(bytes).expect("it was text");
        Some((text(prefix), width, text(suffix)))
    }

    #[test]
    fn a_pattern_has_one_number() {
        let is = |pattern, prefix: &str, width, suffix: &str| {
            let expected = Some((prefix.to_owned(), width, suffix.to_owned()));
            assert_eq!(parsed(pattern), expected, "{pattern}");
        };
        is("shot%04d.exr", "shot", 4, ".exr");
        is("%d", "", 0, "");
        is("100%%-%012d%%d.v2", "100%-", 12, "%d.v2");
        for wrong in [
            "", "shot", "%", "%4d", "%0d", "%x", "%04", "%d-%d", "a%%d", "%-3d",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |words: [&str; 3]| range(&words.map(OsString::from), 1).unwrap_err();
        assert!(wrong(["x", "1", "2"]).contains("%04d"));
        assert!(wrong(["x%d", "one", "2"]).contains("one is not a number"));
        assert!(wrong(["x%d", "-1", "2"]).contains("-1 is not a number"));
        assert!(wrong(["x%d", "2", "1"]).contains("names go up"));
        assert!(wrong(["a/%d", "1", "2"]).contains("no names of files"));
        assert!(wrong(["%d", "1", "18446744073709551615"]).contains("no names"));
    }
}
