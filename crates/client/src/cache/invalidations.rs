//! Names that the kernel has not forgotten yet. Until it has, it may move the file that it takes a name for.

use std::collections::HashMap;

use base::{Fid, Name};

/// Pending invalidations of names, each with the files that the kernel may take it for.
#[derive(Debug, Default)]
pub(crate) struct PendingInvalidations {
    fids: HashMap<(Fid, Name), Vec<Fid>>,
}

impl PendingInvalidations {
    /// The kernel is asked to forget `name`, which led to `fid`.
    pub fn begin(&mut self, dir: Fid, name: Name, fid: Fid) {
        self.fids.entry((dir, name)).or_default().push(fid);
    }

    /// The kernel has forgotten it. Once for each `begin`.
    pub fn end(&mut self, dir: Fid, name: Name, fid: Fid) {
        let place = (dir, name);
        let Some(fids) = self.fids.get_mut(&place) else {
            return;
        };
        if let Some(first) = fids.iter().position(|other| *other == fid) {
            fids.swap_remove(first);
        }
        if fids.is_empty() {
            self.fids.remove(&place);
        }
    }

    /// The names of `fid` that the kernel has not forgotten yet.
    pub fn of(&self, fid: Fid) -> Vec<(Fid, Name)> {
        let pending = self.fids.iter().filter(|(_, fids)| fids.contains(&fid));
        pending.map(|(place, _)| place.clone()).collect()
    }

    /// The files that the kernel may take `name` for, other than `fid`, to which it leads.
    pub fn mistaken(&self, dir: Fid, name: &Name, fid: Fid) -> Vec<Fid> {
        let fids = self.fids.get(&(dir, name.clone()));
        let mut others: Vec<Fid> = fids.into_iter().flatten().copied().collect();
        others.retain(|other| *other != fid);
        others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_pending_until_it_is_forgotten_as_often_as_that_was_asked_for() {
        let (dir, [old, new]) = (Fid::ROOT, [Fid(7), Fid(8)]);
        let name = || Name::new(b"name").expect("a good name");
        let mut pending = PendingInvalidations::default();
        pending.begin(dir, name(), old);
        pending.begin(dir, name(), old);
        pending.end(dir, name(), old);
        assert_eq!(pending.mistaken(dir, &name(), new), [old]);
        assert!(pending.mistaken(dir, &name(), old).is_empty());
        pending.end(dir, name(), old);
        assert!(pending.mistaken(dir, &name(), new).is_empty() && pending.fids.is_empty());
    }
}
