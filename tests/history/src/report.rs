//! Violations for people: the calls that contradict each other with their times, and the calls beside them.

use std::fmt::Write;

use crate::check::Violation;
use crate::event::{Event, NEVER};

/// Calls told that only ran beside.
const BESIDE_MAX: usize = 12;
/// How far around, in nanoseconds, is looked for faults.
const NEAR: u64 = 3_000_000_000;

/// Something that went wrong on purpose, from its begin to its end.
#[derive(Debug, Clone)]
pub struct Fault {
    /// CLOCK_MONOTONIC in nanoseconds.
    pub begin: u64,
    /// The same.
    pub end: u64,
    /// What it was.
    pub what: String,
}

/// Milliseconds from `start`.
fn moment(time: u64, start: u64) -> String {
    match time {
        NEVER => "never".to_owned(),
        0 => "before all".to_owned(),
        time => format!("{:+.3} ms", (time as f64 - start as f64) / 1e6),
    }
}

fn line(event: &Event, start: u64) -> String {
    let (begin, end) = (moment(event.begin, start), moment(event.end, start));
    let mut outcome = event.outcome.to_string();
    if outcome.len() > 200 {
        let tail = outcome.split_off(outcome.len() - 100);
        outcome = format!("{}…{tail}", &outcome[..80]);
    }
    let (process, mount) = (event.process, event.mount);
    let (how, call) = (&event.how, &event.call);
    format!("  {begin:>16} {end:>16} process {process} mount {mount}: {how} {call}: {outcome}\n")
}

/// One violation: the calls, what ran on the same object meanwhile, and the faults near by.
pub fn describe(violation: &Violation, history: &[Event], faults: &[Fault]) -> String {
    let calls = &violation.calls;
    let start = calls
        .iter()
        .map(|event| event.begin)
        .find(|begin| *begin > 0);
    let start = start.unwrap_or(0);
    let ends = calls
        .iter()
        .map(|event| event.end)
        .filter(|end| *end != NEVER);
    let end = ends.max().unwrap_or(start);
    let mut text = format!("{} of {}\n", violation.what, violation.object);
    calls
        .iter()
        .for_each(|event| text.push_str(&line(event, start)));
    let meanwhile = |event: &&Event| {
        event.object == violation.object
            && event.begin <= end
            && event.end >= start
            && !calls.contains(event)
    };
    let mut beside: Vec<&Event> = history.iter().filter(meanwhile).collect();
    beside.sort_by_key(|event| event.begin.abs_diff(end));
    if !beside.is_empty() {
        // A string takes whatever is written to it.
        let _ = writeln!(text, " and beside that, of {} calls:", beside.len());
    }
    beside.truncate(BESIDE_MAX);
    beside.sort_by_key(|event| event.begin);
    beside
        .iter()
        .for_each(|event| text.push_str(&line(event, start)));
    let near = |fault: &&Fault| fault.begin <= end + NEAR && fault.end + NEAR >= start;
    for fault in faults.iter().filter(near) {
        let (begin, end) = (moment(fault.begin, start), moment(fault.end, start));
        let _ = writeln!(text, "  {begin:>16} {end:>16} {}", fault.what);
    }
    text
}
