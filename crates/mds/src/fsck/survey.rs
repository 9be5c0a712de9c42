//! One reading of every table: a note of each file, and what the tables say against each other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use base::Fid;
use storage::KeyRange;
use wire::FileKind;

use super::issue::{Issue, Mend, Severity};
use crate::keys::{self, Spot, Table};
use crate::records::{Bytes, Destroy, Dirent, Inode, Orphan, Place, SequenceOwner, State};
use crate::store::{Failure, Store, missing};
use wire::hash::{NameHasher, hash_of};

/// What is known of one file.
#[derive(Debug, Default, Clone)]
pub(super) struct Seen {
    /// Of its newest record, as the next four; `None`: it has no record.
    pub kind: Option<FileKind>,
    pub version: u64,
    pub nlink: u32,
    pub entries: u64,
    pub has_xattrs: bool,
    /// It has a record of its own.
    pub own: bool,
    pub names: Vec<NameSeen>,
    pub place: Option<Place>,
    /// Names in it, and how many of them are of directories.
    pub children: u64,
    pub subdirs: u32,
    /// Link records.
    pub links: u32,
    pub xattrs: bool,
    pub target: bool,
    pub orphan: bool,
}

/// A name of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameSeen {
    pub spot: Spot,
    /// What the name says of the file.
    pub kind: FileKind,
    /// The file's record is in it.
    pub inline: bool,
}

impl Seen {
    fn take(&mut self, inode: &Inode) {
        // Of several records the newest counts.
        if self.kind.is_some() && inode.version <= self.version {
            return;
        }
        self.kind = Some(inode.kind);
        self.version = inode.version;
        self.nlink = inode.nlink;
        self.entries = inode.entries;
        self.has_xattrs = inode.has_xattrs;
    }

    pub fn is_dir(&self) -> bool {
        self.kind == Some(FileKind::Directory)
    }

    pub fn is_nameless(&self, fid: Fid) -> bool {
        self.names.is_empty() && fid != Fid::ROOT
    }

    pub fn records(&self) -> usize {
        usize::from(self.own) + self.names.iter().filter(|name| name.inline).count()
    }
}

/// A target, read.
pub(super) struct Survey<'s> {
    store: &'s Store,
    hasher: NameHasher,
    /// `None`: it is missing.
    pub state: Option<State>,
    pub files: BTreeMap<Fid, Seen>,
    /// Directories that the root leads to.
    pub reached: HashSet<Fid>,
    /// A name and parent of each file that has one, for paths in reports.
    paths: HashMap<Fid, (Fid, String)>,
    /// What is wrong, the worst first.
    pub issues: Vec<Issue>,
}

