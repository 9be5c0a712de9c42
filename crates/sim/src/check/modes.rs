//! Modes: who asks for the mode of a name sees what was put there, or set, last; and who reads there
//! finds the bytes that were put there.

use crate::check::of_each;
use crate::check::order::{self, Verdict};
use crate::history::{Call, Entry, Seen, Subject};
use crate::programs::{FIRST_MODE, number_of};

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    mode: u16,
    /// The one it was made with, which its bytes say; the first ones have no bytes.
    made: Option<u16>,
}

const FIRST: Held = Held {
    mode: FIRST_MODE,
    made: None,
};

/// Looks for an order of the calls on each name.
pub fn check(history: &[Entry]) -> Vec<Verdict> {
    let names = of_each(history, |subject| matches!(subject, Subject::Mode(_)));
    let verdicts = names.iter();
    verdicts
        .map(|calls| order::check(calls, FIRST, apply))
        .collect()
}

fn apply(held: &Held, entry: &Entry, _: usize) -> Option<Held> {
    let numbers = || held.made.map(number_of);
    match (&entry.call, &entry.seen) {
        (Call::Mode(_), Seen::Mode(mode)) => (*mode == held.mode).then_some(*held),
        (Call::Contents(_), Seen::Blocks(blocks)) => {
            blocks.iter().copied().eq(numbers()).then_some(*held)
        }
        // One that is changed while another comes in its place has been changed before.
        (Call::Chmod(_, mode), Seen::Done | Seen::Unknown) => Some(Held {
            mode: *mode,
            ..*held
        }),
        (Call::Remake(_, mode), Seen::Done | Seen::Unknown) => Some(Held {
            mode: *mode,
            made: Some(*mode),
        }),
        _ => None,
    }
}
