//! What a client showed to its own programs and then lost.

use crate::excuses::Excuse;
use crate::history::{Entry, Seen};

/// Without what a client lost after it had shown it: a change that it had not made durable, and that
/// nobody knows the outcome of, as its own programs saw it meanwhile. Where it failed for bytes that
/// are damaged, as its programs saw it as long as those were, and as others saw it meanwhile: who
/// changes a size says what it will be. And such a change has its effect as long as those are, or never.
pub fn without_doubtful(history: &[Entry], programs: u32, failures: &[Excuse]) -> Vec<Entry> {
    let lost = history
        .iter()
        .filter(|entry| entry.seen == Seen::Unknown && !entry.call.is_read());
    let lost: Vec<&Entry> = lost.collect();
    let damage = |entry: &Entry| {
        let mut of_bytes = failures.iter().filter(|excuse| excuse.file.is_some());
        let client = entry.caller / programs;
        of_bytes.find(|excuse| {
            excuse.concerns(&entry.call) && excuse.covers(client, entry.start, entry.end)
        })
    };
    let is_damaged = |entry: &Entry| damage(entry).is_some();
    let shows = |entry: &Entry, change: &Entry| {
        let is_own = change.caller / programs == entry.caller / programs;
        let meanwhile = entry.start <= change.end;
        change.call.subject() == entry.call.subject()
            && change.start <= entry.end
            && match is_own {
                true => meanwhile || (is_damaged(change) && is_damaged(entry)),
                false => meanwhile && is_damaged(change),
            }
    };
    let is_doubtful =
        |entry: &Entry| entry.call.is_read() && lost.iter().any(|change| shows(entry, change));
    let bounded = |entry: &Entry| match damage(entry) {
        Some(damage) if entry.seen == Seen::Unknown => Entry {
            end: damage.until,
            seen: Seen::Fleeting(Box::new(Seen::Unknown), 0),
            ..entry.clone()
        },
        _ => entry.clone(),
    };
    let kept = history.iter().filter(|entry| !is_doubtful(entry));
    kept.map(bounded).collect()
}
