//! What the MDT does not know yet (ADR 19): files that were made here, and changes of files that it knows.
//! Files are in the order in which they were made, so a directory comes before what is in it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use base::limits::UPDATE_DIRS_MAX;
use base::{Fid, Name, Tick, Timestamp};

use crate::cache::edits::{Amendment, Bytes, Edit, Edits, Move, Removal};

/// A file with more names is made known first.
const NAMES_MAX: usize = 64;

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
    /// The directory that it is in.
    pub dir: Fid,
    /// Its name.
    pub name: Name,
    /// Its other names, in at most one directory besides.
    pub links: Vec<(Fid, Name)>,
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
            links: Vec::new(),
            since,
            standing,
        }
    }

    /// All its names.
    pub fn names(&self) -> impl Iterator<Item = (Fid, &Name)> {
        let others = self.links.iter().map(|(dir, name)| (*dir, name));
        std::iter::once((self.dir, &self.name)).chain(others)
    }

    /// The directories of its names.
    pub fn dirs(&self) -> BTreeSet<Fid> {
        self.names().map(|(dir, _)| dir).collect()
    }
}

/// Which of them somebody needs reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// The file, what was made in it, and the directories above it.
    Of(Fid),
    /// The name that the file has got by a move.
    NameOf(Fid),
    /// Those up to that number; see [`Births::newest`].
    Until(u64),
    /// Those made at that time or before.
    MadeBy(Tick),
}

/// When names of a directory changed last, where no file that is left may report that.
#[derive(Debug, Clone, Copy)]
struct Dated {
    number: u64,
    since: Tick,
    at: Timestamp,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Births {
    by_fid: HashMap<Fid, (u64, Birth)>,
    /// In the order in which they were made; from one to the next the number grows.
    order: BTreeMap<u64, Fid>,
    /// The numbers of those in each directory.
    in_dir: HashMap<Fid, BTreeSet<u64>>,
    /// Directories that have lost a name of which the MDT does not know.
    dated: BTreeMap<Fid, Dated>,
    /// Changes of files that the MDT knows. Their numbers are in one order with those of files.
    edits: Edits,
    last: u64,
    /// When the newest was made.
    newest_since: Tick,
}

/// Changes of files that the MDT knows.
impl Births {
    /// All of them.
    pub fn edits(&self) -> &Edits {
        &self.edits
    }

    /// The same, to be sent and ended.
    pub fn edits_mut(&mut self) -> &mut Edits {
        &mut self.edits
    }

    /// A name went.
    pub fn remove(&mut self, removal: Removal, since: Tick) {
        self.last += 1;
        self.newest_since = since;
        self.edits.remove(self.last, removal, since);
    }

    /// A file that the MDT knows, or will know by its old name, has another name in its directory.
    pub fn move_known(&mut self, moved: Move, bytes: Bytes, since: Tick) {
        self.last += 1;
        self.newest_since = since;
        self.edits.rename(self.last, moved, bytes, since);
    }

    /// Attributes changed.
    pub fn amend(&mut self, amendment: Amendment, since: Tick) {
        self.last += 1;
        self.newest_since = since;
        self.edits.amend(self.last, amendment, since);
    }

    /// Names of the directory changed here.
    pub fn are_names_of(&self, dir: Fid) -> bool {
        let are_new = self.in_dir.contains_key(&dir) || self.dated.contains_key(&dir);
        are_new || self.edits.are_names_of(dir)
    }

    /// Attributes of the directory changed here, be it with names in it of which the MDT never hears.
    pub fn are_attributes_of(&self, dir: Fid) -> bool {
        self.dated.contains_key(&dir) || self.edits.is_amended(dir)
    }

    /// All directories whose write leases are needed to report what there is.
    pub fn leases(&self) -> BTreeSet<Fid> {
        self.dirs().into_iter().chain(self.edits.leases()).collect()
    }
}

impl Births {
    /// `fid` is made.
    pub fn add(&mut self, fid: Fid, birth: Birth) {
        self.last += 1;
        self.newest_since = birth.since;
        self.in_dir.entry(birth.dir).or_default().insert(self.last);
        self.by_fid.insert(fid, (self.last, birth));
        self.order.insert(self.last, fid);
    }

    /// A name of `dir` that the MDT does not know is gone: the time of that is to be reported.
    pub fn date(&mut self, dir: Fid, at: Timestamp) {
        self.last += 1;
        let (number, since) = (self.last, self.newest_since);
        let dated = self.dated.entry(dir).or_insert(Dated { number, since, at });
        dated.at = dated.at.later(at);
    }

