//! What faults excuse: calls that fail, old sights, changes that are undone.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::history::{Call, Subject};

/// A stretch of time in which faults excuse something of one client, or of all, on one file, or all.
#[derive(Debug, Clone, Copy)]
pub struct Excuse {
    /// Whom; none: everybody.
    pub client: Option<u32>,
    /// Calls on the bytes of which file; none: all calls.
    pub file: Option<u8>,
    /// From when.
    pub from: Duration,
    /// Until when.
    pub until: Duration,
}

/// What faults excuse.
#[derive(Debug, Clone, Default)]
pub struct Excuses {
    /// Calls that last or end then may fail, and nobody knows what came of them.
    pub failures: Vec<Excuse>,
    /// What was seen then says nothing: a client that runs again believes what it had, until it hears
    /// that it was given up.
    pub stale: Vec<Excuse>,
    /// Changes of names that were made then may be undone, for they were not durable, and nobody
    /// was there to say them again.
    pub undone: Vec<Excuse>,
}

impl Excuse {
    /// It is about such a call.
    pub fn concerns(&self, call: &Call) -> bool {
        let subject = self.file.map(Subject::Bytes);
        subject.is_none() || call.subject() == subject
    }

    /// It excuses what `client` did from `start` to `end`.
    pub fn covers(&self, client: u32, start: Duration, end: Duration) -> bool {
        let concerns = self.client.is_none_or(|who| who == client);
        concerns && end >= self.from && start <= self.until
    }
}

/// Who comes back needs so long to be heard: a connect that nobody answers, and one more.
const COMING_BACK: Duration = Duration::from_secs(4);

/// How long calls may still use stale answers: calls that were under way when an evicted client worked again,
/// or a server was mended.
pub const AFTERMATH: Duration = Duration::from_secs(1);

/// Short absences in a row are a long one. A client that is away so for about `limit`, and back too shortly
/// in between, may be given up.
pub fn long_absences(mut away: Vec<Excuse>, limit: Duration) -> Vec<Excuse> {
    away.sort_by_key(|absence| (absence.client, absence.from));
    let mut joined: Vec<Excuse> = Vec::new();
    for absence in away {
        match joined.last_mut() {
            Some(last)
                if last.client == absence.client && absence.from <= last.until + COMING_BACK =>
            {
                last.until = last.until.max(absence.until);
            }
            _ => joined.push(absence),
        }
    }
    joined.retain(|absence| absence.until + COMING_BACK >= absence.from + limit);
    joined
}

/// What is excused of a client that was away so long that it may have been given up. It was, if it has
/// begun anew with a server about then: `begun` has when clients did. Then it is excused until the last
/// time that it did, for it knows then, and works again; and until what was under way is over. Who is
/// asked for something while away has time to do it until `limit` later, and is given up then at the
/// latest.
pub fn of_given_up(
    absence: Excuse,
    begun: &BTreeSet<(u32, Duration)>,
    limit: Duration,
) -> Option<Excuse> {
    let heard = absence.from..absence.until + COMING_BACK + limit;
    let mut began = begun.iter().rev();
    let last = began.find(|(who, at)| Some(*who) == absence.client && heard.contains(at));
    let until = absence.until.max(last?.1) + AFTERMATH;
    Some(Excuse { until, ..absence })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(client: u32, from: u64, until: u64) -> Excuse {
        Excuse {
            client: Some(client),
            file: None,
            from: Duration::from_secs(from),
            until: Duration::from_secs(until),
        }
    }

    fn excused(away: &[Excuse]) -> Vec<(Option<u32>, u64)> {
        let found = long_absences(away.to_vec(), Duration::from_secs(12));
        let brief = |excuse: &Excuse| (excuse.client, excuse.from.as_secs());
        found.iter().map(brief).collect()
    }

    #[test]
    fn one_short_absence_excuses_nothing() {
        assert_eq!(excused(&[away(1, 5, 10)]), []);
    }

    #[test]
    fn short_absences_in_a_row_are_a_long_one() {
        let row = [away(1, 9, 14), away(1, 5, 10)];
        assert_eq!(excused(&row), [(Some(1), 5)]);
    }

    #[test]
    fn absences_of_different_clients_or_far_apart_are_not() {
        assert_eq!(excused(&[away(1, 5, 10), away(2, 9, 14)]), []);
        assert_eq!(excused(&[away(1, 5, 10), away(1, 15, 20)]), []);
    }

    #[test]
    fn who_was_given_up_is_excused_until_it_works_again_and_nobody_else_is() {
        let excused_until = |begun: &[(u32, u64)]| {
            let begun = begun
                .iter()
                .map(|(who, at)| (*who, Duration::from_secs(*at)));
            let limit = Duration::from_secs(12);
            let excuse = of_given_up(away(1, 10, 40), &begun.collect(), limit)?;
            Some((excuse.until - AFTERMATH).as_secs())
        };
        assert_eq!(
            excused_until(&[(1, 0), (1, 41), (1, 43), (2, 44), (1, 90)]),
            Some(43)
        );
        assert_eq!(excused_until(&[(1, 0), (1, 11)]), Some(40), "it was away");
        assert_eq!(excused_until(&[(1, 0), (2, 41), (1, 90)]), None);
    }
}
