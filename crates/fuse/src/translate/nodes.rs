//! The kernel's nodes: which file each leads to, and where the kernel has directories. A file's node is its
//! FID; a directory that another mount moved may get a further node at its new place, to which the kernel
//! could not take the other (docs/adr/0016-further-nodes.md).

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::Fid;
use client::{FurtherNode, Moved};

/// The bit that further nodes have, and no FID. The one above is free, for lanes of notices.
const FURTHER: u64 = 1 << 62;
/// Further nodes at most; beyond, calls on moved directories may fail with `ESTALE`.
const FURTHER_MAX: usize = 1 << 16;
/// Directories above one that are looked at for a loop.
const DEPTH_MAX: usize = 4096;
/// Threads remembered at most; beyond, some call may have to be made again by its user.
const THREADS_MAX: usize = 4096;

/// Where the kernel has a directory: in that of node `parent`, zero where that is not known, under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Place {
    parent: u64,
    /// Names with the same hash may be mixed up: then a move may be missed, which can fail.
    name: u32,
}

impl Place {
    pub fn new(parent: u64, name: &[u8]) -> Place {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let name = hasher.finish() as u32;
        Place { parent, name }
    }
}

/// Which call is told of a directory, where the kernel would have to move that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// One that looks up every name once more where the kernel cannot.
    Trial,
    /// One that would fail.
    Final,
    /// A listing, of which nobody hears what came of it.
    Listing,
}

/// The node by which the kernel is told of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub node: u64,
    /// The kernel has it elsewhere and must move it.
    pub must_move: bool,
}

impl Told {
    /// What is no directory has one node, wherever it is.
    pub fn of_file(fid: Fid) -> Told {
        let (node, must_move) = (fid.0, false);
        Told { node, must_move }
    }
}

/// What a thread's next request says of the directory that it was told of last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sequel {
    /// Nothing: the kernel had it there.
    None,
    /// The kernel has moved it: it is asked about it.
    Moved,
    /// Something else is asked for: the kernel looks again, or this is another call.
    Elsewhere,
}

/// A node of a directory that the kernel has.
#[derive(Debug, Default)]
struct Directory {
    /// Where the kernel has it.
    at: Place,
    /// Where it was told last to have it, and may not have been able to move it.
    tried: Option<Place>,
    /// References of the kernel.
    lookups: u64,
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<u64, Directory>,
    /// What the kernel takes each place for.
    places: HashMap<Place, u64>,
    further_nodes: HashMap<u64, FurtherNode>,
    /// The further nodes of a directory, the oldest first.
    of: HashMap<Fid, Vec<u64>>,
    last: u64,
    /// The node that each thread was told of last, where the kernel had to move it.
    moving: HashMap<u32, u64>,
}

/// All nodes of one mount.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    state: Mutex<State>,
    /// How many further ones, and how many threads whose sequel is of interest: read without the lock, mostly
    /// there are none.
    further: AtomicUsize,
    moving: AtomicUsize,
}

