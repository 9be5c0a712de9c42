//! Statahead for numbered names that are asked for without a listing, file7, file8 (Lustre's FNAME), and for
//! names that a program announced (ADVISE). The fourth name of a sequence opens a window that doubles while
//! it is used. Pure.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use base::limits::{ADVICE_MAX, ADVISED_LIST_BYTES_MAX};
use base::{Fid, Name, Tick};

use super::names::{NameList, Names, Numbering};
use crate::cache::handle::HandleId;
use crate::executor::{Oneshot, WaitList};
use crate::policy::statahead::report::{Pattern, WalkReport};
use crate::policy::statahead::tree::ENTRY_BYTES;

/// Sequences remembered. Beyond: the one asked for longest ago is forgotten.
const SEQUENCES_MAX: usize = 32;
/// Names in a row before anything is fetched ahead.
const RUN_MIN: u32 = 4;
/// Steps that are believed.
const STEP_MAX: u64 = 4096;
/// Windows in a row of which most did not exist, before a sequence ends.
const WRONG_MAX: u8 = 3;
/// After so long a sequence is forgotten.
const IDLE: Duration = Duration::from_secs(30);

/// Names a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SequenceId(u64);

/// Names to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guess {
    pub sequence: SequenceId,
    /// It is the first of a sequence that was seen.
    pub is_first: bool,
    /// Somebody waits for the first of the names.
    pub is_needed: bool,
    pub names: Vec<Name>,
}

/// What is known of a name that is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Foresight {
    /// It was fetched ahead.
    pub hit: bool,
    /// It is among those that were advised.
    pub is_advised: bool,
    /// What to ask for; where the name is not at hand, with itself first.
    pub guess: Option<Guess>,
}

/// What a program says it will ask for.
#[derive(Debug)]
pub(crate) enum Advised {
    /// Numbered names: the first and the last number, and the step from one to the next.
    Range(Numbering, [u64; 2], u64),
    /// These names. `more`: after those of the list that was advised before.
    List { names: Vec<Name>, more: bool },
}

/// Why nothing comes of what a program says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What it said before goes on.
    UnderWay,
    /// Its list is long enough already.
    Full,
}

/// All sequence patterns of a mount.
#[derive(Default)]
pub(crate) struct SequencePatterns {
    last: u64,
    /// Asked for longest ago first.
    seen: VecDeque<SequencePattern>,
    /// The same of those that were advised.
    advised: VecDeque<SequencePattern>,
}

struct SequencePattern {
    id: SequenceId,
    dir: Fid,
    names: Names,
    /// Where the name is that was asked for last; of advised ones the farthest.
    place: u64,
    /// Zero: not known yet.
    step: u64,
    run: u32,
    /// Names before this place were asked for.
    next: u64,
    window: u32,
    wrong: u8,
    seen: Tick,
    in_flight: Vec<Name>,
    waiters: WaitList,
    /// In all: guesses, names in them, and of these asked for.
    guesses: u64,
    guessed: u64,
    used: u64,
    missed: u64,
    advice: Option<Advice>,
}

/// What only an advised sequence has.
struct Advice {
    by: HandleId,
    /// The places of the first name and of the last.
    first: u64,
    last: u64,
    /// Places whose names were fetched and not asked for since, not far behind.
    unused: BTreeSet<u64>,
}

