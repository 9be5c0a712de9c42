//! Bytes: of each file, every reader saw what was written last, and nothing twice.

use std::collections::{HashMap, HashSet};

use crate::check::order::{self, Verdict};
use crate::history::{Call, Entry, Seen};
use crate::programs::BLOCK_BYTES;

/// Looks for an order of the calls on each file, which is empty at the start. What was not written
/// whole, or never, has no place in any.
pub fn check(history: &[Entry]) -> Vec<Verdict> {
    let mut files: Vec<u8> = history.iter().filter_map(|e| e.call.file()).collect();
    files.sort_unstable();
    files.dedup();
    let of = |file: u8| history.iter().filter(move |e| e.call.file() == Some(file));
    files
        .into_iter()
        .map(|file| order::check(&of(file).collect::<Vec<_>>(), Vec::new(), apply))
        .collect()
}

/// Without what a client lost after it had shown it to its own programs: a change that it had not
/// made durable, and that nobody knows the outcome of, as its programs saw it meanwhile.
pub fn without_doubtful(history: &[Entry], programs: u32) -> Vec<Entry> {
    let lost = history
        .iter()
        .filter(|entry| entry.seen == Seen::Unknown && !entry.call.is_read());
    let lost: Vec<&Entry> = lost.collect();
    let is_doubtful = |entry: &Entry| {
        entry.call.is_read()
            && lost.iter().any(|change| {
                change.call.file() == entry.call.file()
                    && change.caller / programs == entry.caller / programs
                    && change.start <= entry.end
                    && entry.start <= change.end
            })
    };
    let kept = history.iter().filter(|entry| !is_doubtful(entry));
    kept.cloned().collect()
}

/// Each number is written by one call, to one place: who saw it in two places at once, or at two
/// places of which an append chose one, saw one effect twice.
pub fn twice(history: &[Entry]) -> Vec<String> {
    let mut appended: HashMap<u64, Option<usize>> = history
        .iter()
        .filter_map(|entry| match entry.call {
            Call::Append(_, value) => Some((value, None)),
            _ => None,
        })
        .collect();
    let mut found = Vec::new();
    for entry in history {
        let Seen::Blocks(blocks) = &entry.seen else {
            continue;
        };
        let mut seen = HashSet::new();
        let mut numbers = blocks.iter().enumerate().filter(|(_, value)| **value != 0);
        let twice = numbers.find(|(at, value)| {
            let place = appended.get_mut(value);
            let moved = place.is_some_and(|place| *place.get_or_insert(*at) != *at);
            !seen.insert(**value) || moved
        });
        if let Some((_, value)) = twice {
            found.push(format!("{value:x} had its effect twice: {entry}"));
        }
    }
    found
}

fn apply(held: &Vec<u64>, entry: &Entry, _: usize) -> Option<Vec<u64>> {
    let mut after = held.clone();
    match (&entry.call, &entry.seen) {
        (Call::Get(_), Seen::Blocks(blocks)) => return (blocks == held).then_some(after),
        (Call::Size(_), Seen::Bytes(bytes)) => {
            let is_so = *bytes == (held.len() * BLOCK_BYTES) as u64;
            return is_so.then_some(after);
        }
        (_, Seen::Done | Seen::Unknown) => {}
        _ => return None,
    }
    match &entry.call {
        Call::Put(_, block, value) => {
            let block = usize::from(*block);
            after.resize(after.len().max(block + 1), 0);
            after[block] = *value;
        }
        Call::Append(_, value) => after.push(*value),
        Call::Truncate(_, blocks) => after.resize(usize::from(*blocks), 0),
        Call::Reserve(_, blocks) => after.resize(after.len().max(usize::from(*blocks)), 0),
        Call::Punch(_, block) => {
            if let Some(freed) = after.get_mut(usize::from(*block)) {
                *freed = 0;
            }
        }
        Call::Zero(_, block) => {
            let block = usize::from(*block);
            after.resize(after.len().max(block + 1), 0);
            after[block] = 0;
        }
        _ => return None,
    }
    Some(after)
}
