//! The first moments of a target's later boot: clients write again what it lost, and what they had not sent
//! when their locks went. Nobody reads or gets a lock before they have; a write without a lock is refused
//! where another client has one (docs/recovery.md).

use std::time::Duration;

use base::{BootEpoch, ClientId, Tick, Timestamp};
use rpc::window::Window;
use wire::ost::Request;

use crate::step::Caller;

/// A boot of the target that begins.
#[derive(Debug, Clone, Copy)]
pub struct Boot {
    /// Its number.
    pub epoch: BootEpoch,
    /// When it begins.
    pub now: Tick,
    /// The same by the wall.
    pub wall: Timestamp,
    /// How long clients of the boot before are waited for.
    pub window: Duration,
}

/// A request for when the window is over.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub caller: Caller,
    pub request: Request,
    pub bulk: Vec<u8>,
}

/// Whom the target waits for since it lives.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub boot_epoch: BootEpoch,
    pub window: Window<Waiting>,
    /// Bytes of requests that wait.
    pub bytes: usize,
}

impl Recovery {
    pub fn new(boot_epoch: BootEpoch, window: Window<Waiting>) -> Recovery {
        Recovery {
            boot_epoch,
            window,
            bytes: 0,
        }
    }

    /// Who is gone waits for nothing.
    pub fn forget(&mut self, client: ClientId) {
        let bytes = &mut self.bytes;
        self.window.retain(|waiting| {
            let stays = waiting.caller.client != client;
            if !stays {
                *bytes -= waiting.bulk.len();
            }
            stays
        });
    }
}
