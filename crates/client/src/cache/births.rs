//! Files that were made here and that the MDT does not know yet (ADR 19). They are in the order in which they
//! were made, so a directory comes before what is in it.

use std::collections::{BTreeMap, HashMap};

use base::{Fid, Name, Tick};

/// How one of them stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody has heard of it.
    Unreported,
    /// It is on its way to the MDT.
    OnItsWay,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Birth {
    /// The directory in which it was made.
    pub dir: Fid,
    /// Its name.
    pub name: Name,
    /// When it was made.
    pub since: Tick,
    pub standing: Standing,
}

impl Birth {
    /// Of a file that is made at `since`.
    pub fn new(dir: Fid, name: Name, since: Tick) -> Birth {
        let standing = Standing::Unreported;
        Birth {
            dir,
            name,
            since,
            standing,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Births {
    by_fid: HashMap<Fid, (u64, Birth)>,
    /// In the order in which they were made; from one to the next the number grows.
    order: BTreeMap<u64, Fid>,
    /// How many each directory has.
    in_dir: HashMap<Fid, usize>,
    last: u64,
}

impl Births {
    /// `fid` is made.
    pub fn add(&mut self, fid: Fid, birth: Birth) {
        self.last += 1;
        *self.in_dir.entry(birth.dir).or_default() += 1;
        self.by_fid.insert(fid, (self.last, birth));
        self.order.insert(self.last, fid);
    }

    /// The MDT knows `fid`, or never will.
    pub fn end(&mut self, fid: Fid) -> Option<Birth> {
        let (number, birth) = self.by_fid.remove(&fid)?;
        self.order.remove(&number);
        if let Some(count) = self.in_dir.get_mut(&birth.dir) {
            *count -= 1;
            if *count == 0 {
                self.in_dir.remove(&birth.dir);
            }
        }
        Some(birth)
    }

    /// What there is to tell of `fid`.
    pub fn get(&self, fid: Fid) -> Option<&Birth> {
        self.by_fid.get(&fid).map(|(_, birth)| birth)
    }

    /// The MDT does not know `fid`.
    pub fn is_unborn(&self, fid: Fid) -> bool {
        self.by_fid.contains_key(&fid)
    }

    /// What the MDT says of `fid`, or of what is in it, would not be all.
    pub fn concern(&self, fid: Fid) -> bool {
        self.is_unborn(fid) || self.in_dir.contains_key(&fid)
    }

    /// There is something in `dir` that the MDT does not know.
    pub fn are_in(&self, dir: Fid) -> bool {
        self.in_dir.contains_key(&dir)
    }

    /// What that is.
    pub fn in_directory(&self, dir: Fid) -> Vec<Fid> {
        let births = self.by_fid.iter();
        let inside = births.filter(|(_, (_, birth))| birth.dir == dir);
        inside.map(|(fid, _)| *fid).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The number of the newest that there ever was.
    pub fn newest(&self) -> u64 {
        self.last
    }

    /// All up to that number were told, or given up.
    pub fn are_reported_until(&self, number: u64) -> bool {
        self.order
            .first_key_value()
            .is_none_or(|(first, _)| *first > number)
    }

    /// When the oldest was made.
    pub fn oldest(&self) -> Option<Tick> {
        let (_, fid) = self.order.first_key_value()?;
        self.get(*fid).map(|birth| birth.since)
    }

    /// The first `max` that nobody has heard of, which are on their way from now on.
    pub fn send(&mut self, max: usize) -> Vec<Fid> {
        let mut sent = Vec::new();
        for fid in self.order.values() {
            if sent.len() >= max {
                break;
            }
            if let Some((_, birth)) = self.by_fid.get_mut(fid)
                && birth.standing == Standing::Unreported
            {
                birth.standing = Standing::OnItsWay;
                sent.push(*fid);
            }
        }
        sent
    }

    /// It did not arrive, and is to be sent again.
    pub fn send_again(&mut self, fid: Fid) {
        if let Some((_, birth)) = self.by_fid.get_mut(&fid) {
            birth.standing = Standing::Unreported;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid(7);

    fn birth(dir: Fid, name: &str, since: u64) -> Birth {
        Birth::new(dir, Name::new(name.as_bytes()).expect("good"), Tick(since))
    }

    #[test]
    fn what_was_made_first_is_sent_first_and_once() {
        let mut births = Births::default();
        births.add(Fid(9), birth(DIR, "d", 1));
        births.add(Fid(8), birth(Fid(9), "f", 2));
        assert_eq!(births.send(1), [Fid(9)]);
        assert_eq!(births.send(9), [Fid(8)]);
        assert_eq!(births.send(9), []);
        births.send_again(Fid(8));
        assert_eq!(births.send(9), [Fid(8)]);
        let last = births.newest();
        births.end(Fid(9));
        assert!(!births.are_reported_until(last) && births.oldest() == Some(Tick(2)));
        births.end(Fid(8));
        assert!(births.are_reported_until(last) && births.len() == 0);
    }

    #[test]
    fn a_directory_is_concerned_as_long_as_something_in_it_is_unborn() {
        let mut births = Births::default();
        births.add(Fid(8), birth(DIR, "a", 1));
        births.add(Fid(9), birth(DIR, "b", 1));
        assert!(births.concern(DIR) && !births.is_unborn(DIR) && births.concern(Fid(8)));
        assert_eq!(births.end(Fid(8)).map(|birth| birth.dir), Some(DIR));
        assert!(births.are_in(DIR));
        births.end(Fid(9));
        assert!(!births.concern(DIR) && births.end(Fid(9)).is_none());
    }
}
