//! Lists of test programs (`.ci/long`, `.ci/alone`): lines `NAME: reason`, empty ones, and remarks after `#`.

/// The lists.
pub const LISTS: [&str; 2] = [".ci/long", ".ci/alone"];

/// The names in `text` with their lines; instead of a name the whole line where it is not `NAME: reason`.
pub fn names(text: &str) -> impl Iterator<Item = (usize, Result<&str, &str>)> {
    let lines = (1..).zip(text.lines());
    let entries = lines.filter(|(_, entry)| !entry.is_empty() && !entry.starts_with('#'));
    entries.map(|(line, entry)| {
        let split = entry
            .split_once(": ")
            .filter(|(_, reason)| !reason.is_empty());
        (line, split.map(|(name, _)| name).ok_or(entry))
    })
}
