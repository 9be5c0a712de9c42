//! Which locks travel with an answer. Locks are only ever tried for: an answer never waits for one.

use base::limits::LEASE_WITHDRAWN_MAX;
use base::{ClientId, Fid, LockHandle, Name};
use dlm::{Bits, Grant, OpId};
use wire::mdt::{DirEntry, Lease, OpenHandle, OpenIntent, Page, Reply, Request};
use wire::{Attr, Cover, DirState, FileKind, Node, SizeState};

use crate::changing::Changing;
use crate::locks::{CHILDREN, Locks, Wish};
use crate::opens::Opens;
use wire::hash::NameHasher;

/// A directory as a child, or by its id: its own attributes.
const DIRECTORY: Wish = Wish {
    required: Bits(Bits::PERM.0 | Bits::LIST.0),
    optional: Bits::XATTR,
};
/// A new directory: its maker may know that nothing is in it.
const NEW_DIRECTORY: Wish = Wish {
    required: Bits(Bits::PERM.0 | Bits::LIST.0),
    optional: Bits(Bits::XATTR.0 | Bits::NAMES.0 | Bits::CHILD.0),
};
/// A file with several names.
const LINKED: Wish = Wish {
    required: Bits(Bits::PERM.0 | Bits::UPDATE.0),
    optional: Bits::XATTR,
};
/// A file that its writers share: none of them may keep its size, and each must know of privileges
/// that it takes away by writing.
const WRITTEN: Wish = Wish {
    required: Bits::PERM,
    optional: Bits::XATTR,
};
/// The lease that comes with a name, and the one that comes with a page.
const ONE_NAME: Wish = Wish {
    required: Bits::NAMES,
    optional: Bits::CHILD,
};
const ALL_NAMES: Wish = Wish {
    required: Bits::NAMES,
    optional: Bits(Bits::CHILD.0 | Bits::LIST.0),
};
/// The values of extended attributes.
const XATTRS: Wish = Wish {
    required: Bits::XATTR,
    optional: Bits::NONE,
};

/// Gives one client's answer its locks.
pub struct Coverer<'a> {
    /// All locks.
    pub locks: &'a mut Locks,
    /// Who writes what.
    pub opens: &'a Opens,
    /// For the keys of names.
    pub hasher: NameHasher,
    /// Whose answer it is.
    pub client: ClientId,
    /// The operation that made it, if it took locks of its own.
    pub op: Option<OpId>,
    /// For answers about one file found by its id: the directory whose lease can cover it.
    pub home: Option<Fid>,
    /// The lock that the request gives up, or zero.
    pub giving_up: LockHandle,
    /// Clients may still tell of files they had open before a restart.
    pub grace: bool,
    /// Nobody is served yet since a restart: no client has learned anything since.
    pub unserved: bool,
}

