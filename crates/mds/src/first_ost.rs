//! New files that wait for the file system's first OST: without one there is nowhere for their bytes.

use std::collections::BTreeSet;

use base::ClientId;
use wire::FileKind;
use wire::mdt::Request;

use crate::core::{Mds, Parked};
use crate::event::Output;

/// The slots whose frames begin with a create that waits. Bounded by the slots of the clients that ask.
#[derive(Debug, Default)]
pub(crate) struct AwaitingOst(BTreeSet<(ClientId, u16)>);

impl AwaitingOst {
    /// A client that is gone waits for nothing.
    pub fn forget(&mut self, client: ClientId) {
        self.0.retain(|(waiting, _)| *waiting != client);
    }
}

impl Mds {
    /// The request makes a file whose bytes no OST could take.
    pub(crate) fn lacks_an_ost(&self, parked: &Parked) -> bool {
        let is_file = matches!(
            &parked.request,
            Request::Create { file, .. } | Request::CreateNameless { file, .. }
                if file.kind == FileKind::Regular
        );
        is_file && self.rules.osts.is_empty() && parked.replay.is_none()
    }

    /// Leaves a request at the head of its frame until there is an OST.
    pub(crate) fn wait_for_ost(&mut self, parked: Parked) {
        let Parked { call, request, .. } = parked;
        let Some(session) = self.clients.get_mut(&call.client) else {
            return;
        };
        let frame = session.frames.entry(call.slot).or_default();
        frame.push_front((call, request));
        if self.awaiting_ost.0.is_empty() {
            tracing::warn!(
                "new files wait until an OST is served: the file system has none yet (glint serve)"
            );
        }
        self.awaiting_ost.0.insert((call.client, call.slot));
    }

    /// There is an OST: the requests that waited for one start.
    pub(crate) fn end_waits_for_ost(&mut self, out: &mut Vec<Output>) {
        for (client, slot) in std::mem::take(&mut self.awaiting_ost.0) {
            self.next_of_frame(client, slot, out);
        }
    }
}
