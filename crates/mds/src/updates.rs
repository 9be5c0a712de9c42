//! Locks of sets of changes, which are done under write leases and bring new ones. `ops::update` does the
//! rest.

use base::{ClientId, FsError};
use wire::FileKind;
use wire::mdt::{Reply, Request};
use wire::update::{Change, LeasedDir, Told, UpdateNote};

use crate::core::Mds;
use crate::cover::to_wire;
use crate::locks::Locks;
use crate::ops::context::{Ctx, resource};
use crate::ops::update::{known_to, made_by};
use crate::reclaimed::are_leased;

impl Mds {
    /// The client holds the write lease of each directory that it names.
    pub(crate) fn has_write_leases(&self, client: ClientId, dirs: &[LeasedDir]) -> bool {
        are_leased((&self.locks, &self.reclaimed), client, dirs)
    }

    /// Gives the client of a set the directories that it has made, and the files that it writes.
    pub(crate) fn lease_made(&mut self, client: ClientId, changes: &[Change], reply: &mut Reply) {
        let Reply::Updated { version, notes, .. } = reply else {
            return;
        };
        for note in &mut *notes {
            let made = changes.get(usize::from(note.change)).and_then(made_by);
            if let (Told::Opened { lock, ticket, .. }, Some(made)) = (&mut note.told, made)
                && ticket.open_epoch != 0
            {
                let grant = self.locks.exclude(None, client, made.file.fid);
                *lock = grant.map(|grant| to_wire(&grant));
            }
        }
        for (change, one) in (0..).zip(changes) {
            let Some(made) = made_by(one) else { continue };
            if made.file.kind == FileKind::Directory
                && let Some(grant) = self.locks.try_write_lease(None, client, made.file.fid)
            {
                let told = Told::Leased(to_wire(&grant));
                notes.push(UpdateNote { change, told });
            }
        }
        notes.sort_by_key(|note| note.change);
        *version = self.locks.version();
    }
}

impl Locks {
    /// Refuses a set with a change of a file on which another client holds a lock, and would go on believing
    /// what it knows. The same goes for a file that the write lease does not cover. Such a change goes
    /// through the server, which calls the lock back.
    pub(crate) fn refused(&self, request: &Request, ctx: &Ctx<'_, '_>) -> Option<Reply> {
        let Request::Update { dirs, changes } = request else {
            return None;
        };
        if ctx.replay.is_some() {
            return None;
        }
        let client = ctx.who.client;
        let is_shared = |fid| {
            let mut leased = dirs.iter().map(|leased| leased.dir);
            self.table().is_shared(client, resource(fid))
                || leased.any(|dir| self.is_outside(client, dir, fid))
        };
        // The lease itself covers a directory's own times.
        let is_leased = |change: &Change| match change {
            Change::SetAttr { fid, attr } => {
                let is_of_times = attr.mode.is_none() && attr.uid.is_none() && attr.gid.is_none();
                is_of_times && dirs.iter().any(|leased| leased.dir == *fid)
            }
            _ => false,
        };
        let change = changes.iter().position(|change| {
            let mut known = known_to(change).into_iter().flatten();
            !is_leased(change) && known.any(is_shared)
        })?;
        Some(Reply::UpdateRefused {
            change: change as u16,
            error: FsError::Busy,
        })
    }
}
