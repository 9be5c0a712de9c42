//! What one message of `Update`s has. The names that went come first, directory by directory; then files that
//! moved, new files, and attributes. docs/wire.md, "Updates", is the normative text.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use base::limits::UPDATE_CHANGES_MAX;
use base::{Fid, LockHandle, Name, Timestamp};
use wire::FileKind;
use wire::mdt::{Access, NewFile, Request, SetAttr};
use wire::update::{AttrUpdate, Change, LeasedDir, MadeFile, Replacement, Times};

use crate::cache::births::{Birth, Sending, Wish};
use crate::cache::edits::{Edit, Move};
use crate::session::state::State;

/// Names and values in one message, about, in bytes.
const FRAME_NAMES_BYTES_MAX: usize = 1 << 20;

/// What is told of one directory by one request, or of two where files have names in both.
pub(super) struct Set {
    pub dirs: Vec<LeasedDir>,
    pub changes: Vec<Change>,
    /// The file of each change; of a name that leads to another file, the new one.
    pub files: Vec<Fid>,
    /// Changes of files that the MDT knows, by number, each with the place of its change.
    pub edits: Vec<(usize, u64)>,
    /// Times until which the set reports changes of names: of its directories, and of new ones.
    pub dates: Vec<(Fid, Timestamp)>,
}

impl Set {
    /// The files that it makes, each with the place of its change.
    pub fn born(&self) -> impl Iterator<Item = (usize, Fid)> {
        let makes = |change: &Change| {
            matches!(
                change,
                Change::Make { .. }
                    | Change::Replace {
                        new: Replacement::Made(_),
                        ..
                    }
            )
        };
        let all = self.changes.iter().zip(&self.files).enumerate();
        let made = all.filter(move |(_, (change, _))| makes(change));
        made.map(|(place, (_, fid))| (place, *fid))
    }

    pub fn all_born(&self) -> Vec<Fid> {
        self.born().map(|(_, fid)| fid).collect()
    }

    /// Nothing of it has arrived.
    pub fn send_again(&self, state: &mut State) {
        for (_, fid) in self.born() {
            state.births.send_again(fid);
        }
        for (_, number) in &self.edits {
            state.births.edits_mut().send_again(*number);
        }
    }

    pub fn request(&self) -> Request {
        Request::Update {
            dirs: self.dirs.clone(),
            changes: self.changes.clone(),
        }
    }
}

/// One change of a set.
struct Part {
    change: Change,
    file: Fid,
    edit: Option<u64>,
}

/// The sets of a message, in their order.
#[derive(Default)]
struct Message {
    sets: Vec<Set>,
    /// Of those that may have more, the last for each choice of directories.
    open: HashMap<BTreeSet<Fid>, usize>,
    bytes: usize,
}

impl Message {
    /// Those behind are done later.
    fn close_all(&mut self) {
        self.open.clear();
    }

    /// Puts these into one set of the directories.
    fn put(&mut self, state: &State, dirs: &BTreeSet<Fid>, parts: Vec<Part>) {
        let found = self.open.get(dirs).copied();
        // The times of its directories may come on top.
        let more = parts.len() + dirs.len();
        let has_room = |set: &Set| set.changes.len() + more <= UPDATE_CHANGES_MAX;
        let place = found.filter(|place| has_room(&self.sets[*place]));
        let place = place.unwrap_or_else(|| {
            self.sets.push(Set {
                dirs: dirs.iter().map(|dir| leased(state, *dir)).collect(),
                changes: Vec::new(),
                files: Vec::new(),
                edits: Vec::new(),
                dates: Vec::new(),
            });
            self.open.insert(dirs.clone(), self.sets.len() - 1);
            self.sets.len() - 1
        });
        let set = &mut self.sets[place];
        for Part { change, file, edit } in parts {
            self.bytes += bytes_of(&change);
            set.edits
                .extend(edit.map(|number| (set.changes.len(), number)));
            set.changes.push(change);
            set.files.push(file);
        }
    }

    /// Names of the directory changed until then. A process that goes on for another knows that from them
    /// alone.
    fn changed_until(&mut self, dir: Fid, changed: Timestamp) {
        let set = self.open.get(&BTreeSet::from([dir]));
        let set = set.and_then(|place| self.sets.get_mut(*place));
        for leased in set.into_iter().flat_map(|set| &mut set.dirs) {
            leased.changed = leased.changed.later(changed);
        }
    }
}

