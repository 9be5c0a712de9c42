//! The objects that calls are about; each is checked on its own.

use std::fmt;
use std::str::FromStr;

/// What kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A block of 4 KiB of a file, full of one value.
    Block,
    /// A word of a file that is mapped, and read and written as well.
    Word,
    /// A name that files are renamed to, each full of one value.
    Replaced,
    /// The size of a file that is truncated.
    Size,
    /// The end of one, where `lseek` finds it.
    End,
    /// A file that records are appended to.
    Log,
    /// A name that only one process can make at a time.
    Lock,
    /// A directory in which each name is made once.
    Directory,
    /// Names that are made, moved and removed at random.
    Names,
}

const KINDS: [(Kind, &str); 9] = [
    (Kind::Block, "block"),
    (Kind::Word, "word"),
    (Kind::Replaced, "replaced"),
    (Kind::Size, "size"),
    (Kind::End, "end"),
    (Kind::Log, "log"),
    (Kind::Lock, "lock"),
    (Kind::Directory, "directory"),
    (Kind::Names, "names"),
];

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let known = KINDS.iter().find(|(_, known)| *known == text);
        let (kind, _) = known.ok_or_else(|| format!("no kind of objects: {text}"))?;
        Ok(*kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KINDS.iter().find(|(kind, _)| kind == self);
        f.write_str(known.map_or("?", |(_, name)| name))
    }
}

impl Kind {
    /// All of them.
    pub fn all() -> Vec<Kind> {
        KINDS.iter().map(|(kind, _)| *kind).collect()
    }

    /// Those that `GLINT_HISTORY_KINDS` names, if it is there.
    pub fn chosen() -> Option<Vec<Kind>> {
        let words = std::env::var("GLINT_HISTORY_KINDS").ok()?;
        let kinds = words.split(',').map(str::parse);
        Some(kinds.map(|kind| kind.expect("a kind of objects")).collect())
    }
}

/// One object: which of its kind, and which part of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Which file or directory of this kind.
    pub number: u32,
    /// Which block or word of it.
    pub part: u32,
}

impl Object {
    /// One that has no parts.
    pub fn whole(kind: Kind, number: u32) -> Object {
        Object {
            kind,
            number,
            part: 0,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.kind, self.number, self.part)
    }
}

impl FromStr for Object {
    type Err = String;

    fn from_str(text: &str) -> Result<Object, String> {
        let bad = || format!("no object: {text}");
        let mut words = text.split(':');
        let kind = words.next().unwrap_or_default().parse()?;
        let mut number = || words.next()?.parse().ok();
        Ok(Object {
            kind,
            number: number().ok_or_else(bad)?,
            part: number().ok_or_else(bad)?,
        })
    }
}
