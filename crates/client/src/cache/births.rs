//! Files that were made here and that the MDT does not know yet (ADR 19). They are in the order in which they
//! were made, so a directory comes before what is in it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

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

/// Which of them somebody needs reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The file, what was made in it, and the directories above it.
    Of(Fid),
    /// Those up to that number; see [`Births::newest`].
    Until(u64),
    /// Those made at that time or before.
    MadeBy(Tick),
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Births {
    by_fid: HashMap<Fid, (u64, Birth)>,
    /// In the order in which they were made; from one to the next the number grows.
    order: BTreeMap<u64, Fid>,
    /// The numbers of those in each directory.
    in_dir: HashMap<Fid, BTreeSet<u64>>,
    last: u64,
}

impl Births {
    /// `fid` is made.
    pub fn add(&mut self, fid: Fid, birth: Birth) {
        self.last += 1;
        self.in_dir.entry(birth.dir).or_default().insert(self.last);
        self.by_fid.insert(fid, (self.last, birth));
        self.order.insert(self.last, fid);
    }

    /// The MDT knows `fid`, or never will.
    pub fn end(&mut self, fid: Fid) -> Option<Birth> {
        let (number, birth) = self.by_fid.remove(&fid)?;
        self.order.remove(&number);
        self.leave(birth.dir, number);
        Some(birth)
    }

