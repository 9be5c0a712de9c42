//! How what is fetched ahead goes: `glint stats --walks`.

use crate::policy::statahead::report::WalkReport;
use crate::session::client::Client;

impl Client {
    /// Walks under way, and those of the last half minute.
    pub fn walks(&self) -> Vec<WalkReport> {
        let state = self.lock();
        let trees = state.trees.reports();
        let lists = state.handles.walks();
        let sequences = state.sequences.reports();
        let names = lists.chain(sequences).chain(state.name_order.reports());
        let files = state.files.reports();
        let sizes = state.sizes.reports();
        trees.chain(names).chain(files).chain(sizes).collect()
    }
}
