//! What a client counts of its prefetch.

use serde::{Deserialize, Serialize};

/// What a client says about what it fetched, and fetched ahead, by Lustre's names where it has them.
/// Counts; those of a sample are of its time alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Statahead {
    /// Requests for the attributes of one name or file; in a batch each counts.
    pub stats: u64,
    /// Requests for a page of a directory.
    pub pages: u64,
    /// Times a walk had to wait for the network: what it needed was not at hand.
    pub walk_stalls: u64,
    /// Requests for a stretch of a tree: many directories in one answer.
    pub statahead_tree_walks: u64,
    /// Directories that came in these.
    pub statahead_tree_total: u64,
    /// Of these then read.
    pub statahead_tree_hit: u64,
    /// Walks of trees that were followed.
    pub tree_walks_followed: u64,
    /// Directories walked with statahead.
    pub statahead_total: u64,
    /// Walks given up because guesses were wrong.
    pub statahead_wrong: u64,
    /// Entries asked for in batches.
    pub statahead_entries: u64,
    /// Batches sent.
    pub statahead_batches: u64,
    /// Entries that were at hand when they were asked for, in directories closed since.
    pub hit_total: u64,
    /// Entries that were not.
    pub miss_total: u64,
}

impl Statahead {
    /// What was added since.
    #[must_use]
    pub fn since(&self, before: &Statahead) -> Statahead {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        Statahead {
            stats: less(self.stats, before.stats),
            pages: less(self.pages, before.pages),
            walk_stalls: less(self.walk_stalls, before.walk_stalls),
            statahead_tree_walks: less(self.statahead_tree_walks, before.statahead_tree_walks),
            statahead_tree_total: less(self.statahead_tree_total, before.statahead_tree_total),
            statahead_tree_hit: less(self.statahead_tree_hit, before.statahead_tree_hit),
            tree_walks_followed: less(self.tree_walks_followed, before.tree_walks_followed),
            statahead_total: less(self.statahead_total, before.statahead_total),
            statahead_wrong: less(self.statahead_wrong, before.statahead_wrong),
            statahead_entries: less(self.statahead_entries, before.statahead_entries),
            statahead_batches: less(self.statahead_batches, before.statahead_batches),
            hit_total: less(self.hit_total, before.hit_total),
            miss_total: less(self.miss_total, before.miss_total),
        }
    }
}
