//! Changes a tree through one mount, and notes each change with its time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::{RwLock, RwLockReadGuard};

use base::{Rng, SeededRng};
use model::listing::{Change, Found, Span};

use crate::clock::Clock;
use crate::reader::{found, is_dir};

/// A directory below the root that mutators of the whole tree leave alone.
pub const QUIET: &str = "quiet";
/// Names that each mutator has in a directory.
const NAMES: u64 = 8;
/// One directory in so many has most of the changes.
const LIVELY: u64 = 8;
/// Directories that each may have made and not removed.
const OWN_DIRS: usize = 3;

/// A name in a directory, by that one's inode number.
type Place = (u64, String);

/// One who changes names that are his alone, so that he knows what each leads to.
pub struct Mutator<'a> {
    id: u64,
    clock: &'a Clock,
    rng: SeededRng,
    /// Servers are killed: he makes each change durable, and changes nothing while this is taken.
    pause: Option<&'a RwLock<()>>,
    /// Where the directories are, seen through his mount; the shared ones, then his own.
    dirs: Vec<(u64, PathBuf)>,
    shared: usize,
    /// What he knows his names to lead to.
    names: BTreeMap<Place, Found>,
    done: Vec<(Span, Change)>,
}

impl<'a> Mutator<'a> {
    /// In the tree at `root` as it is.
    pub fn new(
        id: u64,
        root: &Path,
        clock: &'a Clock,
        seed: u64,
        pause: Option<&'a RwLock<()>>,
    ) -> Mutator<'a> {
        let mut mutator = Mutator {
            id,
            clock,
            rng: SeededRng::new(seed.wrapping_add(id)),
            pause,
            dirs: Vec::new(),
            shared: 0,
            names: BTreeMap::new(),
            done: Vec::new(),
        };
        let quiet = root.join(QUIET);
        survey(root, &mut |dir, path, name, seen| {
            if path.starts_with(&quiet) {
                return;
            }
            if is_dir(seen.mode) {
                mutator.dirs.push((seen.ino, path.to_owned()));
            }
            if name.is_some_and(|name| name.starts_with(&format!("m{id}."))) {
                let name = name.unwrap_or_default().to_owned();
                mutator.names.insert((dir, name), seen);
            }
        });
        mutator.shared = mutator.dirs.len();
        mutator
    }

    /// What was done since it was asked last.
    pub fn take_done(&mut self) -> Vec<(Span, Change)> {
        std::mem::take(&mut self.done)
    }

    /// One change, somewhere.
    pub fn step(&mut self) {
        let _no_pause = self.pause.map(read);
        let place = self.some_place();
        match (self.names.contains_key(&place), self.rng.below(10)) {
            (false, 0) if self.dirs.len() < self.shared + OWN_DIRS => self.make_dir(),
            (false, 1) => self.remove_dir(),
            (false, 2) => self.move_dir(),
            (false, 3..=5) => self.move_here(place),
            (false, _) => self.create(place),
            (true, 0..=2) => self.unlink(place),
            (true, 3..=5) => self.write(place),
            (true, 6) => self.truncate(place),
            (true, 7) => self.move_here(place),
            (true, _) => self.chmod(place),
        }
    }

    /// Takes back all that others hold of one directory: its own attributes, its names, its files'
    /// attributes.
    pub fn storm(&mut self) {
        let number = self.rng.below(self.shared as u64) as usize;
        let (dir, path) = self.dirs[number].clone();
        for round in 0..20 {
            let place = (dir, format!("m{}.storm", self.id));
            match self.names.contains_key(&place) {
                false => self.create(place.clone()),
                true => self.unlink(place),
            }
            let mode = 0o40_000 | if round % 2 == 0 { 0o750 } else { 0o755 };
            let to = Permissions::from_mode(mode & 0o7777);
            let call = || fs::set_permissions(&path, to);
            self.run(&[], call, |_| vec![Change::Mode(dir, mode)]);
        }
    }

    fn some_place(&mut self) -> Place {
        // Most of it in few directories: a directory that is always changed is never fetched ahead.
        let dirs = self.dirs.len() as u64;
        let dir = match self.rng.below(4) {
            0 => self.rng.below(dirs),
            _ => self.rng.below(dirs.div_ceil(LIVELY)),
        } as usize;
        let name = self.rng.below(NAMES);
        (self.dirs[dir].0, format!("m{}.{name}", self.id))
    }

    fn path(&self, place: &Place) -> PathBuf {
        self.dir_path(place.0).join(&place.1)
    }

    fn dir_path(&self, dir: u64) -> &Path {
        let found = self.dirs.iter().find(|(ino, _)| *ino == dir);
        &found.expect("he knows where he is").1
    }

    fn create(&mut self, place: Place) {
        let path = self.path(&place);
        let make = || File::create_new(&path)?.metadata();
        self.run(from_ref(&place), make, |meta| {
            vec![
                leads(&place, Some(meta.ino())),
                Change::Mode(meta.ino(), meta.mode()),
                Change::Size(meta.ino(), 0),
            ]
        });
    }

    fn unlink(&mut self, place: Place) {
        let path = self.path(&place);
        let call = || fs::remove_file(path);
        self.run(from_ref(&place), call, |()| vec![leads(&place, None)]);
    }

    /// Moves another of his files here, over what is there.
    fn move_here(&mut self, to: Place) {
        let files = self.names.iter().filter(|(_, file)| !is_dir(file.mode));
        let others = files.filter(|(place, _)| **place != to);
        let others: Vec<(Place, u64)> = others.map(|(place, f)| (place.clone(), f.ino)).collect();
        if others.is_empty() {
            return;
        }
        let (from, ino) = others[self.rng.below(others.len() as u64) as usize].clone();
        let call = || fs::rename(self.path(&from), self.path(&to));
        let places = [from.clone(), to.clone()];
        let (span, result) = self.timed(&places, call);
        self.note(span, &places, result.map(|()| moved(&from, &to, ino)));
    }

    fn write(&mut self, place: Place) {
        let (path, seen) = (self.path(&place), self.names[&place]);
        let bytes = vec![7; 1 + self.rng.below(5000) as usize];
        let careful = self.pause.is_some();
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().append(true).open(path)?;
            file.write_all(&bytes)?;
            if careful {
                file.sync_all()?;
            }
            Ok(())
        };
        let size = seen.size.unwrap_or(0) + bytes.len() as u64;
        self.run(&[place], write, |()| vec![Change::Size(seen.ino, size)]);
    }

    fn truncate(&mut self, place: Place) {
        let (path, seen) = (self.path(&place), self.names[&place]);
        let size = self.rng.below(3000);
        let careful = self.pause.is_some();
        let cut = || -> io::Result<()> {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(size)?;
            if careful {
                file.sync_all()?;
            }
            Ok(())
        };
        self.run(&[place], cut, |()| vec![Change::Size(seen.ino, size)]);
    }

    fn chmod(&mut self, place: Place) {
        let (path, seen) = (self.path(&place), self.names[&place]);
        let mode = (seen.mode & !0o7777) | [0o600, 0o640, 0o644][self.rng.below(3) as usize];
        let careful = self.pause.is_some();
        let change = || -> io::Result<()> {
            let file = File::open(path)?;
            file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
            if careful {
                // A directory's fsync is about its names.
                file.sync_all()?;
            }
            Ok(())
        };
        self.run(&[place], change, |()| vec![Change::Mode(seen.ino, mode)]);
    }

    /// Changes all of his files of one directory, another one each time. Who looks at them in order
    /// next, and knows their names, gets them in a batch.
    pub fn chmod_all_of_next(&mut self) {
        let Some(dir) = self.dirs.last().map(|(ino, _)| *ino) else {
            return;
        };
        let here = self.names.iter();
        let here = here.filter(|((at, _), file)| *at == dir && !is_dir(file.mode));
        let places: Vec<Place> = here.map(|(place, _)| place.clone()).collect();
        places.into_iter().for_each(|place| self.chmod(place));
        self.dirs.pop();
    }

    fn make_dir(&mut self) {
        let parent = self.dirs[self.rng.below(self.shared as u64) as usize].clone();
        let number = self.rng.below(NAMES);
        let place = (parent.0, format!("m{}.dir{number}", self.id));
        if self.names.contains_key(&place) {
            return;
        }
        let path = parent.1.join(&place.1);
        let make = || fs::create_dir(&path).and_then(|()| fs::metadata(&path));
        self.run(from_ref(&place), make, |meta| {
            vec![
                leads(&place, Some(meta.ino())),
                Change::Mode(meta.ino(), meta.mode()),
            ]
        });
        if let Some(made) = self.names.get(&place) {
            self.dirs.push((made.ino, path));
        }
    }

    /// One of his own, if there is one.
    fn own_dir(&mut self) -> Option<(usize, Place)> {
        let own = self.dirs.len() - self.shared;
        let number = self.shared + self.rng.below(own as u64) as usize;
        let (ino, _) = self.dirs.get(number)?;
        let place = self.names.iter().find(|(_, found)| found.ino == *ino);
        Some((number, place?.0.clone()))
    }

    fn remove_dir(&mut self) {
        let Some((number, place)) = self.own_dir() else {
            return;
        };
        let (ino, path) = self.dirs[number].clone();
        if self.names.keys().any(|(dir, _)| *dir == ino) {
            return;
        }
        let call = || fs::remove_dir(path);
        self.run(from_ref(&place), call, |()| vec![leads(&place, None)]);
        if !self.names.contains_key(&place) {
            self.dirs.remove(number);
        }
    }

    fn move_dir(&mut self) {
        let Some((number, from)) = self.own_dir() else {
            return;
        };
        let parent = self.rng.below(self.shared as u64) as usize;
        let name = self.rng.below(NAMES);
        let to = (self.dirs[parent].0, format!("m{}.dir{name}", self.id));
        if self.names.contains_key(&to) {
            return;
        }
        let (ino, path) = self.dirs[number].clone();
        let target = self.dirs[parent].1.join(&to.1);
        let call = || fs::rename(path, &target);
        let places = [from.clone(), to.clone()];
        self.run(&places, call, |()| moved(&from, &to, ino));
        if self.names.contains_key(&to) {
            self.dirs[number].1 = target;
        }
    }

    fn run<T>(
        &mut self,
        places: &[Place],
        call: impl FnOnce() -> io::Result<T>,
        changes: impl FnOnce(T) -> Vec<Change>,
    ) {
        let (span, result) = self.timed(places, call);
        self.note(span, places, result.map(changes));
    }

    /// The call, with what makes it durable.
    fn timed<T>(&self, places: &[Place], call: impl FnOnce() -> T) -> (Span, T) {
        self.clock.time(|| {
            let result = call();
            if self.pause.is_some() {
                for (dir, _) in places {
                    let synced = File::open(self.dir_path(*dir)).and_then(|dir| dir.sync_all());
                    synced.expect("his directory is there");
                }
            }
            result
        })
    }

    fn note(&mut self, span: Span, places: &[Place], changes: io::Result<Vec<Change>>) {
        let changes = changes.unwrap_or_else(|error| panic!("{places:?}: {error}"));
        for change in &changes {
            self.believe(change);
        }
        self.done.extend(changes.into_iter().map(|c| (span, c)));
    }

    fn believe(&mut self, change: &Change) {
        match change {
            Change::Name {
                dir,
                name,
                leads_to: None,
            } => {
                self.names.remove(&(*dir, name.clone()));
            }
            Change::Name {
                dir,
                name,
                leads_to: Some(ino),
            } => {
                let same = self.names.values().find(|found| found.ino == *ino);
                let found = same.copied().unwrap_or(Found {
                    ino: *ino,
                    mode: 0,
                    size: None,
                });
                self.names.insert((*dir, name.clone()), found);
            }
            Change::Mode(ino, mode) => self.of(*ino, |found| found.mode = *mode),
            Change::Size(ino, size) => self.of(*ino, |found| found.size = Some(*size)),
        }
    }

    fn of(&mut self, ino: u64, change: impl Fn(&mut Found)) {
        let his = self.names.values_mut();
        his.filter(|found| found.ino == ino).for_each(change);
    }
}