/// The sets of a message. What it has no room for is to be sent again. Beside them the new files of which
/// nothing is known any more.
pub(super) fn sets_of(state: &mut State, sending: Sending) -> (Vec<Set>, Vec<Fid>) {
    let mut message = Message::default();
    let (names, moves, attributes) = split(state, &sending);
    let mut replaced = HashMap::new();
    for fid in &sending.births {
        for (dir, name) in state.births.get(*fid).into_iter().flat_map(Birth::names) {
            if let Some(number) = state.births.edits().removal_of(dir, name) {
                replaced.insert(number, *fid);
            }
        }
    }
    for Move { dir, to, fid, .. } in moves.iter().filter_map(|number| moved(state, *number)) {
        if let Some(number) = state.births.edits().removal_of(*dir, to) {
            replaced.insert(number, *fid);
        }
    }
    put_removals(state, &mut message, names, &replaced);
    put_moves(state, &mut message, &moves);
    message.close_all();
    let lost = put_births(state, &mut message, &sending.births);
    message.close_all();
    for set in &mut message.sets {
        let dated = set.dirs.iter().map(|dir| (dir.dir, dir.changed));
        set.dates.extend(dated);
        put_set_times(state, set);
    }
    put_attributes(state, &mut message, attributes);
    (message.sets, lost)
}

/// The numbers of names that went, of moves, and of attributes.
fn split(state: &State, sending: &Sending) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    let (mut names, mut moves, mut attributes) = (Vec::new(), Vec::new(), Vec::new());
    for number in &sending.edits {
        match state.births.edits().get(*number) {
            Some(Edit::Removal(_)) => names.push(*number),
            Some(Edit::Move(_)) => moves.push(*number),
            Some(Edit::Amendment(_)) | None => attributes.push(*number),
        }
    }
    (names, moves, attributes)
}

fn moved(state: &State, number: u64) -> Option<&Move> {
    match state.births.edits().get(number)? {
        Edit::Move(moved) => Some(moved),
        Edit::Removal(_) | Edit::Amendment(_) => None,
    }
}

/// Files that moved, each with the name that it takes from another.
fn put_moves(state: &State, message: &mut Message, numbers: &[u64]) {
    for number in numbers {
        let Some(moved) = moved(state, *number).cloned() else {
            continue;
        };
        let Move {
            dir,
            fid,
            from,
            to,
            ctime,
            ..
        } = moved;
        let old = replaced_at(state, dir, &to);
        let linked = match old {
            None => Change::Link {
                dir: 0,
                name: to,
                fid,
                ctime,
            },
            Some((_, old)) => Change::Replace {
                dir: 0,
                name: to,
                old,
                new: Replacement::Linked { fid, ctime },
                ctime,
            },
        };
        let gone = Change::Remove {
            dir: 0,
            name: from,
            fid,
            ctime,
        };
        let part = |change, edit| Part {
            change,
            file: fid,
            edit,
        };
        let parts = vec![
            part(linked, old.map(|(number, _)| number)),
            part(gone, Some(*number)),
        ];
        message.put(state, &BTreeSet::from([dir]), parts);
    }
}

/// Names that went. What was in a directory goes before the directory: its last name went earlier.
fn put_removals(
    state: &State,
    message: &mut Message,
    mut numbers: Vec<u64>,
    replaced: &HashMap<u64, Fid>,
) {
    numbers.sort_unstable();
    let mut by_dir: HashMap<Fid, (Vec<(u64, Part)>, Timestamp)> = HashMap::new();
    for number in numbers {
        let Some(Edit::Removal(removal)) = state.births.edits().get(number) else {
            continue;
        };
        if replaced.contains_key(&number) {
            continue;
        }
        let change = Change::Remove {
            dir: 0,
            name: removal.name.clone(),
            fid: removal.fid,
            ctime: removal.ctime,
        };
        let part = Part {
            change,
            file: removal.fid,
            edit: Some(number),
        };
        let (parts, changed) = by_dir.entry(removal.dir).or_default();
        parts.push((number, part));
        *changed = changed.later(removal.ctime);
    }
    let last = |parts: &[(u64, Part)]| parts.last().map_or(0, |(number, _)| *number);
    let by_last: BTreeMap<u64, Fid> = by_dir
        .iter()
        .map(|(dir, (parts, _))| (last(parts), *dir))
        .collect();
    for dir in by_last.into_values() {
        let Some((parts, changed)) = by_dir.remove(&dir) else {
            continue;
        };
        for (_, part) in parts {
            message.put(state, &BTreeSet::from([dir]), vec![part]);
            message.changed_until(dir, changed);
        }
    }
}

