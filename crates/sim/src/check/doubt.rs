//! What a client showed to its own programs and then lost, or believed for too long.

use base::FsError;

use crate::excuses::Excuse;
use crate::history::{Call, Entry, Seen, Subject};

/// Without what clients that believed what they had, as `stale` says, showed to their programs. An
/// attribute that was set then may be that of what the name led to before.
pub fn without_beliefs(history: &[Entry], programs: u32, stale: &[Excuse]) -> Vec<Entry> {
    let is_belief = |entry: &Entry| {
        let client = entry.caller / programs;
        let mut stale = stale.iter();
        stale.any(|excuse| excuse.covers(client, entry.start, entry.end))
    };
    let said = |entry: &Entry| {
        let mut entry = match is_belief(entry) {
            true if entry.only_shows() => return None,
            true => entry.clone(),
            false => return Some(entry.clone()),
        };
        let subject = entry.call.subject();
        let is_by_name = matches!(subject, Some(Subject::Attributes(_)));
        if is_by_name && !matches!(entry.call, Call::Remake(..)) {
            entry.seen = Seen::Unknown;
        }
        Some(entry)
    };
    history.iter().filter_map(said).collect()
}

/// Without what a client lost after it had shown it. A change that it had not made durable, and
/// that nobody knows the outcome of, as its own programs saw it meanwhile. Where it failed for
/// bytes that are damaged, as its programs saw it as long as those were, and as others saw it
/// meanwhile: who changes a size says what it will be. And such a change has its effect as long as
/// those are, or its call lasts, or never. Others who ask how long a file is are told by who
/// changes that, and by the OST, before it is durable: where the one who does is given up the size
/// may go with it.
pub fn without_doubtful(history: &[Entry], programs: u32, failures: &[Excuse]) -> Vec<Entry> {
    let lost = history
        .iter()
        .filter(|entry| entry.seen == Seen::Unknown && !entry.call.is_read());
    let lost: Vec<&Entry> = lost.collect();
    let damage = |entry: &Entry| {
        let mut of_bytes = failures.iter().filter(|excuse| excuse.file.is_some());
        let client = entry.caller / programs;
        of_bytes.find(|excuse| {
            excuse.concerns(&entry.call) && excuse.covers(client, entry.start, entry.end)
        })
    };
    let is_damaged = |entry: &Entry| damage(entry).is_some();
    let went_with_writer = |change: &Entry| {
        let client = change.caller / programs;
        let mut given_up = failures.iter().filter(|excuse| excuse.client.is_some());
        change.call.changes_size()
            && given_up.any(|excuse| excuse.covers(client, change.start, change.end))
    };
    let is_size = |entry: &Entry| matches!(entry.call, Call::Size(_));
    let shows = |entry: &Entry, change: &Entry| {
        let is_own = change.caller / programs == entry.caller / programs;
        let meanwhile = entry.start <= change.end;
        change.call.subject() == entry.call.subject()
            && change.start <= entry.end
            && match is_own {
                true => meanwhile || (is_damaged(change) && is_damaged(entry)),
                false if meanwhile && is_size(entry) && went_with_writer(change) => true,
                false => meanwhile && is_damaged(change),
            }
    };
    let is_sight = |entry: &Entry| {
        let is_refused = entry.seen == Seen::Failed(FsError::NoAttribute);
        entry.call.is_read() || is_refused
    };
    let is_doubtful =
        |entry: &Entry| is_sight(entry) && lost.iter().any(|change| shows(entry, change));
    let bounded = |entry: &Entry| match damage(entry) {
        Some(damage) if entry.seen == Seen::Unknown => Entry {
            end: damage.until.max(entry.end),
            seen: Seen::Fleeting(Box::new(Seen::Unknown), 0),
            ..entry.clone()
        },
        _ => entry.clone(),
    };
    let kept = history.iter().filter(|entry| !is_doubtful(entry));
    kept.map(bounded).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_size_that_is_not_durable_may_go_with_who_made_it() {
        let at = Duration::from_secs;
        let entry = |caller, (start, end), call: Call, seen: Seen| Entry {
            caller,
            start: at(start),
            end: at(end),
            call,
            seen,
        };
        let size = |start| entry(0, (start, start + 1), Call::Size(0), Seen::Bytes(64));
        let write = |seen| entry(2, (10, 20), Call::Append(0, 1), seen);
        let cut = entry(2, (10, 20), Call::Truncate(0, 1), Seen::Unknown);
        let hole = entry(2, (10, 20), Call::Punch(0, 1), Seen::Unknown);
        let read = entry(0, (12, 13), Call::Get(0), Seen::Blocks(vec![1]));
        let given_up = |client| {
            let excuse = Excuse {
                client: Some(client),
                file: None,
                from: at(15),
                until: at(30),
            };
            vec![excuse]
        };
        let kept = |change: Entry, sight: Entry, excuses: &[Excuse]| {
            without_doubtful(&[change, sight], 2, excuses).len() == 2
        };
        assert!(!kept(write(Seen::Unknown), size(12), &given_up(1)));
        assert!(kept(write(Seen::Done), size(12), &given_up(1)), "durable");
        assert!(kept(write(Seen::Unknown), size(21), &given_up(1)), "later");
        assert!(kept(write(Seen::Unknown), size(12), &given_up(2)), "not it");
        assert!(kept(write(Seen::Unknown), read, &given_up(1)), "its bytes");
        assert!(!kept(cut, size(12), &given_up(1)));
        assert!(kept(hole, size(12), &given_up(1)), "changes no size");
    }

    #[test]
    fn a_mode_that_was_set_by_belief_may_be_of_what_was_there_before() {
        let at = Duration::from_secs;
        let entry = |caller, start, call: Call, seen: Seen| Entry {
            caller,
            start: at(start),
            end: at(start + 1),
            call,
            seen,
        };
        let history = [
            entry(2, 10, Call::Mode(0), Seen::Mode(5)),
            entry(2, 12, Call::Chmod(0, 7), Seen::Done),
            entry(2, 20, Call::Chmod(0, 7), Seen::Done),
            entry(0, 12, Call::Chmod(0, 7), Seen::Done),
        ];
        let stale = [Excuse {
            client: Some(1),
            file: None,
            from: at(5),
            until: at(15),
        }];
        let said = without_beliefs(&history, 2, &stale);
        let seen: Vec<&Seen> = said.iter().map(|entry| &entry.seen).collect();
        assert_eq!(seen, [&Seen::Unknown, &Seen::Done, &Seen::Done]);
    }
}
