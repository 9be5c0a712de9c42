//! Reads a whole target and says what in it contradicts what. Changes nothing.
//!
//! Memory grows with the number of files: one small note for each.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;

use base::Fid;
use storage::KeyRange;
use wire::FileKind;

use crate::hash::{NameHasher, hash_of};
use crate::keys::{self, Spot, Table};
use crate::records::{Bytes, Destroy, Dirent, Inode, Orphan, Place, SequenceOwner, State};
use crate::store::{Failure, Store, missing};

/// How bad a contradiction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing a user would see: space or a count.
    Warning,
    /// Names or attributes are wrong or lost.
    Error,
}

/// One contradiction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// How bad it is.
    pub severity: Severity,
    /// Of which file.
    pub fid: Fid,
    /// Its path from the root, where it has one.
    pub path: Option<String>,
    /// What is wrong, in one line.
    pub what: String,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}", self.fid)?;
        if let Some(path) = &self.path {
            write!(f, " /{path}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// What is known of one file.
#[derive(Debug, Default)]
struct Seen {
    kind: Option<FileKind>,
    nlink: u32,
    entries: u64,
    has_xattrs: bool,
    place: Option<Place>,
    inline: u32,
    own: bool,
    names: Vec<Spot>,
    subdirs: u32,
    children: u64,
    links: u32,
    xattrs: bool,
    target: bool,
    orphan: bool,
}

/// Checks the target in `store`; `hasher` is the one it runs with. Damaged records end it.
pub fn check(store: &Store, hasher: NameHasher) -> Result<Vec<Issue>, Failure> {
    let mut check = Check {
        store,
        hasher,
        files: BTreeMap::new(),
        names: HashMap::new(),
        issues: Vec::new(),
    };
    check.read_names()?;
    check.read_files()?;
    check.compare();
    check.check_rings();
    check.check_target()?;
    check.name_paths();
    check
        .issues
        .sort_by(|a, b| b.severity.cmp(&a.severity).then(a.fid.cmp(&b.fid)));
    Ok(check.issues)
}

struct Check<'s> {
    store: &'s Store,
    hasher: NameHasher,
    files: BTreeMap<Fid, Seen>,
    /// A name and parent of each file that has one, for paths in reports.
    names: HashMap<Fid, (Fid, String)>,
    issues: Vec<Issue>,
}

impl Check<'_> {
    fn issue(&mut self, severity: Severity, fid: Fid, what: impl Into<String>) {
        self.issues.push(Issue {
            severity,
            fid,
            path: None,
            what: what.into(),
        });
    }

    fn error(&mut self, fid: Fid, what: impl Into<String>) {
        self.issue(Severity::Error, fid, what);
    }

    fn read_names(&mut self) -> Result<(), Failure> {
        let store = self.store;
        let mut in_dir: (Fid, HashSet<Vec<u8>>) = (Fid::NONE, HashSet::new());
        store.scan(Table::Dirents, &KeyRange::all(), |key, dirent: Dirent| {
            let spot = keys::parse_dirent(key).ok_or_else(|| missing("spot", "a name"))?;
            if in_dir.0 != spot.dir {
                in_dir = (spot.dir, HashSet::new());
            }
            if !in_dir.1.insert(dirent.name.as_bytes().to_vec()) {
                self.error(spot.dir, format!("holds the name {} twice", dirent.name));
            }
            self.read_name(spot, dirent);
            Ok(ControlFlow::Continue(()))
        })
    }

    fn read_name(&mut self, spot: Spot, dirent: Dirent) {
        if hash_of(spot.cookie) != self.hasher.hash(&dirent.name) {
            self.error(
                spot.dir,
                format!("holds {} under a cookie of another name", dirent.name),
            );
        }
        let dir = self.files.entry(spot.dir).or_default();
        dir.children += 1;
        dir.subdirs += u32::from(dirent.kind == FileKind::Directory);
        let name = dirent.name.to_string();
        self.names.entry(dirent.fid).or_insert((spot.dir, name));
        let file = self.files.entry(dirent.fid).or_default();
        file.names.push(spot);
        let kind = file.kind.replace(dirent.kind);
        if let Some(inode) = dirent.inode {
            file.inline += 1;
            file.take(&inode);
        }
        if kind.is_some_and(|kind| Some(kind) != self.files[&dirent.fid].kind) {
            self.error(dirent.fid, "its names disagree on what kind of file it is");
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
        })?;
        store.scan(Table::Links, &all, |key, _: Bytes| {
            let (fid, spot) = keys::parse_link(key).ok_or_else(|| missing("FID", "a link"))?;
            let file = self.files.entry(fid).or_default();
            file.links += 1;
            if !file.names.contains(&spot) {
                self.error(fid, "has a link record without a name");
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn compare(&mut self) {
        let files = std::mem::take(&mut self.files);
        for (fid, seen) in &files {
            for what in seen.contradictions(*fid) {
                self.error(*fid, what);
            }
            for spot in &seen.names {
                let dir = files.get(&spot.dir);
                if dir.is_none_or(|dir| dir.kind != Some(FileKind::Directory) || dir.nlink == 0) {
                    self.error(
                        *fid,
                        format!("has a name in {}, which is no directory", spot.dir),
                    );
                }
            }
        }
        self.files = files;
    }

    /// Every directory leads to the root.
    fn check_rings(&mut self) {
        let mut good: HashSet<Fid> = HashSet::from([Fid::ROOT]);
        let mut lost = Vec::new();
        for (fid, seen) in &self.files {
            let named_dir = seen.kind == Some(FileKind::Directory) && !seen.names.is_empty();
            if !named_dir || good.contains(fid) {
                continue;
            }
            let (mut at, mut way) = (*fid, Vec::new());
            while !good.contains(&at) {
                way.push(at);
                let parent = self.files.get(&at).and_then(|seen| seen.names.first());
                match parent {
                    Some(spot) if !way.contains(&spot.dir) => at = spot.dir,
                    _ => {
                        lost.push(*fid);
                        break;
                    }
                }
            }
            if good.contains(&at) {
                good.extend(way);
            }
        }
        for fid in lost {
            self.error(fid, "its parents do not lead to the root");
        }
    }

    fn check_target(&mut self) -> Result<(), Failure> {
        let state: Option<State> = self.store.get(Table::State, keys::STATE)?;
        let Some(state) = state else {
            self.error(Fid::NONE, "the target's state is missing");
            return Ok(());
        };
        let count = self
            .files
            .values()
            .filter(|seen| seen.kind.is_some())
            .count() as u64;
        if state.files != count {
            let what = format!("the target counts {} files but holds {count}", state.files);
            self.issue(Severity::Warning, Fid::NONE, what);
        }
        let store = self.store;
        store.scan(
            Table::Sequences,
            &KeyRange::all(),
            |key, _: SequenceOwner| {
                let sequence = keys::parse_fid(key)
                    .ok_or_else(|| missing("number", "a sequence"))?
                    .0;
                if sequence >= state.next_sequence {
                    self.error(
                        Fid::NONE,
                        format!("sequence {sequence:#x} is granted but also free"),
                    );
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        store.scan(Table::Destroys, &KeyRange::all(), |key, _: Destroy| {
            let (_, fid, _) =
                keys::parse_destroy(key).ok_or_else(|| missing("FID", "a destroy"))?;
            if self.files.get(&fid).is_some_and(|seen| seen.kind.is_some()) {
                self.error(fid, "its objects are to be removed but it exists");
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    fn name_paths(&mut self) {
        let names = &self.names;
        for issue in &mut self.issues {
            let (mut parts, mut at) = (Vec::new(), issue.fid);
            while let Some((dir, name)) = names.get(&at)
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

impl Seen {
    fn take(&mut self, inode: &Inode) {
        self.kind = Some(inode.kind);
        self.nlink = inode.nlink;
        self.entries = inode.entries;
        self.has_xattrs = inode.has_xattrs;
    }

    fn is_dir(&self) -> bool {
        self.kind == Some(FileKind::Directory)
    }

    fn is_nameless(&self, fid: Fid) -> bool {
        self.names.is_empty() && fid != Fid::ROOT
    }

    /// What the records of one file say against each other.
    fn contradictions(&self, fid: Fid) -> Vec<String> {
        if !self.own && self.inline == 0 {
            return vec!["has names or attributes but no record".into()];
        }
        let mut found = Vec::new();
        self.check_names(fid, &mut found);
        if self.is_dir() {
            self.check_directory(&mut found);
        } else {
            self.check_file(&mut found);
        }
        self.check_place(fid, &mut found);
        self.check_extras(&mut found);
        found
    }

    fn check_names(&self, fid: Fid, found: &mut Vec<String>) {
        let (names, nameless) = (self.names.len(), self.is_nameless(fid));
        if nameless != self.orphan {
            found.push(format!("has {names} names, orphan: {}", self.orphan));
        }
        if self.own && self.inline > 0 {
            found.push("has two records".into());
        }
        let links = match (self.is_dir(), nameless) {
            (_, true) => 0,
            (true, false) => 2 + self.subdirs,
            (false, false) => names as u32,
        };
        if self.nlink != links {
            found.push(format!("counts {} links, has {links}", self.nlink));
        }
    }

    fn check_directory(&self, found: &mut Vec<String>) {
        if self.names.len() > 1 {
            found.push("is a directory with several names".into());
        }
        let (counted, children) = (self.entries, self.children);
        if counted != children {
            found.push(format!("counts {counted} entries, has {children}"));
        }
    }

    fn check_file(&self, found: &mut Vec<String>) {
        let names = self.names.len();
        if (self.inline == 1) != (names == 1) {
            found.push("its record is in the wrong place".into());
        }
        let linked = if names > 1 { names as u32 } else { 0 };
        if self.links != linked {
            found.push(format!("has {} link records", self.links));
        }
    }

    fn check_place(&self, fid: Fid, found: &mut Vec<String>) {
        let place = match (fid, self.is_dir(), &self.names[..]) {
            (Fid::ROOT, ..) => Place::Directory(Spot {
                dir: Fid::ROOT,
                cookie: 0,
            }),
            (_, true, [spot]) => Place::Directory(*spot),
            (_, false, [spot]) => Place::Entry(*spot),
            _ => Place::Own,
        };
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
