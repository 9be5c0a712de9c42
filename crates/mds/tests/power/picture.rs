//! What a target's store holds, in three ways. Every byte of it, the tree of names that the oracle
//! knows too, and what is left of all that when boots and numbers do not count.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use base::{Fid, FsError, Name};
use mds::keys::{self, Table};
use mds::records::{Bytes, Dirent, Inode, KnownClient, Record, State};
use mds::store::{Store, table_id};
use model::Model;
use model::node::Body;
use storage::KeyRange;
use wire::mdt::{Caller, RenameMode, Request, SetAttr, XattrMode};
use wire::update::{Change, LeasedDir};
use wire::{FileKind, SizeState};

/// Every record, byte by byte; but not which boot it is, and where boots began.
pub type Rows = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

pub fn rows(store: &Store) -> Rows {
    let mut rows = Rows::new();
    for table in Table::ALL {
        let mut add = |key: &[u8], value: &[u8]| {
            rows.insert((table.name(), key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        };
        if table != Table::Boots {
            let scanned = store.kv().scan(table_id(table), &KeyRange::all(), &mut add);
            scanned.expect("readable");
        }
    }
    let state = State {
        boots: 0,
        ..state(store)
    };
    rows.insert(
        (Table::State.name(), keys::STATE.to_vec()),
        state.to_bytes(),
    );
    rows
}

pub fn state(store: &Store) -> State {
    let state = store.get(Table::State, keys::STATE).expect("readable");
    state.expect("there")
}

/// There is such a file, with a name or without.
pub fn exists(store: &Store, fid: Fid) -> bool {
    store
        .contains(Table::Places, &keys::fid(fid))
        .expect("readable")
}

/// Tables that hold anything about a client which only those have that may come back.
pub fn traces(store: &Store, client: u64) -> Vec<&'static str> {
    let uuid = [client as u8; 16];
    let mut found = Vec::new();
    let replies = store.is_empty(Table::Replies, &KeyRange::prefix(&uuid));
    if !replies.expect("readable") {
        found.push(Table::Replies.name());
    }
    let known: Option<KnownClient> = store.get(Table::Clients, &uuid).expect("readable");
    if known.is_some_and(|known| known.given_up.is_none()) {
        found.push(Table::Clients.name());
    }
    let owned = rows(store)
        .into_iter()
        .filter(|((table, _), value)| *table == Table::Sequences.name() && value.ends_with(&uuid));
    found.extend(owned.map(|((table, _), _)| table));
    found
}

/// OSTs are asked for objects of files that the client lost.
pub fn is_searched_for(store: &Store, client: u64) -> bool {
    let uuid = [client as u8; 16];
    let is_its = |((table, _), value): (&(&str, Vec<u8>), &Vec<u8>)| {
        *table == Table::LeakSearches.name() && value.ends_with(&uuid)
    };
    rows(store).iter().any(is_its)
}

/// A file as its name shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    fid: Fid,
    kind: FileKind,
    mode: u16,
    nlink: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    target: Option<Vec<u8>>,
}

/// Files by their paths.
pub type Tree = BTreeMap<String, Leaf>;

/// The tree that is stored.
pub fn tree(store: &Store) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![(String::new(), Fid::ROOT)];
    while let Some((path, dir)) = left.pop() {
        let names = store.names(dir, 0, u64::MAX >> 1).expect("readable");
        for (_, dirent) in names {
            let path = format!("{path}/{}", dirent.name);
            if dirent.kind == FileKind::Directory {
                left.push((path.clone(), dirent.fid));
            }
            let twice = tree.insert(path.clone(), leaf(store, &dirent));
            assert!(twice.is_none(), "{path} twice");
        }
    }
    tree
}

