//! A sound target to plant contradictions in, and what its clients see of it.

use std::collections::BTreeMap;

use base::{BootEpoch, ClientId, Fid};
use mds::fsck::{self, Issue, Repaired};
use mds::keys::{self, Spot, Table};
use mds::mutation::{Mutation, apply};
use mds::records::{Dirent, Inode, Place};
use storage::{Batch, Survivors};
use wire::hash::NameHasher;
use wire::mdt::{Reply, Request, XattrMode};
use wire::{Attr, FileKind};

use super::{READ, World};

/// What clients see of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub fid: Fid,
    pub attr: Attr,
    pub target: Option<Vec<u8>>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// By path.
pub type Namespace = BTreeMap<String, Shown>;

/// /d, /d/sub, /d/sub/deep, /d/sub/deep/g, /d/f, one file as /d/l and /m, a symlink /s, an orphan.
pub struct Planted {
    pub world: World,
    pub client: ClientId,
    pub dir: Fid,
    pub sub: Fid,
    pub deep: Fid,
    pub file: Fid,
    pub linked: Fid,
    pub symlink: Fid,
    pub orphan: Fid,
}

impl Planted {
    pub fn new() -> Planted {
        let mut world = World::new();
        let a = world.connect(1);
        let dir = world.mkdir(a, Fid::ROOT, "d");
        let (sub, file) = (world.mkdir(a, dir, "sub"), world.touch(a, dir, "f"));
        let linked = world.touch(a, dir, "l");
        world.link(a, linked, Fid::ROOT, "m").expect("linked");
        let deep = world.mkdir(a, sub, "deep");
        let last = world.touch(a, deep, "g");
        let symlink = world.make(a, Fid::ROOT, "s", FileKind::Symlink);
        for fid in [last, deep] {
            set_xattr(&mut world, a, fid);
        }
        let orphan = world.touch(a, dir, "gone");
        world.open(a, orphan, READ).expect("opened");
        world.unlink(a, dir, "gone").expect("unlinked");
        world.check();
        Planted {
            world,
            client: a,
            dir,
            sub,
            deep,
            file,
            linked,
            symlink,
            orphan,
        }
    }

    pub fn place(&self, fid: Fid) -> Place {
        let place = self.world.mds.store().get(Table::Places, &keys::fid(fid));
        place.expect("readable").expect("there")
    }

    pub fn spot(&self, fid: Fid) -> Spot {
        match self.place(fid) {
            Place::Entry(spot) | Place::Directory(spot) => spot,
            Place::Own => panic!("several names"),
        }
    }

    pub fn inode(&self, fid: Fid) -> Inode {
        let inode = self.world.mds.store().get(Table::Inodes, &keys::fid(fid));
        inode.expect("readable").expect("there")
    }

    pub fn dirent(&self, spot: Spot) -> Dirent {
        let dirent = self
            .world
            .mds
            .store()
            .get(Table::Dirents, &keys::dirent(spot));
        dirent.expect("readable").expect("there")
    }

    pub fn plant(&self, mutations: Vec<Mutation>) {
        let mut batch = Batch::new();
        apply(mutations, &mut batch);
        self.world.mds.store().commit(batch).expect("a sound disk");
    }

    pub fn issues(&self) -> Vec<Issue> {
        fsck::check(self.world.mds.store(), NameHasher::new(42)).expect("readable")
    }

    /// Repairs, and starts the server again.
    pub fn repair(&mut self) -> Repaired {
        let (store, wall) = (self.world.mds.store(), self.world.wall);
        let done = fsck::repair(store, NameHasher::new(42), BootEpoch(7), wall).expect("readable");
        self.world.crash();
        done
    }

    /// Begins to repair; the power fails after so many changes of the disk. False: it was done before.
    pub fn interrupt(&mut self, changes: u64, seed: u64) -> bool {
        let disk = self.world.powered.clone();
        disk.cut_after(disk.changes() + changes);
        let (store, wall) = (self.world.mds.store(), self.world.wall);
        let done = fsck::repair(store, NameHasher::new(42), BootEpoch(7), wall);
        let survivors = Survivors::Random { seed };
        disk.power_cut(survivors).expect("a sound disk below");
        self.world.crash();
        done.is_err()
    }

    /// All that can be reached.
    pub fn namespace(&mut self) -> Namespace {
        let (mut found, mut next) = (Namespace::new(), vec![(String::new(), Fid::ROOT)]);
        while let Some((path, fid)) = next.pop() {
            let shown = self.shown(fid);
            if shown.attr.kind == FileKind::Directory {
                let entries = self.world.list(self.client, fid, 100);
                let below = |entry: &wire::mdt::DirEntry| format!("{path}/{}", entry.name);
                next.extend(entries.iter().map(|entry| (below(entry), entry.fid)));
            }
            assert!(found.insert(path.clone(), shown).is_none(), "{path} twice");
        }
        found
    }

    fn shown(&mut self, fid: Fid) -> Shown {
        let attr = self.world.getattr(self.client, fid).expect("there").attr;
        let target = match attr.kind {
            FileKind::Symlink => match self.world.call(self.client, Request::ReadLink { fid }) {
                Ok(Reply::Target(target)) => Some(target),
                other => panic!("{other:?}"),
            },
            _ => None,
        };
        let xattrs = match self.world.call(self.client, Request::GetXattrs { fid }) {
            Ok(Reply::Xattrs { values, .. }) => values,
            other => panic!("{other:?}"),
        };
        Shown {
            fid,
            attr,
            target,
            xattrs,
        }
    }
}

fn set_xattr(world: &mut World, client: ClientId, fid: Fid) {
    let request = Request::SetXattr {
        fid,
        dir: Fid::NONE,
        name: b"user.color".to_vec(),
        value: b"blue".to_vec(),
        mode: XattrMode::Set,
    };
    world.call(client, request).expect("set");
}
