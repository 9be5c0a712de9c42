//! One operation's view of the store: what is stored, as changed by what it has changed so far.
//!
//! Nothing is stored before the whole operation has succeeded: a failure drops the transaction.

use std::ops::ControlFlow;

use base::{Fid, FsError, Name, Timestamp, Transno};
use storage::KeyRange;

use crate::change_set::ChangeSet;
use crate::keys::{self, Spot, Table};
use crate::mutation::Mutation;
use crate::records::{Bytes, Dirent, Inode, Place, State};
use crate::store::{Failure, Store, missing};
use wire::hash::{self, NameHasher};

/// A result of reading or changing the namespace.
pub type Result<T> = std::result::Result<T, Failure>;

/// Names one removal leaves at a file: how many of them a transaction may look at.
const LINKS_SEEN: usize = 2;

/// A file as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its id.
    pub fid: Fid,
    /// Where its record is.
    pub place: Place,
    /// Its attributes.
    pub inode: Inode,
}

/// A transaction.
#[derive(Debug)]
pub struct Txn<'a> {
    store: &'a Store,
    hasher: NameHasher,
    /// The wall clock, or what it showed when this was done first.
    pub now: Timestamp,
    /// It is done again, out of turn.
    pub is_again: bool,
    /// The transno of the change, should there be one.
    pub transno: Transno,
    /// The target's state; stored with the change.
    pub state: State,
    changes: ChangeSet,
}

impl<'a> Txn<'a> {
    /// Of a target in `state`, at the time `now`.
    pub fn new(store: &'a Store, hasher: NameHasher, state: State, now: Timestamp) -> Txn<'a> {
        let transno = Transno(state.transno.0 + 1);
        Txn {
            store,
            hasher,
            now,
            is_again: false,
            transno,
            state,
            changes: ChangeSet::default(),
        }
    }

    /// The store below, which does not show this transaction's changes.
    pub fn store(&self) -> &'a Store {
        self.store
    }

    /// Adds a change.
    pub fn change(&mut self, mutation: Mutation) {
        self.changes.add(mutation);
    }

    /// What was changed, in order, with the state after it.
    pub fn finish(self) -> (Vec<Mutation>, State) {
        (self.changes.into_mutations(), self.state)
    }

    /// Nothing was changed.
    pub fn is_clean(&self) -> bool {
        self.changes.is_empty()
    }

    /// The hash of a name on this target.
    pub fn hash(&self, name: &Name) -> u64 {
        self.hasher.hash(name)
    }

    /// The key of a name in the leases on its directory.
    pub fn lease_key(&self, name: &Name) -> u64 {
        self.hasher.lease_key(name)
    }

    /// Where the file is; `None`: there is no such file.
    pub fn place(&self, fid: Fid) -> Result<Option<Place>> {
        match self.changes.place(fid) {
            Some(place) => Ok(place),
            None => self.store.get(Table::Places, &keys::fid(fid)),
        }
    }

    /// A file's own record.
    pub fn own_inode(&self, fid: Fid) -> Result<Option<Inode>> {
        match self.changes.inode(fid) {
            Some(inode) => Ok(inode.cloned()),
            None => self.store.get(Table::Inodes, &keys::fid(fid)),
        }
    }

    /// The name at a spot.
    pub fn dirent(&self, spot: Spot) -> Result<Option<Dirent>> {
        match self.changes.dirent(spot) {
            Some(dirent) => Ok(dirent.cloned()),
            None => self.store.get(Table::Dirents, &keys::dirent(spot)),
        }
    }

    /// The file `fid`; `Stale` if there is none.
    pub fn file(&self, fid: Fid) -> Result<File> {
        let place = self.place(fid)?.ok_or(FsError::Stale)?;
        let inode = match place {
            Place::Entry(spot) => {
                let dirent = self
                    .dirent(spot)?
                    .ok_or_else(|| missing("directory entry", fid))?;
                dirent
                    .inode
                    .ok_or_else(|| missing("inode in the directory entry", fid))?
            }
            Place::Directory(_) | Place::Own => {
                self.own_inode(fid)?.ok_or_else(|| missing("inode", fid))?
            }
        };
        Ok(File { fid, place, inode })
    }

    /// The directory `fid`; `Stale` if there is no such file, `NotDirectory` if it is another kind.
    pub fn dir(&self, fid: Fid) -> Result<Inode> {
        match self.own_inode(fid)? {
            Some(inode) if inode.is_dir() => Ok(inode),
            Some(_) => Err(FsError::NotDirectory.into()),
            None if self.place(fid)?.is_some() => Err(FsError::NotDirectory.into()),
            None => Err(FsError::Stale.into()),
        }
    }

    /// The directory `fid`, which must not have been removed (it may be an orphan that is open):
    /// names can be made in it.
    pub fn live_dir(&self, fid: Fid) -> Result<Inode> {
        let dir = self.dir(fid)?;
        if dir.nlink == 0 {
            return Err(FsError::NotFound.into());
        }
        Ok(dir)
    }

    /// The names of `dir` with this hash.
    fn bucket(&self, dir: Fid, hash: u64) -> Result<Vec<(u64, Dirent)>> {
        let stored = self.stored_bucket(dir, hash)?;
        Ok(self.as_changed(dir, hash, stored))
    }