impl Coverer<'_> {
    /// Adds what covers `reply`, the answer to `request`.
    pub fn cover(&mut self, request: &Request, reply: &mut Reply) {
        match (request, reply) {
            (Request::Lookup { dir, name }, Reply::Lookup { lease, node }) => {
                self.lookup(*dir, name, lease, node.as_mut());
            }
            (Request::ReadDir { .. }, Reply::Page(page)) => self.page(page),
            (Request::GetAttr { dir, .. }, Reply::Node(node)) => self.node_in(*dir, node),
            (Request::LookupParent { .. }, Reply::Node(node)) => self.own(node, DIRECTORY),
            (Request::SetAttr { dir, .. }, Reply::Node(node)) => self.node_in(*dir, node),
            (Request::Open { dir, intent, .. }, Reply::Opened { node, ticket, .. }) => match intent
            {
                OpenIntent::First => self.node_in(*dir, node),
                OpenIntent::ReopenExclusive if self.unserved && ticket.open_epoch != 0 => {
                    let grant = self.locks.exclude(self.op, self.client, node.fid);
                    node.cover = grant.map_or(Cover::None, |grant| Cover::Own(to_wire(&grant)));
                }
                OpenIntent::Reopen | OpenIntent::ReopenExclusive => {}
            },
            (Request::GetXattrs { fid }, Reply::Xattrs { cover, .. }) => {
                let grant = self.locks.share(self.op, self.client, *fid, XATTRS);
                *cover = grant.map(|grant| to_wire(&grant));
            }
            (
                Request::SetXattr { dir, .. }
                | Request::RemoveXattr { dir, .. }
                | Request::Close { dir, .. },
                Reply::Node(node),
            ) => self.node_in(*dir, node),
            (request, reply) => self.change(request, reply),
        }
    }

    /// Answers of operations that change names.
    fn change(&mut self, request: &Request, reply: &mut Reply) {
        if let Some(op) = self.op {
            self.locks.announce(op);
        }
        match (request, reply) {
            (
                Request::Create { name, .. },
                Reply::Created {
                    node,
                    dir,
                    handle,
                    ticket,
                    ..
                },
            ) => {
                let writes = ticket.open_epoch != 0 && *handle != OpenHandle::default();
                let leased = self.changed_name(dir, name, node.fid);
                self.created(node, writes, leased);
            }
            (Request::CreateNameless { .. }, Reply::Created { node, .. }) => {
                let grant = self.locks.exclude(self.op, self.client, node.fid);
                node.cover = grant.map_or(Cover::None, |grant| Cover::Own(to_wire(&grant)));
            }
            (Request::Link { name, .. }, Reply::Linked { node, dir, .. }) => {
                self.changed_name(dir, name, node.fid);
                self.own(node, LINKED);
            }
            (Request::Unlink { name, .. }, Reply::Unlinked { dir, node }) => {
                self.changed_name(dir, name, node.fid);
                self.linked(node);
            }
            (
                Request::Rename { source, target, .. },
                Reply::Renamed {
                    source_dir,
                    target_dir,
                    node,
                    replaced,
                    whiteout,
                    ..
                },
            ) => {
                let stays = whiteout.as_ref().or(replaced.as_ref());
                let back = stays.map_or(node.fid, |other| other.fid);
                self.changed_name(source_dir, source, node.fid);
                let left = self.changed_name(source_dir, source, back);
                let leased = self.changed_name(target_dir, target, node.fid);
                self.child(node, leased);
                if let Some(other) = replaced {
                    self.linked(other);
                }
                if let Some(whiteout) = whiteout {
                    self.child(whiteout, left);
                }
            }
            _ => {}
        }
    }

    /// The requester's own lease covers what it has just changed, unless others are at it too.
    fn changed_name(&mut self, dir: &mut DirState, name: &Name, child: Fid) -> bool {
        let keys = [self.hasher.lease_key(name), child.0];
        dir.version = 0;
        if self.locks.is_changing(self.op, self.client, dir.fid, None) {
            return false;
        }
        self.readmit(dir.fid, &keys);
        self.locks
            .readmit(self.op, (self.client, dir.fid), None, Bits::LIST);
        dir.version = self.locks.version();
        self.covers_child(dir.fid, child)
    }

    /// A lease of the client on `dir` covers what is known of `child`.
    fn covers_child(&mut self, dir: Fid, child: Fid) -> bool {
        self.locks.lease(self.client, dir).is_some() && !self.stays_withdrawn(dir, child.0)
    }

    /// A new file that its maker writes is its own, where it has the directory's lease: a
    /// directory that is fought over has none.
    fn created(&mut self, node: &mut Node, writes: bool, leased: bool) {
        if writes && leased {
            let grant = self.locks.exclude(self.op, self.client, node.fid);
            node.cover = grant.map_or(Cover::Parent, |grant| Cover::Own(to_wire(&grant)));
        } else if node.attr.kind == FileKind::Directory {
            self.own(node, NEW_DIRECTORY);
        } else {
            self.child(node, leased);
        }
    }

    fn lookup(&mut self, dir: Fid, name: &Name, lease: &mut Lease, node: Option<&mut Node>) {
        let child = node.as_ref().map_or(0, |node| node.fid.0);
        let keys = [self.hasher.lease_key(name), child];
        let grant = self.lease(dir, ONE_NAME, &keys);
        let leased = grant.is_some() && self.covers_child(dir, Fid(child));
        *lease = grant.map_or(Lease::None, |grant| Lease::Held(to_wire(&grant)));
        if let Some(node) = node {
            self.child(node, leased);
        }
    }

    /// Adds what covers a page of a directory.
    pub fn page(&mut self, page: &mut Page) {
        let dir = page.dir.fid;
        let changing = self.locks.changing(self.op, self.client, dir);
        let changing = Changing::collect(changing, LEASE_WITHDRAWN_MAX);
        let grant = changing.as_ref().and_then(|changing| {
            page.covers_list = !changing.has_list();
            self.locks.share(self.op, self.client, dir, ALL_NAMES)
        });
        let changing = changing.unwrap_or_default();
        page.covers_list &= grant.is_some();
        let leased = grant.is_some() && self.locks.lease(self.client, dir).is_some();
        let is_disturbed = grant.is_some() && self.locks.is_disturbed(self.client, dir);
        if page.covers_list {
            let whole = (self.client, dir);
            self.locks.readmit(self.op, whole, None, Bits::LIST);
        }
        for entry in &mut page.entries {
            let mut changes = Bits::NONE;
            if is_disturbed || (grant.is_some() && !changing.is_empty()) {
                changes = self.entry_changes(dir, entry, &changing);
            }
            entry.is_outside = changes.overlaps(Bits::NAMES);
            // Its holder alone knows what it is like. After a restart nobody here knows who writes
            // what: the client that wants a size asks for that one, and takes no lock for later.
            let unknown = |node: &Node| {
                let held = self.locks.is_others(node.fid, self.client);
                held || (self.grace && node.attr.size_state == SizeState::Ask)
            };
            if entry.node.as_ref().is_some_and(unknown) {
                entry.node = None;
            }
            if let Some(node) = &mut entry.node {
                let stays = is_disturbed && self.stays_withdrawn(dir, node.fid.0);
                self.child(node, leased && !stays && !changes.overlaps(Bits::CHILD));
            }
        }
        let version = self.locks.version();
        page.dir.version = version;
        page.lease = grant.map_or(Lease::None, |grant| {
            Lease::Held(wire::Grant {
                version,
                ..to_wire(&grant)
            })
        });
    }

    /// The bits that do not cover an entry of a page, because it is changing. Those that do, the
    /// client's lease has again.
    fn entry_changes(&mut self, dir: Fid, entry: &DirEntry, changing: &Changing) -> Bits {
        let mut all = Bits::NONE;
        for key in [self.hasher.lease_key(&entry.name), entry.fid.0] {
            let changes = changing.of(key);
            all |= changes;
            let covered = self.coverable(dir, key).without(changes);
            let whole = (self.client, dir);
            self.locks.readmit(self.op, whole, Some(key), covered);
        }
        all
    }

    /// A lease on `dir` for an answer about these keys.
    fn lease(&mut self, dir: Fid, wish: Wish, keys: &[u64]) -> Option<Grant> {
        let (op, client) = (self.op, self.client);
        if self.locks.is_changing(op, client, dir, Some(keys)) {
            return None;
        }
        let mut grant = self.locks.share(op, client, dir, wish)?;
        self.readmit(dir, keys);
        grant.version = self.locks.version();
        Some(grant)
    }

    /// The client's lease covers these entries of `dir` again.
    fn readmit(&mut self, dir: Fid, keys: &[u64]) {
        for key in keys {
            let bits = self.coverable(dir, *key);
            self.locks
                .readmit(self.op, (self.client, dir), Some(*key), bits);
        }
    }

    /// What the client's lease may cover of an entry: of a child that others use its name alone.
    fn coverable(&self, dir: Fid, key: u64) -> Bits {
        match self.stays_withdrawn(dir, key) {
            true => Bits::NAMES,
            false => CHILDREN,
        }
    }

    /// The client has the directory's write lease, which covers no child that others use.
    fn stays_withdrawn(&self, dir: Fid, key: u64) -> bool {
        let child = Fid(key);
        self.locks.holds_write_lease(self.client, dir)
            && (self.opens.is_used_by_others(child, self.client)
                || self.locks.is_used_by_others(child, self.client))
    }

    /// A file as its directory's child.
    fn child(&mut self, node: &mut Node, leased: bool) {
        if node.attr.kind == FileKind::Directory {
            self.own(node, DIRECTORY);
        } else if node.attr.nlink > 1 {
            self.own(node, LINKED);
        } else if self.held_alone(node) {
            // Covered, if this client has it.
        } else if node.attr.nlink == 1
            && leased
            && !self.opens.has_other_writer(node.fid, self.client)
        {
            node.cover = Cover::Parent;
        } else {
            self.written(node);
        }
    }

    /// A file that nothing else covers, for one that writes it.
    fn written(&mut self, node: &mut Node) {
        if !self.opens.is_writer(node.fid, self.client)
            || self.locks.is_changing(self.op, self.client, node.fid, None)
        {
            return;
        }
        if let Some(grant) = self.locks.share(self.op, self.client, node.fid, WRITTEN) {
            node.cover = Cover::Own(to_wire(&grant));
        }
    }

    /// A file that a client saw in `dir`, where its lease may cover it.
    fn node_in(&mut self, dir: Fid, node: &mut Node) {
        let changing = self
            .locks
            .is_changing(self.op, self.client, dir, Some(&[node.fid.0]));
        let at_home = dir != Fid::NONE && self.home == Some(dir);
        let leased = at_home && !changing && self.covers_child(dir, node.fid);
        if leased {
            self.readmit(dir, &[node.fid.0]);
        }
        self.child(node, leased);
    }

    /// What is left of a file that lost a name: by a lease it can be covered when it is looked up.
    fn linked(&mut self, node: &mut Node) {
        if node.attr.kind != FileKind::Directory && node.attr.nlink > 1 {
            self.own(node, LINKED);
        }
    }

    /// True if somebody has the file for itself; if it is this client, its lock covers it.
    fn held_alone(&mut self, node: &mut Node) -> bool {
        let Some(grant) = self.locks.exclusive_holder(node.fid) else {
            return false;
        };
        if grant.handle == self.giving_up {
            return false;
        }
        if !self.locks.is_others(node.fid, self.client) {
            node.cover = Cover::Own(to_wire(&grant));
        }
        true
    }

    fn own(&mut self, node: &mut Node, wish: Wish) {
        if node.attr.nlink == 0 || self.held_alone(node) {
            return;
        }
        if self.locks.is_changing(self.op, self.client, node.fid, None) {
            return;
        }
        if self.opens.has_other_writer(node.fid, self.client) {
            return self.written(node);
        }
        if let Some(grant) = self.locks.share(self.op, self.client, node.fid, wish) {
            let whole = (self.client, node.fid);
            self.locks.readmit(self.op, whole, None, Bits::LIST);
            node.cover = Cover::Own(to_wire(&grant));
        }
    }
}

/// What the holder of a file says of it, over what the target has stored: names and their count
/// are the target's to know.
pub fn overlay(stored: &mut Attr, held: Attr) {
    *stored = Attr {
        kind: stored.kind,
        nlink: stored.nlink,
        rdev: stored.rdev,
        has_xattrs: stored.has_xattrs,
        layout: stored.layout.clone(),
        btime: stored.btime,
        version: stored.version,
        ..held
    };
}

/// The children that a write lease does not cover. Their names it does.
pub fn outside_of(lease: &Grant) -> impl Iterator<Item = Fid> {
    let withdrawn = lease.withdrawn.iter();
    let children = withdrawn.filter(|(_, bits)| bits.contains(Bits::CHILD));
    children.map(|(child, _)| Fid(*child))
}

/// A grant as messages carry it.
pub fn to_wire(grant: &Grant) -> wire::Grant {
    wire::Grant {
        handle: grant.handle,
        fid: Fid(grant.resource.id),
        mode: grant.mode.index() as u8,
        bits: grant.cover.bits().0,
        version: grant.version,
    }
}