impl SequencePatterns {
    /// Nothing is remembered: there is nothing to tell of what is at hand.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.advised.is_empty()
    }

    /// A sequence has the name or goes on with it, or may begin with it and one before.
    pub fn goes_on_with(&self, dir: Fid, name: &Name) -> bool {
        self.is_advised(dir, name) || self.find(dir, name).is_some()
    }

    /// `name` is asked for. `window`: names fetched ahead at first and at most; nothing where the
    /// latter is zero.
    pub fn asked_for(
        &mut self,
        dir: Fid,
        name: &Name,
        at_hand: bool,
        window: (u32, u32),
        now: Tick,
    ) -> Foresight {
        self.forget_idle(now);
        if let Some((at, place)) = self.find_advised(dir, name)
            && let Some(mut pattern) = self.advised.remove(at)
        {
            pattern.seen = now;
            let (hit, guess) = pattern.advance(place, at_hand, window.1);
            self.advised.push_back(pattern);
            return Foresight {
                hit,
                is_advised: true,
                guess,
            };
        }
        let found = self.find(dir, name);
        let found = found.and_then(|(at, place)| Some((self.seen.remove(at)?, place)));
        let Some((mut pattern, place)) = found else {
            if !at_hand && window.1 > 0 {
                self.begin(dir, name, now);
            }
            return Foresight::default();
        };
        pattern.seen = now;
        let hit = at_hand && pattern.window > 0 && place < pattern.next;
        pattern.count(Asked { hit, at_hand });
        let guess = pattern.step_to(place, at_hand, window);
        self.seen.push_back(pattern);
        Foresight {
            hit,
            is_advised: false,
            guess,
        }
    }

    fn forget_idle(&mut self, now: Tick) {
        let recent = |one: &SequencePattern| now.since(one.seen) < IDLE;
        self.seen.retain(recent);
        self.advised.retain(recent);
    }

    /// The sequence that `name` goes on with, and its place; else one of which only the first name is
    /// known.
    fn find(&self, dir: Fid, name: &Name) -> Option<(usize, u64)> {
        let number = Numbering::number_in(name)?;
        // Names are compared last: who asks in no order has as many sequences as there may be.
        let goes_on = |(at, one): (usize, &SequencePattern)| {
            let may_be = one.dir == dir && one.comes_to(number);
            let place = may_be.then(|| one.place_of(dir, name))??;
            (place == number).then_some((at, place))
        };
        let newest_first = || self.seen.iter().enumerate().rev();
        let mut known = newest_first().filter(|(_, one)| one.step > 0);
        let found = known.find_map(goes_on);
        found.or_else(|| newest_first().find_map(goes_on))
    }

    fn begin(&mut self, dir: Fid, name: &Name, now: Tick) {
        let Some((numbering, number)) = Numbering::of(name) else {
            return;
        };
        if self.seen.len() >= SEQUENCES_MAX {
            self.seen.pop_front();
        }
        let id = self.next_id();
        let names = Names::Numbers(numbering);
        let pattern = SequencePattern::new(id, dir, names, number, now);
        self.seen.push_back(pattern);
    }

    fn next_id(&mut self) -> SequenceId {
        self.last += 1;
        SequenceId(self.last)
    }

    /// A program that has `dir` open says what it will ask for. What to ask for at once, if
    /// anything. `window`: names fetched ahead.
    pub fn advise(
        &mut self,
        by: HandleId,
        dir: Fid,
        what: Advised,
        window: u32,
        now: Tick,
    ) -> Result<Option<Guess>, Refusal> {
        self.forget_idle(now);
        let is_its = |one: &&mut SequencePattern| one.is_under_way_for(by);
        let under_way = self.advised.iter_mut().find(is_its);
        match (under_way, what) {
            (Some(pattern), Advised::List { names, more: true }) => {
                pattern.append(names, window, now)
            }
            (Some(_), _) => Err(Refusal::UnderWay),
            (None, what) => {
                if self.advised.len() >= ADVICE_MAX {
                    self.advised.pop_front();
                }
                let id = self.next_id();
                let mut pattern = SequencePattern::advised(id, dir, by, what, now);
                pattern.window = window;
                let guess = pattern.go_on();
                self.advised.push_back(pattern);
                Ok(guess)
            }
        }
    }

    /// What was advised by `by` goes on.
    pub fn is_under_way_for(&self, by: HandleId) -> bool {
        self.advised.iter().any(|one| one.is_under_way_for(by))
    }

    /// The directory is closed: what was advised by it ends.
    pub fn close(&mut self, by: HandleId) {
        let others =
            |one: &SequencePattern| one.advice.as_ref().is_none_or(|advice| advice.by != by);
        self.advised.retain(others);
    }

    /// `name` is among those that were advised.
    pub fn is_advised(&self, dir: Fid, name: &Name) -> bool {
        self.find_advised(dir, name).is_some()
    }

    /// Who has fetched the name, else any that will.
    fn find_advised(&self, dir: Fid, name: &Name) -> Option<(usize, u64)> {
        let has = |(at, one): (usize, &SequencePattern)| Some((at, one.place_of(dir, name)?));
        let going_on = |(_, one): &(usize, &SequencePattern)| one.wrong < WRONG_MAX;
        let all = || {
            let advised = self.advised.iter().enumerate();
            advised.filter(going_on).filter_map(has)
        };
        let fetched = |(at, place): &(usize, u64)| self.advised[*at].has_ahead(*place);
        all().find(fetched).or_else(|| all().next())
    }

    pub fn reports(&self) -> impl Iterator<Item = WalkReport> {
        // The others are names that nothing followed yet.
        let fetched_ahead = |one: &&SequencePattern| one.guesses > 0;
        let all = self.seen.iter().chain(&self.advised);
        all.filter(fetched_ahead).map(SequencePattern::report)
    }

    /// `name` is on its way: wait for it.
    pub fn wait_for(&mut self, dir: Fid, name: &Name) -> Option<Oneshot<()>> {
        let brings = |one: &&mut SequencePattern| one.dir == dir && one.in_flight.contains(name);
        let mut all = self.seen.iter_mut().chain(&mut self.advised);
        Some(all.find(brings)?.waiters.wait())
    }

    /// A guess was answered: so many of its names can be used. True: that was the end of the sequence.
    pub fn came(&mut self, guess: &Guess, found: usize) -> bool {
        let mut all = self.seen.iter_mut().chain(&mut self.advised);
        let Some(one) = all.find(|one| one.id == guess.sequence) else {
            return false;
        };
        one.in_flight.retain(|name| !guess.names.contains(name));
        one.waiters.wake_all();
        if 2 * found >= guess.names.len() {
            one.wrong = 0;
            return false;
        }
        one.wrong += 1;
        one.window /= 2;
        one.wrong == WRONG_MAX
    }
}

