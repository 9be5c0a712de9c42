//! Locks: names that one process makes and removes again. No two have one at the same time, and nobody is
//! refused one that nobody has.

use std::collections::HashMap;

use super::Violation;
use crate::event::{Call, Event, NEVER, Outcome};

/// A process has the lock.
struct Hold<'a> {
    acquire: &'a Event,
    release: Option<&'a Event>,
}

impl Hold<'_> {
    /// When it certainly has it.
    fn certain(&self) -> (u64, u64) {
        let until = self.release.map_or(NEVER, |release| release.begin);
        (self.acquire.effective_end(), until)
    }

    /// When it may have it.
    fn possible(&self) -> (u64, u64) {
        let until = self
            .release
            .map_or(NEVER, |release| release.effective_end());
        (self.acquire.begin, until)
    }
}

/// Looks at all calls about one lock.
pub(super) fn check(events: &[&Event]) -> Vec<Violation> {
    let holds = holds(events);
    let mut found = Vec::new();
    let mut last: Option<&Hold<'_>> = None;
    let mut certain: Vec<&Hold<'_>> = holds.iter().collect();
    certain.retain(|hold| hold.certain().0 < hold.certain().1);
    certain.sort_by_key(|hold| hold.certain());
    for hold in certain {
        if let Some(last) = last.filter(|last| last.certain().1 > hold.certain().0) {
            let calls = [
                Some(last.acquire),
                last.release,
                Some(hold.acquire),
                hold.release,
            ];
            let calls: Vec<&Event> = calls.into_iter().flatten().collect();
            found.push(Violation::new("two have the lock at the same time", &calls));
            break;
        }
        last = Some(hold);
    }
    let refused = events.iter().filter(|event| event.outcome == Outcome::Busy);
    found.extend(refused.filter_map(|event| needless(event, &holds)).next());
    found
}

fn holds<'a>(events: &[&'a Event]) -> Vec<Hold<'a>> {
    let mut holds: Vec<Hold<'a>> = Vec::new();
    let mut of_process: HashMap<u32, usize> = HashMap::new();
    for event in events {
        match event.call {
            Call::Acquire if event.outcome != Outcome::Busy => {
                of_process.insert(event.process, holds.len());
                holds.push(Hold {
                    acquire: event,
                    release: None,
                });
            }
            Call::Release => {
                let held = of_process.get(&event.process);
                if let Some(hold) = held.and_then(|at| holds.get_mut(*at)) {
                    hold.release = Some(event);
                }
            }
            _ => {}
        }
    }
    holds
}

/// It was refused though nobody can have had the lock.
fn needless<'a>(refused: &'a Event, holds: &[Hold<'a>]) -> Option<Violation> {
    let overlaps = |hold: &Hold<'_>| {
        let (from, to) = hold.possible();
        from <= refused.end && to >= refused.begin
    };
    if holds.iter().any(overlaps) {
        return None;
    }
    let before = holds
        .iter()
        .filter(|hold| hold.possible().1 < refused.begin);
    let last = before.max_by_key(|hold| hold.possible().1);
    let mut calls = vec![refused];
    calls.extend(
        last.iter()
            .flat_map(|hold| [Some(hold.acquire), hold.release])
            .flatten(),
    );
    Some(Violation::new("a lock is refused that nobody has", &calls))
}
