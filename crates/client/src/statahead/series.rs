//! Statahead over numbered names: file7, file8 or shot0010.exr, shot0020.exr, by whoever knows the
//! names without a listing (Lustre's FNAME, and with steps greater than one).
//!
//! Two questions in a row about names of one directory that differ in their last number alone make a
//! series; the fourth that goes up by the same step begins to fetch ahead. A series has a window,
//! which doubles while what was fetched is asked for, halves while most of it does not exist, and ends
//! for good when that goes on. Several in one directory do not disturb each other.
//!
//! Pure: told of what is asked and what was found, says which names to ask for.

use std::collections::VecDeque;
use std::time::Duration;

use base::{Fid, Name, Tick};

use super::report::{Pattern, WalkReport};
use super::tree::ENTRY_BYTES;
use crate::executor::{Oneshot, WaitList};

/// Series remembered. Beyond: the one asked for longest ago is forgotten.
const SERIES_MAX: usize = 32;
/// Names in a row before anything is fetched ahead.
const RUN_MIN: u32 = 4;
/// Steps that are believed.
const STEP_MAX: u64 = 4096;
/// Windows in a row of which most did not exist, before a series ends.
const WRONG_MAX: u8 = 3;
/// Digits of a number.
const DIGITS_MAX: usize = 18;
/// After so long a series is forgotten.
const IDLE: Duration = Duration::from_secs(30);

/// Names a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeriesId(u64);

/// Names to ask for, the one that is needed first, if any is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guess {
    pub series: SeriesId,
    /// It is the first of the series.
    pub is_first: bool,
    pub names: Vec<Name>,
}

/// What is known of a name that is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Foresight {
    /// It was fetched ahead.
    pub hit: bool,
    /// What to ask for; where the name is not at hand, with itself first.
    pub guess: Option<Guess>,
}

/// All series of a mount.
#[derive(Default)]
pub(crate) struct AllSeries {
    last: u64,
    /// Asked for longest ago first.
    series: VecDeque<Series>,
}

/// A name with a number in it: what comes before and after its last digits, and these.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Numbered {
    stem: (Vec<u8>, Vec<u8>),
    number: u64,
    digits: usize,
    /// It begins with a zero: all of the series have as many digits.
    is_padded: bool,
}

struct Series {
    id: SeriesId,
    dir: Fid,
    stem: (Vec<u8>, Vec<u8>),
    /// How many digits numbers have at least.
    digits: usize,
    /// The name asked for last.
    number: u64,
    /// Zero: not known yet.
    step: u64,
    run: u32,
    /// Names up to this one were asked for.
    asked: u64,
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
}

