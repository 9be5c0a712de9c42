//! Which servers have a wall clock that is far from this machine's, and when a person is told. What
//! is compared, and what follows from it, is pure; peers of one process share it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::threads::Mutex;
use base::{TargetName, Timestamp};

use crate::threads::lock;

/// Clocks that are less far apart are not worth a word: `ls -l` and `make` hardly show it.
const APART: Duration = Duration::from_secs(10);

/// The servers of whose clocks a person was told, for all peers of a process. A server has several
/// targets, each is met again and again, and is told of once. As many as there are addresses.
#[derive(Debug, Clone, Default)]
pub struct Clocks(Arc<Mutex<Told>>);

impl Clocks {
    /// Compares the server's clock `there` with the times `here` at which the hello was sent and answered.
    /// Returns the line for the log, if it is news.
    pub(super) fn compare(
        &self,
        (target, address): (TargetName, String),
        here: (Timestamp, Timestamp),
        there: Timestamp,
    ) -> Option<Skewed> {
        let skew = skew(here, there);
        lock(&self.0).is_news(&address, skew).then_some(Skewed {
            target,
            address,
            skew,
        })
    }
}

/// By address, the skew that a person was told.
#[derive(Debug, Default)]
struct Told(BTreeMap<String, Skew>);

impl Told {
    /// The server at `address` is that far off. Not told yet, or so much less than what is so now
    /// that another one would look for another cause.
    fn is_news(&mut self, address: &str, skew: Skew) -> bool {
        if skew.by < APART {
            self.0.remove(address);
            return false;
        }
        let is_as_told = |told: &Skew| {
            let (less, more) = (told.by.min(skew.by), told.by.max(skew.by));
            told.is_ahead == skew.is_ahead && more < less * 2
        };
        if self.0.get(address).is_some_and(is_as_told) {
            return false;
        }
        self.0.insert(address.to_owned(), skew);
        true
    }
}

/// How far a server's clock is from this machine's, at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Skew {
    by: Duration,
    is_ahead: bool,
}

/// What cannot be the way that the message took. A machine may stand still between saying hello and
/// looking at the answer, and is not wrong for that.
fn skew((asked, answered): (Timestamp, Timestamp), there: Timestamp) -> Skew {
    let is_ahead = there > answered;
    let nanos = |time: Timestamp| i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos);
    let by = match is_ahead {
        true => nanos(there) - nanos(answered),
        false => nanos(asked) - nanos(there),
    };
    let by = Duration::from_nanos(u64::try_from(by.max(0)).unwrap_or(u64::MAX));
    Skew { by, is_ahead }
}

/// A server whose clock is far from this machine's.
#[derive(Debug)]
pub(super) struct Skewed {
    target: TargetName,
    address: String,
    skew: Skew,
}

impl fmt::Display for Skewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.skew.is_ahead {
            true => "ahead of",
            false => "behind",
        };
        write!(
            f,
            "the clock of the server at {} ({}) is {} s {direction} this machine's: nothing is lost \
             or waits because of that, but times of files come from both; set both clocks, by NTP say",
            self.address,
            self.target,
            (self.skew.by + Duration::from_millis(500)).as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp { secs, nanos: 5 }
    }

    /// What is said of a server at `address` that is `ahead` seconds ahead.
    fn said(clocks: &Clocks, address: &str, ahead: i64) -> Option<String> {
        let from = (TargetName::MGS, address.to_owned());
        let said = clocks.compare(from, (at(9_999), at(10_000)), at(10_000 + ahead));
        said.map(|skewed| skewed.to_string())
    }

    #[test]
    fn it_is_said_which_server_how_far_and_in_which_direction() {
        let clocks = Clocks::default();
        let line = said(&clocks, "a:1", 3600).unwrap();
        assert!(
            line.starts_with(
                "the clock of the server at a:1 (MGS) is 3600 s ahead of this machine's: "
            ),
            "{line}"
        );
        let line = said(&clocks, "b:1", -3601).unwrap();
        assert!(line.contains("b:1 (MGS) is 3600 s behind this"), "{line}");
        for near in [-10, -1, 0, 1, 9] {
            assert_eq!(said(&clocks, "c:1", near), None, "{near}");
        }
        assert!(said(&clocks, "c:1", 10).is_some());
    }

    #[test]
    fn a_server_is_told_of_once_until_it_was_right_or_is_far_from_what_was_told() {
        let clocks = Clocks::default();
        let peers = [clocks.clone(), clocks];
        let mut told = Vec::new();
        let story = [
            3600, 3600, 3700, 7199, 7200, 7200, 3601, 3600, -3600, -3500, 2, 3600, 3600,
        ];
        for (index, ahead) in story.into_iter().enumerate() {
            if said(&peers[index % 2], "a:1", ahead).is_some() {
                told.push((index, ahead));
            }
        }
        let expected = [(0, 3600), (4, 7200), (7, 3600), (8, -3600), (11, 3600)];
        assert_eq!(told, expected);
        assert!(said(&peers[0], "b:1", 3600).is_some());
    }

    #[test]
    fn who_stood_still_before_the_answer_was_seen_is_not_wrong() {
        let clocks = Clocks::default();
        let stood_still = (at(1_000), at(5_000));
        for there in [1_000, 3_000, 5_000] {
            let from = (TargetName::MGS, "a:1".to_owned());
            assert!(clocks.compare(from, stood_still, at(there)).is_none());
        }
    }

    #[test]
    fn any_two_times_can_be_compared() {
        let times = [i64::MIN, -1, 0, i64::MAX].map(at);
        for here in times {
            for there in times {
                let skew = skew((here, here), there);
                assert_eq!(skew.by.is_zero(), here == there);
            }
        }
    }
}
