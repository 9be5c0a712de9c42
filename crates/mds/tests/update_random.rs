//! Sets of changes against the oracle. Calls in two directories are made one after the other there, and what
//! is left of them is sent as one set; both end with the same tree. Sets that make no sense change nothing,
//! or leave a sound target too.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use base::{ClientId, Fid, Name, Rng, SeededRng, Timestamp};
use mds::keys::{self, Table};
use mds::records::{Bytes, Dirent, Inode};
use mds::store::{Store, table_id};
use model::Model;
use model::node::{Body, Node};
use std::ops::ControlFlow;
use storage::KeyRange;
use support::sets::*;
use support::*;
use wire::FileKind;
use wire::mdt::{NewFile, OpenHandle, RenameMode, SetAttr, SizeUpdate, XattrMode};
use wire::update::{AttrUpdate, Change, Replacement};

/// Sets of each kind.
const SETS: u64 = 10_000;
/// A new file system after so many: small trees meet their own names more often.
const SETS_A_WORLD: u64 = 40;

/// The target and the oracle, with the same tree.
struct Pair {
    world: World,
    client: ClientId,
    model: Model,
    /// Directories that sets are about.
    dirs: Vec<Fid>,
}

/// What there is of a file, but for times.
#[derive(Debug, PartialEq, Eq)]
struct Leaf {
    kind: FileKind,
    mode: u16,
    nlink: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    target: Option<Vec<u8>>,
    names: BTreeMap<Name, Fid>,
}

type Tree = BTreeMap<Fid, Leaf>;

fn of_model(model: &Model) -> Tree {
    let leaf = |node: &Node| Leaf {
        kind: node.kind,
        mode: node.mode,
        nlink: node.nlink,
        xattrs: node.xattrs.clone(),
        target: match &node.body {
            Body::Target(target) => Some(target.clone()),
            _ => None,
        },
        names: match &node.body {
            Body::Names { names, .. } => names.clone(),
            _ => BTreeMap::new(),
        },
    };
    model.files().map(|(fid, node)| (fid, leaf(node))).collect()
}

fn of_store(store: &Store) -> Tree {
    let mut tree = Tree::new();
    let mut add = |fid: Fid, inode: &Inode| {
        let range = KeyRange::prefix(&keys::fid(fid));
        let mut xattrs = BTreeMap::new();
        let scanned = store.scan(Table::Xattrs, &range, |key, value: Bytes| {
            let (_, name) = keys::parse_xattr(key).expect("a key");
            xattrs.insert(name.to_vec(), value.0);
            Ok(ControlFlow::Continue(()))
        });
        scanned.expect("readable");
        let target: Option<Bytes> = store
            .get(Table::Targets, &keys::fid(fid))
            .expect("readable");
        let leaf = Leaf {
            kind: inode.kind,
            mode: inode.mode,
            nlink: inode.nlink,
            xattrs,
            target: target.map(|target| target.0),
            names: BTreeMap::new(),
        };
        assert!(tree.insert(fid, leaf).is_none(), "{fid} twice");
    };
    let all = KeyRange::all();
    let mut names = Vec::new();
    let scanned = store.scan(Table::Inodes, &all, |key, inode: Inode| {
        add(keys::parse_fid(key).expect("a key"), &inode);
        Ok(ControlFlow::Continue(()))
    });
    scanned.expect("readable");
    let scanned = store.scan(Table::Dirents, &all, |key, dirent: Dirent| {
        let spot = keys::parse_dirent(key).expect("a key");
        if let Some(inode) = &dirent.inode {
            add(dirent.fid, inode);
        }
        names.push((spot.dir, dirent.name, dirent.fid));
        Ok(ControlFlow::Continue(()))
    });
    scanned.expect("readable");
    for (dir, name, fid) in names {
        let dir = tree.get_mut(&dir).expect("a directory");
        assert!(dir.names.insert(name, fid).is_none());
    }
    tree
}

/// Every record but those of answers.
fn rows(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    for table in Table::ALL {
        let mut add = |key: &[u8], value: &[u8]| {
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        if table != Table::Replies && table != Table::Boots {
            let scanned = store.kv().scan(table_id(table), &KeyRange::all(), &mut add);
            scanned.expect("readable");
        }
    }
    rows
}

const KINDS: [FileKind; 4] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
];

