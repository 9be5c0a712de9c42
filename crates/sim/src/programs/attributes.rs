//! Calls on the attributes and the bytes of a file, which is made anew now and then. Then its maker
//! has it for itself, and changes of it are told with its Close.

use std::time::Duration;

use base::{Fid, FsError, Name};
use client::executor::block_on;
use client::{Client, HandleId, OpenWish, Place};
use wire::mdt::{Access, RenameMode, SetAttr, XattrMode};
use wire::{Attr, FileKind};

use super::bounds::ATTRIBUTES;
use super::bytes::{read_whole, write_block};
use super::names::{FIRST_MODE, ROOT_USER, make};
use super::program::Program;
use crate::history::Seen;

/// The extended attribute.
const XATTR: &[u8] = b"user.number";
/// Fewer modes are tried on a new file,
const MODES_TRIED: u16 = 60;
/// and one so long after the other.
const STEP: Duration = Duration::from_millis(3);

fn place(name: String) -> Result<Place, FsError> {
    Ok(Place {
        dir: Fid::ROOT,
        name: Name::new(name).map_err(|_| FsError::Invalid)?,
        caller: ROOT_USER,
    })
}

fn place_of(file: u8) -> Result<Place, FsError> {
    place(format!("m{file}"))
}

/// The number that a file made with the mode is full of: never zero.
pub(crate) fn number_of(mode: u16) -> u64 {
    u64::from(mode) + 1
}

/// Whose a file made with the mode is.
pub(crate) fn owner_of(mode: u16) -> u32 {
    u32::from(mode) + 1
}

/// What the extended attribute of a file made with the mode is, if it has it.
pub(crate) fn xattr_of(mode: u16) -> Option<u64> {
    (mode & 0o10 != 0).then_some(number_of(mode))
}

/// Makes the files through one mount, without bytes.
pub(super) fn make_attributes(client: &Client) -> Result<(), FsError> {
    (0..ATTRIBUTES).try_for_each(|file| make(client, place_of(file)?, FileKind::Regular).map(drop))
}

impl Program {
    /// Does `work` on what the name leads to. A kernel looks it up again where that was gone, once, and
    /// that must do. Every other program is led astray always.
    fn by_name<T>(
        &self,
        file: u8,
        work: impl Fn(&Client, Fid) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        if self.number.is_multiple_of(2) {
            let fid = self.found(file, false)?;
            let result = work(&self.client, fid);
            self.client.forget(fid, 1);
            match result {
                Err(FsError::Stale) => {}
                result => return result,
            }
        }
        let fid = self.found(file, true)?;
        let pin = self.client.pin(fid);
        let result = work(&self.client, fid);
        drop(pin);
        self.client.forget(fid, 1);
        result
    }

    fn found(&self, file: u8, pinned: bool) -> Result<Fid, FsError> {
        let (place, client) = (place_of(file)?, self.client.clone());
        let _held = self.locks.root();
        let entry = block_on(async move {
            match pinned {
                true => client.lookup_pinned(place.dir, &place.name).await,
                false => client.lookup(place.dir, &place.name).await,
            }
        });
        entry.map(|entry| entry.fid)
    }

    fn stat(&self, file: u8, seen: impl Fn(&Attr) -> Seen) -> Result<Seen, FsError> {
        self.by_name(file, |client, fid| {
            let client = client.clone();
            let stat = block_on(async move { client.getattr(fid).await })?;
            Ok(seen(&stat.attr))
        })
    }

    pub(super) fn mode(&self, file: u8) -> Result<Seen, FsError> {
        self.stat(file, |attr| Seen::Mode(attr.mode))
    }

    pub(super) fn owner(&self, file: u8) -> Result<Seen, FsError> {
        self.stat(file, |attr| Seen::Owner(attr.uid))
    }

    pub(super) fn get_xattr(&self, file: u8) -> Result<Seen, FsError> {
        self.by_name(file, |client, fid| {
            let client = client.clone();
            match block_on(async move { client.getxattr(fid, XATTR).await }) {
                Ok(value) => Ok(Seen::Number(Some(value_in(&value)))),
                Err(FsError::NoAttribute) => Ok(Seen::Number(None)),
                Err(error) => Err(error),
            }
        })
    }

    pub(super) fn contents(&self, file: u8) -> Result<Seen, FsError> {
        self.by_name(file, |client, fid| {
            let client = client.clone();
            block_on(async move { read_whole(&client, fid).await })
        })
    }

    pub(super) fn chmod(&self, file: u8, mode: u16) -> Result<Seen, FsError> {
        self.change(file, &Change::Attributes(of_mode(mode)))
    }

    pub(super) fn chown(&self, file: u8, owner: u32) -> Result<Seen, FsError> {
        let change = SetAttr {
            uid: Some(owner),
            ..SetAttr::default()
        };
        self.change(file, &Change::Attributes(change))
    }

    pub(super) fn set_xattr(&self, file: u8, value: u64) -> Result<Seen, FsError> {
        self.change(file, &Change::Xattr(Some(value)))
    }

    pub(super) fn remove_xattr(&self, file: u8) -> Result<Seen, FsError> {
        self.change(file, &Change::Xattr(None))
    }

    /// Durably, where clients are given up.
    fn change(&self, file: u8, change: &Change) -> Result<Seen, FsError> {
        let is_lazy = self.lazy;
        self.by_name(file, |client, fid| {
            let (client, change) = (client.clone(), change.clone());
            let _held = self.locks.attributes(file);
            block_on(async move { change.make(&client, fid, !is_lazy).await }).map(|()| Seen::Done)
        })
    }

