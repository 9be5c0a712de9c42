//! Random operations from a seed: few names, so that they meet.

use base::{Rng, SeededRng, Timestamp};
use wire::FileKind;
use wire::mdt::{RenameMode, SetTime, XattrMode};
use wire::ost::AllocateMode;

use crate::op::{Op, OpenHow, SLOTS};

/// Names that are mostly directories, and names that mostly are not.
const DIRECTORIES: [&str; 3] = ["a", "b", "c"];
const FILES: [&str; 4] = ["d", "e", "f", "g"];
const XATTRS: [&str; 6] = [
    "user.one",
    "user.one",
    "user.two",
    "odd.three",
    "trusted.four",
    "security.five",
];
/// Sizes and offsets end near these: a page's and a transfer's edges.
const EDGES: [u64; 6] = [0, 100, 4096, 8192, 65_536, 131_072];

/// Paths remembered.
const RECENT: usize = 8;

/// What the file system and the caller under test can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// The caller is root: device files, other owners, trusted attributes, setuid bits.
    pub root: bool,
    /// User attributes exist.
    pub xattrs: bool,
    /// `fallocate` can zero a range.
    pub zero_range: bool,
    /// There are files without a name (`O_TMPFILE`).
    pub nameless: bool,
}

/// An endless list of operations.
#[derive(Debug, Clone)]
pub struct Generator {
    rng: SeededRng,
    profile: Profile,
    /// Paths lately made, so that later calls find something there.
    recent: [String; RECENT],
}

