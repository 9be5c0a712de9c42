//! Changes of files that the MDT knows, made here under write leases and not acknowledged yet (ADR 19). Names
//! go, files move within a directory, attributes change. Each has a number; numbers grow with time.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base::{Fid, Name, Tick, Timestamp};
use wire::update::AttrUpdate;

/// A name that went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removal {
    /// The directory, whose write lease covers this.
    pub dir: Fid,
    pub name: Name,
    /// The file that it led to.
    pub fid: Fid,
    /// Its place in the list, which a new file of that name gets.
    pub cookie: u64,
    /// When it went.
    pub ctime: Timestamp,
}

/// A file has another name in its directory. Where that led to another file before, there is a [`Removal`] of
/// it, which is reported with this and never alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    /// The directory, whose write lease covers this.
    pub dir: Fid,
    pub fid: Fid,
    /// The name that the MDT knows, or will know as that of a new file.
    pub from: Name,
    /// The place of that name in the list.
    pub cookie: u64,
    /// The name since.
    pub to: Name,
    /// When it moved.
    pub ctime: Timestamp,
}

/// Attributes that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Amendment {
    /// The directory whose write lease covers this: of a directory itself, of any other file the one that it
    /// is in.
    pub lease: Fid,
    pub fid: Fid,
    /// The attributes as they are now, as far as they changed.
    pub attr: AttrUpdate,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    Removal(Removal),
    Move(Move),
    Amendment(Amendment),
}

/// Whether the bytes of a file that is to replace another are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// They are, or nothing waits for them.
    Durable,
    /// They may not be.
    Undurable,
    /// They are being made durable.
    Settling,
}

impl Edit {
    /// The directory whose write lease covers it.
    pub fn lease(&self) -> Fid {
        match self {
            Edit::Removal(removal) => removal.dir,
            Edit::Move(moved) => moved.dir,
            Edit::Amendment(amendment) => amendment.lease,
        }
    }

    /// The file or directory of which `fsync` reports that the change is lost.
    pub fn about(&self) -> Fid {
        match self {
            Edit::Removal(removal) => removal.dir,
            Edit::Move(moved) => moved.fid,
            Edit::Amendment(amendment) => amendment.fid,
        }
    }

    /// The change is lost: the log says which.
    pub fn log_loss(&self, error: impl std::fmt::Display) {
        match self {
            Edit::Removal(Removal { dir, name, .. }) => {
                tracing::error!(%dir, %name, "lost: a name that was removed here is there again: {error}");
            }
            Edit::Move(Move { dir, from, to, .. }) => {
                tracing::error!(%dir, %from, %to, "lost: a file that was renamed here has its old name: {error}");
            }
            Edit::Amendment(Amendment { fid, .. }) => {
                tracing::error!(%fid, "lost: attributes that were changed here: {error}");
            }
        }
    }
}

#[derive(Debug)]
struct Entry {
    edit: Edit,
    /// When it was made, or the first of those that it has become.
    since: Tick,
    is_sent: bool,
    /// Attributes that changed since it was sent.
    newer: Option<AttrUpdate>,
    /// Those that it waits for.
    bytes: Bytes,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    by_number: BTreeMap<u64, Entry>,
    /// By the directory whose lease covers them.
    by_lease: HashMap<Fid, BTreeSet<u64>>,
    removed_names: HashMap<(Fid, Name), u64>,
    removed: HashMap<Fid, u64>,
    /// Moves, by the name that the MDT knows, the name since, and the file. A name that a move has freed may
    /// belong to new files, of which each moves on.
    moved_from: HashMap<(Fid, Name), BTreeSet<u64>>,
    moved_to: HashMap<(Fid, Name), u64>,
    moved: HashMap<Fid, u64>,
    amended: HashMap<Fid, u64>,
}

impl Edits {
    /// A name went. What was changed of its file before matters no more.
    pub fn remove(&mut self, number: u64, removal: Removal, since: Tick) {
        if let Some(amended) = self.amended.get(&removal.fid).copied() {
            self.end(amended);
        }
        let at = (removal.dir, removal.name.clone());
        self.removed_names.insert(at, number);
        self.removed.insert(removal.fid, number);
        self.add(number, Edit::Removal(removal), since);
    }

