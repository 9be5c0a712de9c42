//! What programs did and saw, with the time that each call took.

use std::fmt;
use std::time::Duration;

use base::{Fid, FsError};

/// A name in one of the directories that programs work in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Which directory.
    pub dir: u8,
    /// Which name.
    pub name: u8,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}/{}", self.dir, self.name)
    }
}

/// A call on names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// A new file; the name must be free.
    Create(Slot),
    /// A new directory.
    Mkdir(Slot),
    /// Removes a name of a file.
    Unlink(Slot),
    /// Removes a directory.
    Rmdir(Slot),
    /// Gives what the first name leads to the second, replacing what is there.
    Rename(Slot, Slot),
    /// The same, where the second is free.
    RenameNew(Slot, Slot),
    /// What each of two names leads to the other leads to afterwards.
    Exchange(Slot, Slot),
    /// A new symbolic link; where it points to is a number.
    Symlink(Slot, u64),
    /// One more name for a file.
    Link(Fid, Slot),
    /// What a name leads to.
    Lookup(Slot),
    /// The same, and where that points to, if it is a symbolic link.
    ReadLink(Slot),
    /// The same, and keeps that open if it is a file: for reading, or for writing too.
    Open(Slot, bool),
    /// All names of a directory.
    List(u8),
    /// Makes all changes of a directory durable: that shows nothing.
    SyncDir(u8),
    /// All names are fetched ahead of need: that shows nothing.
    Prefetch,
    /// Writes a number all over a block of a file.
    Put(u8, u8, u64),
    /// The same at its end.
    Append(u8, u64),
    /// Makes a file so many blocks long.
    Truncate(u8, u8),
    /// Has space for so many blocks of a file, which is as long at the least then.
    Reserve(u8, u8),
    /// Frees the space of a block, which is zeros then; the file stays as long as it is.
    Punch(u8, u8),
    /// Makes zeros of a block; the file ends behind it at the earliest.
    Zero(u8, u8),
    /// Reads all of a file.
    Get(u8),
    /// How long a file is.
    Size(u8),
    /// Writes a number all over a block of a file that the program keeps open.
    WriteOpen(Fid, u8, u64),
    /// Reads all of it, and closes it.
    ReadOpen(Fid),
    /// Puts a new file, made with a mode, in place of one.
    Remake(u8, u16),
    /// Gives a file a mode.
    Chmod(u8, u16),
    /// Which mode a file has.
    Mode(u8),
    /// Gives a file to somebody.
    Chown(u8, u32),
    /// Whose a file is.
    Owner(u8),
    /// Gives a file's extended attribute a number.
    SetXattr(u8, u64),
    /// The number of that.
    GetXattr(u8),
    /// Takes it away.
    RemoveXattr(u8),
    /// Reads a file of which the bytes say with which mode it was made.
    Contents(u8),
}

/// Names all variants, of each call its own.
macro_rules! kinds {
    ($($variant:ident: $kind:literal),* $(,)?) => {
        impl Call {
            /// All that can be called.
            pub const KINDS: &[&str] = &[$($kind),*];

            /// What is called.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(Call::$variant { .. } => $kind),*
                }
            }
        }
    };
}

kinds! {
    Create: "create",
    Mkdir: "mkdir",
    Symlink: "symlink",
    Unlink: "unlink",
    Rmdir: "rmdir",
    Rename: "rename",
    RenameNew: "rename_noreplace",
    Exchange: "exchange",
    Link: "link",
    Lookup: "lookup",
    ReadLink: "readlink",
    Open: "open",
    List: "list",
    SyncDir: "syncdir",
    Prefetch: "prefetch",
    Put: "put",
    Append: "append",
    Truncate: "truncate",
    Reserve: "reserve",
    Punch: "punch",
    Zero: "zero",
    Get: "get",
    Size: "size",
    WriteOpen: "write_open",
    ReadOpen: "read_open",
    Remake: "remake",
    Chmod: "chmod",
    Mode: "mode",
    Chown: "chown",
    Owner: "owner",
    SetXattr: "setxattr",
    GetXattr: "getxattr",
    RemoveXattr: "removexattr",
    Contents: "contents",
}

/// What the answers to a call depend on, where that is not names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Bytes of a file.
    Bytes(u8),
    /// Bytes of a file that programs found by a name and keep open.
    Opened(Fid),
    /// The attributes of another, and the bytes that it was made with.
    Attributes(u8),
}

