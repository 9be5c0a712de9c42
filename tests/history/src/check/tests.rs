//! Histories that are known to be right, or wrong, so that the checker can fail.

mod outages;

use super::*;
use crate::event::{Call, NEVER, Outcome};
use crate::record::length;

const REGISTER: Object = Object {
    kind: Kind::Block,
    number: 0,
    part: 0,
};
const LOG: Object = Object {
    kind: Kind::Log,
    number: 0,
    part: 0,
};
const LOCK: Object = Object {
    kind: Kind::Lock,
    number: 0,
    part: 0,
};
const DIRECTORY: Object = Object {
    kind: Kind::Directory,
    number: 0,
    part: 0,
};

/// Calls, each by a process of its own, unless it says another.
struct History(Vec<Event>);

impl History {
    fn new() -> History {
        History(Vec::new())
    }

    fn call(mut self, object: Object, times: (u64, u64), call: Call, outcome: Outcome) -> History {
        self.0.push(Event {
            process: self.0.len() as u32,
            mount: 0,
            begin: times.0,
            end: times.1,
            object,
            how: "call".to_owned(),
            file: 0,
            call,
            outcome,
        });
        self
    }

    /// The last call is of this process.
    fn by(mut self, process: u32) -> History {
        self.0.last_mut().expect("a call").process = process;
        self
    }

    fn write(self, begin: u64, end: u64, value: u64) -> History {
        self.call(REGISTER, (begin, end), Call::Write(value), Outcome::Done)
    }

    fn read(self, begin: u64, end: u64, value: u64) -> History {
        self.call(REGISTER, (begin, end), Call::Read, Outcome::Value(value))
    }

    fn append(self, begin: u64, end: u64, id: u64) -> History {
        self.call(LOG, (begin, end), Call::Append(id), Outcome::Done)
    }

    fn records(self, begin: u64, end: u64, ids: &[u64]) -> History {
        self.call(
            LOG,
            (begin, end),
            Call::ReadAll,
            Outcome::Records(ids.to_vec()),
        )
    }

    fn stat(self, begin: u64, end: u64, ids: &[u64], blocks: u64) -> History {
        let bytes = ids.iter().map(|id| length(*id) as u64).sum();
        self.call(LOG, (begin, end), Call::Stat, Outcome::Sizes(bytes, blocks))
    }

    fn held(self, process: u32, acquire: (u64, u64), release: (u64, u64)) -> History {
        let taken = self
            .call(LOCK, acquire, Call::Acquire, Outcome::Done)
            .by(process);
        taken
            .call(LOCK, release, Call::Release, Outcome::Done)
            .by(process)
    }

    fn busy(self, begin: u64, end: u64) -> History {
        self.call(LOCK, (begin, end), Call::Acquire, Outcome::Busy)
    }

    fn made(self, begin: u64, end: u64, name: u32) -> History {
        self.call(DIRECTORY, (begin, end), Call::Make(name), Outcome::Done)
    }

    fn removed(self, begin: u64, end: u64, name: u32) -> History {
        self.call(DIRECTORY, (begin, end), Call::Remove(name), Outcome::Done)
    }

    fn listed(self, begin: u64, end: u64, names: &[u32]) -> History {
        self.call(
            DIRECTORY,
            (begin, end),
            Call::List,
            Outcome::Names(names.to_vec()),
        )
    }

    fn counted(self, begin: u64, end: u64, count: u64) -> History {
        self.call(DIRECTORY, (begin, end), Call::Count, Outcome::Number(count))
    }

    #[track_caller]
    fn passes(self) {
        assert_eq!(check(&self.0, &Policy::default()), []);
    }

    /// The violation that is found, of which the calls are these by number.
    #[track_caller]
    fn fails_with(self, what: &str, calls: &[usize]) {
        let found = check(&self.0, &Policy::default());
        let one = found
            .first()
            .unwrap_or_else(|| panic!("nothing is found, not even: {what}"));
        assert!(one.what.contains(what), "{}", one.what);
        let numbered = self.0.iter().enumerate();
        let told = numbered.filter(|(_, event)| one.calls.contains(event));
        let told: Vec<usize> = told.map(|(number, _)| number).collect();
        assert_eq!(told, calls, "{found:#?}");
    }
}

