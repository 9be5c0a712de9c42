//! What is found wrong with a target, and what mends it.

use std::fmt;

use base::{Fid, TargetIndex};

use crate::keys::Spot;

/// Where files go that no name leads to.
pub(super) const LOST_FOUND: &str = "lost+found";

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
    /// What mends it; `None`: nothing that is known here.
    pub mend: Option<Mend>,
}

/// What a repair does about a contradiction. Doing it twice is the same as doing it once, and one
/// mend may end several contradictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mend {
    /// Sequences below this one are not granted again.
    RaiseSequence(u64),
    /// A directory whose record is lost gets another, so that the names in it stay.
    RemakeDirectory(Fid),
    /// What is left of a file without a record goes: names, attributes, everything.
    RemoveRemains(Fid),
    /// A name goes; the file's record stays.
    RemoveName(Spot),
    /// A name goes where it is looked for.
    MoveName(Spot),
    /// A file gets a name in `/lost+found`, and loses those it has.
    NameInLostFound(Fid),
    /// What follows from a file's names and content is written anew: counts, its place, links.
    Settle(Fid),
    /// An object is not to be removed.
    KeepObject(TargetIndex, Fid, u32),
    /// The target has so many files.
    CountFiles(u64),
}

/// What is mended together, in this order: later ones follow from what earlier ones leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Every name is one of a file, and in a directory.
    Names,
    /// Every file can be reached from the root.
    Lost,
    /// The rest follows from the names.
    Rest,
}

impl Mend {
    pub(super) fn stage(self) -> Stage {
        match self {
            Mend::RaiseSequence(_)
            | Mend::RemakeDirectory(_)
            | Mend::RemoveRemains(_)
            | Mend::RemoveName(_)
            | Mend::MoveName(_) => Stage::Names,
            Mend::NameInLostFound(_) => Stage::Lost,
            Mend::Settle(_) | Mend::KeepObject(..) | Mend::CountFiles(_) => Stage::Rest,
        }
    }
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mend::RaiseSequence(next) => write!(f, "the next one granted is {next:#x}"),
            Mend::RemakeDirectory(dir) => {
                write!(f, "directory {dir} was made again, root's, mode 0700")
            }
            Mend::RemoveRemains(fid) => write!(f, "what was left of {fid} was removed"),
            Mend::RemoveName(spot) => write!(f, "the name was taken out of {}", spot.dir),
            Mend::MoveName(spot) => write!(f, "the name was moved within {}", spot.dir),
            Mend::NameInLostFound(fid) => write!(f, "it is {} now", found_path(*fid)),
            Mend::Settle(_) => f.write_str("written anew from its names"),
            Mend::KeepObject(ost, ..) => write!(f, "{} keeps them", ost_name(*ost)),
            Mend::CountFiles(files) => write!(f, "it counts {files}"),
        }
    }
}

pub(super) fn ost_name(ost: TargetIndex) -> base::TargetName {
    base::TargetName {
        kind: base::TargetKind::Ost,
        index: ost,
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}", self.subject())
    }
}

impl Issue {
    /// What is wrong with what, without how bad that is.
    fn subject(&self) -> String {
        let path = self.path.as_ref().map(|path| format!(" /{path}"));
        format!("{}{}: {}", self.fid, path.unwrap_or_default(), self.what)
    }

    /// In one line, that this was wrong and what was done.
    pub fn told_as_mended(&self) -> String {
        let done = self.mend.map(|mend| format!("; {mend}"));
        format!("mended: {}{}", self.subject(), done.unwrap_or_default())
    }
}

/// Where a file without a name is put.
pub(super) fn found_path(fid: Fid) -> String {
    format!("/{LOST_FOUND}/#{fid}")
}
