//! Further names of files that nobody has heard of (ADR 19).

use base::{Fid, FsError, Name};

use crate::calls::births::may_change;
use crate::session::client::Client;
use crate::session::state::births::Spot;

impl Client {
    /// Gives the file one more name here. The stamp when a lease was seen to cover it. `None`: the MDT is to
    /// be asked.
    pub(crate) fn link_here(
        &self,
        fid: Fid,
        dir: Fid,
        name: &Name,
    ) -> Option<Result<u64, FsError>> {
        let mut state = self.lock();
        // The record of a file, which the next process reads, has one name.
        if state.journal.records().is_some() {
            return None;
        }
        if !state.births.may_link(fid, dir) || state.cache.known(fid)?.is_directory() {
            return None;
        }
        if !state.births.may_get_name(fid, (dir, name)) {
            return None;
        }
        may_change(&state, dir)?;
        if state.cache.directory_of(dir)?.get(name).is_some() {
            return Some(Err(FsError::Exists));
        }
        let cookie = self.cookie_for(&state, (dir, name))?;
        state.link_birth(fid, Spot::new((dir, name), cookie), self.0.clock.now());
        Some(Ok(state.cache.stamp()))
    }
}