impl AllSeries {
    /// Nothing is remembered: there is nothing to tell of what is at hand.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
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
        self.series.retain(|one| now.since(one.seen) < IDLE);
        let Some(numbered) = Numbered::parse(name) else {
            return Foresight::default();
        };
        let found = self.find(dir, &numbered);
        let Some(mut series) = found.and_then(|at| self.series.remove(at)) else {
            if !at_hand && window.1 > 0 {
                self.begin(dir, numbered, now);
            }
            return Foresight::default();
        };
        series.seen = now;
        let hit = at_hand && series.window > 0 && numbered.number <= series.asked;
        series.used += u64::from(hit);
        series.missed += u64::from(!at_hand);
        let guess = series.step_to(&numbered, at_hand, window);
        self.series.push_back(series);
        Foresight { hit, guess }
    }

    /// The series that `name` goes on with; else one of which only the first name is known.
    fn find(&self, dir: Fid, name: &Numbered) -> Option<usize> {
        let goes_on = |one: &Series| one.dir == dir && one.comes_to(name.number) && one.has(name);
        let known = |one: &&Series| one.step > 0 && goes_on(one);
        let newest_first = || self.series.iter().enumerate().rev();
        let found = newest_first().find(|(_, one)| known(one));
        let found = found.or_else(|| newest_first().find(|(_, one)| goes_on(one)));
        found.map(|(at, _)| at)
    }

    fn begin(&mut self, dir: Fid, name: Numbered, now: Tick) {
        if self.series.len() >= SERIES_MAX {
            self.series.pop_front();
        }
        self.last += 1;
        self.series.push_back(Series {
            id: SeriesId(self.last),
            dir,
            digits: if name.is_padded { name.digits } else { 1 },
            stem: name.stem,
            number: name.number,
            step: 0,
            run: 1,
            asked: name.number,
            window: 0,
            wrong: 0,
            seen: now,
            in_flight: Vec::new(),
            waiters: WaitList::default(),
            guesses: 0,
            guessed: 0,
            used: 0,
            missed: 0,
        });
    }

    pub fn reports(&self) -> impl Iterator<Item = WalkReport> {
        // The others are names that nothing followed yet.
        let fetched_ahead = |one: &&Series| one.guesses > 0;
        self.series.iter().filter(fetched_ahead).map(Series::report)
    }

    /// `name` is on its way: wait for it.
    pub fn wait_for(&mut self, dir: Fid, name: &Name) -> Option<Oneshot<()>> {
        let brings = |one: &&mut Series| one.dir == dir && one.in_flight.contains(name);
        Some(self.series.iter_mut().find(brings)?.waiters.wait())
    }

    /// A guess was answered: so many of its names exist. True: that was the end of the series.
    pub fn came(&mut self, guess: &Guess, found: usize) -> bool {
        let Some(one) = self.series.iter_mut().find(|one| one.id == guess.series) else {
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

impl Numbered {
    fn parse(name: &Name) -> Option<Numbered> {
        let bytes = name.as_bytes();
        let end = bytes.iter().rposition(u8::is_ascii_digit)? + 1;
        let is_other = |byte: &u8| !byte.is_ascii_digit();
        let start = bytes[..end]
            .iter()
            .rposition(is_other)
            .map_or(0, |at| at + 1);
        let digits = &bytes[start..end];
        if digits.len() > DIGITS_MAX {
            return None;
        }
        let value = |number: u64, digit: &u8| number * 10 + u64::from(digit - b'0');
        Some(Numbered {
            stem: (bytes[..start].to_vec(), bytes[end..].to_vec()),
            number: digits.iter().fold(0, value),
            digits: digits.len(),
            is_padded: digits.len() > 1 && digits[0] == b'0',
        })
    }
}

impl Series {
    /// The name is written as those of the series are.
    fn has(&self, name: &Numbered) -> bool {
        let as_long = match name.is_padded {
            true => name.digits == self.digits,
            false => name.digits >= self.digits,
        };
        self.stem == name.stem && as_long
    }

    /// The number is the next, or among those that were asked for, or tells the step.
    fn comes_to(&self, number: u64) -> bool {
        let Some(distance) = number.checked_sub(self.number).filter(|by| *by > 0) else {
            return false;
        };
        match self.step {
            0 => distance <= STEP_MAX,
            step => distance.is_multiple_of(step) && number <= self.asked.max(self.number + step),
        }
    }

    fn step_to(
        &mut self,
        name: &Numbered,
        at_hand: bool,
        (window_min, window_max): (u32, u32),
    ) -> Option<Guess> {
        if self.step == 0 {
            self.step = name.number - self.number;
        }
        (self.number, self.run) = (name.number, self.run.saturating_add(1));
        let ended = self.wrong >= WRONG_MAX || window_max == 0;
        if ended || self.run < RUN_MIN || !self.in_flight.is_empty() {
            return None;
        }
        let left = self.asked.saturating_sub(self.number) / self.step;
        if at_hand && left > u64::from(self.window / 2) {
            return None;
        }
        let is_first = self.window == 0;
        self.window = match is_first {
            true => window_min,
            false => self.window.saturating_mul(2),
        }
        .clamp(1, window_max);
        self.guess(at_hand, is_first)
    }

    fn guess(&mut self, at_hand: bool, is_first: bool) -> Option<Guess> {
        let first = match at_hand {
            true => self.asked.max(self.number).checked_add(self.step)?,
            false => self.number,
        };
        let numbers = (0..u64::from(self.window)).map_while(|n| first.checked_add(n * self.step));
        let names: Vec<Name> = numbers.map_while(|number| self.name(number)).collect();
        self.asked = first + (names.len() as u64).saturating_sub(1) * self.step;
        self.in_flight.extend_from_slice(&names);
        self.guesses += 1;
        self.guessed += names.len() as u64 - u64::from(!at_hand && !names.is_empty());
        (!names.is_empty()).then_some(Guess {
            series: self.id,
            is_first,
            names,
        })
    }

    fn report(&self) -> WalkReport {
        WalkReport {
            pattern: match self.step {
                0 | 1 => Pattern::Fname,
                _ => Pattern::Stride,
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

    fn name(&self, number: u64) -> Option<Name> {
        let digits = format!("{number:0width$}", width = self.digits);
        let (before, after) = &self.stem;
        let bytes = [before, digits.as_bytes(), after].concat();
        (digits.len() <= DIGITS_MAX).then(|| Name::new(&bytes).ok())?
    }
}

#[cfg(test)]
#[path = "series_tests.rs"]
mod tests;
