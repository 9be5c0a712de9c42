//! Whether one local file system could have shown the programs what they saw.

pub mod attributes;
pub mod bytes;
mod doubt;
pub mod gardens;
pub mod names;
pub mod order;

use crate::history::{Entry, Subject};

pub use doubt::{without_beliefs, without_doubtful};

/// The calls on each subject that `of` picks.
fn of_each(history: &[Entry], of: fn(Subject) -> bool) -> Vec<Vec<&Entry>> {
    let subjects = history.iter().filter_map(|entry| entry.call.subject());
    let mut subjects: Vec<Subject> = subjects.filter(|subject| of(*subject)).collect();
    subjects.sort_unstable();
    subjects.dedup();
    let calls = |subject: Subject| {
        let calls = history.iter();
        calls.filter(move |entry| entry.call.subject() == Some(subject))
    };
    subjects
        .into_iter()
        .map(|subject| calls(subject).collect())
        .collect()
}
