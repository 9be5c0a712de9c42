//! Calls on names.

use base::{Fid, FsError, Name};
use client::executor::block_on;
use client::{Client, Entry, HandleId, NewNode, PageEntry, Place};
use wire::FileKind;
use wire::mdt::{Access, Caller, RenameMode};

use super::bounds::{DIRS, FILES};
use super::program::Program;
use crate::history::{Seen, Slot};

/// The mode of what is made.
pub(crate) const FIRST_MODE: u16 = 0o755;
pub(super) const ROOT_USER: Caller = Caller { uid: 0, gid: 0 };

pub(super) fn make(client: &Client, place: Place, kind: FileKind) -> Result<Fid, FsError> {
    make_node(client, place, kind, Vec::new())
}

fn make_node(
    client: &Client,
    place: Place,
    kind: FileKind,
    target: Vec<u8>,
) -> Result<Fid, FsError> {
    let client = client.clone();
    let node = NewNode {
        kind,
        mode: FIRST_MODE,
        rdev: 0,
        target,
    };
    block_on(async move { client.make(place, node).await }).map(|entry| entry.fid)
}

fn name_of(number: u8) -> Result<Name, FsError> {
    Name::new([b'0' + number]).map_err(|_| FsError::Invalid)
}

fn number_of(name: &Name) -> Option<u8> {
    match name.as_bytes() {
        [digit] => digit.checked_sub(b'0'),
        _ => None,
    }
}

/// The number that a symbolic link points to; one that nobody writes, if it is none.
fn number_in(target: &[u8]) -> u64 {
    let text = std::str::from_utf8(target).unwrap_or_default();
    u64::from_str_radix(text, 16).unwrap_or(u64::MAX)
}

/// Opens a directory, reads it to its end, and says in how many pages it came.
pub(super) async fn read_dir(
    client: &Client,
    dir: Fid,
) -> Result<(Vec<PageEntry>, usize), FsError> {
    let (handle, _) = client.opendir(dir);
    let read = read_all(client, handle).await;
    client.releasedir(handle);
    read
}

/// Reads a directory to its end, and says in how many pages it came.
async fn read_all(client: &Client, handle: HandleId) -> Result<(Vec<PageEntry>, usize), FsError> {
    let (mut entries, mut pages) = (Vec::<PageEntry>::new(), 0);
    loop {
        let after = entries.last().map_or(0, |entry| entry.cookie);
        let page = client.readdir(handle, after, 1000).await?;
        if page.entries.is_empty() {
            return Ok((entries, pages));
        }
        entries.extend(page.entries);
        pages += 1;
    }
}

impl Program {
    /// A kernel knows what its programs use, and the client keeps that as long.
    pub(super) fn know_all(&self) {
        let dirs = (0..DIRS).map(|dir| format!("d{dir}"));
        for text in dirs.chain((0..FILES).map(|file| format!("f{file}"))) {
            let client = self.client.clone();
            let known = Name::new(text)
                .map(|name| block_on(async move { client.lookup(Fid::ROOT, &name).await }));
            assert!(matches!(known, Ok(Ok(_))), "{known:?}");
        }
    }

    fn place(&self, slot: Slot) -> Result<Place, FsError> {
        Ok(Place {
            dir: self.dirs[usize::from(slot.dir)],
            name: name_of(slot.name)?,
            caller: ROOT_USER,
        })
    }

    pub(super) fn create(&self, slot: Slot) -> Result<Seen, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        let access = Access {
            read: true,
            write: true,
            exec: false,
        };
        block_on(async move {
            let (entry, handle) = client.create(place, 0o644, access, false).await?;
            client.release(handle);
            Ok(Seen::File(entry.fid))
        })
    }

    pub(super) fn mkdir(&self, slot: Slot) -> Result<Seen, FsError> {
        make(&self.client, self.place(slot)?, FileKind::Directory).map(Seen::File)
    }

    pub(super) fn unlink(&self, slot: Slot, directory: bool) -> Result<Seen, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        block_on(async move { client.unlink(place, directory).await }).map(|_| Seen::Done)
    }

    pub(super) fn symlink(&self, slot: Slot, to: u64) -> Result<Seen, FsError> {
        let target = format!("{to:x}").into_bytes();
        let made = make_node(&self.client, self.place(slot)?, FileKind::Symlink, target);
        made.map(Seen::File)
    }

    /// What a name leads to, and where that points to.
    pub(super) fn read_link(&self, slot: Slot) -> Result<Seen, FsError> {
        self.at_name(slot, |client, entry| {
            let (fid, asked) = (entry.fid, client.clone());
            let target = match entry.attr.kind {
                FileKind::Symlink => block_on(async move { asked.readlink(fid).await }).map(Some),
                _ => Ok(None),
            };
            client.forget(fid, 1);
            Ok(match target? {
                Some(target) => Seen::Link(fid, number_in(&target)),
                None => Seen::File(fid),
            })
        })
    }

    /// Does `work` on what a name leads to, which is to forget that or to keep it in use. A kernel looks
    /// the name up again where that was gone, once, and that must do.
    pub(super) fn at_name<T>(
        &self,
        slot: Slot,
        work: impl Fn(&Client, Entry) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        match self.at_found(slot, false, &work) {
            Err(FsError::Stale) => self.at_found(slot, true, &work),
            done => done,
        }
    }

    fn at_found<T>(
        &self,
        slot: Slot,
        again: bool,
        work: impl Fn(&Client, Entry) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        let entry = {
            let _held = self.locks.names_of(slot.dir);
            block_on(async move {
                match again {
                    true => client.lookup_pinned(place.dir, &place.name).await,
                    false => client.lookup(place.dir, &place.name).await,
                }
            })?
        };
        let _pin = again.then(|| self.client.pin(entry.fid));
        work(&self.client, entry)
    }

    pub(super) fn rename(&self, from: Slot, to: Slot, mode: RenameMode) -> Result<Seen, FsError> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let client = self.client.clone();
        let renamed = async move { client.rename(from, to.dir, to.name, mode, false).await };
        block_on(renamed).map(|_| Seen::Done)
    }

    pub(super) fn link(&self, fid: Fid, slot: Slot) -> Result<Seen, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        block_on(async move { client.link(fid, place.dir, place.name).await }).map(|_| Seen::Done)
    }

    pub(super) fn lookup(&self, slot: Slot) -> Result<Seen, FsError> {
        let (place, client) = (self.place(slot)?, self.client.clone());
        let found = async move {
            let entry = client.lookup(place.dir, &place.name).await?;
            client.forget(entry.fid, 1);
            Ok(entry.fid)
        };
        block_on(found).map(Seen::File)
    }

    /// Of a directory, which makes durable all that was reported to the MDT before.
    pub(super) fn sync_names(&self) -> Result<Seen, FsError> {
        let client = self.client.clone();
        block_on(async move { client.fsyncdir(Fid::ROOT).await }).map(|()| Seen::Done)
    }

    pub(super) fn list(&self, dir: u8) -> Result<Seen, FsError> {
        let (fid, client) = (self.dirs[usize::from(dir)], self.client.clone());
        let (entries, pages) = block_on(async move { read_dir(&client, fid).await })?;
        let entries = entries.iter();
        let mut names: Vec<_> = entries
            .filter_map(|entry| Some((number_of(&entry.name)?, entry.fid)))
            .collect();
        names.sort_unstable();
        Ok(match pages {
            0 | 1 => Seen::Names(names),
            _ => Seen::Parts,
        })
    }
}
