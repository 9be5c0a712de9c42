//! Directories in which each name is made once, by one process. A listing has each name that is there
//! throughout, once, and none that is not; the link count counts the subdirectories.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use crate::event::{Call, Event, NEVER, Outcome};

/// Violations of one directory that are told.
const TOLD_MAX: usize = 3;

/// A name, from its making to its end.
struct Named<'a> {
    make: &'a Event,
    remove: Option<&'a Event>,
}

impl<'a> Named<'a> {
    /// It is there throughout a call.
    fn is_certain(&self, look: &Event) -> bool {
        let removed = self.remove.map_or(NEVER, |remove| remove.begin);
        self.make.effective_end() < look.begin && removed > look.end
    }

    /// It is there at some moment of a call.
    fn is_possible(&self, look: &Event) -> bool {
        let removed = self.remove.map_or(NEVER, |remove| remove.effective_end());
        self.make.begin <= look.end && removed >= look.begin
    }

    fn calls(&self, look: &'a Event) -> Vec<&'a Event> {
        let calls = [Some(self.make), self.remove, Some(look)];
        calls.into_iter().flatten().collect()
    }
}

/// Names that are directories are odd.
pub fn is_directory(name: u32) -> bool {
    name % 2 == 1
}

/// Looks at all calls about one directory.
pub(super) fn check(events: &[&Event]) -> Vec<Violation> {
    let mut names: BTreeMap<u32, Named<'_>> = BTreeMap::new();
    for event in events {
        match event.call {
            Call::Make(name) => {
                let (make, remove) = (*event, None);
                names.insert(name, Named { make, remove });
            }
            Call::Remove(name) => {
                if let Some(named) = names.get_mut(&name) {
                    named.remove = Some(event);
                }
            }
            _ => {}
        }
    }
    let looks = events.iter().filter_map(|event| match &event.outcome {
        Outcome::Names(listed) => listing(event, listed, &names),
        Outcome::Number(count) => counted(event, *count, &names),
        _ => None,
    });
    looks.take(TOLD_MAX).collect()
}

fn listing<'a>(
    look: &'a Event,
    listed: &[u32],
    names: &BTreeMap<u32, Named<'a>>,
) -> Option<Violation> {
    let mut seen = BTreeSet::new();
    for name in listed {
        let Some(named) = names.get(name) else {
            let what = format!("a listing has {name:x}, which nobody made");
            return Some(Violation::new(what, &[look]));
        };
        let what = match (seen.insert(name), named.is_possible(look)) {
            (false, _) => format!("a listing has {name:x} twice"),
            (_, false) => format!("a listing has {name:x}, which is not there"),
            _ => continue,
        };
        return Some(Violation::new(what, &named.calls(look)));
    }
    let missed =
        |(name, named): &(&u32, &Named<'_>)| named.is_certain(look) && !seen.contains(*name);
    let (name, named) = names.iter().find(missed)?;
    let what = format!("a listing lacks {name:x}, which is there throughout");
    Some(Violation::new(what, &named.calls(look)))
}

fn counted<'a>(look: &'a Event, count: u64, names: &BTreeMap<u32, Named<'a>>) -> Option<Violation> {
    let directories = || names.iter().filter(|(name, _)| is_directory(**name));
    let least = directories()
        .filter(|(_, named)| named.is_certain(look))
        .count() as u64;
    let most = directories()
        .filter(|(_, named)| named.is_possible(look))
        .count() as u64;
    if (least..=most).contains(&count) {
        return None;
    }
    // The change that it most likely misses is the last one.
    let ended = |named: &Named<'a>| {
        let changes = [Some(named.make), named.remove].into_iter().flatten();
        changes
            .filter(|change| change.end < look.begin)
            .max_by_key(|change| change.end)
    };
    let last = directories().filter_map(|(_, named)| ended(named));
    let last = last.max_by_key(|change| change.end);
    let calls: Vec<&Event> = last.into_iter().chain([look]).collect();
    let what = format!("{count} subdirectories are counted where {least} to {most} can be");
    Some(Violation::new(what, &calls))
}