impl Nodes {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = change(&mut state);
        self.further
            .store(state.further_nodes.len(), Ordering::Release);
        self.moving.store(state.moving.len(), Ordering::Release);
        result
    }

    /// Goes on with those of the process before.
    pub fn inherit(&self, nodes: Vec<FurtherNode>) {
        self.change(|state| nodes.into_iter().for_each(|node| state.add(node)));
    }

    /// The file that `node` leads to. None: the kernel has given the node back.
    pub fn file(&self, node: u64) -> Option<Fid> {
        if node & FURTHER == 0 {
            return Some(Fid(node));
        }
        self.lock().further_nodes.get(&node).map(FurtherNode::fid)
    }

    /// All nodes by which the kernel may know `fid`.
    pub fn of(&self, fid: Fid) -> Vec<u64> {
        let mut nodes = vec![fid.0];
        if self.further.load(Ordering::Acquire) > 0 {
            nodes.extend(self.lock().of.get(&fid).into_iter().flatten());
        }
        nodes
    }

    /// The directory from which the kernel would have to move `fid`, if it were told that this is at `place`.
    pub fn would_move(&self, place: Place, fid: Fid) -> Option<Fid> {
        let parent = {
            let state = self.lock();
            let (node, must_move) = state.node_at(place, fid);
            let known = state.directories.get(&node).filter(|_| must_move);
            known?.at.parent
        };
        Some(self.file(parent).unwrap_or(Fid::NONE))
    }

    /// The kernel is about to be told that the directory `fid` is at `place`, and to have one more reference
    /// to its node. None: this call must not tell it. The function `make` records a further node of this
    /// number for the next process.
    pub fn tell(
        &self,
        (place, fid): (Place, Fid),
        telling: Telling,
        make: impl FnOnce(u64) -> Option<FurtherNode>,
    ) -> Option<Told> {
        self.change(|state| {
            let (node, must_move) = state.node_at(place, fid);
            if !must_move {
                state.is_at(node, place);
                return Some(state.refer(node, false));
            }
            match telling {
                Telling::Listing => return None,
                Telling::Trial if !state.is_above(node, place.parent) => {}
                Telling::Trial | Telling::Final => {
                    if let Some(further) = state.further(make) {
                        state.is_at(further, place);
                        return Some(state.refer(further, false));
                    }
                }
            }
            state.tries(node, place);
            Some(state.refer(node, true))
        })
    }

    /// The kernel is about to have one more reference to the directory `fid`, found without a name.
    /// By `node`, where that is one of its nodes.
    pub fn tell_unnamed(&self, node: u64, fid: Fid) -> Told {
        self.change(|state| {
            let same = state.nodes(fid).find(|one| *one == node);
            state.refer(same.unwrap_or(state.newest(fid)), false)
        })
    }

    /// The kernel holds `count` references to `node` less. The file that it leads to.
    pub fn forget(&self, node: u64, count: u64) -> Option<Fid> {
        let fid = self.file(node);
        self.change(|state| {
            if let Some(directory) = state.directories.get_mut(&node) {
                directory.lookups = directory.lookups.saturating_sub(count);
                let left = directory.lookups;
                state.note(node, left);
            }
        });
        fid
    }

    /// A rename has moved `moved`: the kernel is about to move what it has at the one place to the other.
    pub fn moves(&self, (from, to): (Place, Place), moved: Moved) {
        self.change(|state| {
            let [source, target] = [from, to].map(|place| state.places.remove(&place));
            state.has_moved(source, (from, to), moved.there);
            if let Some(back) = moved.back {
                state.has_moved(target, (to, from), back);
            }
        });
    }

    /// `thread` is told of `node`, which the kernel must move.
    pub fn must_move(&self, thread: u32, node: u64) {
        self.change(|state| {
            if state.moving.len() >= THREADS_MAX {
                state.moving.clear();
            }
            state.moving.insert(thread, node);
        });
    }

    /// `thread` asks for something about `node`.
    pub fn asks(&self, thread: u32, node: u64) -> Sequel {
        if self.moving.load(Ordering::Acquire) == 0 {
            return Sequel::None;
        }
        self.change(|state| match state.moving.remove(&thread) {
            None => Sequel::None,
            Some(told) if told == node => {
                if let Some(tried) = state.directory(node).tried {
                    state.is_at(node, tried);
                }
                Sequel::Moved
            }
            Some(_) => Sequel::Elsewhere,
        })
    }
}

impl Directory {
    /// The kernel has it in the directory of this node for certain.
    fn is_in(&self, parent: u64) -> bool {
        self.at.parent == parent && self.tried.is_none()
    }
}

impl State {
    fn add(&mut self, further: FurtherNode) {
        let node = further.node();
        let known = Directory {
            lookups: further.lookups(),
            ..Directory::default()
        };
        self.last = self.last.max(node & !FURTHER);
        self.of.entry(further.fid()).or_default().push(node);
        self.directories.insert(node, known);
        self.further_nodes.insert(node, further);
    }

    fn further(&mut self, make: impl FnOnce(u64) -> Option<FurtherNode>) -> Option<u64> {
        if self.further_nodes.len() >= FURTHER_MAX {
            return None;
        }
        let node = (self.last + 1) | FURTHER;
        self.add(make(node)?);
        Some(node)
    }

    /// The nodes of `fid`, the newest first.
    fn nodes(&self, fid: Fid) -> impl Iterator<Item = u64> {
        let further = self.of.get(&fid).into_iter().flatten().rev().copied();
        further.chain([fid.0])
    }

