//! `op.open`: registers a use of a file. Writers get a ticket for its objects; before the first
//! ticket of a file whose size was exact is out, it is durable that the size is not exact any more.
//! Who executes excludes who writes.

use base::{Fid, FsError};
use dlm::{Bits, Mode};
use wire::mdt::{Access, OpenHandle, OpenIntent, Reply, WriteTicket};
use wire::{FileKind, SizeState};

use super::context::{Ctx, Needs, Op, node};
use crate::opens;
use crate::txn::{File, Result};

/// What one must share with an exclusive holder to use the file beside it.
const SHARED: Bits = Bits(Bits::PERM.0 | Bits::UPDATE.0 | Bits::DOM.0 | Bits::OPEN.0);

/// See [`wire::mdt::Request::Open`].
pub struct Open {
    pub fid: Fid,
    pub access: Access,
    pub intent: OpenIntent,
}

impl Op for Open {
    fn needs(&self, ctx: &Ctx<'_, '_>) -> Result<Needs> {
        let file = self.check(ctx)?;
        let mut needs = Needs::default();
        if self.intent.is_reopen() && !makes_inexact(&file, self.access) {
            // The client that waits for others to let go of this file may wait for this very
            // request. Not for one that ends an exact size: that others believe, where only its
            // sender was given up.
        } else if self.access.write {
            needs.attributes(&file, SHARED);
        } else {
            needs.lock(self.fid, Mode::PR, SHARED);
        }
        Ok(needs)
    }

    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let file = self.check(ctx)?;
        let (handle, ticket, file) = open(ctx, file, self.access)?;
        Ok(Reply::Opened {
            node: node(self.fid, &file.inode),
            handle,
            ticket,
        })
    }
}

impl Open {
    fn check(&self, ctx: &Ctx<'_, '_>) -> Result<File> {
        let file = ctx.txn.file(self.fid)?;
        let (inode, access) = (&file.inode, self.access);
        let refused = if inode.is_dir() && access.write {
            Some(FsError::IsDirectory)
        } else if self.intent.is_reopen() {
            None
        } else if inode.nlink == 0 && !ctx.opens.is_user(self.fid, ctx.who.client) {
            // Without a name it is there for those who have it open: /proc/self/fd leads there.
            Some(FsError::Stale)
        } else if (access.write && ctx.opens.has_executor(self.fid))
            || (access.exec && (access.write || ctx.opens.has_writer(self.fid)))
        {
            Some(FsError::TextBusy)
        } else {
            None
        };
        refused.map_or(Ok(file), |error| Err(error.into()))
    }
}

fn is_written(file: &File, access: Access) -> bool {
    access.write && file.inode.kind == FileKind::Regular
}

/// The size was exact, or that of a file without bytes, and is not for as long as this use lasts.
fn makes_inexact(file: &File, access: Access) -> bool {
    let is_exact = file.inode.size_state == SizeState::Strict || !file.inode.written;
    is_written(file, access) && is_exact
}

fn open(
    ctx: &mut Ctx<'_, '_>,
    mut file: File,
    access: Access,
) -> Result<(OpenHandle, WriteTicket, File)> {
    let (fid, client) = (file.fid, ctx.who.client);
    let writes = is_written(&file, access);
    if makes_inexact(&file, access) {
        file.inode.size_state = SizeState::Ask;
        file.inode.written = true;
        ctx.txn.save(&mut file)?;
        ctx.durable_first = true;
    }
    let handle = ctx.opens.add(opens::Open {
        fid,
        client,
        access,
    })?;
    let ticket = match writes {
        true => ctx.opens.ticket(file.inode.layout.generation),
        false => WriteTicket::default(),
    };
    Ok((handle, ticket, file))
}

/// Registers anew a use that an earlier boot of the target allowed, for a resent request.
pub fn reopen(
    ctx: &mut Ctx<'_, '_>,
    fid: Fid,
    access: Access,
) -> Result<(OpenHandle, WriteTicket)> {
    let file = ctx.txn.file(fid)?;
    let (handle, ticket, _) = open(ctx, file, access)?;
    Ok((handle, ticket))
}
