//! New files of a set, and the uses that they are registered with.

use base::{Fid, FsError, TargetIndex};
use layout::Layout;
use wire::mdt::{Access, NewFile, Reply, WriteTicket};
use wire::update::{Change, MadeFile, Told};
use wire::{FileKind, SizeState};

use super::files::bounded;
use super::wrong::{Checked, Of, refuse};
use super::{Set, made_by, name_of};
use crate::keys::{self, Table};
use crate::mutation::Mutation;
use crate::opens::Open;
use crate::ops::context::Ctx;
use crate::ops::create::{check_kind, owns};
use crate::records::{DIRECTORY_BYTES, Inode, Place};
use crate::txn::File;

impl Set<'_> {
    /// Finds what only the process before may have done. New files are in their places already, and names
    /// that were to go lead nowhere.
    pub(super) fn find_done(&mut self, ctx: &Ctx<'_, '_>) -> Checked<()> {
        if !ctx.may_be_done {
            return Ok(());
        }
        for (change, one) in self.changes.iter().enumerate() {
            let (Some((dir, name)), Some(new)) = (name_of(one), left_by(one)) else {
                continue;
            };
            let found = ctx.txn.find(self.dir(dir), name).of(change)?;
            if found.map(|(_, dirent)| dirent.fid) == new {
                self.done.insert(change);
            }
        }
        Ok(())
    }

    /// Makes the files that are new. They get their names later, with the others.
    pub(super) fn make(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        for (change, one) in self.changes.iter().enumerate() {
            if matches!(one, Change::Link { .. }) {
                ctx.check_room().of(change)?;
            }
            let Some(made) = made_by(one).filter(|_| !self.done.contains(&change)) else {
                continue;
            };
            self.check_new(ctx, made, change)?;
            let ost = self.place_bytes(ctx, made, change)?;
            let file = File {
                fid: made.file.fid,
                place: Place::Own,
                inode: inode(ctx, made, ost),
            };
            self.files.add_made(file, change)?.open = made.open;
            ctx.txn.state.files += 1;
            if made.file.kind == FileKind::Symlink {
                let target = made.file.target.clone();
                ctx.txn.change(Mutation::PutTarget(made.file.fid, target));
            }
        }
        Ok(())
    }

    fn check_new(&mut self, ctx: &Ctx<'_, '_>, made: &MadeFile, change: usize) -> Checked<()> {
        let NewFile {
            fid, kind, mode, ..
        } = made.file;
        check_kind(&made.file, made.open.is_some()).of(change)?;
        let has_bytes = made.ost.is_some() || made.open.is_some();
        if mode > 0o7777 || (has_bytes && kind != FileKind::Regular) {
            return refuse(change, FsError::Invalid);
        }
        self.check_own(ctx, fid, change)?;
        if ctx.txn.place(fid).of(change)?.is_some() {
            return refuse(change, FsError::Invalid);
        }
        if ctx.txn.state.files >= ctx.rules.files_max {
            return refuse(change, FsError::NoSpace);
        }
        ctx.check_room().of(change)
    }

    /// The id is of a sequence granted to the client.
    pub(super) fn check_own(&mut self, ctx: &Ctx<'_, '_>, fid: Fid, change: usize) -> Checked<()> {
        if self.sequence != Some(fid.sequence()) {
            if !owns(ctx, fid).of(change)? {
                return refuse(change, FsError::Invalid);
            }
            self.sequence = Some(fid.sequence());
        }
        Ok(())
    }

    /// The OST of a new file's bytes: where they are already, were when this was done first, or may go.
    fn place_bytes(
        &mut self,
        ctx: &Ctx<'_, '_>,
        made: &MadeFile,
        change: usize,
    ) -> Checked<Option<TargetIndex>> {
        if made.file.kind != FileKind::Regular {
            return Ok(None);
        }
        let ost = match (made.ost, ctx.replay) {
            (Some(ost), _) => {
                self.check_ost(ctx, ost, change)?;
                ost
            }
            (None, Some(Reply::Updated { notes, .. })) => {
                let told = |told: &Told| match told {
                    Told::Ost(ost) => Some(*ost),
                    _ => None,
                };
                let of_change = notes
                    .iter()
                    .filter(|note| usize::from(note.change) == change);
                let ost = of_change.filter_map(|note| told(&note.told)).next();
                ost.ok_or(FsError::Invalid).of(change)?
            }
            (None, _) => {
                let osts = &ctx.rules.osts;
                let turn = (ctx.txn.transno.0 + change as u64).checked_rem(osts.len() as u64);
                osts[turn.ok_or(FsError::TryAgain).of(change)? as usize]
            }
        };
        if made.ost.is_none() {
            self.note(change, Told::Ost(ost));
        }
        let object = keys::destroy(ost, made.file.fid, 0);
        let is_condemned = ctx.removing
            && ctx
                .txn
                .store()
                .contains(Table::Destroys, &object)
                .of(change)?;
        match is_condemned {
            true => refuse(change, FsError::Invalid),
            false => Ok(Some(ost)),
        }
    }

    /// The OST is one of the file system's. One that is not may be about to be known here.
    pub(super) fn check_ost(
        &self,
        ctx: &Ctx<'_, '_>,
        ost: TargetIndex,
        change: usize,
    ) -> Checked<()> {
        let is_known = ctx.replay.is_some() || ctx.rules.osts.contains(&ost);
        match is_known {
            true => Ok(()),
            false => refuse(change, FsError::TryAgain),
        }
    }

    /// All uses that come with the set can be registered.
    pub(super) fn check_uses(&self, ctx: &Ctx<'_, '_>) -> Checked<()> {
        let made = self.files.all.iter().filter(|file| file.open.is_some());
        let (count, first) = (made.clone().count(), made.map(|file| file.first).next());
        match first {
            Some(change) if !ctx.opens.has_room(ctx.who.client, count) => {
                refuse(change, FsError::TryAgain)
            }
            _ => Ok(()),
        }
    }

    /// Registers the uses that come with the set, and forgets those that end with it. Clients tell of both
    /// by themselves after a restart.
    pub(super) fn register_uses(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        if ctx.replay.is_some() {
            return Ok(());
        }
        for handle in &self.ended {
            ctx.opens.remove(*handle);
        }
        for file in &self.files.all {
            let (fid, client) = (file.file.fid, ctx.who.client);
            let Some(access) = file.open else { continue };
            let open = Open {
                fid,
                client,
                access,
            };
            let handle = ctx.opens.add(open).of(file.first)?;
            let ticket = match access.write {
                true => ctx.opens.ticket(file.file.inode.layout.generation),
                false => WriteTicket::default(),
            };
            self.notes.push(wire::update::UpdateNote {
                change: file.first as u16,
                told: Told::Opened {
                    handle,
                    ticket,
                    lock: None,
                },
            });
        }
        Ok(())
    }
}

