//! What was changed of a file under the MDT's EX lock and is being told: until that is answered, the
//! truth may be here, or at the MDT, where others may change it.

use base::Fid;

use crate::cache::State;
use crate::client::Client;

/// It is told when this is dropped, or lost. Questions about the file wait for that, and so does the
/// word that this client is ready, where the MDT lives anew.
pub(crate) struct Untold {
    client: Client,
    fid: Fid,
}

impl Untold {
    /// Something of `fid` is about to be told.
    pub fn new(client: &Client, state: &mut State, fid: Fid) -> Untold {
        state.untold.count += 1;
        state.file(fid).untold += 1;
        Untold {
            client: client.clone(),
            fid,
        }
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        let mut state = self.client.lock();
        state.untold.count -= 1;
        if let Some(file) = state.file_known(self.fid) {
            file.untold -= 1;
            file.waiters.wake_all();
        }
        state.drop_if_idle(self.fid);
        let is_ready = state.untold.is_ready();
        drop(state);
        if is_ready {
            self.client.0.cluster.mdt.told();
        }
    }
}

/// Over all files.
#[derive(Debug, Default)]
pub(crate) struct AllUntold {
    count: usize,
    /// The MDT waits for the last of them.
    awaited: bool,
}

impl AllUntold {
    /// The MDT waits for what is untold.
    pub fn await_all(&mut self) {
        self.awaited = true;
    }

    /// It need not wait any more. Says so once.
    pub fn is_ready(&mut self) -> bool {
        self.count == 0 && std::mem::take(&mut self.awaited)
    }
}
