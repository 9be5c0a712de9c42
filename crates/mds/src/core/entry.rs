//! Operations enter a directory before they look at it. Another client that has its write lease first sends
//! what it has changed there, and gives the lease up (docs/locks.md, section 11).

use std::ops::ControlFlow;

use base::{ClientId, Fid, LockHandle, Name};
use dlm::{Grant, OpId};
use storage::KeyRange;
use wire::FileKind;
use wire::mdt::{Page, Reply, Request};

use super::{Mds, RESTARTS_MAX, gives_way};
use crate::cover::{outside_of, to_wire};
use crate::event::Output;
use crate::keys::{self, Spot, Table};
use crate::locks::Locks;
use crate::ops::context::{Needs, SPACE};
use crate::records::{Bytes, Dirent, Place};
use crate::request::{Parked, Stage};
use crate::store::{Failure, Store, missing};
use crate::txn::{Result, Txn};

/// How many names, or uses of files, are looked at for a write lease. Beyond: the directory gives none.
const USES_LOOKED_AT_MAX: usize = 4096;

impl Mds {
    /// The directories of a request that are closed to it. None is where no write lease is out, and for
    /// requests that wait for nobody.
    pub(super) fn closed_directories(&self, parked: &Parked) -> Result<Vec<Fid>> {
        let enters = parked.replay.is_none() && !gives_way(&parked.request);
        if !self.locks.has_write_leases() || !enters {
            return Ok(Vec::new());
        }
        let mut search = self.search(parked.call.client);
        search.request(&parked.request)?;
        Ok(search.closed)
    }

