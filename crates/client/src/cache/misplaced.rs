//! Directories that the kernel may have at a place where they are no more (hazard 2: a directory's name is
//! expired there, not dropped). To use one at its new place the kernel must move it, for which it only tries
//! two locks that a rename of this mount may hold: it says `ESTALE` then.

use std::collections::HashMap;

use base::{Fid, Name};

use crate::executor::{Oneshot, WaitList};

/// Places of one directory; of more the oldest is forgotten.
const PLACES_MAX: usize = 4;

/// All such directories of a mount, and where the kernel may have each. Those whose names a lease covers are
/// not among them: it says when they go.
#[derive(Debug, Default)]
pub(crate) struct Misplaced {
    places: HashMap<Fid, Vec<(Fid, Name)>>,
    waiting: WaitList,
}

fn is_at(place: &(Fid, Name), dir: Fid, name: &Name) -> bool {
    place.0 == dir && place.1 == *name
}

impl Misplaced {
    /// The kernel has the directory `fid` at a place where it is no more, or from which it may go without a word.
    pub fn may_be_at(&mut self, fid: Fid, dir: Fid, name: &Name) {
        let places = self.places.entry(fid).or_default();
        places.retain(|place| !is_at(place, dir, name));
        if places.len() >= PLACES_MAX {
            places.remove(0);
        }
        places.push((dir, name.clone()));
    }

    /// The kernel has dropped `fid`, or has moved it.
    pub fn is_gone(&mut self, fid: Fid) {
        if self.places.remove(&fid).is_some() {
            self.waiting.wake_all();
        }
    }

    /// The kernel may have `fid` elsewhere than at this place.
    pub fn is_elsewhere(&self, fid: Fid, dir: Fid, name: &Name) -> bool {
        let places = self.places.get(&fid);
        places.is_some_and(|places| places.iter().any(|place| !is_at(place, dir, name)))
    }

    /// Something has happened that may let the kernel drop or move directories: a rename has ended, or time has
    /// passed.
    pub fn look_again(&mut self) {
        self.waiting.wake_all();
    }

    /// Resolves when it may be worth another look.
    pub fn wait(&mut self) -> Oneshot<()> {
        self.waiting.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_elsewhere_until_the_kernel_has_dropped_or_moved_it() {
        let name = |name: &str| Name::new(name.as_bytes()).expect("a good name");
        let (fid, [old, new]) = (Fid(9), [Fid(7), Fid(8)]);
        let mut misplaced = Misplaced::default();
        assert!(!misplaced.is_elsewhere(fid, new, &name("a")));
        misplaced.may_be_at(fid, old, &name("a"));
        assert!(
            !misplaced.is_elsewhere(fid, old, &name("a")),
            "where it was"
        );
        assert!(misplaced.is_elsewhere(fid, old, &name("b")));
        misplaced.may_be_at(fid, new, &name("a"));
        let both = [old, new].map(|dir| misplaced.is_elsewhere(fid, dir, &name("a")));
        assert_eq!(both, [true; 2], "nobody says which");
        misplaced.is_gone(fid);
        assert!(!misplaced.is_elsewhere(fid, old, &name("b")));
        (0..20).for_each(|dir| misplaced.may_be_at(fid, Fid(dir), &name("a")));
        assert_eq!(misplaced.places[&fid].len(), PLACES_MAX);
    }
}