/// A name of a sequence that is asked for.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// It was fetched ahead, and is at hand.
    hit: bool,
    /// It is at hand, for that or another reason.
    at_hand: bool,
}

impl SequencePattern {
    /// One that begins at `place`.
    fn new(id: SequenceId, dir: Fid, names: Names, place: u64, now: Tick) -> SequencePattern {
        SequencePattern {
            id,
            dir,
            names,
            place,
            step: 0,
            run: 1,
            next: 0,
            window: 0,
            wrong: 0,
            seen: now,
            in_flight: Vec::new(),
            waiters: WaitList::default(),
            guesses: 0,
            guessed: 0,
            used: 0,
            missed: 0,
            advice: None,
        }
    }

    fn advised(
        id: SequenceId,
        dir: Fid,
        by: HandleId,
        what: Advised,
        now: Tick,
    ) -> SequencePattern {
        let (names, [first, last], step) = match what {
            Advised::Range(numbering, ends, step) => (Names::Numbers(numbering), ends, step),
            Advised::List { names, .. } => {
                let mut list = NameList::default();
                list.append(names);
                let last = list.end().saturating_sub(1);
                (Names::List(list), [0, last], 1)
            }
        };
        let advice = Advice {
            by,
            first,
            last,
            unused: BTreeSet::new(),
        };
        SequencePattern {
            step,
            next: first,
            advice: Some(advice),
            ..SequencePattern::new(id, dir, names, first, now)
        }
    }

    fn place_of(&self, dir: Fid, name: &Name) -> Option<u64> {
        let place = (self.dir == dir).then(|| self.names.place_of(name))??;
        match &self.advice {
            Some(advice) => self.is_advised(advice, place).then_some(place),
            None => Some(place),
        }
    }

    /// The place is the next, or among those that were asked for, or tells the step.
    fn comes_to(&self, place: u64) -> bool {
        let Some(distance) = place.checked_sub(self.place).filter(|by| *by > 0) else {
            return false;
        };
        match self.step {
            0 => distance <= STEP_MAX,
            step => distance.is_multiple_of(step) && (place < self.next || distance == step),
        }
    }

    fn count(&mut self, asked: Asked) {
        self.used += u64::from(asked.hit);
        self.missed += u64::from(!asked.at_hand);
    }

    /// Names ahead of the last one that was asked for.
    fn left(&self) -> u64 {
        self.next.saturating_sub(self.place + 1) / self.step
    }

    fn step_to(
        &mut self,
        place: u64,
        at_hand: bool,
        (window_min, window_max): (u32, u32),
    ) -> Option<Guess> {
        if self.step == 0 {
            self.step = place - self.place;
        }
        (self.place, self.run) = (place, self.run.saturating_add(1));
        let ended = self.wrong >= WRONG_MAX || window_max == 0;
        if ended || self.run < RUN_MIN || !self.in_flight.is_empty() {
            return None;
        }
        if at_hand && self.left() > u64::from(self.window / 2) {
            return None;
        }
        let is_first = self.window == 0;
        self.window = match is_first {
            true => window_min,
            false => self.window.saturating_mul(2),
        }
        .clamp(1, window_max);
        let first = match at_hand {
            true => self.next.max(place.checked_add(self.step)?),
            false => place,
        };
        let guess = self.guess(first, u64::from(self.window), !at_hand)?;
        Some(Guess { is_first, ..guess })
    }

    /// Asks for `count` names from `first` on, as far as there are any.
    fn guess(&mut self, first: u64, count: u64, is_needed: bool) -> Option<Guess> {
        let last = self.advice.as_ref().map_or(u64::MAX, |advice| advice.last);
        let place = |n: u64| first.checked_add(n.checked_mul(self.step)?);
        let places = (0..count).map_while(place);
        let places = places.take_while(|place| *place <= last);
        let names: Vec<Name> = places.map_while(|place| self.names.at(place)).collect();
        if names.is_empty() {
            return None;
        }
        self.next = first + names.len() as u64 * self.step;
        self.in_flight.extend_from_slice(&names);
        self.guesses += 1;
        self.guessed += names.len() as u64 - u64::from(is_needed);
        Some(Guess {
            sequence: self.id,
            is_first: false,
            is_needed,
            names,
        })
    }

