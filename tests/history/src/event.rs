//! Calls as data: caller, call, times and result. As text, one word each, so that a process can write them
//! down and a person can read them.

use std::fmt;
use std::str::FromStr;

use crate::object::Object;

/// The end of a call that did not return.
pub const NEVER: u64 = u64::MAX;

/// What was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Gives a register a value that no other call gives it.
    Write(u64),
    /// Reads a register.
    Read,
    /// Adds a record of which there is only one.
    Append(u64),
    /// Reads all records.
    ReadAll,
    /// Asks how long a log is, and how many blocks it has.
    Stat,
    /// Takes a lock.
    Acquire,
    /// Gives it back.
    Release,
    /// Makes a name, which nobody makes again.
    Make(u32),
    /// Removes it.
    Remove(u32),
    /// Lists a directory.
    List,
    /// Counts the subdirectories by the link count.
    Count,
    /// Anything by a path, of which only the error is looked at.
    Path,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// The register had this value.
    Value(u64),
    /// These records were there, in this order.
    Records(Vec<u64>),
    /// The same, and bytes between them that are no record.
    Gapped(Vec<u64>, String),
    /// The log was so many bytes long, on so many blocks of 512 bytes.
    Sizes(u64, u64),
    /// Somebody has the lock.
    Busy,
    /// These names were there.
    Names(Vec<u32>),
    /// There were so many.
    Number(u64),
    /// What was found is nothing that any call made: a value in parts, a record that is not whole.
    Flawed(String),
    /// An error number.
    Failed(i32),
    /// The call did not return.
    Nothing,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which process; its calls follow each other.
    pub process: u32,
    /// The mount that it works on.
    pub mount: u32,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub begin: u64,
    /// The same, or [`NEVER`].
    pub end: u64,
    /// What it is about.
    pub object: Object,
    /// By which system call.
    pub how: String,
    /// Which of the files that its process has opened was used; 0: none, or one that was opened for this
    /// call alone.
    pub file: u64,
    /// The call.
    pub call: Call,
    /// Its result.
    pub outcome: Outcome,
}

impl Event {
    /// The caller asked for what it wrote to be durable.
    pub fn syncs(&self) -> bool {
        self.how.contains("sync")
    }

    /// The caller was told that it was done.
    pub fn is_done(&self) -> bool {
        !matches!(self.outcome, Outcome::Failed(_) | Outcome::Nothing)
    }

    /// The moment by which it has taken effect, if it has any: nobody knows of what failed.
    pub fn effective_end(&self) -> u64 {
        match self.is_done() {
            true => self.end,
            false => NEVER,
        }
    }
}

fn one_word(text: &str) -> String {
    text.replace([' ', ';', '\n'], "_")
}

fn joined<T: fmt::Display>(list: &[T]) -> String {
    let words: Vec<String> = list.iter().map(T::to_string).collect();
    words.join(",")
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Write(value) => write!(f, "write={value:x}"),
            Call::Read => f.write_str("read"),
            Call::Append(record) => write!(f, "append={record:x}"),
            Call::ReadAll => f.write_str("readall"),
            Call::Stat => f.write_str("stat"),
            Call::Acquire => f.write_str("acquire"),
            Call::Release => f.write_str("release"),
            Call::Make(name) => write!(f, "make={name:x}"),
            Call::Remove(name) => write!(f, "remove={name:x}"),
            Call::List => f.write_str("list"),
            Call::Count => f.write_str("count"),
            Call::Path => f.write_str("path"),
        }
    }
}

impl FromStr for Call {
    type Err = String;

    fn from_str(text: &str) -> Result<Call, String> {
        let bad = || format!("no call: {text}");
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let value = || u64::from_str_radix(value, 16).map_err(|_| bad());
        Ok(match name {
            "write" => Call::Write(value()?),
            "read" => Call::Read,
            "append" => Call::Append(value()?),
            "readall" => Call::ReadAll,
            "stat" => Call::Stat,
            "acquire" => Call::Acquire,
            "release" => Call::Release,
            "make" => Call::Make(value()? as u32),
            "remove" => Call::Remove(value()? as u32),
            "list" => Call::List,
            "count" => Call::Count,
            "path" => Call::Path,
            _ => return Err(bad()),
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done => f.write_str("done"),
            Outcome::Value(value) => write!(f, "value={value:x}"),
            Outcome::Records(records) => write!(f, "records={}", joined(records)),
            Outcome::Gapped(records, what) => {
                write!(f, "gapped={}|{}", joined(records), one_word(what))
            }
            Outcome::Sizes(bytes, blocks) => write!(f, "sizes={bytes},{blocks}"),
            Outcome::Busy => f.write_str("busy"),
            Outcome::Names(names) => write!(f, "names={}", joined(names)),
            Outcome::Number(number) => write!(f, "number={number}"),
            Outcome::Flawed(what) => write!(f, "flawed={}", one_word(what)),
            Outcome::Failed(errno) => write!(f, "failed={errno}"),
            Outcome::Nothing => f.write_str("nothing"),
        }
    }
}

impl FromStr for Outcome {
    type Err = String;

    fn from_str(text: &str) -> Result<Outcome, String> {
        let bad = || format!("no outcome: {text}");
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        let list_of = |text: &str| -> Result<Vec<u64>, String> {
            let words = text.split(',').filter(|word| !word.is_empty());
            words.map(|word| word.parse().map_err(|_| bad())).collect()
        };
        let list = || list_of(rest);
        Ok(match name {
            "done" => Outcome::Done,
            "value" => Outcome::Value(u64::from_str_radix(rest, 16).map_err(|_| bad())?),
            "records" => Outcome::Records(list()?),
            "gapped" => {
                let (records, what) = rest.split_once('|').ok_or_else(bad)?;
                Outcome::Gapped(list_of(records)?, what.to_owned())
            }
            "sizes" => match list()?[..] {
                [bytes, blocks] => Outcome::Sizes(bytes, blocks),
                _ => return Err(bad()),
            },
            "busy" => Outcome::Busy,
            "names" => Outcome::Names(list()?.into_iter().map(|name| name as u32).collect()),
            "number" => Outcome::Number(rest.parse().map_err(|_| bad())?),
            "flawed" => Outcome::Flawed(rest.to_owned()),
            "failed" => Outcome::Failed(rest.parse().map_err(|_| bad())?),
            "nothing" => Outcome::Nothing,
            _ => return Err(bad()),
        })
    }
}