fn read(pause: &RwLock<()>) -> RwLockReadGuard<'_, ()> {
    pause.read().expect("nobody fails while he holds it")
}

fn leads(place: &Place, leads_to: Option<u64>) -> Change {
    Change::Name {
        dir: place.0,
        name: place.1.clone(),
        leads_to,
    }
}

/// The new name first: what the file is, is known by its names.
fn moved(from: &Place, to: &Place, ino: u64) -> Vec<Change> {
    vec![leads(to, Some(ino)), leads(from, None)]
}

fn lstat(path: &Path) -> Option<Found> {
    match nix::sys::stat::lstat(path) {
        Ok(stat) => Some(found(&stat)),
        Err(nix::errno::Errno::ENOENT) => None,
        Err(errno) => panic!("{}: {errno}", path.display()),
    }
}

/// Tells of everything in a tree that nobody changes: its directory, path, name and what it is; of the
/// root without a name.
pub fn survey(root: &Path, tell: &mut impl FnMut(u64, &Path, Option<&str>, Found)) {
    let top = lstat(root).expect("the tree is there");
    tell(0, root, None, top);
    let mut left = vec![(top.ino, root.to_owned())];
    while let Some((dir, path)) = left.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let seen = lstat(&path).expect("nobody changes it");
            let name = path.file_name().and_then(|name| name.to_str());
            tell(dir, &path, name, seen);
            if is_dir(seen.mode) {
                left.push((seen.ino, path));
            }
        }
    }
}