    /// A file has another name. It is reported when its `bytes` are durable.
    pub fn rename(&mut self, number: u64, moved: Move, bytes: Bytes, since: Tick) {
        let Move { dir, fid, .. } = moved;
        let from = (dir, moved.from.clone());
        self.moved_from.entry(from).or_default().insert(number);
        self.moved_to.insert((dir, moved.to.clone()), number);
        self.moved.insert(fid, number);
        self.add(number, Edit::Move(moved), since);
        if let Some(entry) = self.by_number.get_mut(&number) {
            entry.bytes = bytes;
        }
    }

    /// Attributes changed.
    pub fn amend(&mut self, number: u64, amendment: Amendment, since: Tick) {
        let known = self.amended.get(&amendment.fid);
        let Some(entry) = known.and_then(|number| self.by_number.get_mut(number)) else {
            self.amended.insert(amendment.fid, number);
            return self.add(number, Edit::Amendment(amendment), since);
        };
        match (&mut entry.edit, entry.is_sent) {
            (_, true) => {
                let newer = entry.newer.get_or_insert_default();
                merge(newer, &amendment.attr);
            }
            (Edit::Amendment(known), false) => merge(&mut known.attr, &amendment.attr),
            (Edit::Removal(_) | Edit::Move(_), false) => {}
        }
    }

    fn add(&mut self, number: u64, edit: Edit, since: Tick) {
        self.by_lease
            .entry(edit.lease())
            .or_default()
            .insert(number);
        let entry = Entry {
            edit,
            since,
            is_sent: false,
            newer: None,
            bytes: Bytes::Durable,
        };
        self.by_number.insert(number, entry);
    }

    /// Names of the directory changed: a time that was set before counts no more.
    pub fn drop_mtime(&mut self, dir: Fid) {
        let number = self.amended.get(&dir);
        let Some(entry) = number.and_then(|number| self.by_number.get_mut(number)) else {
            return;
        };
        if let Some(newer) = &mut entry.newer {
            newer.mtime = None;
        }
        if let (Edit::Amendment(amendment), false) = (&mut entry.edit, entry.is_sent) {
            amendment.attr.mtime = None;
        }
    }

    /// It is on its way from now on. `None`: it was, or is no more.
    pub fn send(&mut self, number: u64) -> Option<Edit> {
        let entry = self.by_number.get_mut(&number);
        let entry = entry.filter(|entry| !entry.is_sent)?;
        entry.is_sent = true;
        Some(entry.edit.clone())
    }

    /// It did not arrive, and is to be sent again.
    pub fn send_again(&mut self, number: u64) {
        let Some(entry) = self.by_number.get_mut(&number) else {
            return;
        };
        entry.is_sent = false;
        if let (Some(newer), Edit::Amendment(amendment)) = (entry.newer.take(), &mut entry.edit) {
            merge(&mut amendment.attr, &newer);
        }
    }

    /// The MDT has done it. Attributes that changed since stay to be sent. Whether there were any.
    pub fn acknowledged(&mut self, number: u64) -> bool {
        let newer = self.by_number.get_mut(&number);
        let newer = newer.and_then(|entry| entry.newer.take());
        let (Some(newer), Some(entry)) = (newer, self.by_number.get_mut(&number)) else {
            self.end(number);
            return false;
        };
        entry.is_sent = false;
        if let Edit::Amendment(amendment) = &mut entry.edit {
            amendment.attr = newer;
        }
        true
    }