/// The file that the name leads to after a change that may be found done. None: it may not.
fn left_by(change: &Change) -> Option<Option<Fid>> {
    match change {
        Change::Remove { .. } => Some(None),
        Change::Make { .. } | Change::Replace { .. } => {
            made_by(change).map(|made| Some(made.file.fid))
        }
        _ => None,
    }
}

/// A file as its maker has it.
fn inode(ctx: &Ctx<'_, '_>, made: &MadeFile, ost: Option<TargetIndex>) -> Inode {
    let NewFile {
        kind, mode, rdev, ..
    } = made.file;
    let is_directory = kind == FileKind::Directory;
    let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    let writes = made.open.is_some_and(|access: Access| access.write);
    let has_bytes = writes || made.ost.is_some();
    let given = made.times;
    let birth = given.btime.min(ctx.txn.now);
    let mtime_set = bounded(ctx, given.mtime_set, birth);
    let ctime = bounded(ctx, given.ctime, birth);
    // A time that a program has set stays as it is. The others are the clock's.
    let of_clock = |time, clocks: &[(_, _)]| {
        let same = clocks.iter().find(|(clock, _)| *clock == time);
        same.map_or(time, |(_, bounded)| *bounded)
    };
    let clocks = [
        (given.mtime_set, mtime_set),
        (given.btime, birth),
        (given.ctime, ctime),
    ];
    Inode {
        kind,
        mode,
        uid: made.uid,
        gid: made.gid,
        nlink: if is_directory { 2 } else { 1 },
        rdev: if is_device { rdev } else { 0 },
        has_xattrs: false,
        size_state: match has_bytes {
            true => SizeState::Ask,
            false => SizeState::Strict,
        },
        written: has_bytes,
        layout: ost.map_or_else(Layout::none, Layout::single),
        atime: of_clock(given.atime, &clocks),
        mtime: of_clock(given.mtime, &clocks),
        mtime_set,
        ctime,
        btime: birth,
        size: match is_directory {
            true => DIRECTORY_BYTES,
            false => made.file.target.len() as u64,
        },
        blocks: match is_directory {
            true => DIRECTORY_BYTES / 512,
            false => 0,
        },
        version: ctx.txn.transno.0,
        entries: 0,
    }
}