#[test]
fn registers_that_could_be() {
    let new = History::new;
    new().read(0, 1, 0).write(2, 3, 7).read(4, 5, 7).passes();
    // While it is written either may be seen, by one who comes later the new one.
    new().write(2, 9, 7).read(3, 4, 0).read(5, 6, 7).passes();
    // Two writes at once come in either order.
    new().write(2, 9, 7).write(2, 9, 8).read(10, 11, 7).passes();
    // What failed, or never returned, may have been done, now or later.
    let failed = Outcome::Failed(libc::ENOSPC);
    let maybe = |times, outcome| new().call(REGISTER, times, Call::Write(7), outcome);
    let full = Policy {
        full: true,
        ..Policy::default()
    };
    let history = maybe((2, 3), failed).read(4, 5, 0).read(6, 7, 7);
    assert_eq!(check(&history.0, &full), []);
    let mut history = maybe((2, NEVER), Outcome::Nothing)
        .read(4, 5, 0)
        .read(6, 7, 7);
    assert_eq!(check(&history.0, &full).len(), 1, "that it does not return");
    history.0[0].end = 8;
    history.0[0].outcome = Outcome::Done;
    history.passes();
}

#[test]
fn registers_that_could_not_be() {
    let new = History::new;
    new()
        .write(2, 3, 7)
        .read(4, 5, 0)
        .fails_with("acknowledged write is gone", &[0, 1]);
    let lost = new().write(2, 3, 7).write(4, 5, 8).read(6, 7, 7);
    lost.fails_with("two values", &[0, 1, 2]);
    let back = new().write(2, 9, 7).read(3, 4, 7).read(5, 6, 0);
    back.fails_with("acknowledged write is gone", &[0, 1, 2]);
    new()
        .read(0, 1, 7)
        .write(2, 3, 7)
        .fails_with("before it is written", &[0, 1]);
    new().read(0, 1, 7).fails_with("nobody wrote", &[0]);
    let torn = Outcome::Flawed("torn".to_owned());
    let history = new().write(1, 2, 6).write(3, 5, 7).write(9, 10, 8);
    history
        .call(REGISTER, (4, 6), Call::Read, torn)
        .fails_with("torn", &[0, 1, 3]);
    let flip = new()
        .write(1, 9, 6)
        .write(1, 9, 7)
        .read(2, 3, 6)
        .read(4, 5, 7)
        .read(6, 7, 6);
    flip.fails_with("two values", &[0, 1, 2, 3, 4]);
}

#[test]
fn what_a_full_disk_takes_back_is_excused_until_the_write_fails() {
    let failed = || Outcome::Failed(libc::ENOSPC);
    let history = |last| {
        let write = History::new().call(REGISTER, (2, 6), Call::Write(7), failed());
        write.read(3, 4, 7).read(7, 8, 0).read(9, 10, last)
    };
    let full = Policy {
        full: true,
        ..Policy::default()
    };
    assert_eq!(check(&history(0).0, &full), []);
    assert_eq!(check(&history(7).0, &full), [], "the target may do it yet");
    let after = History::new().call(REGISTER, (2, 6), Call::Write(7), failed());
    let after = after.read(7, 8, 7).read(9, 10, 0);
    assert_eq!(check(&after.0, &full).len(), 1);
    let found = check(&history(0).0, &Policy::default());
    assert!(
        found.iter().any(|one| one.what.contains("No space left")),
        "{found:#?}"
    );
}