fn pick<T: Copy>(rng: &mut SeededRng, of: &[T]) -> Option<T> {
    match of.len() {
        0 => None,
        len => Some(of[rng.below(len as u64) as usize]),
    }
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut world = match seed % 2 {
            0 => World::new(),
            _ => World::colliding(),
        };
        let client = world.connect(1);
        let start = Timestamp { secs: 1, nanos: 0 };
        let mut pair = Pair {
            world,
            client,
            model: Model::new(start, ROOT_USER),
            dirs: vec![Fid::ROOT],
        };
        for (dir, text) in [(Fid::ROOT, "p"), (Fid::ROOT, "q")] {
            let fid = pair.mkdir(dir, text);
            pair.mkdir(fid, "in");
        }
        pair
    }

    fn mkdir(&mut self, dir: Fid, text: &str) -> Fid {
        let fid = self.world.mkdir(self.client, dir, text);
        let file = NewFile {
            fid,
            kind: FileKind::Directory,
            mode: 0o755,
            rdev: 0,
            target: Vec::new(),
        };
        let made = self.model.create(dir, &name(text), &file, ROOT_USER);
        made.expect("both make it");
        self.dirs.push(fid);
        fid
    }

    fn a_name(rng: &mut SeededRng) -> Name {
        name(["a", "b", "c", "d", "e", "f", "p", "q", "in"][rng.below(9) as usize])
    }

    /// A call in the directories of a set, which may fail.
    fn call(&mut self, rng: &mut SeededRng, dirs: &[Fid], model: &mut Model) {
        let (dir, other) = (pick(rng, dirs).expect("one"), pick(rng, dirs).expect("one"));
        let (text, to) = (Pair::a_name(rng), Pair::a_name(rng));
        let there = model.lookup(dir, &text).ok();
        // What fails in the oracle, a client refuses by itself.
        let _ = match (rng.below(12), there) {
            (0..=2, _) => {
                let fid = self.world.fid(self.client);
                let kind = KINDS[rng.below(4) as usize];
                let file = made(fid, kind).file;
                model.create(dir, &text, &file, ROOT_USER)
            }
            (3, Some(fid)) => model.link(fid, other, &to),
            (4..=5, Some(fid)) => {
                let directory = model.get(fid).is_ok_and(Node::is_directory);
                model.unlink(dir, &text, directory, ROOT_USER)
            }
            (6..=7, _) => model.rename((dir, &text), (other, &to), RenameMode::Replace, ROOT_USER),
            (8, _) => model.rename((dir, &text), (other, &to), RenameMode::Exchange, ROOT_USER),
            (9, Some(fid)) => {
                let mode = Some(rng.below(0o10000) as u16);
                let change = SetAttr {
                    mode,
                    ..SetAttr::default()
                };
                model.set_attr(fid, &change)
            }
            (10, Some(fid)) => {
                let text = ["user.a", "trusted.b"][rng.below(2) as usize];
                let value = [rng.below(5) as u8];
                model.set_xattr(fid, text.as_bytes(), &value, XattrMode::Set)
            }
            (11, Some(fid)) => model.remove_xattr(fid, b"user.a"),
            _ => Ok(()),
        };
    }
}