    /// The MDT has done it, or never will.
    pub fn end(&mut self, number: u64) -> Option<Edit> {
        let Entry { edit, .. } = self.by_number.remove(&number)?;
        let lease = edit.lease();
        if let Some(numbers) = self.by_lease.get_mut(&lease) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_lease.remove(&lease);
            }
        }
        match &edit {
            Edit::Removal(Removal { dir, name, fid, .. }) => {
                let at = (*dir, name.clone());
                self.removed_names.remove(&at);
                self.removed.remove(fid);
            }
            Edit::Move(Move {
                dir, fid, from, to, ..
            }) => {
                let from = (*dir, from.clone());
                if let Some(numbers) = self.moved_from.get_mut(&from) {
                    numbers.remove(&number);
                    if numbers.is_empty() {
                        self.moved_from.remove(&from);
                    }
                }
                self.moved_to.remove(&(*dir, to.clone()));
                self.moved.remove(fid);
            }
            Edit::Amendment(amendment) => drop(self.amended.remove(&amendment.fid)),
        }
        Some(edit)
    }

    /// What there is of that number.
    pub fn get(&self, number: u64) -> Option<&Edit> {
        self.by_number.get(&number).map(|entry| &entry.edit)
    }

    /// Of that name, which went, the number.
    pub fn removal_of(&self, dir: Fid, name: &Name) -> Option<u64> {
        number_at(&self.removed_names, dir, name)
    }

    /// The numbers of the moves that have freed the name.
    pub fn moved_from(&self, dir: Fid, name: &Name) -> impl Iterator<Item = u64> {
        let numbers = match self.moved_from.is_empty() {
            true => None,
            false => self.moved_from.get(&(dir, name.clone())),
        };
        numbers.into_iter().flatten().copied()
    }

    /// Those of them that go before a new file has the name. Its own move is a later one.
    pub fn moved_before(&self, dir: Fid, name: &Name, fid: Fid) -> impl Iterator<Item = u64> {
        let own = self.move_of(fid).unwrap_or(u64::MAX);
        self.moved_from(dir, name)
            .take_while(move |number| *number < own)
    }

    /// The number of the move that has brought a file to the name.
    pub fn moved_to(&self, dir: Fid, name: &Name) -> Option<u64> {
        number_at(&self.moved_to, dir, name)
    }

    /// The number of the file's move.
    pub fn move_of(&self, fid: Fid) -> Option<u64> {
        self.moved.get(&fid).copied()
    }

    /// How it stands with the bytes that the move waits for.
    pub fn bytes(&self, number: u64) -> Bytes {
        let entry = self.by_number.get(&number);
        entry.map_or(Bytes::Durable, |entry| entry.bytes)
    }

    /// That changes.
    pub fn set_bytes(&mut self, number: u64, bytes: Bytes) {
        if let Some(entry) = self.by_number.get_mut(&number) {
            entry.bytes = bytes;
        }
    }

    /// The name led to that file, and went.
    pub fn has_gone(&self, dir: Fid, name: &Name, fid: Fid) -> bool {
        let own = self.move_of(fid);
        if own.is_some() && self.moved_from(dir, name).any(|number| Some(number) == own) {
            return true;
        }
        let removal = self
            .removal_of(dir, name)
            .and_then(|number| self.get(number));
        matches!(removal, Some(Edit::Removal(removal)) if removal.fid == fid)
    }

    /// The place of a name that went.
    pub fn place_of(&self, dir: Fid, name: &Name) -> Option<u64> {
        match self.get(self.removal_of(dir, name)?)? {
            Edit::Removal(removal) => Some(removal.cookie),
            Edit::Move(_) | Edit::Amendment(_) => None,
        }
    }

    /// The file has lost its name here.
    pub fn is_removed(&self, fid: Fid) -> bool {
        self.removed.contains_key(&fid)
    }

    /// Attributes of the file changed here.
    pub fn is_amended(&self, fid: Fid) -> bool {
        self.amended.contains_key(&fid)
    }

    /// What the MDT says of the file, or of what is in it, would not be all.
    pub fn concern(&self, fid: Fid) -> bool {
        self.by_lease.contains_key(&fid) || self.is_removed(fid) || self.is_amended(fid)
    }

    /// The directory's write lease covers some.
    pub fn are_under(&self, dir: Fid) -> bool {
        self.by_lease.contains_key(&dir)
    }

    /// Names of the directory went.
    pub fn are_names_of(&self, dir: Fid) -> bool {
        let mut under = self.by_lease.get(&dir).into_iter().flatten();
        under.any(|number| matches!(self.get(*number), Some(Edit::Removal(_) | Edit::Move(_))))
    }

    /// The number of the change of the file's attributes.
    pub fn amendment_of(&self, fid: Fid) -> Option<u64> {
        self.amended.get(&fid).copied()
    }

    /// What has changed of the file's attributes once this has changed, too.
    pub fn amended_by(&self, amendment: &Amendment) -> AttrUpdate {
        let number = self.amended.get(&amendment.fid);
        let entry = number.and_then(|number| self.by_number.get(number));
        let mut all = match entry.map(|entry| &entry.edit) {
            Some(Edit::Amendment(known)) => known.attr,
            _ => AttrUpdate::default(),
        };
        let newer = entry.and_then(|entry| entry.newer);
        newer.iter().for_each(|newer| merge(&mut all, newer));
        merge(&mut all, &amendment.attr);
        all
    }

    /// The directories whose write leases cover them.
    pub fn leases(&self) -> impl Iterator<Item = Fid> {
        self.by_lease.keys().copied()
    }

    /// The files whose attributes changed.
    pub fn amended(&self) -> impl Iterator<Item = Fid> {
        self.amended.keys().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The number of the oldest, and when that was made.
    pub fn first(&self) -> Option<(u64, Tick)> {
        let (number, entry) = self.by_number.first_key_value()?;
        Some((*number, entry.since))
    }

    /// All, with the time at which each was made.
    pub fn all(&self) -> impl Iterator<Item = (u64, Tick)> {
        self.by_number
            .iter()
            .map(|(number, entry)| (*number, entry.since))
    }

    /// Those that are about the file, and those that the lease of this directory covers.
    pub fn of(&self, fid: Fid) -> BTreeSet<u64> {
        let own = [self.removed.get(&fid), self.amended.get(&fid)];
        let under = self.by_lease.get(&fid).into_iter().flatten();
        own.into_iter().flatten().chain(under).copied().collect()
    }

    /// The number, after those that go before it. A name of a directory goes after the names in it.
    pub fn with_inside(&self, number: u64) -> Vec<u64> {
        let (mut all, mut next) = (vec![number], 0);
        while let Some(number) = all.get(next) {
            if let Some(Edit::Removal(removal)) = self.get(*number) {
                let inside = self.by_lease.get(&removal.fid);
                all.extend(inside.into_iter().flatten());
            }
            next += 1;
        }
        all.reverse();
        all
    }

    /// It is on its way.
    pub fn is_sent(&self, number: u64) -> bool {
        let entry = self.by_number.get(&number);
        entry.is_some_and(|entry| entry.is_sent)
    }

    /// All are lost: these were there.
    pub fn take_all(&mut self) -> Vec<Edit> {
        let all = std::mem::take(self);
        let edits = all.by_number.into_values().map(|entry| entry.edit);
        edits.collect()
    }
}