#[test]
fn every_history_of_a_register_is_judged_as_trying_all_orders_does() {
    use base::{Rng, SeededRng};
    let mut right = 0;
    for seed in 0..30_000 {
        let mut rng = SeededRng::new(seed);
        let mut history = History::new();
        for value in 1..=1 + rng.below(3) {
            let begin = 1 + rng.below(10);
            history = history.write(begin, begin + 1 + rng.below(6), value);
        }
        for _ in 0..1 + rng.below(3) {
            let begin = 1 + rng.below(12);
            let value = rng.below(4);
            history = history.read(begin, begin + 1 + rng.below(6), value);
        }
        // All stamps differ, as those of a clock do.
        let count = history.0.len() as u64;
        for (number, event) in history.0.iter_mut().enumerate() {
            event.begin = event.begin * 2 * count + number as u64;
            event.end = event.end * 2 * count + count + number as u64;
        }
        let found = check(&history.0, &Policy::default());
        let truth = has_order(&history.0, &mut vec![false; history.0.len()], 0);
        assert_eq!(
            found.is_empty(),
            truth,
            "seed {seed}: {:#?} {found:#?}",
            history.0
        );
        right += u32::from(truth);
    }
    assert!((3_000..27_000).contains(&right), "{right}");
}

/// Whether what is not done yet can be done one after the other.
fn has_order(history: &[Event], done: &mut Vec<bool>, held: u64) -> bool {
    if done.iter().all(|done| *done) {
        return true;
    }
    for at in 0..history.len() {
        let left = || history.iter().zip(done.iter()).filter(|(_, done)| !**done);
        let is_first = left().all(|(other, _)| other.end > history[at].begin);
        if done[at] || !is_first {
            continue;
        }
        let after = match (&history[at].call, &history[at].outcome) {
            (Call::Write(value), _) => *value,
            (_, Outcome::Value(value)) if *value == held => held,
            _ => continue,
        };
        done[at] = true;
        let found = has_order(history, done, after);
        done[at] = false;
        if found {
            return true;
        }
    }
    false
}

#[test]
fn logs_that_could_be() {
    let new = History::new;
    new()
        .records(0, 1, &[])
        .append(2, 3, 1)
        .append(4, 5, 2)
        .records(6, 7, &[1, 2])
        .passes();
    let both = new()
        .append(2, 9, 1)
        .append(2, 9, 2)
        .records(3, 8, &[2])
        .records(10, 11, &[2, 1]);
    both.passes();
    let sized = new()
        .append(2, 3, 1)
        .stat(2, 4, &[], 0)
        .stat(5, 6, &[1], 8)
        .records(7, 8, &[1]);
    sized.passes();
}

#[test]
fn logs_that_could_not_be() {
    let new = History::new;
    new()
        .append(2, 3, 1)
        .records(4, 5, &[])
        .records(6, 7, &[1])
        .fails_with("lacks", &[0, 1]);
    let lost = new().append(2, 3, 1).append(4, 5, 2).records(6, 7, &[2]);
    lost.fails_with("in no read", &[0, 2]);
    new()
        .append(2, 3, 1)
        .records(4, 5, &[1, 1])
        .fails_with("twice", &[0, 1]);
    new()
        .records(4, 5, &[1])
        .fails_with("nobody appended", &[0]);
    let order = new().append(2, 3, 1).append(4, 5, 2).records(6, 7, &[2, 1]);
    order.fails_with("behind", &[0, 1]);
    let apart = new()
        .append(2, 9, 1)
        .append(2, 9, 2)
        .records(3, 4, &[1])
        .records(10, 11, &[2, 1]);
    apart.fails_with("same place", &[0, 1, 2, 3]);
    let early = new().records(1, 2, &[1]).append(3, 4, 1);
    early.fails_with("before it is appended", &[0, 1]);
    let flaw = Outcome::Flawed("30 bytes at 40 are NULs, after 1, before 3".to_owned());
    let torn = new()
        .append(2, 3, 1)
        .append(4, 5, 2)
        .append(5, 6, 3)
        .append(20, 21, 4);
    let torn = torn
        .call(LOG, (10, 11), Call::ReadAll, flaw)
        .records(30, 31, &[1, 3, 4]);
    torn.fails_with("NULs", &[0, 1, 2, 4]);
    let small = new().append(2, 3, 1).stat(4, 5, &[], 0).records(7, 8, &[1]);
    small.fails_with("too few", &[0, 1]);
    let large = new()
        .stat(1, 2, &[1], 8)
        .append(3, 4, 1)
        .records(7, 8, &[1]);
    large.fails_with("more than were appended", &[0]);
    let holes = new()
        .append(2, 3, 1)
        .stat(4, 5, &[1], 0)
        .records(7, 8, &[1]);
    holes.fails_with("blocks", &[0, 1]);
    let odd = new().append(2, 3, 1).records(7, 8, &[1]);
    let odd = odd.call(LOG, (4, 5), Call::Stat, Outcome::Sizes(3, 8));
    odd.fails_with("after no append", &[0, 2]);
}

