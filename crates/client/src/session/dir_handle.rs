//! An open directory.

use base::Fid;

use crate::policy::statahead::flat::Statahead;

/// An open directory.
#[derive(Debug)]
pub(crate) struct DirHandle {
    fid: Fid,
    /// What is fetched ahead of the reader.
    pub statahead: Statahead,
    /// The last entry that its reader was told of.
    at: u64,
    /// A program that has it open said that it will need all below, and that is being fetched.
    fetches_tree: bool,
}

impl DirHandle {
    /// The directory is open now, and nothing of it is read.
    pub fn new(fid: Fid) -> DirHandle {
        DirHandle {
            fid,
            statahead: Statahead::new(),
            at: 0,
            fetches_tree: false,
        }
    }

    /// The directory.
    pub fn fid(&self) -> Fid {
        self.fid
    }

    /// Its reader was told of the entries up to `cookie`.
    pub fn read_to(&mut self, cookie: u64) {
        self.at = cookie;
    }

    /// The last entry that its reader was told of.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// All below begins to be fetched.
    pub fn begin_tree(&mut self) {
        self.fetches_tree = true;
    }

    /// That ends.
    pub fn end_tree(&mut self) {
        self.fetches_tree = false;
    }

    /// All below is being fetched.
    pub fn fetches_tree(&self) -> bool {
        self.fetches_tree
    }
}