    /// The time of that, if it is to be reported.
    pub fn dated(&self, dir: Fid) -> Option<Timestamp> {
        self.dated.get(&dir).map(|dated| dated.at)
    }

    /// The MDT knows of changes of names until `at`, or never will. True: no time is left to be reported.
    pub fn end_date(&mut self, dir: Fid, at: Timestamp) -> bool {
        let is_left = self.dated(dir).is_some_and(|dated| dated > at);
        if !is_left {
            self.dated.remove(&dir);
        }
        !is_left
    }

    /// Directories that the MDT knows, of which the time is due. That of a new one goes with it.
    pub fn due_dates(&self, wishes: &[Wish]) -> Vec<Fid> {
        let is_due = |fid: Fid, dated: &Dated| {
            wishes.iter().any(|wish| match wish {
                Wish::Of(dir) => *dir == fid,
                Wish::NameOf(_) => false,
                Wish::Until(last) => dated.number <= *last,
                Wish::MadeBy(then) => dated.since <= *then,
            })
        };
        let due = self.dated.iter();
        let due = due.filter(|(fid, dated)| !self.is_unborn(**fid) && is_due(**fid, dated));
        due.map(|(fid, _)| *fid).collect()
    }

    /// The MDT knows `fid`, or never will.
    pub fn end(&mut self, fid: Fid) -> Option<Birth> {
        let (number, birth) = self.by_fid.remove(&fid)?;
        self.order.remove(&number);
        birth
            .dirs()
            .into_iter()
            .for_each(|dir| self.leave(dir, number));
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

    /// The file has one more name from now on.
    pub fn link(&mut self, fid: Fid, (dir, name): (Fid, Name)) {
        if let Some((number, birth)) = self.by_fid.get_mut(&fid) {
            birth.links.push((dir, name));
            self.in_dir.entry(dir).or_default().insert(*number);
        }
    }

    /// Of several names of the file one goes.
    pub fn unlink(&mut self, fid: Fid, (dir, name): (Fid, &Name)) {
        let Some((number, birth)) = self.by_fid.get_mut(&fid) else {
            return;
        };
        let at = birth.names().position(|known| known == (dir, name));
        match at {
            Some(0) if !birth.links.is_empty() => {
                (birth.dir, birth.name) = birth.links.remove(0);
            }
            Some(at @ 1..) => drop(birth.links.remove(at - 1)),
            _ => return,
        }
        let (number, is_left) = (*number, !birth.dirs().contains(&dir));
        if is_left {
            self.leave(dir, number);
        }
    }

    /// Another name takes the place of one.
    pub fn rename(&mut self, fid: Fid, from: (Fid, &Name), to: (Fid, Name)) {
        self.link(fid, to);
        self.unlink(fid, from);
    }

    /// Nobody has heard of the file, and it may have one more name in `dir`: one request can report all.
    pub fn may_link(&self, fid: Fid, dir: Fid) -> bool {
        self.get(fid).is_some_and(|birth| {
            let mut dirs = birth.dirs();
            dirs.insert(dir);
            birth.standing == Standing::Unreported
                && dirs.len() <= UPDATE_DIRS_MAX
                && birth.links.len() + 1 < NAMES_MAX
        })
    }

    /// A file that nobody has heard of may get the name. No move that is reported after files has left that
    /// name, or brought the file to where it is.
    pub fn may_get_name(&self, fid: Fid, (dir, name): (Fid, &Name)) -> bool {
        let is_left = self.edits.moved_from(dir, name).next().is_some();
        !is_left && self.edits.move_of(fid).is_none()
    }

    /// The directory is `file`, or below it, and nobody has heard of `file`.
    pub fn is_inside(&self, dir: Fid, file: Fid) -> bool {
        let above = |at: &Fid| self.get(*at).map(|birth| birth.dir);
        let mut chain = std::iter::successors(Some(dir), above);
        self.is_unborn(file) && chain.any(|at| at == file)
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
        self.is_unborn(fid) || self.are_in(fid) || self.edits.concern(fid)
    }

    /// There is something in `dir` that the MDT does not know, or there was.
    pub fn are_in(&self, dir: Fid) -> bool {
        let is_changed = self.dated.contains_key(&dir) || self.edits.are_under(dir);
        is_changed || self.in_dir.contains_key(&dir)
    }

    /// What that is, in the order in which it was made.
    pub fn in_directory(&self, dir: Fid) -> Vec<Fid> {
        let numbers = self.in_dir.get(&dir).into_iter().flatten();
        numbers
            .filter_map(|number| self.order.get(number).copied())
            .collect()
    }

    /// The directories that have any, or had.
    pub fn dirs(&self) -> BTreeSet<Fid> {
        self.in_dir
            .keys()
            .chain(self.dated.keys())
            .copied()
            .collect()
    }

    /// All of them, in the order in which they were made.
    pub fn all(&self) -> Vec<Fid> {
        self.order.values().copied().collect()
    }

    /// Where the file is, from the first directory that the MDT knows.
    pub fn path(&self, fid: Fid) -> String {
        let (mut names, mut at) = (Vec::new(), fid);
        while let Some(birth) = self.get(at) {
            names.push(birth.name.to_string());
            at = birth.dir;
        }
        names.push(at.to_string());
        names.reverse();
        names.join("/")
    }

    /// How many there are, changes of known files included.
    pub fn len(&self) -> usize {
        self.order.len() + self.edits.len()
    }

    /// Nothing is to be reported.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.dated.is_empty()
    }

