//! Space, and how much of it clients may rely on. docs/disk.md

use wire::ost::{ObjectAttr, Reply};

use crate::failure::Outcome;
use crate::oss::Oss;

/// Clients rely on one part in so many of the space. What an OST says is old when it is heard, and files take
/// whole blocks, and blocks that say where theirs are.
const RELIED_ON: u64 = 2;

impl Oss {
    pub(crate) fn statfs(&self) -> Outcome<Reply> {
        let space = self.objects.space()?;
        let unsent_max = self.share_of(space.bytes_available);
        Ok(Reply::Space(wire::mdt::Space {
            unsent_max,
            ..space
        }))
    }

    /// The answer to a change of an object, which is like `attr` now.
    pub(crate) fn changed(&self, attr: ObjectAttr) -> Reply {
        let unsent_max = self.share_of(self.objects.room_left());
        Reply::Written { attr, unsent_max }
    }

    /// So many bytes may each client have written and not sent, where `left` are left for all.
    fn share_of(&self, left: u64) -> u64 {
        let here = self.clients_here.keys();
        let clients = here.filter(|client| !self.servers.contains(client)).count();
        left / (RELIED_ON * clients.max(1) as u64)
    }
}
