//! A finding of a gate: path, line, and what to mend.

use std::fmt;

/// One thing to mend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Relative to the workspace.
    pub path: String,
    /// From one; zero where the whole file is meant.
    pub line: usize,
    /// What is wrong, and how to mend it.
    pub what: String,
}

impl Finding {
    /// A finding in `path` at `line`.
    pub fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line.max(1), self.what)
    }
}