    fn newest(&self, fid: Fid) -> u64 {
        self.nodes(fid).next().unwrap_or(fid.0)
    }

    fn directory(&mut self, node: u64) -> &mut Directory {
        self.directories.entry(node).or_default()
    }

    /// The kernel takes that place for something else.
    fn leaves(&mut self, node: u64, place: Place) {
        if self.places.get(&place) == Some(&node) {
            self.places.remove(&place);
        }
    }

    /// The kernel has it there for certain.
    fn is_at(&mut self, node: u64, place: Place) {
        let directory = self.directory(node);
        let old = std::mem::replace(&mut directory.at, place);
        let tried = directory.tried.take();
        for old in [Some(old), tried].into_iter().flatten() {
            self.leaves(node, old);
        }
        self.places.insert(place, node);
    }

    /// The kernel is to move it there.
    fn tries(&mut self, node: u64, place: Place) {
        let directory = self.directory(node);
        if let Some(tried) = directory.tried.replace(place)
            && tried != place
        {
            let old = std::mem::replace(&mut directory.at, tried);
            self.leaves(node, old);
        }
        self.places.insert(place, node);
    }

    /// The kernel has moved its node at a place, as far as is known `node`. This is not a node of `moved`
    /// where the name leads elsewhere meanwhile.
    fn has_moved(&mut self, node: Option<u64>, (from, to): (Place, Place), moved: Fid) {
        let Some(node) = node.filter(|node| self.directories.contains_key(node)) else {
            return;
        };
        let is_sure = self.nodes(moved).any(|one| one == node);
        let directory = self.directory(node);
        match directory.tried {
            None if is_sure => directory.at = to,
            None => directory.tried = Some(to),
            Some(tried) if tried == from => directory.tried = Some(to),
            Some(_) => directory.at = to,
        }
        self.places.insert(to, node);
    }

    /// The node of `fid` for the kernel at `place`, and whether the kernel must move it there. Within one
    /// directory it always can.
    fn node_at(&self, place: Place, fid: Fid) -> (u64, bool) {
        let is_there = |node: &u64| {
            let known = self.directories.get(node);
            known.is_some_and(|directory| directory.is_in(place.parent))
        };
        match self.nodes(fid).find(is_there) {
            Some(node) => (node, false),
            None => {
                let newest = self.newest(fid);
                (newest, self.directories.contains_key(&newest))
            }
        }
    }

    /// Whether the kernel has the directory of node `parent` somewhere below `node`.
    fn is_above(&self, node: u64, parent: u64) -> bool {
        let up = |at: &u64| {
            self.directories
                .get(at)
                .map(|directory| directory.at.parent)
        };
        let mut above = std::iter::successors(Some(parent), up).take(DEPTH_MAX);
        above.any(|at| at == node)
    }

    fn refer(&mut self, node: u64, must_move: bool) -> Told {
        let directory = self.directory(node);
        directory.lookups += 1;
        let lookups = directory.lookups;
        self.note(node, lookups);
        Told { node, must_move }
    }

