//! What the records of one file say against each other.

use base::Fid;
use wire::FileKind;

use super::issue::Mend;
use super::survey::{Seen, Survey};
use crate::keys::Spot;
use crate::records::Place;

type Found = Vec<(String, Mend)>;

impl Survey<'_> {
    /// What is wrong with the file, and what mends it.
    pub(super) fn contradictions(&self, fid: Fid, seen: &Seen) -> Found {
        if seen.kind.is_none() {
            return vec![self.lost_record(fid, seen)];
        }
        let mut found = Vec::new();
        match (fid, seen.is_dir()) {
            (Fid::ROOT, false) => {
                let what = "is the root but no directory".into();
                return vec![(what, Mend::RemakeDirectory(fid))];
            }
            (_, true) => self.check_names_of_dir(fid, seen, &mut found),
            _ => {}
        }
        seen.check_orphan(fid, &mut found);
        let mut anew = Vec::new();
        seen.check_records(fid, &mut anew);
        seen.check_counts(fid, &mut anew);
        seen.check_place(fid, &mut anew);
        seen.check_extras(&mut anew);
        found.extend(anew.into_iter().map(|what| (what, Mend::Settle(fid))));
        found
    }

    fn lost_record(&self, fid: Fid, seen: &Seen) -> (String, Mend) {
        let has_names_in_it = seen.children > 0 && self.may_be_remade(fid);
        let mend = match has_names_in_it || fid == Fid::ROOT {
            true => Mend::RemakeDirectory(fid),
            false => Mend::RemoveRemains(fid),
        };
        ("has names or attributes but no record".into(), mend)
    }

    fn check_names_of_dir(&self, fid: Fid, seen: &Seen, found: &mut Found) {
        let kept = self.name_to_keep(fid, seen);
        let others = seen.names.iter().filter(|name| Some(name.spot) != kept);
        for name in others {
            let what = match fid {
                Fid::ROOT => "is the root but has a name",
                _ => "is a directory with several names",
            };
            found.push((what.into(), Mend::RemoveName(name.spot)));
        }
    }

    /// Of a directory's names the one that leads on.
    pub(super) fn name_to_keep(&self, fid: Fid, seen: &Seen) -> Option<Spot> {
        if fid == Fid::ROOT {
            return None;
        }
        let is_placed = |spot: Spot| seen.place == Some(Place::Directory(spot));
        let spots = seen.names.iter().map(|name| name.spot);
        // The first of those that are best.
        spots.rev().max_by_key(|spot| {
            let reached = seen.names.len() > 1 && self.is_reached(spot.dir);
            (reached, is_placed(*spot))
        })
    }
}

impl Seen {
    fn check_orphan(&self, fid: Fid, found: &mut Found) {
        let (names, nameless) = (self.names.len(), self.is_nameless(fid));
        if nameless != self.orphan {
            let mend = match nameless {
                true => Mend::NameInLostFound(fid),
                false => Mend::Settle(fid),
            };
            found.push((format!("has {names} names, orphan: {}", self.orphan), mend));
        } else if nameless && self.children > 0 {
            let what = format!("was removed but holds {} names", self.children);
            found.push((what, Mend::NameInLostFound(fid)));
        }
    }

    fn check_records(&self, fid: Fid, found: &mut Vec<String>) {
        if self.records() > 1 {
            found.push(format!("has {} records", self.records()));
        }
        let is_inline = self.has_inline_record(fid);
        if self.own == is_inline || self.names.iter().any(|name| name.inline != is_inline) {
            found.push("its record is in the wrong place".into());
        }
        if self.names.iter().any(|name| Some(name.kind) != self.kind) {
            found.push("its names disagree on what kind of file it is".into());
        }
        let names = self.names.len();
        let linked = if self.is_dir() || names < 2 { 0 } else { names };
        if self.links as usize != linked {
            found.push(format!("has {} link records", self.links));
        }
    }

    /// Its record belongs into its only name.
    pub fn has_inline_record(&self, fid: Fid) -> bool {
        !self.is_dir() && fid != Fid::ROOT && self.names.len() == 1
    }

    /// The links that the file has, by its names.
    pub fn links_by_names(&self, fid: Fid) -> u32 {
        match (self.is_dir(), self.is_nameless(fid)) {
            (_, true) => 0,
            (true, false) => 2 + self.subdirs,
            (false, false) => self.names.len() as u32,
        }
    }

    fn check_counts(&self, fid: Fid, found: &mut Vec<String>) {
        let links = self.links_by_names(fid);
        if self.nlink != links {
            found.push(format!("counts {} links, has {links}", self.nlink));
        }
        let (counted, children) = (self.entries, self.children);
        if self.is_dir() && counted != children {
            found.push(format!("counts {counted} entries, has {children}"));
        }
    }

    /// Where it is, by its names.
    pub fn place_by_names(&self, fid: Fid) -> Place {
        match (fid, self.is_dir(), &self.names[..]) {
            (Fid::ROOT, ..) => Place::Directory(Spot {
                dir: Fid::ROOT,
                cookie: 0,
            }),
            (_, true, [name]) => Place::Directory(name.spot),
            (_, false, [name]) => Place::Entry(name.spot),
            _ => Place::Own,
        }
    }

    fn check_place(&self, fid: Fid, found: &mut Vec<String>) {
        let place = self.place_by_names(fid);
        if self.place != Some(place) {
            found.push(format!("is at {place:?}, not {:?}", self.place));
        }
    }

    fn check_extras(&self, found: &mut Vec<String>) {
        if self.has_xattrs != self.xattrs {
            found.push("miscounts extended attributes".into());
        }
        if self.target != (self.kind == Some(FileKind::Symlink)) {
            found.push("has a symlink's target or lacks it".into());
        }
    }
}