/// New files, by directory, in the order in which directories and files were made.
fn put_births(state: &mut State, message: &mut Message, fids: &[Fid]) -> Vec<Fid> {
    let mut lost = Vec::new();
    for fid in fids {
        let Some(birth) = state.births.get(*fid).cloned() else {
            continue;
        };
        if message.bytes > FRAME_NAMES_BYTES_MAX {
            put_off(state, *fid, &birth);
            continue;
        }
        let dirs = birth.dirs();
        let parts = parts_of(state, *fid, &birth);
        if parts.is_empty() {
            put_off(state, *fid, &birth);
            lost.push(*fid);
            continue;
        }
        let times = parts.iter().find_map(|part| match &part.change {
            Change::Make { made, .. }
            | Change::Replace {
                new: Replacement::Made(made),
                ..
            } => Some(made.times),
            _ => None,
        });
        message.put(state, &dirs, parts);
        let set = &mut message.sets[message.open[&dirs]];
        set.dates.extend(times.map(|times| (*fid, times.mtime_set)));
        let born = times.map(|times| times.btime);
        for dir in &mut set.dirs {
            dir.changed = dir.changed.later(born.unwrap_or_default());
        }
    }
    lost
}

/// The message has no room for the file, nor for the names that it takes from others.
fn put_off(state: &mut State, fid: Fid, birth: &Birth) {
    for (dir, name) in birth.names() {
        if let Some(number) = state.births.edits().removal_of(dir, name) {
            state.births.edits_mut().send_again(number);
        }
    }
    state.births.send_again(fid);
}

fn put_attributes(state: &mut State, message: &mut Message, numbers: Vec<u64>) {
    for number in numbers {
        let Some(Edit::Amendment(amendment)) = state.births.edits().get(number).cloned() else {
            continue;
        };
        if message.bytes > FRAME_NAMES_BYTES_MAX {
            state.births.edits_mut().send_again(number);
            continue;
        }
        let part = Part {
            change: Change::SetAttr {
                fid: amendment.fid,
                attr: amendment.attr,
            },
            file: amendment.fid,
            edit: Some(number),
        };
        message.put(state, &BTreeSet::from([amendment.lease]), vec![part]);
    }
}

/// Adds the times of directories in which names changed, where the other sets do not report them.
pub(super) fn add_dates(state: &State, wishes: &[Wish], sets: &mut Vec<Set>) {
    for dir in state.births.due_dates(wishes) {
        let is_reported = |set: &Set| set.dates.iter().any(|(of, _)| *of == dir);
        if sets.iter().any(is_reported) {
            continue;
        }
        let leased = leased(state, dir);
        let changed = leased.changed;
        let mtime = time_set_after(state, &leased).unwrap_or(changed);
        sets.push(Set {
            dirs: vec![leased],
            changes: vec![dated(dir, (mtime, changed))],
            files: vec![dir],
            edits: Vec::new(),
            dates: vec![(dir, changed)],
        });
    }
}

/// A directory whose names change gets the time of that. One that a program has set since is to stay.
fn put_set_times(state: &State, set: &mut Set) {
    for leased in &set.dirs {
        if let Some(mtime) = time_set_after(state, leased) {
            set.changes.push(dated(leased.dir, (mtime, leased.changed)));
            set.files.push(leased.dir);
        }
    }
}

/// The mtime that a program has set after names of the directory changed last.
fn time_set_after(state: &State, leased: &LeasedDir) -> Option<Timestamp> {
    let attr = state.cache.attr_of(leased.dir)?;
    let is_set = attr.mtime != attr.mtime_set && attr.mtime_set >= leased.changed;
    is_set.then_some(attr.mtime)
}

/// The directory's mtime, and when that was set.
fn dated(fid: Fid, mtime: (Timestamp, Timestamp)) -> Change {
    let attr = AttrUpdate {
        mtime: Some(mtime),
        ctime: mtime.1,
        ..AttrUpdate::default()
    };
    Change::SetAttr { fid, attr }
}

