//! A program that grows deep trees and looks at those of others. Each tree is in a directory that the program
//! has made, so its mount makes files by itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::{Fid, FsError, Name, Rng, SeededRng};
use client::executor::block_on;
use client::{Client, Place};
use wire::FileKind;
use wire::mdt::{RenameMode, SetAttr};

use super::log::Log;
use super::names::{ROOT_USER, make, read_dir};
use super::seat::Seat;
use crate::garden::{Garden, Plant, Sight, Span, Tree};
use crate::scheduler::Scheduler;

/// How often it looks whether its machine is there again.
const LOOK: Duration = Duration::from_millis(50);
/// The longest pause between two steps.
const PAUSE_MAX: Duration = Duration::from_millis(60);
/// Names that it makes in a row.
const ROW: u64 = 12;

/// One such program.
pub struct Gardener {
    /// Its client's number.
    pub number: u32,
    /// Its mount.
    pub client: Client,
    /// Where it finds the next.
    pub seat: Arc<Seat>,
    /// How often that had crashed when the program got its client.
    pub crashes: u64,
    /// Its dice.
    pub numbers: SeededRng,
    /// What says how far it may go.
    pub log: Arc<Log>,
    /// Whose time it is.
    pub scheduler: Arc<Scheduler>,
    /// All trees.
    pub garden: Arc<Garden>,
}

/// A tree of its own, as long as nothing of it was lost.
struct Own {
    /// Its place among all trees.
    place: usize,
    dirs: Vec<Fid>,
    /// Files, each with its directory.
    files: Vec<(u32, Fid)>,
    next: u32,
}

impl Gardener {
    /// Takes `steps` steps.
    pub fn run(mut self, steps: usize) {
        let mut own: Vec<Own> = Vec::new();
        self.begin();
        for taken in 0..steps {
            while taken >= self.log.allowed() {
                threads::sleep(PAUSE_MAX);
            }
            let pause = self.numbers.below(PAUSE_MAX.as_nanos() as u64);
            threads::sleep(Duration::from_nanos(pause));
            if self.sit_down() {
                own.clear();
            }
            match self.numbers.below(10) {
                0 => own.extend(self.plant()),
                1..6 => self.grow(&mut own),
                6 => drop(self.sync()),
                _ => self.look(),
            }
        }
    }

    fn begin(&self) {
        let set = self.client.params().set("wbc", 1);
        debug_assert!(set.is_ok(), "{set:?}");
    }

    /// True: the machine has crashed, and this is another mount.
    fn sit_down(&mut self) -> bool {
        let crashes = self.crashes;
        while self.seat.crashes() != self.crashes {
            match self.seat.client() {
                None => threads::sleep(LOOK),
                Some(client) => {
                    self.client = client;
                    self.crashes = self.seat.crashes();
                    self.begin();
                }
            }
        }
        crashes != self.crashes
    }

    fn sync(&self) -> Result<(), FsError> {
        let client = self.client.clone();
        block_on(async move { client.fsyncdir(Fid::ROOT).await })
    }

    fn plant(&mut self) -> Option<Own> {
        let (place, name) = {
            let mut trees = self.garden.trees();
            let name = format!("g{}", trees.len());
            trees.push(Tree {
                name: name.clone(),
                owner: self.number,
                plants: Vec::new(),
                sights: Vec::new(),
            });
            (trees.len() - 1, name)
        };
        let root = self.make(Fid::ROOT, &name, FileKind::Directory).ok()?;
        let own = Own {
            place,
            dirs: vec![root],
            files: Vec::new(),
            next: 0,
        };
        let mut all = vec![own];
        self.grow(&mut all);
        all.pop()
    }

    fn make(&self, dir: Fid, name: &str, kind: FileKind) -> Result<Fid, FsError> {
        let name = Name::new(name).map_err(|_| FsError::Invalid)?;
        let caller = ROOT_USER;
        make(&self.client, Place { dir, name, caller }, kind)
    }

    /// Makes names in one of its trees, and moves and removes others. A tree with which anything went wrong
    /// is left alone from then on.
    fn grow(&mut self, own: &mut Vec<Own>) {
        if own.is_empty() {
            return;
        }
        let chosen = self.numbers.below(own.len() as u64) as usize;
        for _ in 0..=self.numbers.below(ROW) {
            if self.step(&mut own[chosen]).is_err() {
                own.swap_remove(chosen);
                return;
            }
        }
    }

    fn step(&mut self, tree: &mut Own) -> Result<(), FsError> {
        let dir = tree.dirs[self.numbers.below(tree.dirs.len() as u64) as usize];
        let file = match tree.files.len() {
            0 => None,
            count => Some(self.numbers.below(count as u64) as usize),
        };
        match (self.numbers.below(11), file) {
            (9, Some(file)) => self.replace(tree, file),
            (10, Some(file)) => self.amend(tree.files[file]),
            (0, Some(file)) => {
                let (name, from) = tree.files.swap_remove(file);
                let removal = self.begins(tree.place, None, Some(name));
                let place = self.place(from, name)?;
                let client = self.client.clone();
                block_on(async move { client.unlink(place, false).await })?;
                self.returned(tree.place, removal)
            }
            (1, Some(file)) => {
                let (name, from) = tree.files.swap_remove(file);
                tree.next += 1;
                let moved = self.begins(tree.place, Some(tree.next), Some(name));
                let (old, new) = (self.place(from, name)?, self.place(dir, tree.next)?);
                let client = self.client.clone();
                let mode = RenameMode::NoReplace;
                block_on(async move { client.rename(old, new.dir, new.name, mode, false).await })?;
                tree.files.push((tree.next, dir));
                self.returned(tree.place, moved)
            }
            (kind @ 0..4, _) => {
                tree.next += 1;
                let made = self.begins(tree.place, Some(tree.next), None);
                let kind = match kind {
                    3 => FileKind::Fifo,
                    _ => FileKind::Directory,
                };
                let fid = self.make(dir, &format!("n{}", tree.next), kind)?;
                match kind {
                    FileKind::Directory => tree.dirs.push(fid),
                    _ => tree.files.push((tree.next, dir)),
                }
                self.returned(tree.place, made)
            }
            _ => {
                tree.next += 1;
                let made = self.begins(tree.place, Some(tree.next), None);
                self.make(dir, &format!("n{}", tree.next), FileKind::Regular)?;
                tree.files.push((tree.next, dir));
                self.returned(tree.place, made)
            }
        }
    }

