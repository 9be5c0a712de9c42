//! Logs. All appends that were acknowledged stand in one order, each once and whole; a read to the end
//! finds a part of that from its begin, with all that was acknowledged before the read began.

use std::collections::{HashMap, HashSet};

use super::{Policy, Violation};
use crate::event::{Call, Event, NEVER, Outcome};
use crate::record::length;

/// One log: its appends, and the order in which the longest read found them.
struct Log<'a> {
    appends: HashMap<u64, &'a Event>,
    /// Appends by their ends.
    done: Vec<&'a Event>,
    order: Vec<u64>,
    place: HashMap<u64, usize>,
    longest: Option<&'a Event>,
}

fn records(event: &Event) -> Option<&[u64]> {
    match &event.outcome {
        Outcome::Records(records) => Some(records),
        _ => None,
    }
}

fn appended(event: &Event) -> Option<u64> {
    match event.call {
        Call::Append(record) => Some(record),
        _ => None,
    }
}

/// Looks at all calls about one log: of each sort the first violation.
pub(super) fn check(events: &[&Event], policy: &Policy) -> Vec<Violation> {
    let log = Log::of(events);
    let undone = |event: &&Event| matches!(event.outcome, Outcome::Failed(_));
    // Where an append failed, what it wrote may have been seen, and its place may stay empty.
    let is_whole = !(policy.full && log.appends.values().any(undone));
    let mut found = Vec::new();
    if is_whole {
        found.extend(events.iter().find_map(|event| log.flaw(event)));
        found.extend(log.twice());
        found.extend(log.order());
        found.extend(events.iter().find_map(|event| log.is_begin(event)));
        found.extend(events.iter().find_map(|event| log.size(event)));
    }
    found.extend(events.iter().find_map(|event| log.lacks(event)));
    found
}