    /// The kernel holds so many references to `node`.
    fn note(&mut self, node: u64, lookups: u64) {
        if let Some(further) = self.further_nodes.get(&node) {
            further.note_lookups(lookups);
        }
        if lookups > 0 {
            return;
        }
        if let Some(gone) = self.directories.remove(&node) {
            let places = [Some(gone.at), gone.tried];
            places
                .into_iter()
                .flatten()
                .for_each(|place| self.leaves(node, place));
        }
        let Some(gone) = self.further_nodes.remove(&node) else {
            return;
        };
        if let Some(nodes) = self.of.get_mut(&gone.fid()) {
            nodes.retain(|other| *other != node);
            if nodes.is_empty() {
                self.of.remove(&gone.fid());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Fid = Fid(7);
    const B: Fid = Fid(8);
    const D: Fid = Fid(9);

    fn place(dir: Fid, name: &str) -> Place {
        Place::new(dir.0, name.as_bytes())
    }

    fn tell(nodes: &Nodes, place: Place, telling: Telling) -> Option<Told> {
        let make = |node| FurtherNode::new(None, node, D);
        nodes.tell((place, D), telling, make)
    }

    fn told(node: u64, must_move: bool) -> Option<Told> {
        Some(Told { node, must_move })
    }

    #[test]
    fn further_nodes_are_no_fids_nor_lanes() {
        let last = Fid::new(Fid::SEQUENCE_MAX, Fid::OBJECT_MAX);
        assert_eq!(last.0 & (FURTHER | FURTHER << 1), 0);
    }

    #[test]
    fn a_directory_has_one_node_as_long_as_the_kernel_can_move_it() {
        let nodes = Nodes::default();
        assert_eq!(
            tell(&nodes, place(A, "d"), Telling::Final),
            told(D.0, false)
        );
        assert_eq!(
            tell(&nodes, place(A, "e"), Telling::Final),
            told(D.0, false),
            "within one"
        );
        assert_eq!(tell(&nodes, place(B, "d"), Telling::Listing), None);
        assert_eq!(tell(&nodes, place(B, "d"), Telling::Trial), told(D.0, true));
        nodes.must_move(1, D.0);
        assert_eq!(nodes.asks(2, D.0), Sequel::None);
        assert_eq!(nodes.asks(1, D.0), Sequel::Moved);
        assert_eq!(
            tell(&nodes, place(B, "d"), Telling::Final),
            told(D.0, false)
        );
        assert_eq!(nodes.of(D), [D.0]);
    }

    #[test]
    fn a_directory_that_the_kernel_could_not_move_has_a_further_node_until_the_kernel_forgets_that()
    {
        let nodes = Nodes::default();
        tell(&nodes, place(A, "d"), Telling::Trial);
        assert_eq!(tell(&nodes, place(B, "d"), Telling::Trial), told(D.0, true));
        nodes.must_move(1, D.0);
        assert_eq!(nodes.asks(1, B.0), Sequel::Elsewhere);
        let further = FURTHER + 1;
        assert_eq!(
            tell(&nodes, place(B, "d"), Telling::Final),
            told(further, false)
        );
        assert_eq!(
            tell(&nodes, place(B, "d"), Telling::Final),
            told(further, false)
        );
        assert_eq!(
            (nodes.of(D), nodes.file(further)),
            (vec![D.0, further], Some(D))
        );
        assert_eq!(nodes.forget(further, 1), Some(D));
        assert_eq!(nodes.file(further), Some(D), "one reference is left");
        assert_eq!(nodes.forget(further, 1), Some(D));
        assert_eq!((nodes.of(D), nodes.file(further)), (vec![D.0], None));
        assert_eq!(
            tell(&nodes, place(B, "d"), Telling::Final),
            told(further + 1, false)
        );
    }

    #[test]
    fn the_kernel_moves_what_it_has_at_a_place() {
        let nodes = Nodes::default();
        tell(&nodes, place(A, "d"), Telling::Trial);
        let moved = |there| Moved {
            there,
            back: None,
            over: None,
        };
        nodes.moves((place(A, "d"), place(B, "d")), moved(D));
        assert_eq!(
            tell(&nodes, place(B, "d"), Telling::Final),
            told(D.0, false)
        );
        // The name led to another file when it was moved: the kernel may have moved this one.
        nodes.moves((place(B, "d"), place(A, "d")), moved(Fid(10)));
        for dir in [A, B] {
            assert_eq!(
                tell(&nodes, place(dir, "d"), Telling::Trial),
                told(D.0, true)
            );
        }
    }

    #[test]
    fn a_directory_is_not_moved_below_itself() {
        let nodes = Nodes::default();
        tell(&nodes, place(A, "d"), Telling::Trial);
        let below = FurtherNode::new(None, 0, B);
        nodes.tell((place(D, "b"), B), Telling::Trial, |_| below);
        assert_eq!(
            tell(&nodes, place(B, "d"), Telling::Trial),
            told(FURTHER + 1, false)
        );
    }

    #[test]
    fn what_a_process_left_is_known_to_the_next() {
        let nodes = Nodes::default();
        nodes.inherit(Vec::from_iter(FurtherNode::new(None, FURTHER + 5, D)));
        assert_eq!(nodes.file(FURTHER + 5), Some(D));
        assert_eq!(
            tell(&nodes, place(B, "d"), Telling::Trial),
            told(FURTHER + 5, true)
        );
        assert_eq!(
            tell(&nodes, place(B, "d"), Telling::Final),
            told(FURTHER + 6, false)
        );
    }
}
