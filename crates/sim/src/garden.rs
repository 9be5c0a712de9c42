//! Trees that are grown each by one program, and what all programs saw of them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A call that made or removed a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When it began.
    pub start: Duration,
    /// When it returned, and said that it was done. None: nobody knows whether it was.
    pub end: Option<Duration>,
}

/// A name in a tree. No two names of a tree are the same.
#[derive(Debug, Clone, Copy)]
pub struct Plant {
    /// The name.
    pub name: u32,
    /// How it came.
    pub made: Span,
    /// How it went.
    pub removed: Option<Span>,
}

/// All names that a program found in a tree, from the root on.
#[derive(Debug, Clone)]
pub struct Sight {
    /// On which client.
    pub by: u32,
    /// When it began to look.
    pub start: Duration,
    /// When it had seen all.
    pub end: Duration,
    /// What it saw.
    pub names: BTreeSet<u32>,
}

/// A tree that one client grows.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Its name in the root directory.
    pub name: String,
    /// The client.
    pub owner: u32,
    /// What was ever in it.
    pub plants: Vec<Plant>,
    /// What was seen of it.
    pub sights: Vec<Sight>,
}

/// All trees.
#[derive(Debug, Default)]
pub struct Garden {
    trees: Mutex<Vec<Tree>>,
}

impl Garden {
    /// The trees so far.
    pub fn trees(&self) -> MutexGuard<'_, Vec<Tree>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
