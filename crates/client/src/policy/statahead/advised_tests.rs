//! What is asked for ahead of who said which names will be asked for.

use std::collections::HashSet;

use base::{Rng, SeededRng};

use super::*;

const DIR: Fid = Fid(1 << 24);
const NOW: Tick = Tick(0);
const WINDOW: u32 = 64;
const OPEN: HandleId = HandleId(7);

fn range(first: u64, last: u64, step: u64) -> Advised {
    Advised::Range(Numbering::new(b"f", b".x2", 5), [first, last], step)
}

fn list(names: &[Name], more: bool) -> Advised {
    let names = names.to_vec();
    Advised::List { names, more }
}

fn name(number: u64) -> Name {
    Name::try_from(&*format!("f{number:05}.x2")).expect("valid")
}

/// A mount whose replies come at once, and what it knows.
struct Mount {
    all: SequencePatterns,
    at_hand: HashSet<Name>,
    asked_for: HashSet<Name>,
    exists: fn(&Name) -> bool,
    requests: usize,
    fetched_in_vain: usize,
    /// Names that were left out, or are asked for later than others behind them.
    behind: usize,
}

impl Mount {
    fn new() -> Mount {
        Mount {
            all: SequencePatterns::default(),
            at_hand: HashSet::new(),
            asked_for: HashSet::new(),
            exists: |_| true,
            requests: 0,
            fetched_in_vain: 0,
            behind: 0,
        }
    }

    fn advise(&mut self, what: Advised) -> Result<(), Refusal> {
        let guess = self.all.advise(OPEN, DIR, what, WINDOW, NOW)?;
        self.fetch(guess);
        Ok(())
    }

    fn fetch(&mut self, guess: Option<Guess>) {
        let Some(guess) = guess else { return };
        self.requests += 1;
        let known = guess
            .names
            .iter()
            .filter(|name| self.at_hand.contains(*name));
        self.fetched_in_vain += known.count();
        self.at_hand.extend(guess.names.iter().cloned());
        let found = guess.names.iter().filter(|name| (self.exists)(name));
        let found = found.count();
        self.all.came(&guess, found);
        let ahead = self.at_hand.difference(&self.asked_for).count();
        assert!(ahead <= WINDOW as usize + self.behind, "{ahead} are ahead");
    }

    /// Asks for a name: it was fetched ahead.
    fn ask(&mut self, name: &Name) -> bool {
        let at_hand = self.at_hand.contains(name);
        let asked = self.all.asked_for(DIR, name, at_hand, (8, WINDOW), NOW);
        self.at_hand.insert(name.clone());
        self.asked_for.insert(name.clone());
        self.fetch(asked.guess);
        asked.hit
    }

    fn report(&self) -> WalkReport {
        let mut reports = self.all.reports();
        let report = reports.find(|report| report.pattern == Pattern::Advise);
        report.expect("it was advised")
    }
}

#[test]
fn a_range_begins_with_the_whole_window_and_is_fetched_as_it_is_used() {
    for (first, count, step) in [(0, 10_000, 1), (1, 5000, 3), (7, 10, 1000)] {
        let last = first + (count - 1) * step;
        let mut mount = Mount::new();
        mount
            .advise(range(first, last + step - 1, step))
            .expect("taken");
        assert_eq!(mount.at_hand.len() as u64, count.min(WINDOW.into()));
        let numbers = (first..=last).step_by(step as usize);
        assert!(numbers.map(name).all(|name| mount.ask(&name)));
        let least = count as usize / (WINDOW as usize / 2) + 1;
        assert!(mount.requests <= least, "{} requests", mount.requests);
        assert_eq!(mount.at_hand.len() as u64, count, "nothing beyond the end");
        let report = mount.report();
        assert_eq!((report.fetched, report.used), (count, count));
        assert_eq!((report.missed, report.bytes_unused), (0, 0));
    }
}

#[test]
fn a_list_is_fetched_in_its_order_and_can_be_gone_on_with() {
    let mut names: Vec<Name> = (0..3000).map(name).collect();
    let mut rng = SeededRng::new(3);
    (1..names.len()).for_each(|n| names.swap(n, rng.below(n as u64 + 1) as usize));
    let mut mount = Mount::new();
    for part in names.chunks(500) {
        mount.advise(list(part, true)).expect("taken");
    }
    assert_eq!(mount.at_hand.len(), WINDOW as usize);
    assert!(names.iter().all(|name| mount.ask(name)));
    assert!(
        mount.requests <= 3000 / 32 + 1,
        "{} requests",
        mount.requests
    );
    assert!(!mount.all.is_under_way_for(OPEN));
}

#[test]
fn within_the_window_any_order_is_fine_and_what_is_left_out_does_not_hold_it_up() {
    let mut mount = Mount::new();
    mount.advise(range(0, 2000, 1)).expect("taken");
    let mut hits = 0;
    mount.behind = 20;
    for block in 0..100 {
        mount.behind += 1;
        // Eight workers, one name of twenty left out.
        let numbers = (0..20).rev().filter(|n| n % 20 != 13);
        let names = numbers.map(|n| name(block * 20 + n));
        hits += names.filter(|name| mount.ask(name)).count();
    }
    assert!(hits > 1800, "{hits} of 1900");
    assert_eq!(mount.fetched_in_vain, 0);
}