/// What a client would send that has done these calls: what is left of them.
fn set_between(before: &Tree, after: &Tree, dirs: &[Fid]) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut is_made = BTreeSet::new();
    let is_new = |fid: &Fid| !before.contains_key(fid);
    let none = BTreeMap::new();
    let names = |tree: &Tree, dir: &Fid| tree.get(dir).map_or(none.clone(), |of| of.names.clone());
    let new_file = |fid: Fid| {
        let leaf = &after[&fid];
        let mut file = made(fid, leaf.kind);
        file.file.mode = leaf.mode;
        file
    };
    for (place, dir) in (0..).zip(dirs) {
        let (old, new) = (names(before, dir), names(after, dir));
        let all: BTreeSet<Name> = old.keys().chain(new.keys()).cloned().collect();
        for text in all {
            let fresh =
                |fid: &Fid, is_made: &mut BTreeSet<Fid>| is_new(fid) && is_made.insert(*fid);
            let (dir, text_of) = (place, text.to_string());
            changes.extend(match (old.get(&text), new.get(&text)) {
                (Some(was), Some(is)) if was == is => None,
                (Some(was), Some(is)) if fresh(is, &mut is_made) => {
                    let new = Replacement::Made(new_file(*is));
                    Some(replace_by(dir, &text_of, *was, new))
                }
                (Some(was), Some(is)) => Some(replace(dir, &text_of, *was, *is)),
                (Some(was), None) => Some(remove(dir, &text_of, *was)),
                (None, Some(is)) if fresh(is, &mut is_made) => {
                    Some(make(dir, &text_of, new_file(*is)))
                }
                (None, Some(is)) => Some(link(dir, &text_of, *is)),
                (None, None) => None,
            });
        }
    }
    for (fid, leaf) in after {
        let was = before.get(fid);
        let mode = was.filter(|was| was.mode != leaf.mode).map(|_| leaf.mode);
        if mode.is_some() {
            let attr = AttrUpdate {
                mode,
                ctime: NOW,
                ..AttrUpdate::default()
            };
            changes.push(Change::SetAttr { fid: *fid, attr });
        }
        let none = BTreeMap::new();
        let old = was.map_or(&none, |was| &was.xattrs);
        let (fid, ctime) = (*fid, NOW);
        for (name, value) in &leaf.xattrs {
            if old.get(name) != Some(value) {
                let (name, value) = (name.clone(), value.clone());
                changes.push(Change::SetXattr {
                    fid,
                    name,
                    value,
                    ctime,
                });
            }
        }
        for name in old.keys().filter(|name| !leaf.xattrs.contains_key(*name)) {
            let name = name.clone();
            changes.push(Change::RemoveXattr { fid, name, ctime });
        }
    }
    changes
}

fn shuffle<T>(rng: &mut SeededRng, all: &mut [T]) {
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at as u64 + 1) as usize);
    }
}

fn two_dirs(rng: &mut SeededRng, model: &Model, dirs: &[Fid]) -> Vec<Fid> {
    let there: Vec<Fid> = dirs
        .iter()
        .copied()
        .filter(|dir| model.get(*dir).is_ok_and(|node| node.nlink > 0))
        .collect();
    let first = pick(rng, &there).expect("the root at least");
    let second = pick(rng, &there).expect("the root at least");
    match first == second {
        true => vec![first],
        false => vec![first, second],
    }
}

#[test]
fn a_set_ends_where_its_calls_end_one_after_the_other() {
    let mut rng = SeededRng::new(11);
    let (mut pair, mut changed) = (Pair::new(0), 0);
    for n in 0..SETS {
        if n % SETS_A_WORLD == 0 {
            pair.world.check();
            pair = Pair::new(n / SETS_A_WORLD);
        }
        let dirs = two_dirs(&mut rng, &pair.model, &pair.dirs);
        let mut model = pair.model.clone();
        for _ in 0..1 + rng.below(16) {
            pair.call(&mut rng, &dirs, &mut model);
        }
        let (before, after) = (of_model(&pair.model), of_model(&model));
        let mut changes = set_between(&before, &after, &dirs);
        shuffle(&mut rng, &mut changes);
        if changes.is_empty() {
            continue;
        }
        changed += 1;
        let done = pair.world.update(pair.client, &dirs, changes.clone());
        assert!(done.is_ok(), "set {n}: {done:?} for {changes:#?}");
        assert_eq!(
            of_store(pair.world.mds.store()),
            after,
            "set {n}: {changes:#?}"
        );
        if n % 8 == 0 {
            pair.world.check();
        }
        let made = after.keys().filter(|fid| !before.contains_key(fid));
        let is_dir = |fid: &&Fid| after[fid].kind == FileKind::Directory;
        pair.dirs.extend(made.filter(is_dir));
        pair.model = model;
    }
    assert!(
        changed > SETS * 3 / 4,
        "{changed} of {SETS} sets had changes"
    );
}

