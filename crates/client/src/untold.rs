//! What was changed of a file under the MDT's EX lock and is being told, or who has that lock after a
//! restart: until that is answered, the truth may be here, or at the MDT, where others may change it.

use base::{BootEpoch, Fid};
use wire::mdt::Request;

use crate::cache::State;
use crate::client::Client;
use crate::executor::spawn;

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

/// Over all files.
#[derive(Debug, Default)]
pub(crate) struct AllUntold {
    count: usize,
    /// How often the MDT's locks went: it restarted, or gave this mount up.
    life: u64,
    /// Of lives before this one, for which the MDT waits. What is told of this life waits for the MDT.
    old: usize,
    /// What the process before this one left is among it.
    pub inherited: bool,
    /// The MDT waits for the last of those: what holds up word to it that this client is ready.
    awaited: Option<u64>,
}

impl AllUntold {
    /// The MDT's locks have gone. One that lives anew waits for what is untold: that holds up word that
    /// this client is ready.
    pub fn await_all(&mut self, hold: Option<u64>) {
        self.life += 1;
        self.old = self.count;
        self.awaited = self.awaited.max(hold);
    }

    /// What the process before left is to be told, to an MDT that lives anew before it hears that this
    /// client is ready: till then nobody else sees what a file was like.
    pub fn await_inherited(&mut self, hold: u64) {
        self.awaited = self.awaited.max(Some(hold));
    }

    /// It is told.
    pub fn inheritance_told(&mut self) {
        self.inherited = false;
    }

    fn is_told(&mut self, life: u64) {
        self.count -= 1;
        if life < self.life {
            self.old -= 1;
        }
    }

    /// It need not wait any more. Says so once.
    fn all_told(&mut self) -> Option<u64> {
        let is_told = self.old == 0 && !self.inherited;
        self.awaited.take_if(|_| is_told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_life_waits_for_what_is_of_those_before() {
        let mut untold = AllUntold {
            count: 2,
            ..AllUntold::default()
        };
        untold.await_all(Some(1));
        untold.count += 1;
        untold.is_told(1);
        assert_eq!(untold.all_told(), None, "that was of the new life");
        untold.is_told(0);
        assert_eq!(untold.all_told(), None);
        untold.await_all(Some(2));
        untold.is_told(0);
        assert_eq!(untold.all_told(), Some(2));
        assert_eq!(untold.all_told(), None, "once");
    }

    #[test]
    fn a_new_life_waits_for_what_the_process_before_left() {
        let mut untold = AllUntold {
            inherited: true,
            ..AllUntold::default()
        };
        untold.await_all(Some(2));
        assert_eq!(untold.all_told(), None);
        untold.await_inherited(1);
        assert_eq!(untold.all_told(), None);
        untold.inheritance_told();
        assert_eq!(untold.all_told(), Some(2));
    }
}