    fn search(&self, client: ClientId) -> Search<'_> {
        Search {
            txn: Txn::new(&self.store, self.hasher, self.state, self.wall),
            locks: &self.locks,
            client,
            closed: Vec::new(),
        }
    }

    /// Gives the client the write lease of a directory, if it can have that now (docs/locks.md, section 11).
    pub fn try_write_lease(
        &mut self,
        op: Option<OpId>,
        client: ClientId,
        dir: Fid,
    ) -> Result<Option<Grant>> {
        if self.locks.holds_write_lease(client, dir) {
            return Ok(self.locks.try_write_lease(op, client, dir));
        }
        let used = self.used_children(client, dir)?;
        Ok(used.and_then(|used| self.locks.try_write_lease_without(op, client, dir, &used)))
    }

    /// The answer to a client that wants the write lease of a directory.
    pub(crate) fn answer_lease(
        &mut self,
        op: Option<OpId>,
        client: ClientId,
        dir: Fid,
        reply: &mut Reply,
    ) -> Result<()> {
        if let Reply::WriteLease { grant, outside, .. } = reply
            && let Some(lease) = self.try_write_lease(op, client, dir)?
        {
            outside.extend(outside_of(&lease));
            *grant = Some(to_wire(&lease));
        }
        Ok(())
    }

    /// The children of a directory that other clients use. There is no answer where these are not known
    /// after a restart, and where it would take long to find them.
    fn used_children(&self, client: ClientId, dir: Fid) -> Result<Option<Vec<Fid>>> {
        let txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        let names = usize::try_from(txn.dir(dir)?.entries).unwrap_or(usize::MAX);
        let uses = self.opens.len() + self.locks.table().resource_count();
        if names == 0 {
            return Ok(Some(Vec::new()));
        }
        if self.recovery.is_grace() || names.min(uses) > USES_LOOKED_AT_MAX {
            return Ok(None);
        }
        self.used_children_so_far(client, dir).map(Some)
    }

    /// The same, however long it takes, as far as it is known.
    pub(super) fn used_children_so_far(&self, client: ClientId, dir: Fid) -> Result<Vec<Fid>> {
        let txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        let names = usize::try_from(txn.dir(dir)?.entries).unwrap_or(usize::MAX);
        let uses = self.opens.len() + self.locks.table().resource_count();
        let is_used = |fid: &Fid| {
            self.opens.is_used_by_others(*fid, client) || self.locks.is_used_by_others(*fid, client)
        };
        let mut used = Vec::new();
        if names <= uses {
            let range = KeyRange::prefix(&keys::fid(dir));
            self.store
                .scan(Table::Dirents, &range, |_, dirent: Dirent| {
                    used.extend(Some(dirent.fid).filter(is_used));
                    Ok(ControlFlow::Continue(()))
                })?;
        } else {
            let locked = self.locks.table().resources();
            let locked = locked.filter(|of| of.space == SPACE).map(|of| Fid(of.id));
            let open = self.opens.all().map(|open| open.fid);
            for fid in open.chain(locked).filter(is_used) {
                used.extend(naming_dirs(&txn, fid)?.contains(&dir).then_some(fid));
            }
        }
        used.sort_unstable();
        used.dedup();
        Ok(used)
    }

    /// The directories that name a file.
    pub(super) fn naming_dirs(&self, fid: Fid) -> Result<Vec<Fid>> {
        let txn = Txn::new(&self.store, self.hasher, self.state, self.wall);
        naming_dirs(&txn, fid)
    }

    /// Waits until nobody has these directories to itself. The request begins again then.
    pub(super) fn enter(&mut self, mut parked: Parked, closed: &[Fid], out: &mut Vec<Output>) {
        if parked.restarts >= RESTARTS_MAX {
            return self.fail(parked.call, base::FsError::TryAgain.into(), out);
        }
        parked.restarts += 1;
        parked.stage = Stage::Entering;
        if changes(&parked.request) {
            closed.iter().for_each(|dir| self.locks.note_writer(*dir));
        }
        parked.needs = Needs::entry(closed);
        self.park(parked, out);
    }

    /// A request that has waited is looked at anew. What it has waited for is let go after that, so that
    /// nothing comes between.
    pub(super) fn begin_anew(&mut self, op: OpId, mut parked: Parked, out: &mut Vec<Output>) {
        let call = parked.call;
        parked.stage = Stage::Own;
        parked.waited = false;
        parked.needs = Needs::default();
        let behind = self.take_frame(call.client, call.slot);
        self.attempt(parked, out);
        self.end(op, out);
        self.run_frame((call.client, call.slot), behind, out);
    }

    /// Leaves out of a page the attributes that another client may have changed. These are of directories
    /// that are closed, and of files with several names of which one is in a closed directory.
    pub(crate) fn leave_out_closed(&self, client: ClientId, page: &mut Page) -> Result<()> {
        if !self.locks.has_write_leases() {
            return Ok(());
        }
        for entry in &mut page.entries {
            let has_own_place =
                |node: &wire::Node| node.attr.kind == FileKind::Directory || node.attr.nlink > 1;
            if !entry.node.as_ref().is_some_and(has_own_place) {
                continue;
            }
            let mut search = self.search(client);
            search.file(entry.fid)?;
            if !search.closed.is_empty() {
                entry.node = None;
            }
        }
        Ok(())
    }
}

/// The directories that name a file.
fn naming_dirs(txn: &Txn<'_>, fid: Fid) -> Result<Vec<Fid>> {
    Ok(match txn.place(fid)? {
        None => Vec::new(),
        Some(Place::Entry(spot) | Place::Directory(spot)) => vec![spot.dir],
        Some(Place::Own) => linking_dirs(txn.store(), fid)?,
    })
}

