//! Bytes: of each file, every reader saw what was written last, and nothing twice.

use std::collections::{HashMap, HashSet};

use crate::check::of_each;
use crate::check::order::{self, Verdict};
use crate::history::{Call, Entry, Seen, Subject};
use crate::programs::BLOCK_BYTES;

/// Looks for an order of the calls on each file, which is empty at the start. What was not written
/// whole, or never, has no place in any.
pub fn check(history: &[Entry]) -> Vec<Verdict> {
    let files = of_each(history, |subject| matches!(subject, Subject::Bytes(_)));
    let verdicts = files.iter();
    verdicts
        .map(|calls| order::check(calls, Vec::new(), apply))
        .collect()
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
        (_, Seen::Done) => {}
        (_, seen) if seen.is_unknown() => {}
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
