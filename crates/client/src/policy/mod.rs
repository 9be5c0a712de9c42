//! What to do when: pure, without an executor, a clock or a server.

pub(crate) mod pending_updates;
pub(crate) mod queue;
pub(crate) mod readahead;
pub(crate) mod statahead;
pub(crate) mod writeback;

use pending_updates::PendingUpdates;
use statahead::files::Files;
use statahead::name_order::NameOrder;
use statahead::report::WalkReport;
use statahead::sequences::SequencePatterns;
use statahead::sizes::Sizes;
use statahead::tree::Trees;
use writeback::WriteBack;

/// The policies over all files. None knows of another; each changes only by its own methods.
#[derive(Default)]
pub(crate) struct Policies {
    /// Files with something to send, to make durable, to close or to report.
    pub writeback: WriteBack,
    /// Updates that the MDT has not acknowledged yet.
    pub pending_updates: PendingUpdates,
    /// Walks of trees.
    pub trees: Trees,
    /// Readers of small files.
    pub files: Files,
    /// Numbered names that are asked for in order.
    pub sequences: SequencePatterns,
    /// Directories whose names are asked for in an order.
    pub name_order: NameOrder,
    /// Readers that want sizes which only OSTs know.
    pub sizes: Sizes,
}

impl Policies {
    /// The walks of all policies. `lists`: those of single directories, whose readers have one policy each.
    pub fn walks(&self, lists: impl Iterator<Item = WalkReport>) -> Vec<WalkReport> {
        let trees = self.trees.reports();
        let names = self.sequences.reports().chain(self.name_order.reports());
        let contents = self.files.reports().chain(self.sizes.reports());
        trees.chain(lists).chain(names).chain(contents).collect()
    }
}
