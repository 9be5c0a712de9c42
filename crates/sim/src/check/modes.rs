//! Modes: who asks for the mode of a name sees what was put there, or set, last.

use crate::check::of_each;
use crate::check::order::{self, Verdict};
use crate::history::{Call, Entry, Seen, Subject};
use crate::programs::FIRST_MODE;

/// Looks for an order of the calls on each name.
pub fn check(history: &[Entry]) -> Vec<Verdict> {
    let names = of_each(history, |subject| matches!(subject, Subject::Mode(_)));
    let verdicts = names.iter();
    verdicts
        .map(|calls| order::check(calls, FIRST_MODE, apply))
        .collect()
}

fn apply(held: &u16, entry: &Entry, _: usize) -> Option<u16> {
    match (&entry.call, &entry.seen) {
        (Call::Mode(_), Seen::Mode(mode)) => (mode == held).then_some(*held),
        // One that is changed while another comes in its place has been changed before.
        (Call::Remake(_, mode) | Call::Chmod(_, mode), Seen::Done | Seen::Unknown) => Some(*mode),
        _ => None,
    }
}