    /// A file takes the name of another, which is there all the time.
    fn replace(&mut self, tree: &mut Own, file: usize) -> Result<(), FsError> {
        let (name, from) = tree.files.swap_remove(file);
        let others = tree.files.iter();
        let (here, elsewhere): (Vec<&(u32, Fid)>, Vec<_>) =
            others.partition(|(_, dir)| *dir == from);
        let among = if here.is_empty() { elsewhere } else { here };
        let chosen = self.numbers.below(among.len() as u64) as usize;
        let Some((taken, dir)) = among.get(chosen).map(|other| **other) else {
            tree.files.push((name, from));
            return Ok(());
        };
        let moved = self.begins(tree.place, None, Some(name));
        let (old, new) = (self.place(from, name)?, self.place(dir, taken)?);
        let client = self.client.clone();
        let mode = RenameMode::Replace;
        block_on(async move { client.rename(old, new.dir, new.name, mode, false).await })?;
        self.returned(tree.place, moved)
    }

    fn amend(&mut self, (name, dir): (u32, Fid)) -> Result<(), FsError> {
        let name = Name::new(format!("n{name}")).map_err(|_| FsError::Invalid)?;
        let mode = Some(self.numbers.below(0o1000) as u16);
        let client = self.client.clone();
        block_on(async move {
            let fid = client.lookup(dir, &name).await?.fid;
            let change = SetAttr {
                mode,
                ..SetAttr::default()
            };
            let changed = client.setattr(ROOT_USER, fid, change, None).await;
            client.forget(fid, 1);
            changed.map(drop)
        })
    }

    fn place(&self, dir: Fid, name: u32) -> Result<Place, FsError> {
        Ok(Place {
            dir,
            name: Name::new(format!("n{name}")).map_err(|_| FsError::Invalid)?,
            caller: ROOT_USER,
        })
    }

    /// A call begins that makes one name and removes another.
    fn begins(&self, place: usize, made: Option<u32>, removed: Option<u32>) -> [Option<u32>; 2] {
        let begun = Span {
            start: self.scheduler.time(),
            end: None,
        };
        let mut trees = self.garden.trees();
        let plants = &mut trees[place].plants;
        if let Some(plant) = plants.iter_mut().find(|plant| Some(plant.name) == removed) {
            plant.removed = Some(begun);
        }
        plants.extend(made.map(|name| Plant {
            name,
            made: begun,
            removed: None,
        }));
        [made, removed]
    }

    /// It has returned, unless the machine went meanwhile.
    fn returned(&self, place: usize, [made, removed]: [Option<u32>; 2]) -> Result<(), FsError> {
        if self.seat.crashes() != self.crashes {
            return Err(FsError::Io);
        }
        let end = Some(self.scheduler.time());
        for plant in &mut self.garden.trees()[place].plants {
            if Some(plant.name) == made {
                plant.made.end = end;
            }
            if let Some(span) = plant
                .removed
                .as_mut()
                .filter(|_| Some(plant.name) == removed)
            {
                span.end = end;
            }
        }
        Ok(())
    }

    /// Looks at any tree. A look that fails says nothing.
    fn look(&mut self) {
        let count = self.garden.trees().len() as u64;
        if count == 0 {
            return;
        }
        let place = self.numbers.below(count) as usize;
        let (name, start) = (
            self.garden.trees()[place].name.clone(),
            self.scheduler.time(),
        );
        let mut names = BTreeSet::new();
        let seen = self.walk(Fid::ROOT, &name, &mut names);
        if seen.is_err() || self.seat.crashes() != self.crashes {
            return;
        }
        let sight = Sight {
            by: self.number,
            start,
            end: self.scheduler.time(),
            names,
        };
        self.garden.trees()[place].sights.push(sight);
    }

    fn walk(&self, dir: Fid, name: &str, names: &mut BTreeSet<u32>) -> Result<(), FsError> {
        let name = Name::new(name).map_err(|_| FsError::Invalid)?;
        let client = self.client.clone();
        let entry = block_on(async move { client.lookup(dir, &name).await })?;
        let fid = entry.fid;
        let listed = match entry.attr.kind {
            FileKind::Directory => {
                let client = self.client.clone();
                block_on(async move { read_dir(&client, fid).await }).map(|(entries, _)| entries)
            }
            _ => Ok(Vec::new()),
        };
        let below = listed.and_then(|entries| {
            entries.into_iter().try_for_each(|entry| {
                let text = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
                let number: Option<u32> = text.strip_prefix('n').and_then(|text| text.parse().ok());
                names.extend(number);
                match entry.kind {
                    FileKind::Directory => self.walk(fid, &text, names),
                    _ => Ok(()),
                }
            })
        });
        self.client.forget(fid, 1);
        below
    }
}