/// The same for a file that has several names.
fn linking_dirs(store: &Store, fid: Fid) -> Result<Vec<Fid>> {
    let range = KeyRange::prefix(&keys::fid(fid));
    let mut dirs = Vec::new();
    store.scan(Table::Links, &range, |key, _: Bytes| {
        let (_, spot) = keys::parse_link(key).ok_or_else(|| missing("spot of a link", fid))?;
        dirs.push(spot.dir);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(dirs)
}

/// The request comes from a writer, who changes names or attributes.
fn changes(request: &Request) -> bool {
    match request {
        Request::Open { access, .. } => access.write,
        Request::CreateNameless { .. } => false,
        request => request.is_modification(),
    }
}

/// Which directories of a request are closed to a client.
struct Search<'a> {
    txn: Txn<'a>,
    locks: &'a Locks,
    client: ClientId,
    closed: Vec<Fid>,
}

impl Search<'_> {
    fn request(&mut self, request: &Request) -> Result<()> {
        match request {
            Request::Create { dir, .. }
            | Request::CreateNameless { dir, .. }
            | Request::ReadDir { dir, .. } => {
                self.directory(*dir);
                Ok(())
            }
            Request::Lookup { dir, name } | Request::Unlink { dir, name, .. } => {
                self.name(*dir, name)
            }
            Request::Rename {
                source_dir,
                source,
                target_dir,
                target,
                ..
            } => {
                self.name(*source_dir, source)?;
                self.name(*target_dir, target)
            }
            Request::Link { fid, dir, .. } => {
                self.directory(*dir);
                self.file(*fid)
            }
            Request::SetAttr { under, .. } if *under != LockHandle::default() => Ok(()),
            Request::GetAttr { fid, .. }
            | Request::ReadLink { fid }
            | Request::SetAttr { fid, .. }
            | Request::Open { fid, .. }
            | Request::GetXattrs { fid }
            | Request::SetXattr { fid, .. }
            | Request::RemoveXattr { fid, .. } => self.file(*fid),
            Request::LookupParent { dir } => self.parent(*dir),
            Request::PathOf { fid } => self.path(*fid),
            // Of a close the client has the file open, so no write lease covers it. An update has the
            // leases of its directories itself. A lease is only tried for.
            Request::Close { .. }
            | Request::AllocSequences
            | Request::Cancel { .. }
            | Request::Convert { .. }
            | Request::Sync
            | Request::Join { .. }
            | Request::ReclaimLease { .. }
            | Request::StatFs
            | Request::TakeLease { .. }
            | Request::Update { .. }
            | Request::Walk { .. } => Ok(()),
        }
    }

    fn directory(&mut self, dir: Fid) {
        if self.locks.is_closed(self.client, dir) && !self.closed.contains(&dir) {
            self.closed.push(dir);
        }
    }

    /// The directory, and the file that the name leads to.
    fn name(&mut self, dir: Fid, name: &Name) -> Result<()> {
        self.directory(dir);
        match self.txn.find(dir, name)? {
            Some((_, dirent)) => self.file(dirent.fid),
            None => Ok(()),
        }
    }

    /// The directories that name the file, and the file itself, if it is a directory.
    fn file(&mut self, fid: Fid) -> Result<()> {
        self.directory(fid);
        match self.txn.place(fid)? {
            None => Ok(()),
            Some(Place::Entry(spot) | Place::Directory(spot)) => {
                // A child that this client uses is true here, also where another has the directory.
                if self.locks.is_closed_for(self.client, spot.dir, fid) {
                    self.directory(spot.dir);
                }
                Ok(())
            }
            Some(Place::Own) => self.links(fid),
        }
    }

    fn links(&mut self, fid: Fid) -> Result<()> {
        let dirs = linking_dirs(self.txn.store(), fid)?;
        dirs.into_iter().for_each(|dir| self.directory(dir));
        Ok(())
    }

    /// The answer has the attributes of the parent.
    fn parent(&mut self, dir: Fid) -> Result<()> {
        self.file(dir)?;
        match self.txn.parent(dir) {
            Ok(parent) => self.file(parent),
            Err(Failure::Refused(_)) => Ok(()),
            Err(broken) => Err(broken),
        }
    }

    /// Every directory above the file.
    fn path(&mut self, fid: Fid) -> Result<()> {
        self.file(fid)?;
        let mut at = fid;
        // No path is longer than there are files: more steps mean that the parents form a ring.
        for _ in 0..=self.txn.state.files {
            if at == Fid::ROOT {
                break;
            }
            let spot: Option<Spot> = match self.txn.place(at)? {
                None => None,
                Some(Place::Entry(spot) | Place::Directory(spot)) => Some(spot),
                Some(Place::Own) => self.txn.some_links(at)?.first().copied(),
            };
            let Some(spot) = spot else { break };
            self.directory(spot.dir);
            at = spot.dir;
        }
        Ok(())
    }
}