/// What makes the file as it is now. A name that leads to another file, as far as the MDT knows, is replaced.
fn parts_of(state: &mut State, fid: Fid, birth: &Birth) -> Vec<Part> {
    let Some(made) = made_file(state, fid) else {
        return Vec::new();
    };
    let ctime = made.times.ctime;
    let dirs = birth.dirs();
    let place = |of: Fid| dirs.iter().take_while(|dir| **dir != of).count() as u8;
    let mut parts = vec![made_at(state, birth, place(birth.dir), made)];
    for (dir, name) in &birth.links {
        let old = replaced_at(state, *dir, name);
        let (dir, edit) = (place(*dir), old.map(|(number, _)| number));
        let name = name.clone();
        let change = match old {
            None => Change::Link {
                dir,
                name,
                fid,
                ctime,
            },
            Some((_, old)) => Change::Replace {
                dir,
                name,
                old,
                new: Replacement::Linked { fid, ctime },
                ctime,
            },
        };
        parts.push(Part {
            change,
            file: fid,
            edit,
        });
    }
    let xattrs = state.cache.known(fid).and_then(|inode| inode.xattrs());
    let set = |(name, value): &(Vec<u8>, Vec<u8>)| Part {
        change: Change::SetXattr {
            fid,
            name: name.clone(),
            value: value.clone(),
            ctime,
        },
        file: fid,
        edit: None,
    };
    parts.extend(xattrs.into_iter().flatten().map(set));
    parts
}

fn made_at(state: &State, birth: &Birth, dir: u8, made: MadeFile) -> Part {
    let (name, file) = (birth.name.clone(), made.file.fid);
    let old = replaced_at(state, birth.dir, &name);
    let ctime = made.times.btime;
    let change = match old {
        None => Change::Make { dir, name, made },
        Some((_, old)) => Change::Replace {
            dir,
            name,
            old,
            new: Replacement::Made(made),
            ctime,
        },
    };
    Part {
        change,
        file,
        edit: old.map(|(number, _)| number),
    }
}

/// The file that the name leads to at the MDT, and the number of its removal.
fn replaced_at(state: &State, dir: Fid, name: &Name) -> Option<(u64, Fid)> {
    let edits = state.births.edits();
    let number = edits.removal_of(dir, name)?;
    match edits.get(number)? {
        Edit::Removal(removal) => Some((number, removal.fid)),
        Edit::Move(_) | Edit::Amendment(_) => None,
    }
}

/// What a change takes in a message beside what all have.
fn bytes_of(change: &Change) -> usize {
    match change {
        Change::Make { name, made, .. } => name.as_bytes().len() + made.file.target.len(),
        Change::Link { name, .. } | Change::Remove { name, .. } | Change::Replace { name, .. } => {
            name.as_bytes().len()
        }
        Change::SetXattr { name, value, .. } => name.len() + value.len(),
        _ => 0,
    }
}

/// The directory as a set names it.
pub(super) fn leased(state: &State, dir: Fid) -> LeasedDir {
    let known = state.cache.attr_of(dir).map(|attr| attr.mtime_set);
    let changed = known.into_iter().chain(state.births.dated(dir)).max();
    LeasedDir {
        dir,
        lease: state.locks.write_lease(dir).unwrap_or(LockHandle(0)),
        changed: changed.unwrap_or_default(),
    }
}

/// The file as it is now. What was changed of it so far goes along.
fn made_file(state: &mut State, fid: Fid) -> Option<MadeFile> {
    let attr = state.seen(fid)?;
    // Where no bytes are left nothing else reports when they were written.
    let written = state.cache.file(fid).object.mtime();
    state.cache.inode(fid).attrs.written_here(written);
    let stored = state.cache.attr_of(fid)?.clone();
    let target = state.cache.inode(fid).target().map(<[u8]>::to_vec);
    let (change, change_record) = state.cache.file(fid).change.take();
    if change != SetAttr::default() {
        state.record_birth_again(fid, &stored, target.as_deref().unwrap_or_default());
    }
    drop(change_record);
    // A process that goes on for another reports its uses by themselves.
    let may_open = state.locks.is_settled();
    let file = state.cache.file(fid);
    let has_bytes = file.opens.is_open() || file.pages.dirty_bytes() > 0 || attr.size > 0;
    let is_regular = attr.kind == FileKind::Regular;
    let writing = Access {
        read: true,
        write: true,
        exec: false,
    };
    Some(MadeFile {
        file: NewFile {
            fid,
            kind: attr.kind,
            mode: attr.mode,
            rdev: attr.rdev,
            target: target.unwrap_or_default(),
        },
        uid: attr.uid,
        gid: attr.gid,
        times: Times {
            atime: attr.atime,
            mtime: stored.mtime,
            mtime_set: stored.mtime_set,
            ctime: attr.ctime,
            btime: attr.btime,
        },
        ost: stored.layout.stripes.first().copied(),
        open: (is_regular && has_bytes && may_open).then_some(writing),
    })
}
