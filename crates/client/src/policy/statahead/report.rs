//! What is known of each walk that is fetched ahead of: `glint stats --walks`.

use base::Fid;
use serde::{Deserialize, Serialize};

/// The order that a walk was seen to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One directory's list.
    List,
    /// A tree, its directories in the order of their lists.
    Dfs,
    /// A tree, its directories by name.
    DfsName,
    /// A tree, those directories first that are nearer to its root.
    Bfs,
    /// Numbered names.
    Fname,
    /// Numbered names in larger steps.
    Stride,
    /// Names that a program said it will ask for.
    Advise,
    /// A directory's names in sorted order, for which its list is fetched.
    NameOrder,
    /// The bytes of small files, in the order of lists.
    Files,
    /// The same by name.
    FilesName,
    /// The same by inode number.
    FilesInode,
    /// Sizes that OSTs know, in the order of lists.
    Sizes,
}

/// One walk. Counts are of directories for trees, of files for their bytes
/// and sizes, else of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkReport {
    /// What is fetched.
    pub pattern: Pattern,
    /// The directory it is in, or below.
    pub dir: Fid,
    /// Requests sent for it.
    pub requests: u64,
    /// Fetched ahead.
    pub fetched: u64,
    /// Of these asked for since.
    pub used: u64,
    /// Asked for when they were not at hand.
    pub missed: u64,
    /// How far is fetched ahead: names of a list or sequence, files for sizes,
    /// bytes otherwise.
    pub window: u64,
    /// Bytes fetched: of names and attributes about, of files exactly.
    pub bytes: u64,
    /// Of these not used.
    pub bytes_unused: u64,
    /// Its guesses were wrong too often: nothing is fetched for it any more.
    pub ended: bool,
}