    /// Makes a file, and puts it in the other's place. Before, while no other program has it, the file gets
    /// bytes and mode, perhaps an owner and an extended attribute.
    pub(super) fn remake(&self, file: u8, mode: u16) -> Result<Seen, FsError> {
        let made = place(format!("t{}", self.number))?;
        self.clear(&made)?;
        let (at, client) = (made.clone(), self.client.clone());
        let (fid, handle) = {
            let _held = self.locks.root_alone();
            let access = Access {
                read: true,
                write: true,
                exec: false,
            };
            let created =
                block_on(async move { client.create(at, FIRST_MODE, access, false).await });
            created.map(|(entry, handle)| (entry.fid, handle))?
        };
        let filled = self.fill(fid, handle, mode).and_then(|()| {
            let client = self.client.clone();
            let Some(value) = xattr_of(mode) else {
                return Ok(());
            };
            block_on(async move { Change::Xattr(Some(value)).make(&client, fid, false).await })
        });
        let changed = self.settle_on(fid, handle, mode);
        self.client.forget(fid, 1);
        filled.map_err(lost)?;
        changed.map_err(lost)?;
        let (goal, client, is_lazy) = (place_of(file)?, self.client.clone(), self.lazy);
        let moved = {
            let (_root, _held) = (self.locks.root_alone(), self.locks.attributes(file));
            block_on(async move {
                let mode = RenameMode::Replace;
                client
                    .rename(made, goal.dir, goal.name, mode, false)
                    .await?;
                match is_lazy {
                    true => Ok(()),
                    false => client.fsyncdir(goal.dir).await,
                }
            })
        };
        moved.map(|()| Seen::Done).map_err(lost)
    }

    fn fill(&self, fid: Fid, handle: HandleId, mode: u16) -> Result<(), FsError> {
        write_block(self.client.clone(), (fid, handle), Some(0), number_of(mode))
    }

    /// Closes a new file, and gives it mode and owner, perhaps about when its Close goes. It fails
    /// (`Invalid`) if the file has a mode then that no program has set.
    fn settle_on(&self, fid: Fid, handle: HandleId, mode: u16) -> Result<(), FsError> {
        let settle = |mode, durably| {
            let client = self.client.clone();
            let change = SetAttr {
                uid: Some(owner_of(mode)),
                ..of_mode(mode)
            };
            let seen = block_on(async move {
                Change::Attributes(change)
                    .make(&client, fid, durably)
                    .await?;
                client.getattr(fid).await
            })?;
            match (seen.attr.mode, seen.attr.uid) == (mode, owner_of(mode)) {
                true => Ok(()),
                false => Err(FsError::Invalid),
            }
        };
        let tries_others = mode & 7 == 0;
        let first = settle(mode ^ 0o111, false).and_then(|()| {
            let client = self.client.clone();
            match tries_others {
                // So its Close goes soon.
                true => block_on(async move { client.fsync(handle).await }),
                false => Ok(()),
            }
        });
        self.client.release(handle);
        first?;
        if tries_others {
            for step in 0..mode % MODES_TRIED {
                threads::sleep(STEP);
                settle(step, false)?;
            }
        }
        settle(mode, !self.lazy)
    }

    /// What an earlier attempt left there goes.
    fn clear(&self, place: &Place) -> Result<(), FsError> {
        let (place, client) = (place.clone(), self.client.clone());
        let _held = self.locks.root_alone();
        match block_on(async move { client.unlink(place, false).await }) {
            Err(FsError::NotFound) => Ok(()),
            cleared => cleared.map(drop),
        }
    }
}

/// A file that only an evicted client knew by name, or had open, may be lost with a server's changes.
pub(super) fn lost(error: FsError) -> FsError {
    match error {
        FsError::NotFound | FsError::Stale => FsError::Io,
        error => error,
    }
}

fn of_mode(mode: u16) -> SetAttr {
    SetAttr {
        mode: Some(mode),
        ..SetAttr::default()
    }
}

/// The number in an extended attribute; one that nobody writes, if it is none.
fn value_in(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(u64::MAX, u64::from_le_bytes)
}

/// What is changed of a file.
#[derive(Clone)]
enum Change {
    Attributes(SetAttr),
    /// The extended attribute is this, or there is none.
    Xattr(Option<u64>),
}

impl Change {
    /// `durably`: who has the file open meanwhile would be told that it was lost.
    async fn make(self, client: &Client, fid: Fid, durably: bool) -> Result<(), FsError> {
        if !durably {
            return self.ask(client, fid).await;
        }
        let access = Access {
            read: true,
            write: false,
            exec: false,
        };
        let wish = OpenWish {
            access,
            append: false,
        };
        let handle = client.open(fid, wish).await?.handle;
        let done = match self.ask(client, fid).await {
            Ok(()) => match client.fsync(handle).await {
                // Another is in its place since.
                Err(FsError::Stale) => Ok(()),
                synced => synced,
            },
            Err(error) => Err(error),
        };
        client.release(handle);
        done
    }

    async fn ask(self, client: &Client, fid: Fid) -> Result<(), FsError> {
        match self {
            Change::Attributes(change) => {
                let changed = client.setattr(ROOT_USER, fid, change, None).await;
                changed.map(drop)
            }
            Change::Xattr(Some(value)) => {
                let value = value.to_le_bytes().to_vec();
                let (name, mode) = (XATTR.to_vec(), XattrMode::Set);
                client.setxattr(fid, name, value, mode).await
            }
            Change::Xattr(None) => client.removexattr(fid, XATTR.to_vec()).await,
        }
    }
}
