//! An update of a file that the MDT has not acknowledged yet: a change under its EX lock, or the registration
//! after a restart. Until then the newest state may be here, or at the MDT.

use base::{BootEpoch, Fid};
use wire::mdt::Request;

use crate::executor::spawn;
use crate::session::client::Client;
use crate::session::state::State;

/// One such update. Dropping this marks the update as acknowledged, or as lost. Questions about the file wait
/// for that, and so does the message to a restarted MDT that this client is ready.
pub(crate) struct PendingUpdate {
    client: Client,
    fid: Fid,
    /// The generation of the MDT's locks in which it began.
    generation: u64,
}

impl PendingUpdate {
    /// Begins an update of `fid`.
    pub fn new(client: &Client, state: &mut State, fid: Fid) -> PendingUpdate {
        let generation = state.policies.pending_updates.begin();
        state.cache.file(fid).change.begin_update();
        PendingUpdate {
            client: client.clone(),
            fid,
            generation,
        }
    }
}

impl Drop for PendingUpdate {
    fn drop(&mut self) {
        let mut state = self.client.lock();
        state.policies.pending_updates.acknowledged(self.generation);
        if let Some(file) = state.cache.file_known(self.fid) {
            file.change.end_update();
            file.waiters.wake_all();
        }
        state.drop_if_idle(self.fid);
        let all = state.all_acknowledged();
        drop(state);
        if let Some(all) = all {
            all.report(&self.client);
        }
    }
}

impl State {
    /// Some, once, when the MDT has acknowledged every update that it waits for.
    pub fn all_acknowledged(&mut self) -> Option<AllAcknowledged> {
        let (hold, epoch) = (
            self.policies.pending_updates.all_acknowledged()?,
            self.servers.mdt_epoch(),
        );
        Some(AllAcknowledged { hold, epoch })
    }
}

/// The MDT has acknowledged every update of its boots before `epoch`.
#[must_use]
pub(crate) struct AllAcknowledged {
    hold: u64,
    epoch: BootEpoch,
}

impl AllAcknowledged {
    /// Lets the ready message go, and sends a `Join`: the MDT may already have had the ready message.
    pub fn report(self, client: &Client) {
        let AllAcknowledged { hold, epoch } = self;
        client.0.cluster.mdt.release_ready(hold);
        let client = client.clone();
        spawn(async move {
            if let Err(error) = client
                .0
                .mdt_urgent(Request::Join { boot_epoch: epoch })
                .await
            {
                // It restarted once more, or evicted this client, and everything is reported anew.
                tracing::debug!("the MDT was not joined: {error}");
            }
        });
    }
}