/// A change that may make no sense.
fn nonsense(rng: &mut SeededRng, pair: &mut Pair, fids: &[Fid]) -> Change {
    let fid = pick(rng, fids).expect("some");
    let other = pick(rng, fids).expect("some");
    let text = Pair::a_name(rng).to_string();
    // A name mostly leads where the change says.
    let dirs = 2 + rng.below(2);
    let dir = rng.below(dirs) as u8;
    let new = |rng: &mut SeededRng, pair: &mut Pair| {
        let fid = match rng.below(8) {
            0 => fid,
            _ => pair.world.fid(pair.client),
        };
        let kind = KINDS[rng.below(4) as usize];
        match rng.below(6) {
            0 => written(fid, rng.below(2) as u16, None),
            1 => written(fid, 0, Some(WRITE)),
            _ => made(fid, kind),
        }
    };
    let ctime = Timestamp {
        secs: rng.below(3000) as i64 - 1000,
        nanos: rng.below(1_000_000_000) as u32,
    };
    match rng.below(10) {
        0 | 1 => make(dir, &text, new(rng, pair)),
        2 => link(dir, &text, fid),
        3 => remove(dir, &text, fid),
        4 => replace(dir, &text, fid, other),
        5 => {
            let new = Replacement::Made(new(rng, pair));
            replace_by(dir, &text, fid, new)
        }
        6 => {
            let attr = AttrUpdate {
                mode: Some(rng.below(0o12000) as u16),
                mtime: Some((ctime, ctime)),
                ctime,
                ..AttrUpdate::default()
            };
            Change::SetAttr { fid, attr }
        }
        7 => {
            let size = SizeUpdate {
                size: rng.below(100),
                blocks: 1,
                mtime: ctime,
                committed: rng.below(2) == 0,
            };
            let handle = OpenHandle(rng.below(2) * ((1 << 40) + rng.below(9)));
            Change::Size { fid, size, handle }
        }
        8 => Change::SetXattr {
            fid,
            name: b"user.a".to_vec(),
            value: vec![1],
            ctime,
        },
        _ => Change::Gone {
            fid: match rng.below(2) {
                0 => fid,
                _ => pair.world.fid(pair.client),
            },
            ost: base::TargetIndex(rng.below(2) as u16),
            open_epoch: rng.below(1 << 41),
        },
    }
}

#[test]
fn a_set_that_makes_no_sense_is_refused_or_leaves_a_sound_target() {
    let mut rng = SeededRng::new(12);
    let (mut pair, mut done) = (Pair::new(0), 0);
    for n in 0..SETS {
        if n % SETS_A_WORLD == 0 {
            pair = Pair::new(n / SETS_A_WORLD);
        }
        let tree = of_store(pair.world.mds.store());
        let is_dir = |(fid, leaf): (&Fid, &Leaf)| {
            (leaf.kind == FileKind::Directory && leaf.nlink > 0).then_some(*fid)
        };
        let there: Vec<Fid> = tree.iter().filter_map(is_dir).collect();
        let mut dirs = vec![
            pick(&mut rng, &there).expect("the root"),
            pick(&mut rng, &there).expect("the root"),
        ];
        dirs.dedup();
        // FIDs under the very names that changes are about, and a few others.
        let mut fids: Vec<Fid> = dirs
            .iter()
            .flat_map(|dir| tree[dir].names.values().copied())
            .collect();
        fids.extend([Fid::ROOT, Fid::NONE, Fid(rng.below(1 << 40))]);
        fids.extend(pick(&mut rng, &there));
        let count = 1 + rng.below(4);
        let mut changes: Vec<Change> = (0..count)
            .map(|_| nonsense(&mut rng, &mut pair, &fids))
            .collect();
        // Half of the names lead where the change says.
        for change in &mut changes {
            if let Change::Remove { dir, name, fid, .. }
            | Change::Replace {
                dir,
                name,
                old: fid,
                ..
            } = change
                && let Some(of) = dirs.get(usize::from(*dir))
                && let Some((named, leads)) = tree[of].names.iter().nth(rng.below(6) as usize)
            {
                (*name, *fid) = (named.clone(), *leads);
            }
        }
        let before = rows(pair.world.mds.store());
        let result = pair.world.update(pair.client, &dirs, changes.clone());
        match result {
            Ok(_) => {
                done += 1;
                pair.world.check();
            }
            Err(_) => assert!(
                before == rows(pair.world.mds.store()),
                "set {n}: {changes:#?}"
            ),
        }
        pair.world.mds.audit().expect("sound locks");
    }
    assert!(done > SETS / 20, "{done} of {SETS} were done");
    assert!(done < SETS * 19 / 20, "{done} of {SETS} were done");
}
