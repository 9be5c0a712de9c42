//! Walks a tree as programs do, and notes every answer.

use std::collections::VecDeque;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;

use model::listing::{Entry, Found, Listing, Look, Span};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use crate::clock::Clock;

/// In which order names are looked at, and directories entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each name when it is read; then the directories, as `find` does.
    AsListed,
    /// All are read before the first is looked at, by name, as `ls -lR` does.
    ByName,
    /// All are read before the first is looked at, in the order they came.
    ReadFirst,
    /// As they are listed, the directories level by level, as `fd` and `bfs` do.
    LevelByLevel,
}

pub const ORDERS: [Order; 4] = [
    Order::AsListed,
    Order::ByName,
    Order::ReadFirst,
    Order::LevelByLevel,
];

/// A directory still to be entered.
type Subdirectory = (Rc<OwnedFd>, CString);

/// What was told in one or more walks.
#[derive(Default)]
pub struct Told {
    pub listings: Vec<Listing>,
    pub looks: Vec<Look>,
}

/// One walk.
pub struct Walk<'a> {
    clock: &'a Clock,
    order: Order,
    left: VecDeque<Subdirectory>,
    told: &'a mut Told,
}

/// Goes through all below `root`, which stays.
pub fn walk(clock: &Clock, root: &Path, order: Order, told: &mut Told) {
    let mut walk = Walk {
        clock,
        order,
        left: VecDeque::new(),
        told,
    };
    let begin = clock.tick();
    let fd = open(root, DIRECTORY, Mode::empty()).unwrap();
    walk.directory(begin, Rc::new(fd));
    walk.rest();
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

impl Walk<'_> {
    fn rest(&mut self) {
        loop {
            let next = match self.order {
                Order::LevelByLevel => self.left.pop_front(),
                _ => self.left.pop_back(),
            };
            let Some((parent, name)) = next else {
                return;
            };
            self.enter(&parent, &name);
        }
    }

    /// Opening a directory by name is a look at it, too.
    fn enter(&mut self, parent: &OwnedFd, name: &CString) {
        let begin = self.clock.tick();
        let opened = openat(parent, name.as_c_str(), DIRECTORY, Mode::empty());
        let span = Span {
            begin,
            end: self.clock.tick(),
        };
        let Some(dir) = ino(parent) else {
            return;
        };
        match opened {
            Ok(fd) => {
                if let Some(told) = stat_of(&fd) {
                    // Attributes were asked after the name.
                    let end = self.clock.tick();
                    self.look(dir, name, Span { begin, end }, Some(told));
                }
                self.directory(begin, Rc::new(fd));
            }
            Err(Errno::ENOENT) => self.look(dir, name, span, None),
            Err(errno) => panic!("opening {name:?}: {errno}"),
        }
    }

    fn directory(&mut self, begin: u64, fd: Rc<OwnedFd>) {
        let Some(dir) = ino(&fd) else {
            return;
        };
        let mut stream = Dir::from_fd(fd.try_clone().unwrap()).unwrap();
        let (mut entries, mut subdirectories) = (Vec::new(), Vec::new());
        let mut names = Vec::new();
        for entry in stream.iter() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_owned();
            if [&b"."[..], b".."].contains(&name.to_bytes()) {
                continue;
            }
            entries.push(Entry {
                name: text(&name),
                ino: entry.ino(),
                read_by: self.clock.tick(),
            });
            match self.order {
                Order::AsListed | Order::LevelByLevel => {
                    self.stat(dir, &fd, name, &mut subdirectories);
                }
                Order::ByName | Order::ReadFirst => names.push(name),
            }
        }
        let span = Span {
            begin,
            end: self.clock.tick(),
        };
        self.told.listings.push(Listing { dir, span, entries });
        if self.order == Order::ByName {
            names.sort();
        }
        for name in names {
            self.stat(dir, &fd, name, &mut subdirectories);
        }
        if self.order != Order::LevelByLevel {
            // The last is entered first.
            subdirectories.reverse();
        }
        self.left.extend(subdirectories);
    }

    fn stat(
        &mut self,
        dir: u64,
        fd: &Rc<OwnedFd>,
        name: CString,
        subdirectories: &mut Vec<Subdirectory>,
    ) {
        let look = || fstatat(fd, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        let (span, result) = self.clock.time(look);
        let found = match result {
            Ok(stat) => Some(found(&stat)),
            Err(Errno::ENOENT) => None,
            Err(errno) => panic!("stat of {name:?} in {dir}: {errno}"),
        };
        self.look(dir, &name, span, found);
        if found.is_some_and(|found| is_dir(found.mode)) {
            subdirectories.push((Rc::clone(fd), name));
        }
    }

    fn look(&mut self, dir: u64, name: &CString, span: Span, found: Option<Found>) {
        let name = text(name);
        self.told.looks.push(Look {
            dir,
            name,
            span,
            found,
        });
    }
}

fn text(name: &CString) -> String {
    name.to_str().unwrap().to_owned()
}

/// None: the directory was moved or removed by another mount at this moment (SEMANTICS:
/// cache.side_effects).
fn stat_of(fd: &OwnedFd) -> Option<Found> {
    match fstat(fd) {
        Ok(stat) => Some(found(&stat)),
        Err(Errno::ESTALE) => None,
        Err(errno) => panic!("fstat of a directory: {errno}"),
    }
}

fn ino(fd: &OwnedFd) -> Option<u64> {
    stat_of(fd).map(|found| found.ino)
}

/// As the checker wants it: the size of a directory means nothing.
pub fn found(stat: &FileStat) -> Found {
    Found {
        ino: stat.st_ino,
        mode: stat.st_mode,
        size: (!is_dir(stat.st_mode)).then_some(stat.st_size as u64),
    }
}

pub fn is_dir(mode: u32) -> bool {
    SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()) == SFlag::S_IFDIR
}
