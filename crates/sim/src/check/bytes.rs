//! Bytes: of each file, every reader saw what was written last, and nothing twice.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::check::of_each;
use crate::check::order::{self, Verdict};
use crate::history::{Call, Entry, Seen, Subject};
use crate::programs::BLOCK_BYTES;

/// Looks for an order of the calls on each file, which is empty at the start. What was not written
/// whole, or never, has no place in any.
pub fn check(history: &[Entry]) -> Vec<Verdict> {
    let has_bytes = |subject| matches!(subject, Subject::Bytes(_) | Subject::Opened(_));
    let files = of_each(history, has_bytes);
    let verdicts = files.iter().map(|calls| {
        let shown = Shown::by(calls);
        let apply = |held: &Vec<u64>, entry: &Entry, _| {
            apply(held, entry).filter(|after| shown.allows(held, after, entry))
        };
        order::check(calls, Vec::new(), apply)
    });
    verdicts.collect()
}

/// What is known of each number, which is written once, from those who saw it. Without that a search
/// would try all orders of all that is written before it looks at who saw the first.
#[derive(Default)]
struct Shown {
    /// Where it was.
    places: HashMap<u64, usize>,
    /// When the last who saw it began to look.
    looked: HashMap<u64, Duration>,
}

impl Shown {
    fn by(calls: &[&Entry]) -> Shown {
        let mut shown = Shown::default();
        for entry in calls {
            let Seen::Blocks(blocks) = &entry.seen else {
                continue;
            };
            for (at, value) in blocks.iter().enumerate() {
                shown.places.insert(*value, at);
                let looked = shown.looked.entry(*value).or_default();
                *looked = entry.start.max(*looked);
            }
        }
        shown
    }

    /// Whether `entry` can have turned `held` into `after`: it wrote where its number was seen, and removed
    /// no number that later calls saw.
    fn allows(&self, held: &[u64], after: &[u64], entry: &Entry) -> bool {
        let wrote = match entry.call {
            Call::Append(_, value) => self.places.get(&value),
            _ => None,
        };
        let is_over = |looked: &Duration| entry.seen != Seen::Unknown && entry.end < *looked;
        let mut taken = held.iter().enumerate().filter(|(at, value)| {
            let is_number = **value != 0;
            is_number && after.get(*at) != Some(*value)
        });
        wrote.is_none_or(|place| place + 1 == after.len())
            && !taken.any(|(_, value)| self.looked.get(value).is_some_and(is_over))
    }
}

/// Each number is written by one call, to one place. Who saw it in two places at once, or at two
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

fn apply(held: &[u64], entry: &Entry) -> Option<Vec<u64>> {
    let mut after = held.to_vec();
    match (&entry.call, &entry.seen) {
        (Call::Get(_) | Call::ReadOpen(_), Seen::Blocks(blocks)) => {
            return (blocks == &after).then_some(after);
        }
        (Call::Size(_), Seen::Bytes(bytes)) => {
            let is_so = *bytes == (held.len() * BLOCK_BYTES) as u64;
            return is_so.then_some(after);
        }
        (_, Seen::Done) => {}
        (_, seen) if seen.is_unknown() => {}
        _ => return None,
    }
    match &entry.call {
        Call::Put(_, block, value) | Call::WriteOpen(_, block, value) => {
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

#[cfg(test)]
mod tests {
    use base::{Rng, SeededRng};

    use super::*;

    /// Calls of as many callers, one after the other, each with some time about it; sometimes with an
    /// answer that nobody gave.
    fn history(rng: &mut SeededRng) -> Vec<Entry> {
        let mut held = Vec::new();
        let calls = (0..7u32).map(|caller| {
            let (at, number) = (u64::from(caller) * 3 + 9, u64::from(caller) + 1);
            let (block, blocks) = (rng.below(3) as u8, rng.below(4) as u8);
            let call = match rng.below(7) {
                0 => Call::Put(0, block, number),
                1 | 2 => Call::Append(0, number),
                3 => Call::Truncate(0, blocks),
                4 => Call::Punch(0, block),
                _ => Call::Get(0),
            };
            let seen = match (&call, rng.below(8)) {
                (Call::Get(_), 0) => Seen::Blocks(held.iter().rev().copied().collect()),
                (Call::Get(_), _) => Seen::Blocks(held.clone()),
                (_, 0) => Seen::Unknown,
                _ => Seen::Done,
            };
            let entry = Entry {
                caller,
                start: Duration::from_secs(at - rng.below(9)),
                end: Duration::from_secs(at + rng.below(9)),
                call,
                seen,
            };
            held = apply(&held, &entry).unwrap_or(held.clone());
            entry
        });
        calls.collect()
    }

    #[test]
    fn who_saw_a_number_decides_nothing_but_how_long_the_search_takes() {
        let mut possible = 0;
        for seed in 0..20_000 {
            let history = history(&mut SeededRng::new(seed));
            let calls: Vec<&Entry> = history.iter().collect();
            let usual = |held: &Vec<u64>, entry: &Entry, _| apply(held, entry);
            let truth = order::check(&calls, Vec::new(), usual) == Verdict::Possible;
            let found = check(&history) == [Verdict::Possible];
            assert_eq!(found, truth, "seed {seed}: {history:#?}");
            possible += u32::from(truth);
        }
        assert!((5_000..19_500).contains(&possible), "{possible}");
    }
}
