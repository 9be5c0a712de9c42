//! A path of a file from the root; of several names one.

use base::{Fid, FsError};
use wire::mdt::Reply;

use super::context::{Ctx, Op};
use crate::keys::Spot;
use crate::records::Place;
use crate::store::missing;
use crate::txn::{Result, Txn};

/// See [`wire::mdt::Request::PathOf`].
pub struct PathOf {
    pub fid: Fid,
}

impl Op for PathOf {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        Ok(Reply::Path(path_of(ctx.txn, self.fid)?))
    }
}

/// Components joined by `/`; empty for the root; `NotFound` for a file without names.
pub fn path_of(txn: &Txn<'_>, fid: Fid) -> Result<Vec<u8>> {
    let mut names = Vec::new();
    let mut at = fid;
    // No path is longer than there are files: more steps mean that the parents form a ring.
    for _ in 0..=txn.state.files {
        if at == Fid::ROOT {
            names.reverse();
            return Ok(names.join(&b'/'));
        }
        let spot = a_spot(txn, at)?;
        let dirent = txn
            .dirent(spot)?
            .ok_or_else(|| missing("directory entry", at))?;
        names.push(dirent.name.as_bytes().to_vec());
        at = spot.dir;
    }
    Err(missing("way to the root", fid))
}

fn a_spot(txn: &Txn<'_>, fid: Fid) -> Result<Spot> {
    match txn.place(fid)?.ok_or(FsError::Stale)? {
        Place::Entry(spot) | Place::Directory(spot) => Ok(spot),
        Place::Own => Ok(*txn.some_links(fid)?.first().ok_or(FsError::NotFound)?),
    }
}
