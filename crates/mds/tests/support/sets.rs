//! Sets of changes, in short, and what a client that holds write leases would send.

use base::{ClientId, Fid, FsError, LockHandle, TargetIndex, Timestamp, Transno};
use wire::FileKind;
use wire::mdt::{Access, NewFile, OpenHandle, Reply, Request, SizeUpdate, WriteTicket};
use wire::update::{AttrUpdate, Change, LeasedDir, MadeFile, Replacement, Times, Told, UpdateNote};

use super::{World, name};

/// What the clock of a client shows that is right.
pub const NOW: Timestamp = Timestamp {
    secs: 1000,
    nanos: 7,
};

/// A world with a client and two directories.
pub fn world() -> (World, ClientId, Fid, Fid) {
    let mut world = World::new();
    let a = world.connect(1);
    let (d, e) = (
        world.mkdir(a, Fid::ROOT, "d"),
        world.mkdir(a, Fid::ROOT, "e"),
    );
    world.wall.secs = 1001;
    (world, a, d, e)
}

pub fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

/// A file made now.
pub fn made(fid: Fid, kind: FileKind) -> MadeFile {
    let target = match kind {
        FileKind::Symlink => b"over/there".to_vec(),
        _ => Vec::new(),
    };
    MadeFile {
        file: NewFile {
            fid,
            kind,
            mode: 0o755,
            rdev: 0,
            target,
        },
        uid: 0,
        gid: 0,
        times: Times {
            atime: NOW,
            mtime: NOW,
            mtime_set: NOW,
            ctime: NOW,
            btime: NOW,
        },
        ost: None,
        open: None,
    }
}

/// A file that has bytes on an OST, and a use where `open` says so.
pub fn written(fid: Fid, ost: u16, open: Option<Access>) -> MadeFile {
    MadeFile {
        ost: Some(TargetIndex(ost)),
        open,
        ..made(fid, FileKind::Regular)
    }
}

pub fn make(dir: u8, text: &str, made: MadeFile) -> Change {
    let name = name(text);
    Change::Make { dir, name, made }
}

pub fn link(dir: u8, text: &str, fid: Fid) -> Change {
    Change::Link {
        dir,
        name: name(text),
        fid,
        ctime: NOW,
    }
}

pub fn remove(dir: u8, text: &str, fid: Fid) -> Change {
    Change::Remove {
        dir,
        name: name(text),
        fid,
        ctime: NOW,
    }
}

pub fn replace(dir: u8, text: &str, old: Fid, fid: Fid) -> Change {
    replace_by(dir, text, old, Replacement::Linked { fid, ctime: NOW })
}

pub fn replace_by(dir: u8, text: &str, old: Fid, new: Replacement) -> Change {
    Change::Replace {
        dir,
        name: name(text),
        old,
        new,
        ctime: NOW,
    }
}

/// What was answered: the change's number, and what the client did not know.
pub type Done = (Transno, Vec<UpdateNote>);
/// The place of the change that was refused, and why; without a place: the request as a whole.
pub type Refused = (Option<u16>, FsError);

impl World {
    /// The write leases of `dirs`, which the client gets, or has.
    pub fn leased(&mut self, client: ClientId, dirs: &[Fid]) -> Vec<LeasedDir> {
        let leased = dirs.iter().map(|dir| {
            let grant = self.mds.try_write_lease(None, client, *dir).ok().flatten();
            LeasedDir {
                dir: *dir,
                lease: grant.map_or(LockHandle(0), |grant| grant.handle),
                changed: NOW,
            }
        });
        leased.collect()
    }

    /// A set of changes, under the leases of `dirs`.
    pub fn update(
        &mut self,
        client: ClientId,
        dirs: &[Fid],
        changes: Vec<Change>,
    ) -> Result<Done, Refused> {
        let dirs = self.leased(client, dirs);
        self.update_under(client, dirs, changes)
    }

    pub fn update_under(
        &mut self,
        client: ClientId,
        dirs: Vec<LeasedDir>,
        changes: Vec<Change>,
    ) -> Result<Done, Refused> {
        match self.call(client, Request::Update { dirs, changes }) {
            Ok(Reply::Updated { transno, notes, .. }) => Ok((transno, notes)),
            Ok(Reply::UpdateRefused { change, error }) => Err((Some(change), error)),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err((None, error)),
        }
    }
}

/// The lease that came with the new directory of that change.
pub fn lease_of(notes: &[UpdateNote], change: u16) -> Option<LockHandle> {
    notes.iter().find_map(|note| match note.told {
        Told::Leased(grant) if note.change == change => Some(grant.handle),
        _ => None,
    })
}

pub fn attr(mode: u16) -> AttrUpdate {
    AttrUpdate {
        mode: Some(mode),
        ctime: NOW,
        ..AttrUpdate::default()
    }
}

pub fn set_attr(fid: Fid, attr: AttrUpdate) -> Change {
    Change::SetAttr { fid, attr }
}

pub fn set_xattr(fid: Fid, text: &str, value: &[u8]) -> Change {
    Change::SetXattr {
        fid,
        name: text.as_bytes().to_vec(),
        value: value.to_vec(),
        ctime: NOW,
    }
}

pub fn remove_xattr(fid: Fid, text: &str) -> Change {
    let (name, ctime) = (text.as_bytes().to_vec(), NOW);
    Change::RemoveXattr { fid, name, ctime }
}

pub fn sized(fid: Fid, size: u64, handle: OpenHandle) -> Change {
    Change::Size {
        fid,
        size: SizeUpdate {
            size,
            blocks: size.div_ceil(512),
            mtime: NOW,
            committed: true,
        },
        handle,
    }
}

/// The client has no lock any more.
pub fn give_all_back(world: &mut World, client: ClientId) {
    let handles = world.mds.locks().handles(client);
    let tag = world.send(client, Request::Cancel { handles });
    world.wait(tag).0.expect("done");
}

pub fn opened(notes: &[wire::update::UpdateNote]) -> (OpenHandle, WriteTicket, bool) {
    let found = notes.iter().find_map(|note| match note.told {
        Told::Opened {
            handle,
            ticket,
            lock,
        } => Some((handle, ticket, lock.is_some())),
        _ => None,
    });
    found.expect("a use")
}
