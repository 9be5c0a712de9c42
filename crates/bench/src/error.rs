//! What a measurement can fail with, in words a person can act on.

use std::fmt;
use std::io;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Why a measurement could not be made.
#[derive(Debug)]
pub enum BenchError {
    /// This machine lacks something: a program, a device, a privilege.
    Unavailable {
        /// What is missing.
        what: String,
        /// What to do about it.
        mend: String,
    },
    /// The system refused a call.
    Io {
        /// What was being done.
        doing: String,
        /// What it answered.
        source: io::Error,
    },
    /// A program ended badly.
    Failed {
        /// Which one.
        program: String,
        /// How it ended.
        ending: String,
        /// The last it wrote to its error stream.
        said: String,
    },
    /// An argument makes no sense.
    Invalid(String),
    /// The stop flag was set.
    Interrupted,
}

impl BenchError {
    /// Something this machine lacks, and what to do about it.
    pub fn unavailable(what: impl Into<String>, mend: impl Into<String>) -> BenchError {
        BenchError::Unavailable {
            what: what.into(),
            mend: mend.into(),
        }
    }
}

impl fmt::Display for BenchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BenchError::Unavailable { what, mend } => write!(f, "{what}; {mend}"),
            BenchError::Io { doing, source } => write!(f, "{doing}: {source}"),
            BenchError::Failed {
                program,
                ending,
                said,
            } if said.is_empty() => write!(f, "{program} {ending}"),
            BenchError::Failed {
                program,
                ending,
                said,
            } => write!(f, "{program} {ending}: {said}"),
            BenchError::Invalid(why) => f.write_str(why),
            BenchError::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for BenchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BenchError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Says what was being done when a system call failed.
pub(crate) trait During<T> {
    /// The error, with what was being done in front of it.
    fn during<S: Into<String>>(self, doing: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<io::Error>> During<T> for std::result::Result<T, E> {
    fn during<S: Into<String>>(self, doing: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| BenchError::Io {
            doing: doing().into(),
            source: error.into(),
        })
    }
}