impl Generator {
    /// The same seed and profile give the same operations.
    pub fn new(seed: u64, profile: Profile) -> Generator {
        Generator {
            rng: SeededRng::new(seed),
            profile,
            recent: Default::default(),
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u64) as usize]
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.rng.below(100) < percent
    }

    fn path(&mut self) -> String {
        match self.chance(30) {
            true => self.path_to(&DIRECTORIES),
            false => self.path_to(&FILES),
        }
    }

    /// A path of depth one to three, the last name mostly from `names`.
    fn path_to(&mut self, names: &[&str]) -> String {
        let above = self.pick(&[0, 0, 0, 1, 1, 2]);
        let mut parts: Vec<String> = (0..above)
            .map(|_| self.pick(&DIRECTORIES).to_owned())
            .collect();
        parts.push(match self.rng.below(50) {
            0 => "n".repeat(self.pick(&[255, 256])),
            1..4 => self.pick(&DIRECTORIES).to_owned(),
            4..7 => self.pick(&FILES).to_owned(),
            _ => self.pick(names).to_owned(),
        });
        parts.join("/")
    }

    /// A path at which something is about to be made.
    fn new_path(&mut self, names: &[&str]) -> String {
        let path = self.path_to(names);
        let at = self.rng.below(RECENT as u64) as usize;
        self.recent[at] = path.clone();
        path
    }

    /// A path at which something probably is.
    fn old_path(&mut self) -> String {
        let at = self.rng.below(RECENT as u64) as usize;
        match self.chance(75) && !self.recent[at].is_empty() {
            true => self.recent[at].clone(),
            false => self.path(),
        }
    }

    fn slot(&mut self) -> u8 {
        self.rng.below(u64::from(SLOTS)) as u8
    }

    fn offset(&mut self) -> u64 {
        let edge = self.pick(&EDGES);
        (edge + self.rng.below(5)).saturating_sub(2)
    }

    fn mode(&mut self) -> u16 {
        match self.profile.root {
            true => self.pick(&[
                0o755, 0o644, 0o600, 0, 0o4755, 0o2755, 0o2644, 0o1777, 0o6711,
            ]),
            false => self.pick(&[0o755, 0o700, 0o777, 0o1777]),
        }
    }

    fn time(&mut self) -> Option<SetTime> {
        let at = Timestamp {
            secs: self.rng.below(2_000_000_000) as i64,
            nanos: self.rng.below(1_000_000_000) as u32,
        };
        self.pick(&[None, Some(SetTime::Now), Some(SetTime::At(at))])
    }

    fn owner(&mut self) -> Option<u32> {
        self.pick(&[None, Some(0), Some(1000), Some(77)])
    }

    fn how(&mut self) -> OpenHow {
        let write = self.chance(70);
        let create = write && self.chance(80);
        OpenHow {
            read: self.chance(60),
            write,
            append: write && self.chance(20),
            create,
            exclusive: create && self.chance(20),
            truncate: write && self.chance(15),
        }
    }

    fn allocate_mode(&mut self) -> AllocateMode {
        use AllocateMode::{Extend, KeepSize, PunchHole, Zero, ZeroKeepSize};
        match self.profile.zero_range {
            true => self.pick(&[Extend, KeepSize, PunchHole, Zero, ZeroKeepSize]),
            false => self.pick(&[Extend, KeepSize, PunchHole]),
        }
    }

    fn special(&mut self) -> Op {
        use FileKind::{BlockDevice, CharDevice, Fifo, Regular, Socket};
        let kind = match self.profile.root {
            true => self.pick(&[Regular, Fifo, Socket, CharDevice, BlockDevice]),
            false => self.pick(&[Regular, Fifo, Socket]),
        };
        let device = matches!(kind, CharDevice | BlockDevice);
        let rdev = self.pick(&[0, 0x0103, 0x0801, 0x1234]);
        Op::Mknod {
            path: self.new_path(&FILES),
            kind,
            mode: self.mode(),
            rdev: if device { rdev } else { 0 },
        }
    }

    fn namespace_op(&mut self) -> Op {
        match self.rng.below(40) {
            0..7 => Op::Mkdir {
                path: self.new_path(&DIRECTORIES),
                mode: self.mode(),
            },
            7..9 => self.special(),
            9..11 => Op::Symlink {
                path: self.new_path(&FILES),
                target: format!("nowhere/{}", self.rng.below(100)),
            },
            11..15 => Op::Link {
                from: self.old_path(),
                to: self.new_path(&FILES),
            },
            15..21 => Op::Unlink {
                path: self.old_path(),
            },
            21..23 => Op::Rmdir {
                path: self.old_path(),
            },
            23..33 => self.rename(),
            33..36 => Op::List {
                path: self.old_path(),
            },
            36..39 => Op::ReadLink {
                path: self.old_path(),
            },
            _ => Op::Stat {
                path: self.old_path(),
            },
        }
    }

    fn rename(&mut self) -> Op {
        use RenameMode::{Exchange, NoReplace, Replace};
        Op::Rename {
            from: self.old_path(),
            to: match self.chance(30) {
                true => self.new_path(&DIRECTORIES),
                false => self.new_path(&FILES),
            },
            mode: self.pick(&[Replace, Replace, NoReplace, Exchange]),
            whiteout: self.chance(10),
        }
    }

    fn attribute_op(&mut self) -> Op {
        let path = self.old_path();
        match self.rng.below(5) {
            0 => Op::Chmod {
                path,
                mode: self.mode(),
            },
            1 if self.profile.root => Op::Chown {
                path,
                uid: self.owner(),
                gid: self.owner(),
            },
            2 => Op::Truncate {
                path,
                size: self.offset(),
            },
            3 => Op::Stat { path },
            _ => Op::SetTimes {
                path,
                atime: self.time(),
                mtime: Some(self.time().unwrap_or(SetTime::Now)),
            },
        }
    }

    fn xattr_op(&mut self) -> Op {
        use XattrMode::{Create, Replace, Set};
        let path = self.old_path();
        let names = if self.profile.root {
            &XATTRS[..]
        } else {
            &XATTRS[..4]
        };
        let name = self.pick(names).to_owned();
        match self.rng.below(8) {
            0..3 => Op::SetXattr {
                path,
                name,
                value: {
                    let len = self.pick(&[0, 1, 30, 30, 30, 30, 1000, 65_537]);
                    Op::data(len, self.rng.below(256) as u8)
                },
                mode: self.pick(&[Set, Set, Create, Replace]),
            },
            3..5 => Op::GetXattr { path, name },
            5 => Op::ListXattrs { path },
            _ => Op::RemoveXattr { path, name },
        }
    }

    fn open_path(&mut self) -> String {
        match self.chance(50) {
            true => self.old_path(),
            false => self.new_path(&FILES),
        }
    }

    fn handle_op(&mut self) -> Op {
        let slot = self.slot();
        let (offset, len) = (self.offset(), self.offset());
        match self.rng.below(26) {
            24 if self.profile.nameless => Op::OpenNameless {
                slot,
                path: self.old_path(),
                how: OpenHow {
                    read: self.chance(60),
                    write: true,
                    append: self.chance(20),
                    exclusive: self.chance(20),
                    ..OpenHow::default()
                },
                mode: self.mode(),
            },
            25 => Op::LinkOpen {
                slot,
                to: self.new_path(&FILES),
            },
            0..8 => Op::Open {
                slot,
                path: self.open_path(),
                how: self.how(),
                mode: self.mode(),
            },
            8 => Op::Close { slot },
            9..13 => Op::Read {
                slot,
                offset,
                len: len as usize + 1,
            },
            13..18 => Op::Write {
                slot,
                offset,
                len: (len / 2) as usize,
                fill: self.rng.below(256) as u8,
            },
            18..20 => Op::SetLength { slot, size: offset },
            20..22 => Op::Allocate {
                slot,
                offset,
                len,
                mode: self.allocate_mode(),
            },
            22 => Op::Fsync { slot },
            _ => Op::Fstat { slot },
        }
    }
}

impl Iterator for Generator {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        Some(match self.rng.below(100) {
            0..44 => self.namespace_op(),
            44..54 => self.attribute_op(),
            54..62 if self.profile.xattrs => self.xattr_op(),
            _ => self.handle_op(),
        })
    }
}