impl Call {
    /// It changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Call::Lookup(_)
                | Call::ReadLink(_)
                | Call::Open(..)
                | Call::List(_)
                | Call::SyncDir(_)
                | Call::Prefetch
                | Call::Get(_)
                | Call::Size(_)
                | Call::ReadOpen(_)
                | Call::Mode(_)
                | Call::Owner(_)
                | Call::GetXattr(_)
                | Call::Contents(_)
        )
    }

    /// Whatever is there, it tells nothing of it.
    pub fn shows_nothing(&self) -> bool {
        matches!(self, Call::Prefetch | Call::SyncDir(_))
    }

    /// A file may be of another length after it.
    pub fn changes_size(&self) -> bool {
        matches!(
            self,
            Call::Put(..)
                | Call::Append(..)
                | Call::Truncate(..)
                | Call::Reserve(..)
                | Call::Zero(..)
        )
    }

    /// Where clients are lost it makes durable what it did, and so all that its mount did before.
    pub fn is_sync(&self) -> bool {
        matches!(
            self,
            Call::SyncDir(_)
                | Call::Put(..)
                | Call::Append(..)
                | Call::Truncate(..)
                | Call::Reserve(..)
                | Call::Punch(..)
                | Call::Zero(..)
                | Call::WriteOpen(..)
                | Call::Remake(..)
        )
    }

    /// The names that it changes.
    pub fn changes(&self) -> Vec<Slot> {
        match self {
            Call::Create(slot)
            | Call::Mkdir(slot)
            | Call::Symlink(slot, _)
            | Call::Unlink(slot)
            | Call::Rmdir(slot)
            | Call::Link(_, slot) => vec![*slot],
            Call::Rename(from, to) | Call::RenameNew(from, to) | Call::Exchange(from, to) => {
                vec![*from, *to]
            }
            _ => Vec::new(),
        }
    }

    /// Its answer says what is at that name, or builds on it.
    fn shows(&self, name: Slot) -> bool {
        match self {
            Call::Lookup(slot) | Call::ReadLink(slot) | Call::Open(slot, _) => *slot == name,
            Call::List(dir) => *dir == name.dir,
            call => call.changes().contains(&name),
        }
    }

    /// What it is about, other than names.
    pub fn subject(&self) -> Option<Subject> {
        let subject = match self {
            Call::Put(file, ..)
            | Call::Append(file, _)
            | Call::Truncate(file, _)
            | Call::Reserve(file, _)
            | Call::Punch(file, _)
            | Call::Zero(file, _)
            | Call::Get(file)
            | Call::Size(file) => Subject::Bytes(*file),
            Call::WriteOpen(fid, ..) | Call::ReadOpen(fid) => Subject::Opened(*fid),
            Call::Remake(file, _)
            | Call::Chmod(file, _)
            | Call::Mode(file)
            | Call::Chown(file, _)
            | Call::Owner(file)
            | Call::SetXattr(file, _)
            | Call::GetXattr(file)
            | Call::RemoveXattr(file)
            | Call::Contents(file) => Subject::Attributes(*file),
            _ => return None,
        };
        Some(subject)
    }
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It was done.
    Done,
    /// It was done, or found: this file.
    File(Fid),
    /// These names were there.
    Names(Vec<(u8, Fid)>),
    /// It was found: this symbolic link, which points to that number.
    Link(Fid, u64),
    /// Names came in parts, each true at a moment of its own: they say nothing together.
    Parts,
    /// These numbers were all over the blocks of the file.
    Blocks(Vec<u64>),
    /// It was so many bytes long.
    Bytes(u64),
    /// It had this mode.
    Mode(u16),
    /// It was this one's.
    Owner(u32),
    /// It had this number, or none.
    Number(Option<u64>),
    /// It was refused.
    Failed(FsError),
    /// As the first said, but it may have been undone after that: not without what the same caller did
    /// later under the same number.
    Fleeting(Box<Seen>, usize),
    /// Nobody knows whether it was done, or will be: the caller was told so, or is gone.
    Unknown,
}

