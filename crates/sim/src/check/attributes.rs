//! Attributes: a look at a name shows the last value that was set or put there; a read finds the bytes put
//! there.

use base::FsError;

use crate::check::of_each;
use crate::check::order::{self, Verdict};
use crate::history::{Call, Entry, Seen, Subject};
use crate::programs::{FIRST_MODE, number_of, owner_of, xattr_of};

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    mode: u16,
    owner: u32,
    /// The extended attribute.
    xattr: Option<u64>,
    /// The mode that it was made with, which its bytes say; the first ones have no bytes.
    made: Option<u16>,
}

/// The first ones are of who made them, root.
const FIRST: Held = Held {
    mode: FIRST_MODE,
    owner: 0,
    xattr: None,
    made: None,
};

/// Looks for an order of the calls on each name.
pub fn check(history: &[Entry]) -> Vec<Verdict> {
    let names = of_each(history, |subject| matches!(subject, Subject::Attributes(_)));
    let verdicts = names.iter();
    verdicts
        .map(|calls| order::check(calls, FIRST, apply))
        .collect()
}

fn apply(held: &Held, entry: &Entry, _: usize) -> Option<Held> {
    match &entry.seen {
        Seen::Done | Seen::Unknown => changed(held, &entry.call),
        seen => shows(held, &entry.call, seen).then_some(*held),
    }
}

/// `call` may have shown `seen` of `held`.
fn shows(held: &Held, call: &Call, seen: &Seen) -> bool {
    let numbers = || held.made.map(number_of);
    match (call, seen) {
        (Call::Mode(_), Seen::Mode(mode)) => *mode == held.mode,
        (Call::Owner(_), Seen::Owner(owner)) => *owner == held.owner,
        (Call::GetXattr(_), Seen::Number(number)) => *number == held.xattr,
        (Call::RemoveXattr(_), Seen::Failed(FsError::NoAttribute)) => held.xattr.is_none(),
        (Call::Contents(_), Seen::Blocks(blocks)) => blocks.iter().copied().eq(numbers()),
        _ => false,
    }
}

/// What is there after `call`. What is changed while another comes in its place has been changed
/// before.
fn changed(held: &Held, call: &Call) -> Option<Held> {
    let mut after = *held;
    match call {
        Call::Chmod(_, mode) => after.mode = *mode,
        Call::Chown(_, owner) => after.owner = *owner,
        Call::SetXattr(_, number) => after.xattr = Some(*number),
        Call::RemoveXattr(_) if held.xattr.is_some() => after.xattr = None,
        Call::Remake(_, mode) => {
            after = Held {
                mode: *mode,
                owner: owner_of(*mode),
                xattr: xattr_of(*mode),
                made: Some(*mode),
            }
        }
        _ => return None,
    }
    Some(after)
}
