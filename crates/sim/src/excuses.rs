//! What faults excuse: calls that fail, old sights, changes that are undone.

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
    /// Calls that end then may fail, and nobody knows what came of them.
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

/// Short absences in a row are a long one: whoever is away so for about `limit`, and back too
/// shortly in between, may be given up.
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
        .iter_mut()
        .for_each(|absence| absence.until = Duration::MAX);
    joined
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
}