fn leaf(store: &Store, dirent: &Dirent) -> Leaf {
    let fid = dirent.fid;
    let own = || store.get(Table::Inodes, &keys::fid(fid)).expect("readable");
    let inode: Inode = dirent.inode.clone().or_else(own).expect("a file");
    let mut xattrs = BTreeMap::new();
    let range = KeyRange::prefix(&keys::fid(fid));
    let scanned = store.scan(Table::Xattrs, &range, |key, value: Bytes| {
        let (_, name) = keys::parse_xattr(key).expect("a key");
        xattrs.insert(name.to_vec(), value.0);
        Ok(ControlFlow::Continue(()))
    });
    scanned.expect("readable");
    let target: Option<Bytes> = store
        .get(Table::Targets, &keys::fid(fid))
        .expect("readable");
    Leaf {
        fid,
        kind: inode.kind,
        mode: inode.mode,
        nlink: inode.nlink,
        xattrs,
        target: target.map(|target| target.0),
    }
}

/// The tree that the oracle has.
pub fn oracle_tree(model: &Model) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![(String::new(), Fid::ROOT)];
    while let Some((path, dir)) = left.pop() {
        for (name, fid, kind) in model.list(dir).expect("a directory") {
            let path = format!("{path}/{name}");
            if kind == FileKind::Directory {
                left.push((path.clone(), fid));
            }
            let node = model.get(fid).expect("there");
            let target = match &node.body {
                Body::Target(target) => Some(target.clone()),
                _ => None,
            };
            let (mode, nlink, xattrs) = (node.mode, node.nlink, node.xattrs.clone());
            let leaf = Leaf {
                fid,
                kind,
                mode,
                nlink,
                xattrs: xattrs.into_iter().collect(),
                target,
            };
            tree.insert(path, leaf);
        }
    }
    tree
}

/// What the oracle makes of a request that was done.
pub fn apply(model: &mut Model, request: &Request) {
    let done = match request {
        Request::Create {
            dir,
            name,
            file,
            caller,
            open,
        } => model
            .create(*dir, name, file, *caller)
            .and_then(|_| open.map_or(Ok(()), |_| model.open(file.fid))),
        Request::Link { fid, dir, name } => model.link(*fid, *dir, name),
        Request::Unlink {
            dir,
            name,
            directory,
            caller,
        } => model.unlink(*dir, name, *directory, *caller).map(drop),
        Request::Rename {
            source_dir,
            source,
            target_dir,
            target,
            mode,
            caller,
            whiteout,
        } => {
            let (from, to): ((Fid, &Name), (Fid, &Name)) =
                ((*source_dir, source), (*target_dir, target));
            match whiteout {
                Some(left) => model.rename_leaving(*left, from, to, *mode, *caller),
                None => model.rename(from, to, *mode, *caller),
            }
        }
        Request::CreateNameless {
            dir, file, caller, ..
        } => model.create_nameless(*dir, file, *caller, true),
        Request::SetAttr { fid, change, .. } => model.set_attr(*fid, change),
        Request::SetXattr {
            fid,
            name,
            value,
            mode,
            ..
        } => model.set_xattr(*fid, name, value, *mode),
        Request::RemoveXattr { fid, name, .. } => model.remove_xattr(*fid, name),
        Request::Open { fid, .. } => model.open(*fid).map(drop),
        Request::Close { fid, .. } => model.close(*fid),
        Request::Update { dirs, changes } => apply_set(model, dirs, changes),
        _ => Ok(()),
    };
    done.unwrap_or_else(|error| panic!("the oracle refuses {request:?}: {error}"));
}