    /// No time of a directory is to be reported any more. The directories of which there was one.
    pub fn lose_dates(&mut self) -> Vec<Fid> {
        std::mem::take(&mut self.dated).into_keys().collect()
    }

    /// The number of the newest that there ever was.
    pub fn newest(&self) -> u64 {
        self.last
    }

    /// All up to that number were told, or given up.
    pub fn are_reported_until(&self, number: u64) -> bool {
        let made = self.order.keys().next().copied();
        let changed = self.edits.first().map(|(first, _)| first);
        let dated = self.dated.values().map(|dated| dated.number);
        let mut all = made.into_iter().chain(changed).chain(dated);
        all.all(|first| first > number)
    }

    /// When the oldest was made.
    pub fn oldest(&self) -> Option<Tick> {
        let made = self.order.values().next();
        let made = made.and_then(|fid| self.get(*fid));
        let changed = self.edits.first().map(|(_, since)| since);
        let dated = self.dated.values().map(|dated| dated.since);
        made.map(|birth| birth.since)
            .into_iter()
            .chain(changed)
            .chain(dated)
            .min()
    }

    /// Nothing of what is wished for is left.
    pub fn have_no(&self, wish: Wish) -> bool {
        match wish {
            Wish::Of(fid) => !self.concern(fid),
            Wish::NameOf(fid) => self.edits.move_of(fid).is_none(),
            Wish::Until(number) => self.are_reported_until(number),
            Wish::MadeBy(then) => self.oldest().is_none_or(|oldest| oldest > then),
        }
    }

    /// About `max` that nobody has heard of, which are on their way from now on. Each file comes after the
    /// directories above it. As long as somebody wishes for single files, the others wait.
    pub fn send(&mut self, wishes: &[Wish], max: usize) -> Sending {
        let is_single = |wish: &&Wish| matches!(wish, Wish::Of(_) | Wish::NameOf(_));
        let mut sending = Sending::default();
        for wish in wishes.iter().filter(is_single) {
            self.choose(*wish, max, &mut sending);
        }
        if sending.len() == 0 {
            for wish in wishes {
                self.choose(*wish, max, &mut sending);
            }
        }
        for fid in &sending.births {
            self.set_standing(*fid, Standing::OnItsWay);
        }
        for number in &sending.edits {
            self.edits.send(*number);
        }
        sending
    }

    fn choose(&self, wish: Wish, max: usize, sending: &mut Sending) {
        if let Wish::Of(fid) = wish {
            self.choose_with_directories(fid, sending);
            for inside in self.in_directory(fid) {
                if sending.len() >= max {
                    return;
                }
                self.choose_with_directories(inside, sending);
            }
            for number in self.edits.of(fid) {
                if sending.len() >= max {
                    return;
                }
                self.choose_edit(number, sending);
            }
            return;
        }
        if let Wish::NameOf(fid) = wish {
            if let Some(number) = self.edits.move_of(fid) {
                self.choose_edit(number, sending);
            }
            return;
        }
        let is_due = |number: u64, since: Tick| match wish {
            Wish::Of(_) | Wish::NameOf(_) => true,
            Wish::Until(last) => number <= last,
            Wish::MadeBy(then) => since <= then,
        };
        let mut edits = self.edits.all().peekable();
        let is_edit_due = |(number, since): &(u64, Tick)| is_due(*number, *since);
        for (number, fid) in &self.order {
            let is_older = |edit: &(u64, Tick)| edit.0 < *number && is_edit_due(edit);
            while let Some((number, _)) = edits.next_if(is_older) {
                if sending.len() >= max {
                    return;
                }
                self.choose_edit(number, sending);
            }
            let since = self.get(*fid).map_or(Tick(0), |birth| birth.since);
            if sending.len() >= max {
                return;
            }
            if !is_due(*number, since) {
                break;
            }
            self.choose_with_directories(*fid, sending);
        }
        for (number, _) in edits.take_while(is_edit_due) {
            if sending.len() >= max {
                return;
            }
            self.choose_edit(number, sending);
        }
    }