fn number_at(names: &HashMap<(Fid, Name), u64>, dir: Fid, name: &Name) -> Option<u64> {
    match names.is_empty() {
        true => None,
        false => names.get(&(dir, name.clone())).copied(),
    }
}

/// Attributes changed once more.
fn merge(known: &mut AttrUpdate, newer: &AttrUpdate) {
    *known = AttrUpdate {
        mode: newer.mode.or(known.mode),
        uid: newer.uid.or(known.uid),
        gid: newer.gid.or(known.gid),
        atime: newer.atime.or(known.atime),
        mtime: newer.mtime.or(known.mtime),
        ctime: newer.ctime,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: Fid = Fid(7);
    const SUB: Fid = Fid(8);

    fn removal(dir: Fid, text: &str, fid: u64) -> Removal {
        Removal {
            dir,
            name: Name::try_from(text).expect("valid"),
            fid: Fid(fid),
            cookie: fid,
            ctime: Timestamp::default(),
        }
    }

    fn amendment(lease: Fid, fid: Fid, mode: Option<u16>, uid: Option<u32>) -> Amendment {
        let attr = AttrUpdate {
            mode,
            uid,
            ..AttrUpdate::default()
        };
        Amendment { lease, fid, attr }
    }

    fn attr_of(edits: &Edits, number: u64) -> AttrUpdate {
        match edits.get(number) {
            Some(Edit::Amendment(amendment)) => amendment.attr,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_directory_goes_after_what_was_in_it() {
        let mut edits = Edits::default();
        edits.remove(1, removal(SUB, "a", 20), Tick(1));
        edits.remove(2, removal(SUB, "b", 21), Tick(2));
        edits.remove(3, removal(DIR, "sub", SUB.0), Tick(3));
        edits.remove(4, removal(DIR, "c", 22), Tick(4));
        let order = edits.with_inside(3);
        assert_eq!(order.last(), Some(&3));
        assert_eq!(BTreeSet::from_iter(order), BTreeSet::from([1, 2, 3]));
        assert_eq!(edits.of(SUB), BTreeSet::from([1, 2, 3]));
        assert!(edits.is_removed(SUB) && edits.are_names_of(SUB) && edits.concern(DIR));
        for number in 1..=4 {
            edits.end(number);
        }
        assert!(edits.len() == 0 && !edits.concern(SUB) && !edits.concern(DIR));
        assert!(edits.leases().next().is_none());
    }

    #[test]
    fn attributes_that_change_on_the_way_are_sent_once_more() {
        let mut edits = Edits::default();
        let file = Fid(20);
        edits.amend(1, amendment(DIR, file, Some(0o600), None), Tick(1));
        edits.amend(2, amendment(DIR, file, None, Some(5)), Tick(2));
        assert_eq!(edits.len(), 1);
        assert!(edits.send(1).is_some() && edits.send(1).is_none());
        edits.amend(3, amendment(DIR, file, Some(0o640), None), Tick(3));
        let sent = attr_of(&edits, 1);
        assert_eq!((sent.mode, sent.uid), (Some(0o600), Some(5)));
        assert!(edits.acknowledged(1), "it has changed since");
        let rest = attr_of(&edits, 1);
        assert_eq!((rest.mode, rest.uid), (Some(0o640), None));
        assert!(edits.send(1).is_some() && !edits.acknowledged(1) && edits.len() == 0);
    }

    #[test]
    fn what_did_not_arrive_is_sent_with_what_changed_since() {
        let mut edits = Edits::default();
        let file = Fid(20);
        edits.amend(1, amendment(DIR, file, Some(0o600), Some(4)), Tick(1));
        edits.send(1);
        edits.amend(2, amendment(DIR, file, Some(0o640), None), Tick(2));
        edits.send_again(1);
        let all = attr_of(&edits, 1);
        assert_eq!((all.mode, all.uid), (Some(0o640), Some(4)));
        assert!(!edits.is_sent(1));
    }

    #[test]
    fn attributes_of_a_file_that_went_matter_no_more() {
        let mut edits = Edits::default();
        edits.amend(1, amendment(DIR, Fid(20), Some(0o600), None), Tick(1));
        edits.remove(2, removal(DIR, "a", 20), Tick(2));
        assert!(!edits.is_amended(Fid(20)) && edits.len() == 1);
        assert_eq!(edits.first(), Some((2, Tick(2))));
        let name = Name::try_from("a").expect("valid");
        assert_eq!(edits.removal_of(DIR, &name), Some(2));
        assert_eq!(edits.place_of(DIR, &name), Some(20));
        assert_eq!(edits.take_all().len(), 1);
        assert_eq!(edits.removal_of(DIR, &name), None);
    }

    #[test]
    fn a_time_that_was_set_ends_with_a_change_of_names() {
        let mut edits = Edits::default();
        let mut dated = amendment(DIR, DIR, Some(0o700), None);
        let at = Timestamp::default().next();
        dated.attr.mtime = Some((at, at));
        edits.amend(1, dated, Tick(1));
        edits.drop_mtime(DIR);
        let attr = attr_of(&edits, 1);
        assert_eq!((attr.mode, attr.mtime), (Some(0o700), None));
    }
}
