//! Searches an order of all calls, each at a moment between its start and its end, that explains every
//! answer. The search goes depth first through pairs of "how far each caller has come" and state, and enters
//! no pair twice. A call that never changes anything is placed as soon as its answer fits.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{Debug, Write as _};
use std::hash::Hash;
use std::time::Duration;

use crate::history::{Entry, Seen};

/// Places looked at. Beyond: the search gives up.
const PLACES_MAX: usize = 1_000_000;

/// What came of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Possible,
    /// There is none; where the longest attempt ended.
    Impossible(String),
    /// There are too many places to look at.
    TooMany,
}

/// Looks for an order of the calls. `apply` returns the state after a call, if the call's answer fits the
/// state before it.
pub fn check<S: State>(
    history: &[&Entry],
    first: S,
    apply: impl Fn(&S, &Entry, usize) -> Option<S>,
) -> Verdict {
    // Of what nobody knows nothing need have been done, and mostly there is an order without: where much
    // is not known, the search among all of it takes too long.
    let known = history.iter().filter(|entry| !entry.seen.is_open());
    let known: Vec<&Entry> = known.copied().collect();
    let without = match known.len() < history.len() {
        true => Search::new(&known, &apply).run(first.clone()),
        false => Verdict::TooMany,
    };
    match without {
        Verdict::Possible => Verdict::Possible,
        _ => Search::new(history, apply).run(first),
    }
}

/// What calls change and see.
pub trait State: Clone + Eq + Hash + Debug {}

impl<S: Clone + Eq + Hash + Debug> State for S {}

/// A place of the search.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place<S> {
    /// How many calls of each caller are done.
    done: Vec<u32>,
    state: S,
}

struct Search<'a, S, A> {
    /// The calls of each caller in their order; one whose end nobody knows is a caller of its own. Those
    /// that one loss may have undone are one, too: what is durable of them is as many as one likes of
    /// the first.
    callers: Vec<Vec<&'a Entry>>,
    seen: HashSet<Place<S>>,
    furthest: (u32, Option<Place<S>>),
    apply: A,
}