    /// The change, after what it needs: a directory goes after what was in it.
    fn choose_edit(&self, number: u64, sending: &mut Sending) {
        for number in self.edits.with_inside(number) {
            let moved = match self.edits.get(number) {
                Some(Edit::Move(_)) => Some(number),
                Some(Edit::Removal(removal)) => self.edits.moved_to(removal.dir, &removal.name),
                Some(Edit::Amendment(_)) | None => None,
            };
            match moved {
                Some(moved) => _ = self.choose_move(moved, sending),
                None => self.choose_alone(number, sending),
            }
        }
    }

    fn choose_alone(&self, number: u64, sending: &mut Sending) {
        if !self.edits.is_sent(number) && sending.seen_edits.insert(number) {
            sending.edits.push(number);
        }
    }

    /// The move, with the name that it takes. False: it waits, until the MDT knows the file or until the
    /// file's bytes are durable.
    fn choose_move(&self, number: u64, sending: &mut Sending) -> bool {
        let Some(Edit::Move(moved)) = self.edits.get(number) else {
            return false;
        };
        if self.is_unborn(moved.fid) {
            self.choose_with_directories(moved.fid, sending);
            return false;
        }
        if self.edits.bytes(number) != Bytes::Durable {
            sending.undurable.insert(number);
            return false;
        }
        if let Some(removal) = self.edits.removal_of(moved.dir, &moved.to) {
            self.choose_alone(removal, sending);
        }
        self.choose_alone(number, sending);
        true
    }

    /// The names of the file are free at the MDT, or will be by what goes before. It may wait for that.
    fn may_be_named(&self, fid: Fid, birth: &Birth, sending: &mut Sending) -> bool {
        let mut names = birth.names();
        names.all(|(dir, name)| {
            let mut before = self.edits.moved_before(dir, name, fid);
            before.all(|number| self.choose_move(number, sending))
        })
    }

    /// The file, after all above it that are not known, and with the names that it takes from others.
    fn choose_with_directories(&self, fid: Fid, sending: &mut Sending) {
        let links = self.get(fid).map_or(&[][..], |birth| &birth.links);
        let may_go = links
            .iter()
            .all(|(dir, _)| self.choose_chain(*dir, sending));
        if may_go && self.choose_chain(fid, sending) {
            for (dir, name) in links {
                self.choose_replaced((*dir, name), sending);
            }
        }
    }

    /// The same but for further names. False: one of them waits for a name.
    fn choose_chain(&self, fid: Fid, sending: &mut Sending) -> bool {
        let (mut chain, mut at) = (Vec::new(), fid);
        while let Some(birth) = self.get(at)
            && birth.standing == Standing::Unreported
            && !sending.seen.contains(&at)
        {
            if !self.may_be_named(at, birth, sending) {
                return false;
            }
            chain.push((at, birth));
            at = birth.dir;
        }
        for (at, birth) in chain.into_iter().rev() {
            if sending.seen.insert(at) {
                self.choose_replaced((birth.dir, &birth.name), sending);
                sending.births.push(at);
            }
        }
        true
    }

    fn choose_replaced(&self, (dir, name): (Fid, &Name), sending: &mut Sending) {
        if let Some(number) = self.edits.removal_of(dir, name) {
            self.choose_edit(number, sending);
        }
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
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// New files.
    pub births: Vec<Fid>,
    /// Changes of files that the MDT knows, by number.
    pub edits: Vec<u64>,
    /// Moves that wait for bytes.
    pub undurable: BTreeSet<u64>,
    seen: HashSet<Fid>,
    seen_edits: HashSet<u64>,
}

impl Sending {
    fn len(&self) -> usize {
        self.births.len() + self.edits.len()
    }
}

#[cfg(test)]
#[path = "births_tests.rs"]
mod tests;
