//! Bytes: of each file, every reader saw what was written last.

use crate::check::order::{self, Verdict};
use crate::history::{Call, Entry, Seen};

/// Looks for an order of the calls on each file, which holds zeros at the start. What was not
/// written whole, or never, has no place in any.
pub fn check(history: &[Entry]) -> Vec<Verdict> {
    let mut files: Vec<u8> = history.iter().filter_map(|e| e.call.file()).collect();
    files.sort_unstable();
    files.dedup();
    let of = |file: u8| history.iter().filter(move |e| e.call.file() == Some(file));
    files
        .into_iter()
        .map(|file| order::check(&of(file).collect::<Vec<_>>(), 0, apply))
        .collect()
}

fn apply(held: &u64, entry: &Entry, _: usize) -> Option<u64> {
    match (&entry.call, &entry.seen) {
        (Call::Put(_, value), Seen::Done | Seen::Unknown) => Some(*value),
        (Call::Get(_), Seen::Value(value)) if value == held => Some(*held),
        _ => None,
    }
}