/// A call with what came of it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Who called; the calls of one caller follow each other.
    pub caller: u32,
    /// When it began.
    pub start: Duration,
    /// When it returned.
    pub end: Duration,
    /// The call.
    pub call: Call,
    /// Its result.
    pub seen: Seen,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, end) = (self.start.as_micros(), self.end.as_micros());
        write!(f, "{start:>10} {end:>10} p{} ", self.caller)?;
        match &self.call {
            Call::Create(slot) => write!(f, "create {slot}"),
            Call::Mkdir(slot) => write!(f, "mkdir {slot}"),
            Call::Unlink(slot) => write!(f, "unlink {slot}"),
            Call::Rmdir(slot) => write!(f, "rmdir {slot}"),
            Call::Rename(from, to) => write!(f, "rename {from} {to}"),
            Call::RenameNew(from, to) => write!(f, "rename_noreplace {from} {to}"),
            Call::Exchange(one, other) => write!(f, "exchange {one} {other}"),
            Call::Symlink(slot, to) => write!(f, "symlink {slot} to {to:x}"),
            Call::ReadLink(slot) => write!(f, "readlink {slot}"),
            Call::Link(fid, slot) => write!(f, "link {fid} {slot}"),
            Call::Lookup(slot) => write!(f, "lookup {slot}"),
            Call::List(dir) => write!(f, "list d{dir}"),
            Call::SyncDir(dir) => write!(f, "syncdir d{dir}"),
            Call::Prefetch => write!(f, "prefetch"),
            Call::Put(file, block, value) => write!(f, "put f{file} {block} {value:x}"),
            Call::Append(file, value) => write!(f, "append f{file} {value:x}"),
            Call::Truncate(file, blocks) => write!(f, "truncate f{file} {blocks}"),
            Call::Reserve(file, blocks) => write!(f, "reserve f{file} {blocks}"),
            Call::Punch(file, block) => write!(f, "punch f{file} {block}"),
            Call::Zero(file, block) => write!(f, "zero f{file} {block}"),
            Call::Get(file) => write!(f, "get f{file}"),
            Call::Size(file) => write!(f, "size f{file}"),
            Call::Open(slot, writes) => {
                let also = if *writes { " for writing" } else { "" };
                write!(f, "open {slot}{also}")
            }
            Call::WriteOpen(fid, block, value) => write!(f, "write_open {fid} {block} {value:x}"),
            Call::ReadOpen(fid) => write!(f, "read_open {fid}"),
            Call::Remake(file, mode) => write!(f, "remake m{file} {mode:o}"),
            Call::Chmod(file, mode) => write!(f, "chmod m{file} {mode:o}"),
            Call::Mode(file) => write!(f, "mode m{file}"),
            Call::Chown(file, owner) => write!(f, "chown m{file} {owner}"),
            Call::Owner(file) => write!(f, "owner m{file}"),
            Call::SetXattr(file, value) => write!(f, "setxattr m{file} {value:x}"),
            Call::GetXattr(file) => write!(f, "getxattr m{file}"),
            Call::RemoveXattr(file) => write!(f, "removexattr m{file}"),
            Call::Contents(file) => write!(f, "contents m{file}"),
        }?;
        match &self.seen {
            Seen::Done => f.write_str(": done"),
            Seen::File(fid) => write!(f, ": {fid}"),
            Seen::Link(fid, to) => write!(f, ": {fid} to {to:x}"),
            Seen::Names(names) => {
                f.write_str(":")?;
                for (name, fid) in names {
                    write!(f, " {}={fid}", name)?;
                }
                Ok(())
            }
            Seen::Parts => f.write_str(": in parts"),
            Seen::Blocks(blocks) => {
                f.write_str(":")?;
                blocks.iter().try_for_each(|value| write!(f, " {value:x}"))
            }
            Seen::Bytes(bytes) => write!(f, ": {bytes}"),
            Seen::Mode(mode) => write!(f, ": {mode:o}"),
            Seen::Owner(owner) => write!(f, ": {owner}"),
            Seen::Number(number) => write!(f, ": {number:x?}"),
            Seen::Failed(error) => write!(f, ": {error:?}"),
            Seen::Fleeting(seen, _) => write!(f, ": {seen:?}, maybe undone"),
            Seen::Unknown => f.write_str(": nobody knows"),
        }
    }
}

impl Entry {
    /// All that its mount did before is durable, and the caller was told so.
    pub fn has_synced(&self) -> bool {
        self.call.is_sync() && self.seen == Seen::Done
    }

    /// It shows names as `change` left them, or as they were made since.
    pub fn shows(&self, change: &Entry) -> bool {
        let mut changed = change.call.changes().into_iter();
        self.start >= change.end
            && !change.only_shows()
            && changed.any(|name| self.call.shows(name))
    }

    /// Whenever it was done, it changed nothing.
    pub fn only_shows(&self) -> bool {
        self.call.is_read() || matches!(self.seen, Seen::Failed(_))
    }
}

impl Seen {
    /// Nobody knows whether it was done; if it was, perhaps by its end.
    pub fn is_unknown(&self) -> bool {
        match self {
            Seen::Fleeting(seen, _) => **seen == Seen::Unknown,
            seen => *seen == Seen::Unknown,
        }
    }

    /// Where the call counts as done or as never made, as one likes.
    pub fn is_open(&self) -> bool {
        matches!(self, Seen::Unknown | Seen::Fleeting(..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_at_a_name_after_its_change_is_shown_that() {
        let slot = |name| Slot { dir: 1, name };
        let entry = |start, call, seen| Entry {
            caller: 0,
            start: Duration::from_secs(start),
            end: Duration::from_secs(start + 2),
            call,
            seen,
        };
        let moved = entry(0, Call::Rename(slot(0), slot(1)), Seen::Done);
        let looked = |start, call| entry(start, call, Seen::Parts);
        for call in [
            Call::Lookup(slot(0)),
            Call::Open(slot(1), false),
            Call::List(1),
            Call::Unlink(slot(1)),
        ] {
            assert!(looked(2, call.clone()).shows(&moved), "{call:?}");
            assert!(!looked(1, call.clone()).shows(&moved), "{call:?} before");
        }
        for call in [Call::Lookup(slot(2)), Call::List(0), Call::Prefetch] {
            assert!(!looked(2, call.clone()).shows(&moved), "{call:?}");
        }
        let refused = Seen::Failed(FsError::NotFound);
        let refused = entry(0, Call::Unlink(slot(0)), refused);
        assert!(!looked(2, Call::Lookup(slot(0))).shows(&refused));
    }
}
