//! New files that wait for the file system's first OST: without one there is nowhere for their bytes.

use wire::FileKind;
use wire::mdt::Request;

use crate::core::Mds;
use crate::event::Output;
use crate::request::Parked;

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
        if self.awaiting_ost.is_empty() {
            tracing::warn!(
                "new files wait until an OST is served: the file system has none yet (glint serve)"
            );
        }
        self.awaiting_ost.insert((call.client, call.slot));
    }

    /// There is an OST: the requests that waited for one start.
    pub(crate) fn end_waits_for_ost(&mut self, out: &mut Vec<Output>) {
        for (client, slot) in std::mem::take(&mut self.awaiting_ost) {
            self.next_of_frame(client, slot, out);
        }
    }
}