/// The same of a set, whose changes are in an order in which they can be made one by one. Two names that
/// swap stand next to each other.
fn apply_set(model: &mut Model, dirs: &[LeasedDir], changes: &[Change]) -> Result<(), FsError> {
    let dir = |at: &u8| dirs[usize::from(*at)].dir;
    let mut changes = changes.iter();
    while let Some(change) = changes.next() {
        match change {
            Change::Make {
                dir: at,
                name,
                made,
            } => {
                let (uid, gid) = (made.uid, made.gid);
                model.create(dir(at), name, &made.file, Caller { uid, gid })?;
            }
            Change::Link {
                dir: at, name, fid, ..
            } => model.link(*fid, dir(at), name)?,
            Change::Remove {
                dir: at, name, fid, ..
            } => {
                let is_dir = model.get(*fid)?.is_directory();
                model.unlink(dir(at), name, is_dir, Caller::default())?;
            }
            Change::Replace { dir: at, name, .. } => {
                let Some(Change::Replace {
                    dir: to,
                    name: other,
                    ..
                }) = changes.next()
                else {
                    return Err(FsError::Invalid);
                };
                let (from, to) = ((dir(at), name), (dir(to), other));
                model.rename(from, to, RenameMode::Exchange, Caller::default())?;
            }
            Change::SetAttr { fid, attr } => {
                let change = SetAttr {
                    mode: attr.mode,
                    ..SetAttr::default()
                };
                model.set_attr(*fid, &change)?;
            }
            Change::SetXattr {
                fid, name, value, ..
            } => model.set_xattr(*fid, name, value, XattrMode::Set)?,
            Change::RemoveXattr { fid, name, .. } => model.remove_xattr(*fid, name)?,
            Change::Size { .. } | Change::Gone { .. } => {}
        }
    }
    Ok(())
}

/// What is the same however often the server died on the way. All records but those of answers,
/// without numbers of changes, open epochs and the times of removals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    File(Option<(Fid, Name)>, Option<Box<Inode>>),
    Other(String),
}

pub type Outcome = BTreeMap<(&'static str, Vec<u8>), Item>;

pub fn outcome(store: &Store) -> Outcome {
    let mut outcome = Outcome::new();
    for ((table, key), value) in rows(store) {
        let item = match table {
            "replies" => continue,
            "dirents" => {
                let dirent = Dirent::from_bytes(&key, &value).expect("whole");
                let inode = dirent.inode.map(bare);
                Item::File(Some((dirent.fid, dirent.name)), inode)
            }
            "inodes" => {
                let inode = Inode::from_bytes(&key, &value).expect("whole");
                Item::File(None, Some(bare(inode)))
            }
            "orphans" | "destroys" => Item::Other(String::new()),
            "clients" => {
                let known = KnownClient::from_bytes(&key, &value).expect("whole");
                Item::Other(format!("given up: {}", known.given_up.is_some()))
            }
            "state" => {
                let State {
                    next_sequence,
                    files,
                    ..
                } = state(store);
                Item::Other(format!("next {next_sequence}, {files} files"))
            }
            _ => Item::Other(format!("{value:?}")),
        };
        outcome.insert((table, key), item);
    }
    outcome
}

fn bare(inode: Inode) -> Box<Inode> {
    let version = 0;
    Box::new(Inode { version, ..inode })
}

/// `found` is `expected`; but the size of a file that was open for writing when the server died may
/// be left to the OSTs.
pub fn is_same(expected: &Outcome, found: &Outcome) -> bool {
    let forgiven = |(key, item): (&(&'static str, Vec<u8>), &Item)| {
        let mut item = item.clone();
        if let (Item::File(_, Some(inode)), Some(Item::File(_, Some(found)))) =
            (&mut item, found.get(key))
            && found.written
            && (inode.size_state, found.size_state) == (SizeState::Strict, SizeState::Ask)
        {
            inode.size_state = SizeState::Ask;
            (inode.size, inode.blocks) = (found.size, found.blocks);
            (inode.mtime, inode.mtime_set) = (found.mtime, found.mtime_set);
        }
        (key.clone(), item)
    };
    let expected: Outcome = expected.iter().map(forgiven).collect();
    if expected == *found {
        return true;
    }
    for key in expected.keys().chain(found.keys()) {
        if expected.get(key) != found.get(key) {
            println!(
                "{key:?}: {:?}\n  found {:?}",
                expected.get(key),
                found.get(key)
            );
        }
    }
    false
}