    fn stored_bucket(&self, dir: Fid, hash: u64) -> Result<Vec<(u64, Dirent)>> {
        let (first, last) = hash::bucket(hash);
        self.store.names(dir, first, last)
    }

    /// These names with this hash, as changed by this transaction.
    fn as_changed(&self, dir: Fid, hash: u64, mut found: Vec<(u64, Dirent)>) -> Vec<(u64, Dirent)> {
        let (first, last) = hash::bucket(hash);
        for (cookie, dirent) in self.changes.names(dir, first..=last) {
            found.retain(|(stored, _)| *stored != cookie);
            found.extend(dirent.map(|dirent| (cookie, dirent.clone())));
        }
        found
    }

    /// The entry called `name`, and where it is.
    pub fn find(&self, dir: Fid, name: &Name) -> Result<Option<(Spot, Dirent)>> {
        let bucket = self.bucket(dir, self.hash(name))?;
        let found = bucket.into_iter().find(|(_, dirent)| dirent.name == *name);
        Ok(found.map(|(cookie, dirent)| (Spot { dir, cookie }, dirent)))
    }

    /// Like [`Txn::find`]; `NotFound` if there is none.
    pub fn find_some(&self, dir: Fid, name: &Name) -> Result<(Spot, Dirent)> {
        Ok(self.find(dir, name)?.ok_or(FsError::NotFound)?)
    }

    /// A free spot for `name`; `Exists` if the name is there already, `NoSpace` if too many
    /// names share its hash.
    pub fn free_spot(&self, dir: Fid, name: &Name) -> Result<Spot> {
        self.free_spot_in(dir, false, name)
    }

    /// The same in a directory of which the store has no names, if `is_empty`.
    pub fn free_spot_in(&self, dir: Fid, is_empty: bool, name: &Name) -> Result<Spot> {
        let hash = self.hash(name);
        let stored = match is_empty {
            true => Vec::new(),
            false => self.stored_bucket(dir, hash)?,
        };
        let bucket = self.as_changed(dir, hash, stored);
        if bucket.iter().any(|(_, dirent)| dirent.name == *name) {
            return Err(FsError::Exists.into());
        }
        let (first, last) = hash::bucket(hash);
        let taken = |cookie: &u64| bucket.iter().any(|(c, _)| c == cookie);
        let cookie = (first..=last)
            .find(|cookie| !taken(cookie))
            .ok_or(FsError::NoSpace)?;
        Ok(Spot { dir, cookie })
    }

    /// The spots of a file that has several names; at most two are looked for.
    pub fn some_links(&self, fid: Fid) -> Result<Vec<Spot>> {
        let mut removed = Vec::new();
        let mut spots = Vec::new();
        for (spot, is_made) in self.changes.links(fid) {
            if is_made {
                spots.push(spot);
            } else {
                spots.retain(|s| *s != spot);
                removed.push(spot);
            }
        }
        let range = KeyRange::prefix(&keys::fid(fid));
        self.store.scan(Table::Links, &range, |key, _: Bytes| {
            let (_, spot) = keys::parse_link(key).ok_or_else(|| missing("spot of a link", fid))?;
            if !removed.contains(&spot) && !spots.contains(&spot) {
                spots.push(spot);
            }
            let enough = spots.len() >= LINKS_SEEN;
            Ok(if enough {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        Ok(spots)
    }

    /// Stores a file's changed attributes where they belong, as changed by this transaction.
    pub fn save(&mut self, file: &mut File) -> Result<()> {
        file.inode.version = self.transno.0;
        match file.place {
            Place::Entry(spot) => {
                let mut dirent = self
                    .dirent(spot)?
                    .ok_or_else(|| missing("directory entry", file.fid))?;
                dirent.inode = Some(file.inode.clone());
                self.change(Mutation::PutDirent(spot, dirent));
            }
            Place::Directory(_) | Place::Own => {
                self.change(Mutation::PutInode(file.fid, file.inode.clone()));
            }
        }
        Ok(())
    }

    /// Stores a directory's changed attributes.
    pub fn save_dir(&mut self, fid: Fid, inode: &mut Inode) {
        inode.version = self.transno.0;
        self.change(Mutation::PutInode(fid, inode.clone()));
    }

    /// The parent of a directory; the root is its own.
    pub fn parent(&self, dir: Fid) -> Result<Fid> {
        match self.place(dir)?.ok_or(FsError::Stale)? {
            Place::Directory(spot) => Ok(spot.dir),
            Place::Entry(_) => Err(FsError::NotDirectory.into()),
            // A removed directory that is still open, or a file with several names.
            Place::Own => Err(FsError::Stale.into()),
        }
    }

    /// `dir` is `ancestor` or below it.
    pub fn is_inside(&self, dir: Fid, ancestor: Fid) -> Result<bool> {
        let mut at = dir;
        // No path is longer than there are files: more steps mean that the parents form a ring.
        for _ in 0..=self.state.files {
            if at == ancestor {
                return Ok(true);
            }
            if at == Fid::ROOT {
                return Ok(false);
            }
            at = self.parent(at)?;
        }
        Err(missing("way to the root", dir))
    }
}