#[test]
fn locks() {
    let new = History::new;
    new()
        .held(1, (0, 1), (2, 3))
        .held(2, (2, 4), (5, 6))
        .passes();
    new().held(1, (0, 5), (6, 7)).busy(1, 2).passes();
    // Nobody knows since when: it is refused by one who is not yet told that he has it.
    new().busy(0, 3).held(1, (2, 4), (6, 7)).passes();
    let both = new().held(1, (0, 1), (5, 6)).held(2, (2, 3), (7, 8));
    both.fails_with("same time", &[0, 1, 2, 3]);
    let kept = new()
        .call(LOCK, (0, 1), Call::Acquire, Outcome::Done)
        .held(2, (2, 3), (7, 8));
    kept.fails_with("same time", &[0, 1, 2]);
    let free = new().held(1, (0, 1), (2, 3)).busy(5, 6);
    free.fails_with("nobody has", &[0, 1, 2]);
}

#[test]
fn directories() {
    let new = History::new;
    let right = new()
        .made(0, 1, 1)
        .made(2, 9, 2)
        .listed(3, 4, &[1])
        .listed(5, 6, &[1, 2]);
    right
        .removed(10, 11, 1)
        .listed(12, 13, &[2])
        .counted(12, 13, 0)
        .counted(3, 4, 1)
        .passes();
    new()
        .made(0, 1, 1)
        .listed(3, 4, &[])
        .fails_with("lacks", &[0, 1]);
    new()
        .made(0, 1, 1)
        .listed(3, 4, &[1, 1])
        .fails_with("twice", &[0, 1]);
    new()
        .listed(3, 4, &[1])
        .made(5, 6, 1)
        .fails_with("is not there", &[0, 1]);
    let gone = new().made(0, 1, 1).removed(2, 3, 1).listed(4, 5, &[1]);
    gone.fails_with("is not there", &[0, 1, 2]);
    new().listed(4, 5, &[1]).fails_with("nobody made", &[0]);
    new()
        .made(0, 1, 1)
        .counted(4, 5, 0)
        .fails_with("0 subdirectories", &[0, 1]);
    let less = new().made(0, 1, 1).removed(2, 3, 1).counted(4, 5, 1);
    less.fails_with("1 subdirectories", &[1, 2]);
}

#[test]
fn errors_and_calls_that_never_return() {
    let names = Object::whole(Kind::Names, 0);
    let failed = |errno| {
        let outcome = Outcome::Failed(errno);
        History::new().call(names, (0, 1), Call::Path, outcome)
    };
    failed(libc::ENOENT).passes();
    failed(libc::ESTALE).fails_with("Stale", &[0]);
    failed(libc::EIO).fails_with("Input/output", &[0]);
    let never = History::new().call(LOG, (0, NEVER), Call::Append(1), Outcome::Nothing);
    never.fails_with("does not return", &[0]);
    let short = Outcome::Flawed("3 of 9 bytes are written".to_owned());
    let short = History::new().call(LOG, (0, 1), Call::Append(1), short);
    short.fails_with("3 of 9", &[0]);
}
