//! The changes of a transaction, found by what they change. Their cost is linear in their number, and a
//! record that changes a thousand times is written once.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use base::Fid;
use dlm::IdMap;

use crate::keys::Spot;
use crate::mutation::Mutation;
use crate::records::{Dirent, Inode, Place};

/// Changes in order, each name, inode and place with its last state only.
#[derive(Debug, Default)]
pub struct ChangeSet {
    mutations: Vec<Mutation>,
    /// Where in `mutations` the last state of each stands.
    dirents: BTreeMap<Spot, usize>,
    inodes: IdMap<Fid, usize>,
    places: IdMap<Fid, usize>,
    /// Where the names of a file with several names are made and removed.
    links: IdMap<Fid, Vec<usize>>,
}

impl ChangeSet {
    /// Adds a change. It takes the place of an earlier one of the same record: nothing between the two
    /// depends on which of them is stored.
    pub fn add(&mut self, mutation: Mutation) {
        let next = self.mutations.len();
        let place = match &mutation {
            Mutation::PutDirent(spot, _) | Mutation::RemoveDirent(spot) => {
                *self.dirents.entry(*spot).or_insert(next)
            }
            Mutation::PutInode(fid, _) | Mutation::RemoveInode(fid) => {
                *self.inodes.entry(*fid).or_insert(next)
            }
            Mutation::PutPlace(fid, _) | Mutation::RemovePlace(fid) => {
                *self.places.entry(*fid).or_insert(next)
            }
            Mutation::PutLink(fid, _) | Mutation::RemoveLink(fid, _) => {
                self.links.entry(*fid).or_default().push(next);
                next
            }
            _ => next,
        };
        match self.mutations.get_mut(place) {
            Some(earlier) => *earlier = mutation,
            None => self.mutations.push(mutation),
        }
    }