    fn report(&self) -> WalkReport {
        WalkReport {
            pattern: match (&self.advice, self.step) {
                (Some(_), _) => Pattern::Advise,
                (None, 0 | 1) => Pattern::Fname,
                (None, _) => Pattern::Stride,
            },
            dir: self.dir,
            requests: self.guesses,
            fetched: self.guessed,
            used: self.used,
            missed: self.missed,
            window: u64::from(self.window),
            bytes: self.guessed * ENTRY_BYTES,
            bytes_unused: self.guessed.saturating_sub(self.used) * ENTRY_BYTES,
            ended: self.wrong >= WRONG_MAX,
        }
    }
}

/// Of advised ones.
impl SequencePattern {
    /// It has this place, and that is not long behind.
    fn is_advised(&self, advice: &Advice, place: u64) -> bool {
        let steps = place.abs_diff(self.place).is_multiple_of(self.step);
        let behind = self.place.saturating_sub(place) / self.step;
        let is_near = steps && behind <= u64::from(self.window);
        is_near && (advice.first..=advice.last).contains(&place)
    }

    fn has_ahead(&self, place: u64) -> bool {
        let advice = self.advice.as_ref();
        advice.is_some_and(|advice| advice.unused.contains(&place))
    }

    /// It is by `by`, and it is not so that all was fetched and most of that used.
    fn is_under_way_for(&self, by: HandleId) -> bool {
        let Some(advice) = self.advice.as_ref().filter(|advice| advice.by == by) else {
            return false;
        };
        let is_fetched = self.next > advice.last && self.in_flight.is_empty();
        let is_used = is_fetched && self.left() <= u64::from(self.window / 2);
        self.wrong < WRONG_MAX && !is_used
    }

    /// More names for a list.
    fn append(
        &mut self,
        names: Vec<Name>,
        window: u32,
        now: Tick,
    ) -> Result<Option<Guess>, Refusal> {
        let (Names::List(list), Some(advice)) = (&mut self.names, &mut self.advice) else {
            return Err(Refusal::UnderWay);
        };
        if list.bytes() + NameList::bytes_of(&names) > ADVISED_LIST_BYTES_MAX {
            return Err(Refusal::Full);
        }
        list.append(names);
        advice.last = list.end() - 1;
        (self.seen, self.window) = (now, window);
        Ok(self.go_on())
    }

    /// The name at `place` is asked for: whether it was fetched ahead, and what to ask for.
    fn advance(&mut self, place: u64, at_hand: bool, window_max: u32) -> (bool, Option<Guess>) {
        let window = u64::from(self.window.max(1));
        let was_ahead = |advice: &mut Advice| advice.unused.remove(&place);
        let hit = self.advice.as_mut().is_some_and(was_ahead) && at_hand;
        self.count(Asked { hit, at_hand });
        let beyond = place.checked_sub(self.next).map(|by| by / self.step);
        // A look at a name far ahead does not mean that the names before it are no longer needed.
        if beyond.is_some_and(|names| names >= window) {
            return (hit, None);
        }
        self.place = self.place.max(place);
        self.window = self.window.saturating_mul(2).clamp(1, window_max.max(1));
        self.forget_behind(window);
        if window_max == 0 {
            return (hit, None);
        }
        if beyond.is_some() {
            if !at_hand && self.in_flight.is_empty() {
                return (hit, self.ask_ahead(place, true));
            }
            self.next = place + self.step;
        }
        (hit, self.go_on())
    }

    fn forget_behind(&mut self, window: u64) {
        let kept = self.place.saturating_sub(window.saturating_mul(self.step));
        self.names.forget_before(kept);
        if let Some(advice) = &mut self.advice {
            advice.unused = advice.unused.split_off(&kept);
        }
    }

    /// Fetches what there is room for in the window, once half of it is used.
    fn go_on(&mut self) -> Option<Guess> {
        let is_busy = !self.in_flight.is_empty() || self.wrong >= WRONG_MAX;
        match is_busy || self.left() > u64::from(self.window / 2) {
            true => None,
            false => self.ask_ahead(self.next, false),
        }
    }

    fn ask_ahead(&mut self, first: u64, is_needed: bool) -> Option<Guess> {
        let ahead = if is_needed { 0 } else { self.left() };
        let room = u64::from(self.window).saturating_sub(ahead);
        let guess = self.guess(first, room, is_needed)?;
        let fetched = guess.names.len() as u64;
        if let Some(advice) = &mut self.advice {
            let ahead = u64::from(is_needed)..fetched;
            let places = ahead.map(|n| first + n * self.step);
            advice.unused.extend(places);
        }
        Some(guess)
    }
}

#[cfg(test)]
#[path = "sequences_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "advised_tests.rs"]
mod advised_tests;