    fn leave(&mut self, dir: Fid, number: u64) {
        if let Some(inside) = self.in_dir.get_mut(&dir) {
            inside.remove(&number);
            if inside.is_empty() {
                self.in_dir.remove(&dir);
            }
        }
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

    /// What that is, in the order in which it was made.
    pub fn in_directory(&self, dir: Fid) -> Vec<Fid> {
        let numbers = self.in_dir.get(&dir).into_iter().flatten();
        numbers
            .filter_map(|number| self.order.get(number).copied())
            .collect()
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

    /// Nothing of what is wished for is left.
    pub fn have_no(&self, wish: Wish) -> bool {
        match wish {
            Wish::Of(fid) => !self.concern(fid),
            Wish::Until(number) => self.are_reported_until(number),
            Wish::MadeBy(then) => self.oldest().is_none_or(|oldest| oldest > then),
        }
    }

    /// About `max` that nobody has heard of, which are on their way from now on. Each comes after the
    /// directories above it. As long as somebody wishes for single files, the others wait.
    pub fn send(&mut self, wishes: &[Wish], max: usize) -> Vec<Fid> {
        let is_single = |wish: &&Wish| matches!(wish, Wish::Of(_));
        let mut sending = Sending::default();
        for wish in wishes.iter().filter(is_single) {
            self.choose(*wish, max, &mut sending);
        }
        if sending.chosen.is_empty() {
            for wish in wishes {
                self.choose(*wish, max, &mut sending);
            }
        }
        for fid in &sending.chosen {
            self.set_standing(*fid, Standing::OnItsWay);
        }
        sending.chosen
    }

    fn choose(&self, wish: Wish, max: usize, sending: &mut Sending) {
        let is_due = |number: u64, fid: Fid| match wish {
            Wish::Of(_) => true,
            Wish::Until(last) => number <= last,
            Wish::MadeBy(then) => self.get(fid).is_some_and(|birth| birth.since <= then),
        };
        if let Wish::Of(fid) = wish {
            self.choose_with_directories(fid, sending);
            for inside in self.in_directory(fid) {
                if sending.chosen.len() >= max {
                    return;
                }
                self.choose_with_directories(inside, sending);
            }
            return;
        }
        for (number, fid) in &self.order {
            if sending.chosen.len() >= max || !is_due(*number, *fid) {
                return;
            }
            self.choose_with_directories(*fid, sending);
        }
    }

    /// The file, after all above it that are not known.
    fn choose_with_directories(&self, fid: Fid, sending: &mut Sending) {
        let (mut chain, mut at) = (Vec::new(), fid);
        while let Some(birth) = self.get(at)
            && birth.standing == Standing::Unreported
            && sending.seen.insert(at)
        {
            chain.push(at);
            at = birth.dir;
        }
        sending.chosen.extend(chain.into_iter().rev());
    }

    fn set_standing(&mut self, fid: Fid, standing: Standing) {
        if let Some((_, birth)) = self.by_fid.get_mut(&fid) {
            birth.standing = standing;
        }
    }

    /// It did not arrive, and is to be sent again.
    pub fn send_again(&mut self, fid: Fid) {
        self.set_standing(fid, Standing::Unreported);
    }
}

/// What a message is to have.
#[derive(Default)]
struct Sending {
    chosen: Vec<Fid>,
    seen: HashSet<Fid>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid(7);

    fn birth(dir: Fid, name: &str, since: u64) -> Birth {
        Birth::new(dir, Name::new(name.as_bytes()).expect("good"), Tick(since))
    }

    const ALL: &[Wish] = &[Wish::Until(u64::MAX)];

    #[test]
    fn what_was_made_first_is_sent_first_and_once() {
        let mut births = Births::default();
        births.add(Fid(9), birth(DIR, "d", 1));
        births.add(Fid(8), birth(Fid(9), "f", 2));
        assert_eq!(births.send(ALL, 1), [Fid(9)]);
        assert_eq!(births.send(ALL, 9), [Fid(8)]);
        assert_eq!(births.send(ALL, 9), []);
        births.send_again(Fid(8));
        assert_eq!(births.send(ALL, 9), [Fid(8)]);
        let last = births.newest();
        births.end(Fid(9));
        assert!(!births.are_reported_until(last) && births.oldest() == Some(Tick(2)));
        births.end(Fid(8));
        assert!(births.are_reported_until(last) && births.len() == 0);
    }

    /// Two directories, one in the other, and three files: two in the inner one.
    fn tree() -> Births {
        let mut births = Births::default();
        for (fid, dir, name) in [
            (Fid(10), DIR, "outer"),
            (Fid(11), DIR, "beside"),
            (Fid(12), Fid(10), "inner"),
            (Fid(13), Fid(12), "a"),
            (Fid(14), Fid(12), "b"),
        ] {
            births.add(fid, birth(dir, name, fid.0));
        }
        births
    }

    #[test]
    fn a_file_goes_with_all_above_it_and_nothing_beside_it() {
        let mut births = tree();
        assert_eq!(
            births.send(&[Wish::Of(Fid(14))], 9),
            [Fid(10), Fid(12), Fid(14)]
        );
        [10, 12, 14].map(|fid| births.end(Fid(fid)));
        assert!(births.have_no(Wish::Of(Fid(14))) && !births.have_no(Wish::Of(Fid(12))));
    }

    #[test]
    fn a_directory_goes_with_what_is_in_it_and_not_with_what_is_below_that() {
        let mut births = tree();
        assert_eq!(births.send(&[Wish::Of(DIR)], 9), [Fid(10), Fid(11)]);
        [10, 11].map(|fid| births.end(Fid(fid)));
        assert!(births.have_no(Wish::Of(DIR)) && births.have_no(Wish::Of(Fid(11))));
        assert_eq!(
            births.send(&[Wish::Of(Fid(12))], 9),
            [Fid(12), Fid(13), Fid(14)]
        );
    }

    #[test]
    fn single_files_go_before_what_is_old() {
        let mut births = tree();
        let wishes = [Wish::MadeBy(Tick(13)), Wish::Of(Fid(11))];
        assert_eq!(births.send(&wishes, 9), [Fid(11)]);
        assert_eq!(births.send(&wishes, 9), [Fid(10), Fid(12), Fid(13)]);
        assert!(births.have_no(Wish::MadeBy(Tick(9))));
        assert!(!births.have_no(Wish::MadeBy(Tick(10))));
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
