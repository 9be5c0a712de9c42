//! Lines on standard output.

use std::fmt::Display;
use std::io::Write;

/// Writes a line. When nobody reads any more, as in `glint param list | head`, it is dropped.
pub fn say(line: impl Display) {
    // Nothing could be told to anybody by an error here.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The same as JSON.
pub fn say_json(value: &impl serde::Serialize) -> Result<(), String> {
    say(serde_json::to_string(value).map_err(|error| error.to_string())?);
    Ok(())
}
