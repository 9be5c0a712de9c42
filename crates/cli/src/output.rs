//! All that this program writes on standard output and standard error.

use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

/// Why a line was not written: the first that failed.
static FAILED: OnceLock<std::io::Error> = OnceLock::new();

/// Writes one line on standard output. A failure is reported by [`all_said`].
pub fn say(line: impl Display) {
    put(shown(&line.to_string()).as_bytes());
}

/// Writes a text of several lines on standard output.
pub fn say_lines(text: impl Display) {
    put(shown_lines(&text.to_string()).as_bytes());
}

/// Writes a value on standard output, as JSON that a terminal may be shown.
pub fn say_json(value: &impl serde::Serialize) -> Result<(), String> {
    let line = serde_json::to_string(value).map_err(|error| error.to_string())?;
    put(shown_json(&line).as_bytes());
    Ok(())
}

/// JSON in which what [`shown`] escapes is escaped as JSON does it: the same value. Outside of its strings
/// there is nothing of that.
fn shown_json(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    let mut units = [0; 2];
    for one in json.chars() {
        match is_escaped(one) {
            true => one
                .encode_utf16(&mut units)
                .iter()
                .for_each(|unit| line.push_str(&format!("\\u{unit:04x}"))),
            false => line.push(one),
        }
    }
    line
}

/// Writes a line of bytes unchanged, as other programs need a path. To a terminal, which would interpret
/// control characters, it writes them as [`shown`].
pub fn say_bytes(bytes: &[u8]) {
    match std::io::stdout().is_terminal() {
        true => say(String::from_utf8_lossy(bytes)),
        false => put(bytes),
    }
}

/// Writes the line of a process that stays. The process goes on if nobody can read the line.
pub fn announce(line: &str) {
    let _ = write_line(shown(line).as_bytes());
}

fn put(line: &[u8]) {
    if let Err(error) = write_line(line) {
        FAILED.get_or_init(|| error);
    }
}

fn write_line(line: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// All lines so far were written. A caller that repeats itself ends when they are not.
pub fn is_heard() -> bool {
    FAILED.get().is_none()
}

/// Fails if a line could not be written. A pipe whose reader has ended, as in
/// `glint param list | head`, is no failure.
pub fn all_said() -> Result<(), String> {
    match FAILED.get() {
        Some(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Writes one line on standard error, as what the program itself says.
pub fn complain(line: impl Display) {
    note(format!("glint: {line}"));
}

/// Writes one line on standard error.
pub fn note(line: impl Display) {
    // Nobody is left to hear of a failure.
    let _ = writeln!(std::io::stderr(), "{}", shown(&line.to_string()));
}

/// Text that peers, users and file names may have chosen, on one line. Characters are escaped that
/// would begin another line, turn the direction of text, or control a terminal.
pub fn shown(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    text.chars().for_each(|one| push_shown(&mut line, one));
    line
}

/// [`shown`] where lines are lines.
pub fn shown_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(shown).collect();
    lines.join("\n")
}

/// [`shown`] of one character, added to `line`.
pub fn push_shown(line: &mut String, one: char) {
    match is_escaped(one) {
        true => line.extend(one.escape_default()),
        false => line.push(one),
    }
}

fn is_escaped(one: char) -> bool {
    one.is_control() || is_invisible(one)
}

/// Ends lines, or turns their direction, in what shows them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_shows_nothing_that_text_does_not_and_says_the_same() {
        let value = serde_json::json!({ "path": "a\u{202e}b\u{9b}\u{7f}\n\u{2028}ü" });
        let line = shown_json(&value.to_string());
        assert_eq!(line, r#"{"path":"a\u202eb\u009b\u007f\n\u2028ü"}"#);
        let read: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read, value);
    }
}