    /// Nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.mutations.is_empty()
    }

    /// All changes, to be stored in this order.
    pub fn into_mutations(self) -> Vec<Mutation> {
        self.mutations
    }

    /// The place of a file, if it was changed; inner `None`: it has none any more.
    pub fn place(&self, fid: Fid) -> Option<Option<Place>> {
        match &self.mutations[*self.places.get(&fid)?] {
            Mutation::PutPlace(_, place) => Some(Some(*place)),
            _ => Some(None),
        }
    }

    /// A file's own record, if it was changed; inner `None`: it has none any more.
    pub fn inode(&self, fid: Fid) -> Option<Option<&Inode>> {
        match &self.mutations[*self.inodes.get(&fid)?] {
            Mutation::PutInode(_, inode) => Some(Some(inode)),
            _ => Some(None),
        }
    }

    /// The name at a spot, if it was changed; inner `None`: it is gone.
    pub fn dirent(&self, spot: Spot) -> Option<Option<&Dirent>> {
        Some(self.dirent_at(*self.dirents.get(&spot)?))
    }

    /// The changed spots of `dir` with these cookies, ascending; `None`: the name is gone.
    pub fn names(
        &self,
        dir: Fid,
        cookies: RangeInclusive<u64>,
    ) -> impl Iterator<Item = (u64, Option<&Dirent>)> {
        let spot = |cookie: &u64| Spot {
            dir,
            cookie: *cookie,
        };
        let spots = spot(cookies.start())..=spot(cookies.end());
        let changed = self.dirents.range(spots);
        changed.map(|(spot, at)| (spot.cookie, self.dirent_at(*at)))
    }

    /// The names made and removed of a file with several names, in order: where, and whether it was made.
    pub fn links(&self, fid: Fid) -> impl Iterator<Item = (Spot, bool)> {
        let changed = self.links.get(&fid).into_iter().flatten();
        changed.filter_map(|at| match &self.mutations[*at] {
            Mutation::PutLink(_, spot) => Some((*spot, true)),
            Mutation::RemoveLink(_, spot) => Some((*spot, false)),
            _ => None,
        })
    }

    fn dirent_at(&self, at: usize) -> Option<&Dirent> {
        match &self.mutations[at] {
            Mutation::PutDirent(_, dirent) => Some(dirent),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{Name, Rng, SeededRng};
    use wire::FileKind;

    use super::*;

    /// What a list of changes leaves: the last of each name and place counts.
    #[derive(Debug, Default, PartialEq)]
    struct Outcome {
        dirents: BTreeMap<Spot, Option<Dirent>>,
        places: BTreeMap<Fid, Option<Place>>,
        links: BTreeMap<(Fid, Spot), bool>,
    }

    impl Outcome {
        fn of(mutations: &[Mutation]) -> Outcome {
            let mut outcome = Outcome::default();
            for mutation in mutations.iter().cloned() {
                match mutation {
                    Mutation::PutDirent(spot, dirent) => {
                        outcome.dirents.insert(spot, Some(dirent));
                    }
                    Mutation::RemoveDirent(spot) => {
                        outcome.dirents.insert(spot, None);
                    }
                    Mutation::PutPlace(fid, place) => {
                        outcome.places.insert(fid, Some(place));
                    }
                    Mutation::RemovePlace(fid) => {
                        outcome.places.insert(fid, None);
                    }
                    Mutation::PutLink(fid, spot) => {
                        outcome.links.insert((fid, spot), true);
                    }
                    Mutation::RemoveLink(fid, spot) => {
                        outcome.links.insert((fid, spot), false);
                    }
                    other => panic!("not made here: {other:?}"),
                }
            }
            outcome
        }
    }

    const DIRS: u64 = 3;
    const COOKIES: u64 = 6;

    fn random(rng: &mut SeededRng) -> Mutation {
        let fid = Fid(100 + rng.below(5));
        let spot = Spot {
            dir: Fid(rng.below(DIRS)),
            cookie: rng.below(COOKIES),
        };
        let dirent = Dirent {
            name: Name::try_from(format!("n{}", rng.below(1000)).as_str()).expect("valid"),
            fid,
            kind: FileKind::Regular,
            inode: None,
        };
        match rng.below(6) {
            0 => Mutation::PutDirent(spot, dirent),
            1 => Mutation::RemoveDirent(spot),
            2 => Mutation::PutPlace(fid, Place::Entry(spot)),
            3 => Mutation::RemovePlace(fid),
            4 => Mutation::PutLink(fid, spot),
            _ => Mutation::RemoveLink(fid, spot),
        }
    }

    /// Every question is answered as a look through the whole list would answer it.
    fn assert_same(set: &ChangeSet, log: &[Mutation]) {
        let expected = Outcome::of(log);
        for dir in (0..DIRS).map(Fid) {
            let cookies = 1..=COOKIES - 2;
            let found: Vec<_> = set.names(dir, cookies.clone()).collect();
            let within = |spot: &Spot| spot.dir == dir && cookies.contains(&spot.cookie);
            let changed = expected.dirents.iter().filter(|(spot, _)| within(spot));
            let named: Vec<_> = changed.map(|(s, d)| (s.cookie, d.as_ref())).collect();
            assert_eq!(found, named);
            for cookie in 0..COOKIES {
                let spot = Spot { dir, cookie };
                let changed = expected.dirents.get(&spot).map(Option::as_ref);
                assert_eq!(set.dirent(spot), changed);
            }
        }
        for fid in (100..105).map(Fid) {
            assert_eq!(set.place(fid), expected.places.get(&fid).copied());
            let made: BTreeMap<Spot, bool> = set.links(fid).collect();
            let of_file = expected.links.iter().filter(|((f, _), _)| *f == fid);
            assert_eq!(made, of_file.map(|((_, s), made)| (*s, *made)).collect());
        }
    }

    #[test]
    fn it_answers_as_the_whole_list_of_changes_would() {
        let mut rng = SeededRng::new(7);
        for _ in 0..200 {
            let (mut set, mut log) = (ChangeSet::default(), Vec::new());
            for _ in 0..40 {
                let mutation = random(&mut rng);
                log.push(mutation.clone());
                set.add(mutation);
                assert_same(&set, &log);
            }
            assert_eq!(Outcome::of(&set.into_mutations()), Outcome::of(&log));
        }
    }

    #[test]
    fn a_record_that_changes_a_thousand_times_is_written_once() {
        let mut set = ChangeSet::default();
        for n in 0..1000 {
            let cookie = n;
            let spot = Spot {
                dir: Fid(1),
                cookie,
            };
            set.add(Mutation::PutPlace(Fid(1), Place::Directory(spot)));
        }
        assert_eq!(set.into_mutations().len(), 1);
    }
}
