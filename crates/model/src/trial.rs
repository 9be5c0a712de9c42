//! The oracle against one or more mounts of one file system, operation by operation.

use std::path::Path;

use crate::compare::{compare, compare_path};
use crate::directory::Directory;
use crate::op::Op;
use crate::process::Process;

/// Operations kept for the report of a failure.
const KEPT: usize = 30;

/// Runs each operation on the oracle and on one of the mounts in turn, and looks at what came of it
/// through the next one.
#[derive(Debug)]
pub struct Trial {
    process: Process,
    mounts: Vec<Directory>,
    turn: usize,
    /// After how many operations everything is compared, or as many as there are files: so one operation does
    /// not cost more in a larger tree. The paths of an operation always are.
    compare_all_every: usize,
    next_compare_all: usize,
    last: Vec<Op>,
}

impl Trial {
    /// `process` starts as the mounts are: all show the same empty directory, mode 0755.
    pub fn new(process: Process, roots: &[&Path], compare_all_every: usize) -> Trial {
        assert!(
            !roots.is_empty() && compare_all_every > 0,
            "nothing to compare"
        );
        Trial {
            process,
            mounts: roots.iter().map(|root| Directory::new(root)).collect(),
            turn: 0,
            compare_all_every,
            next_compare_all: compare_all_every,
            last: Vec::new(),
        }
    }

    /// The oracle as it is now.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// One operation. The error says what differed, and after which operations.
    pub fn step(&mut self, op: &Op) -> Result<(), String> {
        let count = self.mounts.len();
        self.turn += 1;
        // An open file belongs to the mount it was opened on.
        let at = op.slot().map_or(self.turn, usize::from) % count;
        self.last.push(op.clone());
        if self.last.len() > KEPT {
            self.last.remove(0);
        }
        let expected = self.process.apply(op);
        let outcome = self.mounts[at].apply(op);
        let same = match expected == outcome {
            true => self.look(op, (at + 1) % count),
            false => Err(format!("oracle {expected:?}\nmount  {outcome:?}")),
        };
        same.map_err(|difference| self.report(at, &difference))
    }

    fn look(&mut self, op: &Op, at: usize) -> Result<(), String> {
        let root = self.mounts[at].root();
        if self.turn >= self.next_compare_all {
            let files = self.process.model.files().count();
            self.next_compare_all = self.turn + self.compare_all_every.max(files);
            return compare(&self.process.model, root);
        }
        let mut paths = op.paths().into_iter();
        paths.try_for_each(|path| compare_path(&self.process, root, path))
    }

    /// Compares everything through every mount.
    pub fn compare_all(&self) -> Result<(), String> {
        let mut mounts = self.mounts.iter();
        mounts.try_for_each(|mount| compare(&self.process.model, mount.root()))
    }

    fn report(&self, at: usize, difference: &str) -> String {
        let root = self.mounts[at].root().display();
        let (turn, last) = (self.turn, &self.last);
        format!("operation {turn} at {root}: {difference}\nafter {last:#?}")
    }
}
