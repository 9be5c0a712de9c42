//! What was changed of a file under the MDT's EX lock and is being told, or who has that lock after
//! a restart. Until that is answered, the truth may be here, or at the MDT, where others may change
//! it.

use base::{BootEpoch, Fid};
use wire::mdt::Request;

use crate::executor::spawn;
use crate::session::client::Client;
use crate::session::state::State;

/// It is told when this is dropped, or lost. Questions about the file wait for that, and so does the
/// word that this client is ready, where the MDT lives anew.
pub(crate) struct Untold {
    client: Client,
    fid: Fid,
    /// As [`AllUntold::life`] was then.
    life: u64,
}

impl Untold {
    /// Something of `fid` is about to be told.
    pub fn new(client: &Client, state: &mut State, fid: Fid) -> Untold {
        state.untold.count += 1;
        state.file(fid).untold += 1;
        Untold {
            client: client.clone(),
            fid,
            life: state.untold.life,
        }
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        let mut state = self.client.lock();
        state.untold.is_told(self.life);
        if let Some(file) = state.file_known(self.fid) {
            file.untold -= 1;
            file.waiters.wake_all();
        }
        state.drop_if_idle(self.fid);
        let told = state.all_told();
        drop(state);
        if let Some(told) = told {
            told.tell(&self.client);
        }
    }
}

impl State {
    /// What the MDT waits for, if it does, is told. Says so once.
    pub fn all_told(&mut self) -> Option<AllTold> {
        let (hold, life) = (self.untold.all_told()?, self.mdt_life);
        Some(AllTold { hold, life })
    }
}

/// Nothing is untold any more that was of earlier lives of the MDT than this one.
#[must_use]
pub(crate) struct AllTold {
    hold: u64,
    life: BootEpoch,
}

impl AllTold {
    /// The MDT may hear that this client is ready; and it hears that no more is to come, as it may have
    /// heard the other before.
    pub fn tell(self, client: &Client) {
        let AllTold { hold, life } = self;
        client.0.cluster.mdt.told(hold);
        let client = client.clone();
        spawn(async move {
            if let Err(error) = client.0.mdt_urgent(Request::Join { life }).await {
                // It has restarted once more, or has evicted us, and all is told anew.
                tracing::debug!("the MDT was not joined: {error}");
            }
        });
    }
}
