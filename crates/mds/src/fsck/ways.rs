//! Whether every directory leads to the root.

use std::collections::{HashMap, HashSet};

use base::Fid;

use super::issue::Mend;
use super::survey::Survey;

impl Survey<'_> {
    /// Finds what can be reached from the root, by any name.
    pub(super) fn reach(&mut self) {
        let mut below: HashMap<Fid, Vec<Fid>> = HashMap::new();
        let dirs = self.files.iter().filter(|(_, seen)| seen.is_dir());
        for (fid, name) in dirs.flat_map(|(fid, seen)| seen.names.iter().map(move |n| (fid, n))) {
            below.entry(name.spot.dir).or_default().push(*fid);
        }
        let mut next = vec![Fid::ROOT];
        while let Some(dir) = next.pop() {
            if self.reached.insert(dir) {
                next.extend(below.remove(&dir).unwrap_or_default());
            }
        }
    }

    pub(super) fn is_reached(&self, dir: Fid) -> bool {
        self.reached.contains(&dir)
    }

    /// Every directory with a name leads to the root.
    pub(super) fn check_ways(&mut self) {
        let named =
            |(_, seen): &(&Fid, &super::survey::Seen)| seen.is_dir() && !seen.names.is_empty();
        let lost: Vec<Fid> = self
            .files
            .iter()
            .filter(named)
            .map(|(fid, _)| *fid)
            .filter(|fid| !self.is_reached(*fid))
            .collect();
        let mut ends = HashMap::new();
        for fid in lost {
            let end = self.end_of_way(fid, &mut ends);
            let what = "its parents do not lead to the root";
            self.error(fid, what, Mend::NameInLostFound(end));
        }
    }

    /// Where the way up from `from` ends: at a directory without a name, or in a ring, represented by its
    /// lowest FID. The map `ends` caches the ends of others.
    fn end_of_way(&self, from: Fid, ends: &mut HashMap<Fid, Fid>) -> Fid {
        let (mut at, mut way, mut on_way) = (from, Vec::new(), HashSet::new());
        let end = loop {
            if let Some(end) = ends.get(&at) {
                break *end;
            }
            if !on_way.insert(at) {
                let ring = way.iter().skip_while(|dir| **dir != at);
                break ring.min().copied().unwrap_or(at);
            }
            way.push(at);
            let seen = self.files.get(&at);
            match seen.and_then(|seen| self.name_to_keep(at, seen)) {
                Some(spot) => at = spot.dir,
                None => break at,
            }
        };
        ends.extend(way.into_iter().map(|dir| (dir, end)));
        end
    }
}