impl<'a> Log<'a> {
    fn of(events: &[&'a Event]) -> Log<'a> {
        let appends = events
            .iter()
            .filter_map(|event| Some((appended(event)?, *event)));
        let mut done: Vec<&Event> = events.to_vec();
        done.retain(|event| event.is_done() && appended(event).is_some());
        done.sort_by_key(|event| event.end);
        let reads = events.iter().filter(|event| records(event).is_some());
        let longest = reads.max_by_key(|event| records(event).map_or(0, <[u64]>::len));
        let order = longest.and_then(|event| records(event)).unwrap_or_default();
        let numbered = order.iter().enumerate();
        Log {
            appends: appends.collect(),
            done,
            place: numbered.map(|(at, id)| (*id, at)).collect(),
            order: order.to_vec(),
            longest: longest.copied(),
        }
    }

    fn append(&self, id: u64) -> impl Iterator<Item = &'a Event> {
        self.appends.get(&id).copied().into_iter()
    }

    /// Bytes that are no record, with the appends at either side, and those acknowledged that no read
    /// finds.
    fn flaw(&self, read: &'a Event) -> Option<Violation> {
        let (Outcome::Flawed(what) | Outcome::Gapped(_, what)) = &read.outcome else {
            return None;
        };
        let is_near = |id: &u64| what.contains(&format!("{id:x}")) || !self.place.contains_key(id);
        let near = self
            .appends
            .iter()
            .filter(|(id, append)| is_near(id) && append.is_done() && append.end <= read.end);
        let calls: Vec<&Event> = near.map(|(_, append)| *append).chain([read]).collect();
        Some(Violation::new(what, &calls))
    }

    /// A record that is there twice, or that nobody appended.
    fn twice(&self) -> Option<Violation> {
        let longest = self.longest?;
        let mut seen = HashSet::new();
        let again = self.order.iter().find(|id| !seen.insert(**id));
        if let Some(id) = again {
            let calls: Vec<&Event> = self.append(*id).chain([longest]).collect();
            return Some(Violation::new(
                format!("record {id:x} is there twice"),
                &calls,
            ));
        }
        let foreign = self
            .order
            .iter()
            .find(|id| !self.appends.contains_key(id))?;
        let what = format!("record {foreign:x}, which nobody appended");
        Some(Violation::new(what, &[longest]))
    }

    /// Two records that stand the other way round than their appends came.
    fn order(&self) -> Option<Violation> {
        let mut first: Option<&Event> = None;
        for id in self.order.iter().rev() {
            let append = self.append(*id).next()?;
            if let Some(later) = first.filter(|later| later.effective_end() < append.begin) {
                let what = "a record stands behind one that was appended after it";
                return Some(Violation::new(what, &[append, later]));
            }
            let end = |event: &Event| event.effective_end();
            if first.is_none_or(|later| end(append) < end(later)) {
                first = Some(append);
            }
        }
        None
    }

    /// A read that is not the begin of the longest one, or knows what was not yet appended.
    fn is_begin(&self, read: &'a Event) -> Option<Violation> {
        let found = records(read)?;
        let pairs = found.iter().zip(&self.order);
        if let Some((one, other)) = pairs.into_iter().find(|(one, other)| one != other) {
            let appends = self.append(*one).chain(self.append(*other));
            let calls: Vec<&Event> = appends.chain(self.longest).chain([read]).collect();
            let what = format!("two reads find {one:x} and {other:x} at the same place");
            return Some(Violation::new(what, &calls));
        }
        let early = found.iter().flat_map(|id| self.append(*id));
        let early = early.into_iter().find(|append| append.begin > read.end)?;
        Some(Violation::new(
            "a record is read before it is appended",
            &[early, read],
        ))
    }

    /// How many records a call that began then must find: all up to the last that was acknowledged. One
    /// that is missing from the longest read, too, is the answer instead.
    fn needed(&self, begin: u64) -> Result<(usize, Option<&'a Event>), &'a Event> {
        let before = self.done.partition_point(|append| append.end < begin);
        let mut needed = (0, None);
        for append in &self.done[..before] {
            let place = appended(append).and_then(|id| self.place.get(&id));
            let place = place.ok_or(*append)?;
            if *place + 1 > needed.0 {
                needed = (*place + 1, Some(*append));
            }
        }
        Ok(needed)
    }

    /// A read that lacks what was acknowledged before it began.
    fn lacks(&self, read: &'a Event) -> Option<Violation> {
        let found = records(read)?;
        let what = "a read lacks what was acknowledged before it began";
        match self.needed(read.begin) {
            Ok((needed, Some(append))) if needed > found.len() => {
                let is_there = appended(append).is_some_and(|id| found.contains(&id));
                (!is_there).then(|| Violation::new(what, &[append, read]))
            }
            Ok(_) => None,
            Err(lost) => {
                let what = "an acknowledged record is in no read";
                let is_after = read.begin > lost.end && self.is_last(read);
                is_after.then(|| Violation::new(what, &[lost, read]))
            }
        }
    }

    /// Of several reads that lack a record one is enough.
    fn is_last(&self, read: &Event) -> bool {
        self.longest.is_some_and(|longest| longest == read)
    }

    /// A size that the log cannot have had then, or fewer blocks than it has bytes.
    fn size(&self, stat: &'a Event) -> Option<Violation> {
        let Outcome::Sizes(bytes, blocks) = stat.outcome else {
            return None;
        };
        if blocks * 512 < bytes {
            let what = format!("{bytes} bytes without a hole are on {blocks} blocks of 512");
            let last = self.done.iter().rfind(|append| append.end < stat.begin);
            let calls: Vec<&Event> = last.copied().into_iter().chain([stat]).collect();
            return Some(Violation::new(what, &calls));
        }
        let Ok((needed, last)) = self.needed(stat.begin) else {
            return None;
        };
        let mut end = 0;
        let ends = self.order.iter().map(|id| {
            end += length(*id) as u64;
            end
        });
        let ends: Vec<u64> = [0].into_iter().chain(ends).collect();
        let count = ends.binary_search(&bytes);
        let newest = |count: usize| {
            let appends = self.order[..count].iter().flat_map(|id| self.append(*id));
            appends.map(|append| append.begin).max().unwrap_or(0)
        };
        let what = match count {
            Err(_) => format!("{bytes} bytes are the size after no append"),
            Ok(count) if count < needed => format!("{bytes} bytes are too few"),
            Ok(count) if newest(count) > stat.end && stat.end != NEVER => {
                format!("{bytes} bytes are more than were appended yet")
            }
            Ok(_) => return None,
        };
        let calls: Vec<&Event> = last.into_iter().chain([stat]).collect();
        Some(Violation::new(what, &calls))
    }
}