#[test]
fn a_look_far_ahead_does_not_move_it_and_one_soon_after_does() {
    let mut mount = Mount::new();
    mount.advise(range(0, 9999, 1)).expect("taken");
    mount.behind = 62;
    assert!(!mount.ask(&name(9999)));
    assert!(mount.ask(&name(0)) && mount.ask(&name(1)));
    assert!(!mount.ask(&name(100)));
    assert!(mount.ask(&name(101)) && mount.ask(&name(120)));
    assert!(!mount.all.is_advised(DIR, &name(10_000)), "beyond the end");
    assert!(!mount.all.is_advised(Fid(9), &name(121)), "elsewhere");
}

#[test]
fn one_at_a_time_for_an_open_directory_until_most_of_it_is_used() {
    let mut mount = Mount::new();
    mount.advise(range(0, 99, 1)).expect("taken");
    assert_eq!(mount.advise(range(0, 9, 1)), Err(Refusal::UnderWay));
    let names: Vec<Name> = (200..210).map(name).collect();
    assert_eq!(mount.advise(list(&names, true)), Err(Refusal::UnderWay));
    (0..70).for_each(|n| assert!(mount.ask(&name(n))));
    mount
        .advise(list(&names, false))
        .expect("the range is done with");
    assert!(mount.ask(&name(70)) && mount.ask(&name(200)));
}

#[test]
fn a_list_has_a_greatest_length() {
    let mut mount = Mount::new();
    let mut number = 0;
    let full = loop {
        let names: Vec<Name> = (number..number + 300).map(name).collect();
        if let Err(refusal) = mount.advise(list(&names, true)) {
            break refusal;
        }
        number += 300;
    };
    assert_eq!(full, Refusal::Full);
    assert!((10_000..40_000).contains(&number), "{number}");
    (0..2000).for_each(|n| assert!(mount.ask(&name(n))));
    let names: Vec<Name> = (number..number + 300).map(name).collect();
    mount
        .advise(list(&names, true))
        .expect("there is room again");
}

#[test]
fn names_that_mostly_do_not_exist_end_it() {
    let mut mount = Mount::new();
    mount.exists = |_| false;
    mount.advise(range(0, 9999, 1)).expect("taken");
    let hits = (0..1000).filter(|n| mount.ask(&name(*n))).count();
    assert_eq!(mount.requests, usize::from(WRONG_MAX));
    assert!(hits <= 3 * WINDOW as usize, "{hits}");
    assert!(mount.report().ended && !mount.all.is_under_way_for(OPEN));
    let mut mount = Mount::new();
    mount.exists = |name| name.as_bytes().ends_with(b"0.x2") || name.as_bytes()[5] % 2 == 0;
    mount.advise(range(0, 999, 1)).expect("taken");
    let hits = (0..1000).filter(|n| mount.ask(&name(*n))).count();
    assert_eq!(hits, 1000, "half of them exist");
}

#[test]
fn who_asks_for_what_is_on_its_way_waits_until_it_comes_or_the_directory_is_closed() {
    let mut all = SequencePatterns::default();
    let guess = all.advise(OPEN, DIR, range(0, 999, 1), WINDOW, NOW);
    let guess = guess.expect("taken").expect("the first window");
    assert!(!guess.is_needed && !guess.is_first);
    assert!(all.wait_for(DIR, &name(63)).is_some());
    assert!(all.wait_for(DIR, &name(64)).is_none());
    assert!(!all.came(&guess, 64));
    assert!(all.wait_for(DIR, &name(63)).is_none());
    let more =
        |all: &mut SequencePatterns, n| all.asked_for(DIR, &name(n), true, (8, WINDOW), NOW).guess;
    assert!((0..31).all(|n| more(&mut all, n).is_none()));
    assert!(more(&mut all, 31).is_some());
    all.close(HandleId(8));
    assert!(all.is_under_way_for(OPEN) && all.wait_for(DIR, &name(70)).is_some());
    all.close(OPEN);
    assert!(all.is_empty() && all.wait_for(DIR, &name(70)).is_none());
    assert!(!all.came(&guess, 0), "an answer that is late");
}

#[test]
fn what_nobody_uses_ends_and_so_does_the_oldest_of_too_many() {
    let mut all = SequencePatterns::default();
    let begin = |all: &mut SequencePatterns, by, now| {
        all.advise(HandleId(by), DIR, range(0, 99, 1), WINDOW, now)
            .expect("taken");
    };
    (0..ADVICE_MAX as u64 + 1).for_each(|by| begin(&mut all, by, NOW));
    assert!(!all.is_under_way_for(HandleId(0)) && all.is_under_way_for(HandleId(1)));
    begin(&mut all, 1000, NOW.after(IDLE));
    assert!(!all.is_under_way_for(HandleId(1)) && all.is_under_way_for(HandleId(1000)));
}

#[test]
fn without_a_window_nothing_is_fetched() {
    let mut mount = Mount::new();
    mount.advise(range(0, 9999, 1)).expect("taken");
    for n in 0..200 {
        mount.at_hand.insert(name(n));
        let asked = mount.all.asked_for(DIR, &name(n), true, (8, 0), NOW);
        assert_eq!(asked.guess, None);
    }
}