impl<'s> Survey<'s> {
    /// Reads all of `store`.
    pub fn of(store: &'s Store, hasher: NameHasher) -> Result<Survey<'s>, Failure> {
        let mut survey = Survey {
            store,
            hasher,
            state: store.get(Table::State, keys::STATE)?,
            files: BTreeMap::new(),
            reached: HashSet::new(),
            paths: HashMap::new(),
            issues: Vec::new(),
        };
        survey.files.entry(Fid::ROOT).or_default();
        survey.read_names()?;
        survey.read_files()?;
        survey.read_links()?;
        survey.reach();
        survey.compare();
        survey.check_ways();
        survey.check_target()?;
        survey.name_paths();
        survey
            .issues
            .sort_by(|a, b| b.severity.cmp(&a.severity).then(a.fid.cmp(&b.fid)));
        Ok(survey)
    }

    fn issue(&mut self, severity: Severity, fid: Fid, what: String, mend: Option<Mend>) {
        self.issues.push(Issue {
            severity,
            fid,
            path: None,
            what,
            mend,
        });
    }

    pub fn error(&mut self, fid: Fid, what: impl Into<String>, mend: Mend) {
        self.issue(Severity::Error, fid, what.into(), Some(mend));
    }

    fn read_names(&mut self) -> Result<(), Failure> {
        let store = self.store;
        let mut in_dir: (Fid, HashMap<Vec<u8>, Spot>) = (Fid::NONE, HashMap::new());
        store.scan(Table::Dirents, &KeyRange::all(), |key, dirent: Dirent| {
            let spot = keys::parse_dirent(key).ok_or_else(|| missing("spot", "a name"))?;
            if in_dir.0 != spot.dir {
                in_dir = (spot.dir, HashMap::new());
            }
            let name = dirent.name.as_bytes().to_vec();
            if let Some(other) = in_dir.1.insert(name, spot) {
                // The one that lookup finds stays.
                let hash = self.hasher.hash(&dirent.name);
                let stays = if hash_of(other.cookie) == hash || hash_of(spot.cookie) != hash {
                    other
                } else {
                    spot
                };
                let goes = if stays == spot { other } else { spot };
                in_dir.1.insert(dirent.name.as_bytes().to_vec(), stays);
                let what = format!("holds the name {} twice", dirent.name);
                self.error(spot.dir, what, Mend::RemoveName(goes));
            }
            self.read_name(spot, dirent);
            Ok(ControlFlow::Continue(()))
        })
    }

    fn read_name(&mut self, spot: Spot, dirent: Dirent) {
        if hash_of(spot.cookie) != self.hasher.hash(&dirent.name) {
            let what = format!("holds {} under a cookie of another name", dirent.name);
            self.error(spot.dir, what, Mend::MoveName(spot));
        }
        let dir = self.files.entry(spot.dir).or_default();
        dir.children += 1;
        dir.subdirs += u32::from(dirent.kind == FileKind::Directory);
        let name = dirent.name.to_string();
        self.paths.entry(dirent.fid).or_insert((spot.dir, name));
        let file = self.files.entry(dirent.fid).or_default();
        file.names.push(NameSeen {
            spot,
            kind: dirent.kind,
            inline: dirent.inode.is_some(),
        });
        if let Some(inode) = &dirent.inode {
            file.take(inode);
        }
    }

    fn read_files(&mut self) -> Result<(), Failure> {
        let store = self.store;
        let all = KeyRange::all();
        let fid_of = |key: &[u8]| keys::parse_fid(key).ok_or_else(|| missing("FID", "a record"));
        store.scan(Table::Inodes, &all, |key, inode: Inode| {
            let file = self.files.entry(fid_of(key)?).or_default();
            file.own = true;
            file.take(&inode);
            Ok(ControlFlow::Continue(()))
        })?;
        store.scan(Table::Places, &all, |key, place: Place| {
            self.files.entry(fid_of(key)?).or_default().place = Some(place);
            Ok(ControlFlow::Continue(()))
        })?;
        store.scan(Table::Orphans, &all, |key, _: Orphan| {
            self.files.entry(fid_of(key)?).or_default().orphan = true;
            Ok(ControlFlow::Continue(()))
        })?;
        store.scan(Table::Targets, &all, |key, _: Bytes| {
            self.files.entry(fid_of(key)?).or_default().target = true;
            Ok(ControlFlow::Continue(()))
        })?;
        store.scan(Table::Xattrs, &all, |key, _: Bytes| {
            let (fid, _) = keys::parse_xattr(key).ok_or_else(|| missing("FID", "an xattr"))?;
            self.files.entry(fid).or_default().xattrs = true;
            Ok(ControlFlow::Continue(()))
        })
    }

    fn read_links(&mut self) -> Result<(), Failure> {
        let store = self.store;
        store.scan(Table::Links, &KeyRange::all(), |key, _: Bytes| {
            let (fid, spot) = keys::parse_link(key).ok_or_else(|| missing("FID", "a link"))?;
            let file = self.files.entry(fid).or_default();
            file.links += 1;
            if !file.names.iter().any(|name| name.spot == spot) {
                self.error(fid, "has a link record without a name", Mend::Settle(fid));
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn compare(&mut self) {
        let files = std::mem::take(&mut self.files);
        for (fid, seen) in &files {
            for (what, mend) in self.contradictions(*fid, seen) {
                self.error(*fid, what, mend);
            }
            for name in &seen.names {
                let dir = files.get(&name.spot.dir);
                if dir.is_none_or(|dir| !dir.is_dir()) {
                    let what = format!("has a name in {}, which is no directory", name.spot.dir);
                    let lost = dir.is_none_or(|dir| dir.kind.is_none());
                    let mend = match lost && self.may_be_remade(name.spot.dir) {
                        true => Mend::RemakeDirectory(name.spot.dir),
                        false => Mend::RemoveName(name.spot),
                    };
                    self.error(*fid, what, mend);
                }
            }
        }
        self.files = files;
    }

    /// There can have been such a file: its sequence was granted.
    pub fn may_be_remade(&self, fid: Fid) -> bool {
        let granted =
            |state: &State| (Fid::SEQUENCE_FIRST..state.next_sequence).contains(&fid.sequence());
        fid == Fid::ROOT || self.state.as_ref().is_some_and(granted)
    }

    fn check_target(&mut self) -> Result<(), Failure> {
        let Some(state) = self.state else {
            let what = "the target's state is missing".into();
            self.issue(Severity::Error, Fid::NONE, what, None);
            return Ok(());
        };
        let files = self.files.values().filter(|seen| seen.kind.is_some());
        let count = files.count() as u64;
        if state.files != count {
            let what = format!("the target counts {} files but holds {count}", state.files);
            let mend = Some(Mend::CountFiles(count));
            self.issue(Severity::Warning, Fid::NONE, what, mend);
        }
        self.check_sequences(&state)?;
        let store = self.store;
        store.scan(Table::Destroys, &KeyRange::all(), |key, _: Destroy| {
            let (ost, fid, stripe) =
                keys::parse_destroy(key).ok_or_else(|| missing("FID", "a destroy"))?;
            if self.files.get(&fid).is_some_and(|seen| seen.kind.is_some()) {
                let what = "its objects are to be removed but it exists";
                self.error(fid, what, Mend::KeepObject(ost, fid, stripe));
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// No sequence that was granted, or has files, is granted again.
    fn check_sequences(&mut self, state: &State) -> Result<(), Failure> {
        let files = self.files.iter().filter(|(_, seen)| seen.kind.is_some());
        let mut last = files.map(|(fid, _)| fid.sequence()).max();
        self.store.scan(
            Table::Sequences,
            &KeyRange::all(),
            |key, _: SequenceOwner| {
                let sequence = keys::parse_sequence(key);
                let sequence = sequence.ok_or_else(|| missing("number", "a sequence"))?;
                last = last.max(Some(sequence));
                Ok(ControlFlow::Continue(()))
            },
        )?;
        if let Some(last) = last.filter(|last| *last >= state.next_sequence) {
            let what = format!("sequence {last:#x} is granted but also free");
            self.error(Fid::NONE, what, Mend::RaiseSequence(last + 1));
        }
        Ok(())
    }

    fn name_paths(&mut self) {
        let paths = &self.paths;
        for issue in &mut self.issues {
            let (mut parts, mut at) = (Vec::new(), issue.fid);
            while at != Fid::ROOT
                && let Some((dir, name)) = paths.get(&at)
                && parts.len() < 4096
            {
                parts.push(name.as_str());
                at = *dir;
            }
            parts.reverse();
            issue.path = (at == Fid::ROOT).then(|| parts.join("/"));
        }
    }
}
