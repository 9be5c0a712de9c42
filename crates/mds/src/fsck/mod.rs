//! Checks a whole target that nobody serves: what in it contradicts what, and what would mend that. [`check`]
//! changes nothing; [`repair`] applies the mends and checks again until none is left. Memory grows with the
//! number of files.

mod contradictions;
mod damage;
mod history;
mod issue;
pub mod objects;
mod repair;
mod survey;
mod ways;

use crate::store::{Failure, Store};
use wire::hash::NameHasher;

pub use damage::{check_row, told_key};
pub use history::{ask_size, burn_sequences, forget_ost, next_sequence};
pub use issue::{Issue, Mend, Severity};
pub use repair::{Repaired, repair};

/// Checks the target in `store`; `hasher` is the one it runs with. Damaged records end it.
pub fn check(store: &Store, hasher: NameHasher) -> Result<Vec<Issue>, Failure> {
    Ok(survey::Survey::of(store, hasher)?.issues)
}
