//! Compares a history with the answers that one local file system could have given. Each object is checked on
//! its own, for a history is linearizable if that of each object is.

mod directories;
mod errors;
mod locks;
mod logs;
mod outages;
mod registers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::event::Event;
use crate::object::{Kind, Object};
use crate::outage::Outage;

pub use directories::is_directory;

/// What is excused, by what SEMANTICS says of the faults that come.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The disk is full at times. Calls may fail with `ENOSPC`, and what one wrote that then failed
    /// may have been seen until it failed (crash.full, op.fsync).
    pub full: bool,
    /// Mounts were evicted, or died (crash.eviction, crash.mount).
    pub outages: Vec<Outage>,
}

/// Calls that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What they are about.
    pub object: Object,
    /// Why they cannot all be.
    pub what: String,
    /// The calls, in the order in which they began.
    pub calls: Vec<Event>,
}

impl Violation {
    fn new(what: impl Into<String>, calls: &[&Event]) -> Violation {
        let mut calls: Vec<Event> = calls.iter().map(|event| (*event).clone()).collect();
        calls.sort_by_key(|event| (event.begin, event.process, event.end));
        calls.dedup();
        let object = calls.first().map(|event| event.object);
        Violation {
            object: object.expect("a violation has calls"),
            what: what.into(),
            calls,
        }
    }

    /// What it has in common with others: no number, nothing that was found, and the last call.
    pub fn sort(&self) -> String {
        let is_number = |word: &&str| word.chars().any(|letter| letter.is_ascii_digit());
        let words = self
            .what
            .split([' ', '_'])
            .take_while(|word| *word != "are");
        let words: Vec<&str> = words.filter(|word| !is_number(word)).collect();
        let how = self.calls.last().map_or("", |call| &call.how);
        format!("{} of a {} by {how}", words.join(" "), self.object.kind)
    }
}

/// All violations in a history, of each object the first few.
pub fn check(history: &[Event], policy: &Policy) -> Vec<Violation> {
    let mut found = errors::check(history, policy);
    let settled = outages::settle(history, &policy.outages);
    let mut objects: BTreeMap<Object, Vec<&Event>> = BTreeMap::new();
    for event in &settled {
        objects.entry(event.object).or_default().push(event);
    }
    for (object, mut events) in objects {
        events.sort_by_key(|event| event.begin);
        found.extend(match object.kind {
            Kind::Block | Kind::Word | Kind::Replaced | Kind::Size | Kind::End => {
                registers::check(&events, policy)
            }
            Kind::Log => logs::check(&events, policy),
            Kind::Lock => locks::check(&events),
            Kind::Directory => directories::check(&events),
            Kind::Names => Vec::new(),
        });
    }
    found
}
