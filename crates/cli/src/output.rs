//! Lines on standard output.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

/// Writes a line, or several, without what a terminal would carry out. When nobody reads any more, as in
/// `glint param list | head`, it is dropped.
pub fn say(line: impl Display) {
    // Nothing could be told to anybody by an error here.
    let _ = writeln!(std::io::stdout(), "{}", shown_lines(&line.to_string()));
}

/// The same on standard error, as what the program itself says.
pub fn complain(line: impl Display) {
    eprintln!("glint: {}", shown_lines(&line.to_string()));
}

/// Writes a line of bytes as they are, as a path for other programs must be; to a terminal, which
/// would carry out what is no text, as [`shown`].
pub fn say_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout();
    if out.is_terminal() {
        return say(shown(&String::from_utf8_lossy(bytes)));
    }
    let _ = out.write_all(bytes).and_then(|()| out.write_all(b"\n"));
}

/// Text of others', on one line and without what a terminal would carry out.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for one in text.chars() {
        match one.is_control() {
            true => shown.extend(one.escape_default()),
            false => shown.push(one),
        }
    }
    shown
}

/// The same where lines are lines.
pub fn shown_lines(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(shown).collect();
    lines.join("\n")
}

/// The same as JSON.
pub fn say_json(value: &impl serde::Serialize) -> Result<(), String> {
    let line = serde_json::to_string(value).map_err(|error| error.to_string())?;
    let _ = writeln!(std::io::stdout(), "{line}");
    Ok(())
}
