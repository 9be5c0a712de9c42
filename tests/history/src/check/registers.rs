//! Registers. Each value is written once, so the calls of one value stand together in any order of all calls.
//! Between two calls of it the value *certainly* holds (Gibbons and Korach): such stretches of two values
//! must not overlap, and a value must not be written and read within the stretch of another.

use std::collections::BTreeMap;

use super::{Policy, Violation};
use crate::event::{Call, Event, Outcome};

/// The calls of one value: the one that ended first, and the one that began last.
struct Group<'a> {
    value: u64,
    write: Option<&'a Event>,
    first_end: (u64, Option<&'a Event>),
    last_begin: (u64, Option<&'a Event>),
}

impl<'a> Group<'a> {
    /// Of the value that was there before everything; it is zero.
    fn initial() -> Group<'a> {
        Group {
            value: 0,
            write: None,
            first_end: (0, None),
            last_begin: (0, None),
        }
    }

    fn of_write(value: u64, write: &'a Event) -> Group<'a> {
        Group {
            value,
            write: Some(write),
            first_end: (write.effective_end(), Some(write)),
            last_begin: (write.begin, Some(write)),
        }
    }

    fn take(&mut self, read: &'a Event) {
        if read.end < self.first_end.0 {
            self.first_end = (read.end, Some(read));
        }
        if read.begin > self.last_begin.0 {
            self.last_begin = (read.begin, Some(read));
        }
    }

    fn calls(&self) -> impl Iterator<Item = &'a Event> {
        let calls = [self.write, self.first_end.1, self.last_begin.1];
        calls.into_iter().flatten()
    }

    /// It was certainly there from the first number to the second.
    fn stretch(&self) -> Option<(u64, u64)> {
        let (from, to) = (self.first_end.0, self.last_begin.0);
        (from < to).then_some((from, to))
    }
}

/// Looks at all calls about one register.
pub(super) fn check(events: &[&Event], policy: &Policy) -> Vec<Violation> {
    let (groups, mut found) = group(events, policy);
    if let Some((one, other)) = conflict(&groups) {
        let what = match one.value == 0 || other.value == 0 {
            true => "an acknowledged write is gone: zero, which was there before, comes again",
            false => "two values would each have to be there before and after the other",
        };
        let calls: Vec<&Event> = one.calls().chain(other.calls()).collect();
        found.push(Violation::new(what, &calls));
    }
    found
}

/// The calls by their values; and reads that follow no write.
fn group<'a>(events: &[&'a Event], policy: &Policy) -> (Vec<Group<'a>>, Vec<Violation>) {
    let mut groups = BTreeMap::from([(0, Group::initial())]);
    for event in events {
        if let Call::Write(value) = event.call {
            groups.insert(value, Group::of_write(value, event));
        }
    }
    let mut found = Vec::new();
    for read in events.iter().filter(|event| event.call == Call::Read) {
        let value = match &read.outcome {
            Outcome::Value(value) => *value,
            Outcome::Flawed(what) => {
                found.push(Violation::new(what, &beside(read, events)));
                continue;
            }
            _ => continue,
        };
        match groups.get_mut(&value) {
            None => found.push(Violation::new("a value that nobody wrote", &[read])),
            Some(group) => match group.write {
                Some(write) if write.begin > read.end => {
                    let what = "a value that is read before it is written";
                    found.push(Violation::new(what, &[read, write]));
                }
                Some(write) if policy.full && is_undone(write, read) => {}
                _ => group.take(read),
            },
        }
    }
    (groups.into_values().collect(), found)
}

/// The write failed after it had been seen; the file is shown as it is on its target from then on.
fn is_undone(write: &Event, read: &Event) -> bool {
    matches!(write.outcome, Outcome::Failed(_)) && read.begin <= write.end
}

/// A read with the writes that ran meanwhile, or last before.
fn beside<'a>(read: &'a Event, events: &[&'a Event]) -> Vec<&'a Event> {
    let writes = events.iter().filter(|event| event.call != Call::Read);
    let (before, later): (Vec<&Event>, Vec<&Event>) =
        writes.partition(|write| write.effective_end() < read.begin);
    let meanwhile = later.into_iter().filter(|write| write.begin <= read.end);
    let last = before.into_iter().max_by_key(|write| write.end);
    meanwhile.chain(last).chain([read]).collect()
}

/// Two values that cannot both have been there when they were.
fn conflict<'g, 'a>(groups: &'g [Group<'a>]) -> Option<(&'g Group<'a>, &'g Group<'a>)> {
    let mut stretches: Vec<(u64, u64, &Group<'a>)> = groups
        .iter()
        .filter_map(|group| group.stretch().map(|(from, to)| (from, to, group)))
        .collect();
    stretches.sort_by_key(|(from, ..)| *from);
    for pair in stretches.windows(2) {
        if pair[1].0 < pair[0].1 {
            return Some((pair[0].2, pair[1].2));
        }
    }
    let inside = |group: &&'g Group<'a>| {
        let (begin, end) = (group.last_begin.0, group.first_end.0);
        let at = stretches.partition_point(|(from, ..)| *from < begin);
        let (_, to, around) = *stretches.get(at.checked_sub(1)?)?;
        (end < to).then_some((around, *group))
    };
    let short = groups.iter().filter(|group| group.stretch().is_none());
    short.filter_map(|group| inside(&group)).next()
}
