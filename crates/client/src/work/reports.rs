//! How what is fetched ahead goes: `glint stats --walks`.

use crate::policy::statahead::report::WalkReport;
use crate::session::client::Client;

impl Client {
    /// Walks under way, and those of the last half minute.
    pub fn walks(&self) -> Vec<WalkReport> {
        let state = self.lock();
        state.policies.walks(state.handles.walks())
    }
}