impl<'a, S: State, A: Fn(&S, &Entry, usize) -> Option<S>> Search<'a, S, A> {
    fn new(history: &[&'a Entry], apply: A) -> Search<'a, S, A> {
        let mut callers: BTreeMap<u32, Vec<&Entry>> = BTreeMap::new();
        let mut alone = Vec::new();
        let mut fleeting: BTreeMap<(u32, usize), Vec<&Entry>> = BTreeMap::new();
        for entry in history.iter().copied() {
            match &entry.seen {
                seen if seen.is_unknown() => alone.push(vec![entry]),
                Seen::Fleeting(_, loss) => {
                    let calls = fleeting.entry((entry.caller, *loss));
                    calls.or_default().push(entry);
                }
                _ => callers.entry(entry.caller).or_default().push(entry),
            }
        }
        let mut callers: Vec<_> = callers
            .into_values()
            .chain(fleeting.into_values())
            .collect();
        for calls in &mut callers {
            calls.sort_by_key(|entry| entry.start);
        }
        callers.extend(alone);
        Search {
            callers,
            seen: HashSet::new(),
            furthest: (0, None),
            apply,
        }
    }

    fn run(mut self, state: S) -> Verdict {
        let first = Place {
            done: vec![0; self.callers.len()],
            state,
        };
        let mut stack = vec![first];
        while let Some(place) = stack.pop() {
            if self.is_over(&place) {
                return Verdict::Possible;
            }
            if self.seen.len() >= PLACES_MAX {
                return Verdict::TooMany;
            }
            let count = place.done.iter().sum();
            if count >= self.furthest.0 {
                self.furthest = (count, Some(place.clone()));
            }
            for next in self.next(&place) {
                if self.seen.insert(next.clone()) {
                    stack.push(next);
                }
            }
        }
        Verdict::Impossible(self.explain())
    }

    fn pending(&self, place: &Place<S>) -> impl Iterator<Item = (usize, &'a Entry)> {
        let next = |(caller, calls): (usize, &Vec<&'a Entry>)| {
            Some((caller, *calls.get(place.done[caller] as usize)?))
        };
        self.callers
            .iter()
            .enumerate()
            .filter_map(next)
            .collect::<Vec<_>>()
            .into_iter()
    }

    fn is_over(&self, place: &Place<S>) -> bool {
        let mut pending = self.pending(place);
        pending.all(|(_, entry)| entry.seen.is_open())
    }

    /// The latest moment at which the next call can have been done.
    fn horizon(&self, place: &Place<S>) -> Duration {
        let known = self.pending(place);
        let ends = known.filter(|(_, entry)| !entry.seen.is_open());
        ends.map(|(_, entry)| entry.end)
            .min()
            .unwrap_or(Duration::MAX)
    }

    /// The earliest moment at which the next call can have been done.
    fn begun(&self, place: &Place<S>) -> Duration {
        let done = self.callers.iter().zip(&place.done);
        let last = done.filter_map(|(calls, done)| calls.get((*done as usize).checked_sub(1)?));
        last.map(|entry| entry.start).max().unwrap_or_default()
    }

    fn next(&self, place: &Place<S>) -> Vec<Place<S>> {
        let horizon = self.horizon(place);
        let mut found = Vec::new();
        let mut pending: Vec<_> = self.pending(place).collect();
        // The one that ended first is tried first: it goes on the stack last.
        pending.sort_by_key(|(_, entry)| std::cmp::Reverse((entry.seen.is_open(), entry.end)));
        for (caller, entry) in pending {
            let is_over = matches!(entry.seen, Seen::Fleeting(..)) && entry.end < self.begun(place);
            if entry.start > horizon || is_over {
                continue;
            }
            let Some(state) = (self.apply)(&place.state, entry, caller) else {
                continue;
            };
            let fits = state == place.state && entry.only_shows();
            let mut done = place.done.clone();
            done[caller] += 1;
            let next = Place { done, state };
            if fits && !self.ends_others(place, entry) {
                return vec![next];
            }
            found.push(next);
        }
        found
    }

    /// Some that might be next can no longer be when `entry` was.
    fn ends_others(&self, place: &Place<S>, entry: &Entry) -> bool {
        let mut pending = self.pending(place);
        pending
            .any(|(_, other)| matches!(other.seen, Seen::Fleeting(..)) && other.end < entry.start)
    }

    fn explain(&self) -> String {
        let Some(place) = &self.furthest.1 else {
            return "no call could be the first".to_owned();
        };
        let mut text = format!("after {} calls there is\n", self.furthest.0);
        // A string takes whatever is written to it.
        let _ = writeln!(text, "  {:?}", place.state);
        text.push_str("and none of these can be next:\n");
        let horizon = self.horizon(place);
        for (caller, entry) in self.pending(place) {
            let before = (place.done[caller] as usize).checked_sub(1);
            if let Some(before) = before.and_then(|at| self.callers[caller].get(at)) {
                let _ = writeln!(text, "         ({before})");
            }
            let late = if entry.start > horizon {
                " (not yet begun)"
            } else {
                ""
            };
            let _ = writeln!(text, "  {entry}{late}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use base::{Rng, SeededRng};

    use super::*;
    use crate::history::Call;

    /// A mode that is set and seen, as `entry` says.
    fn apply(held: &u16, entry: &Entry, _: usize) -> Option<u16> {
        let seen = match &entry.seen {
            Seen::Fleeting(seen, _) => seen,
            seen => seen,
        };
        match (&entry.call, seen) {
            (Call::Mode(_), Seen::Mode(mode)) => (mode == held).then_some(*held),
            (Call::Chmod(_, mode), Seen::Done | Seen::Unknown) => Some(*mode),
            (Call::Chmod(..), Seen::Failed(_)) => (*held == 0).then_some(*held),
            _ => None,
        }
    }

    /// Up to six calls of three callers.
    fn history(rng: &mut SeededRng) -> Vec<Entry> {
        let mut history = Vec::new();
        for caller in 0..3 {
            let mut now = rng.below(4);
            for _ in 0..rng.below(3) {
                let start = now;
                now += rng.below(4);
                history.push(entry(rng, caller, (start, now)));
                now += 1;
            }
        }
        history
    }

    fn entry(rng: &mut SeededRng, caller: u32, (start, end): (u64, u64)) -> Entry {
        let mode = rng.below(3) as u16;
        let set = Call::Chmod(0, mode);
        let (call, seen) = match rng.below(7) {
            0..=2 => (Call::Mode(0), Seen::Mode(mode)),
            3 => (set, Seen::Failed(base::FsError::Stale)),
            4 => (set, Seen::Unknown),
            5 => (set, Seen::Fleeting(Box::new(Seen::Done), 0)),
            _ => (set, Seen::Done),
        };
        Entry {
            caller,
            start: Duration::from_secs(start),
            end: Duration::from_secs(end),
            call,
            seen,
        }
    }

    /// Tries all orders of all that may have been done, one call after the other.
    fn is_possible(order: &mut Vec<usize>, history: &[Entry]) -> bool {
        let is_whole = || {
            let left = (0..history.len()).filter(|at| !order.contains(at));
            left.clone().all(|at| history[at].seen.is_open())
        };
        let fits = || {
            let mut calls = order.iter().map(|at| &history[*at]);
            let last = calls.try_fold(0, |held, entry| apply(&held, entry, 0));
            last.is_some()
        };
        if is_whole() && fits() {
            return true;
        }
        for at in 0..history.len() {
            if order.contains(&at) || !may_follow(at, order, history) {
                continue;
            }
            order.push(at);
            if is_possible(order, history) {
                return true;
            }
            order.pop();
        }
        false
    }

    /// Whether the call `at` may follow `order`. A call comes after all that ended before it began. A
    /// caller's calls keep their order. Of changes that were lost together none survives without the earlier
    /// ones.
    fn may_follow(at: usize, order: &[usize], history: &[Entry]) -> bool {
        let entry = &history[at];
        let has_end = |entry: &Entry| entry.seen != Seen::Unknown;
        let is_late = |done: &usize| has_end(entry) && entry.end < history[*done].start;
        let lost = |entry: &Entry| matches!(entry.seen, Seen::Fleeting(..));
        let is_first = |other: &usize| {
            let other = &history[*other];
            let before = other.caller == entry.caller && other.start < entry.start;
            before && has_end(other) && lost(other) == lost(entry) && has_end(entry)
        };
        let mut earlier = (0..history.len()).filter(is_first);
        !order.iter().any(is_late) && earlier.all(|at| order.contains(&at))
    }

    #[test]
    fn the_search_finds_an_order_where_trying_all_of_them_does() {
        let mut possible = 0;
        for seed in 0..20_000 {
            let history = history(&mut SeededRng::new(seed));
            let calls: Vec<&Entry> = history.iter().collect();
            let found = check(&calls, 0, apply) == Verdict::Possible;
            let truth = is_possible(&mut Vec::new(), &history);
            assert_eq!(found, truth, "seed {seed}: {history:#?}");
            possible += u32::from(truth);
        }
        assert!((2_000..18_000).contains(&possible), "{possible}");
    }
}
