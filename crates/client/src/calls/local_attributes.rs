//! Attributes of files that the MDT knows, changed here and reported later (ADR 19).

use base::Fid;
use wire::mdt::SetAttr;

use crate::calls::leases::Fetched;
use crate::session::client::Client;

impl Client {
    /// Changes attributes here, where the write lease that this takes may be had. False: the MDT is to be
    /// asked.
    pub(crate) async fn set_known_here(&self, fid: Fid, change: &SetAttr) -> bool {
        if self.0.params.wbc() == 0 {
            return false;
        }
        let may = |lease: Fid| self.lock().may_amend(fid, lease);
        let Some(lease) = self.lock().amended_under(fid, change) else {
            return false;
        };
        if !may(lease) && !self.wish_write_lease(lease, Fetched::Nothing).await {
            return false;
        }
        let mut state = self.lock();
        if state.amended_under(fid, change) != Some(lease) || !state.may_amend(fid, lease) {
            return false;
        }
        let now = (self.0.clock.now(), self.0.clock.tick());
        state.amend((fid, lease), change, now)
    }
}
