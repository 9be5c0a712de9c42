//! Walks of a tree that is only in memory: which pages come in which answer, and what others get meanwhile.

use std::collections::BTreeMap;

use base::{ClientId, LockHandle, Name, Timestamp, Xid};
use storage::StorageError;
use wire::mdt::WalkLevel;
use wire::{DirState, Grant};

use super::*;
use crate::format::directory_inode;
use crate::rig::store_of;

/// A tree of directories in which each has the ones after it: its number times ten, and one to three more.
struct Tree {
    store: Store,
    /// How many subdirectories a directory has; of one that is not here there is no page.
    widths: BTreeMap<u64, u64>,
    /// Of this one there is no reading.
    damaged: Option<Fid>,
    /// Bytes of each name.
    name_bytes: usize,
}

fn tree(widths: &[(u64, u64)]) -> Tree {
    Tree {
        store: store_of(Vec::new()),
        widths: widths.iter().copied().collect(),
        damaged: None,
        name_bytes: 1,
    }
}

impl Pages for Tree {
    fn store(&self) -> &Store {
        &self.store
    }

    fn page(&mut self, _: Call, dir: Fid, cookie: u64, _: usize) -> Result<Page, Failure> {
        if self.damaged == Some(dir) {
            return Err(StorageError::damaged("MDT", "page", "it is torn").into());
        }
        let width = *self.widths.get(&dir.0).ok_or(FsError::Stale)?;
        let attr = directory_inode(Timestamp::default(), (0, 0), 0o755).attr();
        let name = |number: u64| format!("{number:0>width$}", width = self.name_bytes);
        let entry = |number| DirEntry {
            cookie: number,
            name: Name::try_from(&*name(number)).expect("valid"),
            fid: Fid(dir.0 * 10 + number),
            kind: FileKind::Directory,
            node: None,
            is_outside: false,
        };
        Ok(Page {
            lease: Lease::Held(Grant {
                handle: LockHandle(dir.0),
                fid: dir,
                mode: 0,
                bits: 0,
                version: 0,
            }),
            dir: DirState {
                fid: dir,
                attr,
                version: 0,
            },
            entries: (cookie + 1..=width).map(entry).collect(),
            end: true,
            covers_list: true,
        })
    }
}

/// Request number `tag` of the walk `walk` of one client: from the root of the tree, or what follows.
fn asked(tag: u64, walk: u64, follows: bool) -> Event {
    let client = ClientId(1);
    let root = WalkLevel {
        dir: Fid(1),
        cookie: 0,
        listed: false,
    };
    Event::Asked {
        ask: Ask {
            call: Call {
                client,
                tag,
                slot: 0,
                xid: Xid(tag),
                index: 0,
            },
            chain: Chain { client, walk },
            bytes_max: 1 << 20,
        },
        from: Cursor {
            levels: if follows { Vec::new() } else { vec![root] },
            order: WalkOrder::Cookie,
        },
        instead_of: None,
    }
}

/// The directories in the answer to a request, or why there is none; `go on` and `halt` by their names.
fn told(effects: Vec<Effect>) -> Vec<String> {
    let told = effects.into_iter().map(|effect| match effect {
        Effect::Say(Output::GoOn) => "go on".to_owned(),
        Effect::Say(Output::Reply { tag, result, .. }) => match result {
            Ok(Reply::Walked { pages, .. }) => {
                let dirs = pages.iter().map(|(_, page)| page.dir.fid.0);
                format!("{tag}: {:?}", dirs.collect::<Vec<_>>())
            }
            other => format!("{tag}: {:?}", other.map(drop)),
        },
        Effect::Halt(_) => "halt".to_owned(),
        other => panic!("{other:?}"),
    });
    told.collect()
}

#[test]
fn a_walk_goes_depth_first_and_leaves_out_what_is_gone() {
    let mut tree = tree(&[(1, 3), (11, 1), (111, 0), (13, 0)]);
    let mut walks = Walks::default();
    let answer = told(walks.step(&mut tree, asked(7, 0, false)));
    assert_eq!(answer, ["7: [1, 11, 111, 13]"]);
    assert_eq!(walks.count(ClientId(1)), 0);
}

#[test]
fn a_long_walk_lets_others_come_between_and_is_followed() {
    let mut tree = tree(&[(1, 300), (11, 0)]);
    tree.name_bytes = 250;
    let mut walks = Walks::default();
    assert_eq!(told(walks.step(&mut tree, asked(1, 9, false))), ["go on"]);
    assert_eq!(told(walks.step(&mut tree, asked(2, 9, true))), [""; 0]);
    assert_eq!(walks.count(ClientId(1)), 2);
    let mut answers = Vec::new();
    while walks.count(ClientId(1)) > 0 {
        answers.extend(told(walks.step(&mut tree, Event::GoOn)));
    }
    answers.retain(|said| said != "go on");
    assert_eq!(answers, ["1: [1, 11]", "2: []"]);
    let nowhere = told(walks.step(&mut tree, asked(3, 8, true)));
    assert_eq!(nowhere, ["3: Err(TryAgain)"]);
}

#[test]
fn damage_refuses_the_walk_and_what_follows_and_stops_the_target() {
    let mut tree = tree(&[(1, 300)]);
    tree.name_bytes = 250;
    tree.damaged = Some(Fid(11));
    let mut walks = Walks::default();
    walks.step(&mut tree, asked(1, 9, false));
    walks.step(&mut tree, asked(2, 9, true));
    let mut said = told(walks.step(&mut tree, Event::GoOn));
    assert_eq!(said.pop().as_deref(), Some("halt"));
    assert_eq!(said, ["2: Err(TryAgain)", "1: Err(Io)"]);
}

#[test]
fn a_walk_that_is_not_wanted_any_more_is_answered_with_what_there_is() {
    let mut tree = tree(&[(1, 300)]);
    tree.name_bytes = 250;
    let mut walks = Walks::default();
    walks.step(&mut tree, asked(1, 9, false));
    let mut other = asked(2, 10, false);
    let Event::Asked {
        instead_of, ask, ..
    } = &mut other
    else {
        unreachable!("it is one")
    };
    *instead_of = Some(Chain {
        walk: 9,
        ..ask.chain
    });
    let said = told(walks.step(&mut tree, other));
    assert_eq!(said[0], "1: [1]");
    assert_eq!(walks.count(ClientId(1)), 1);
}
