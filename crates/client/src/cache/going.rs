//! Names that the kernel is still to forget: until it has, it may move what it takes them for.

use std::collections::HashMap;

use base::{Fid, Name};

/// Such names, each with what the kernel may take it for.
#[derive(Debug, Default)]
pub(crate) struct GoingNames {
    fids: HashMap<(Fid, Name), Vec<Fid>>,
}

impl GoingNames {
    /// The kernel is told to forget `name`, which led to `fid`.
    pub fn begin(&mut self, dir: Fid, name: Name, fid: Fid) {
        self.fids.entry((dir, name)).or_default().push(fid);
    }

    /// It has, as often as it was told.
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

    /// The names that it is still to forget of `fid`.
    pub fn of(&self, fid: Fid) -> Vec<(Fid, Name)> {
        let going = self.fids.iter().filter(|(_, fids)| fids.contains(&fid));
        going.map(|(place, _)| place.clone()).collect()
    }

    /// What the kernel may take `name` for, other than `fid`, to which it leads.
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
    fn a_name_goes_until_it_is_forgotten_as_often_as_that_was_asked_for() {
        let (dir, [old, new]) = (Fid::ROOT, [Fid(7), Fid(8)]);
        let name = || Name::new(b"name").expect("a good name");
        let mut going = GoingNames::default();
        going.begin(dir, name(), old);
        going.begin(dir, name(), old);
        going.end(dir, name(), old);
        assert_eq!(going.mistaken(dir, &name(), new), [old]);
        assert!(going.mistaken(dir, &name(), old).is_empty());
        going.end(dir, name(), old);
        assert!(going.mistaken(dir, &name(), new).is_empty() && going.fids.is_empty());
    }
}
