//! `Update`: a set of changes that a client made under the write leases of one directory, or of two. All of
//! it is done or nothing, in any order: names are detached, then attached, and each file that the set touches
//! is settled once at the end. docs/wire.md, "Updates", is the normative text.

mod attributes;
mod files;
mod gone;
mod made;
mod names;
mod settle;
mod wrong;
mod xattrs;

use std::collections::{HashSet, VecDeque};

use base::limits::{UPDATE_CHANGES_MAX, UPDATE_DIRS_MAX};
use base::{Fid, FsError, Name};
use wire::mdt::{OpenHandle, Reply};
use wire::update::{Change, LeasedDir, Replacement, Told, UpdateNote};

use super::context::{Ctx, Op};
use crate::keys::Spot;
use crate::store::Failure;
use crate::txn::Result;
use files::Files;
use wrong::{Checked, Wrong, refuse};

/// See [`wire::mdt::Request::Update`].
pub struct Update<'r> {
    pub dirs: &'r [LeasedDir],
    pub changes: &'r [Change],
}

/// A set that is being done.
struct Set<'r> {
    dirs: &'r [LeasedDir],
    changes: &'r [Change],
    files: Files<'r>,
    notes: Vec<UpdateNote>,
    /// Where the names are that are replaced, in the order of the changes.
    replaced: VecDeque<Spot>,
    /// Uses that end with the set.
    ended: Vec<OpenHandle>,
    /// The places of changes of names that an earlier sending of the set has made.
    done: HashSet<usize>,
    /// The sequence of the client's that a new FID was last found to be of.
    sequence: Option<u64>,
}

impl Op for Update<'_> {
    fn run(&self, ctx: &mut Ctx<'_, '_>) -> Result<Reply> {
        let counts = (1..=UPDATE_DIRS_MAX).contains(&self.dirs.len())
            && (1..=UPDATE_CHANGES_MAX).contains(&self.changes.len());
        if !counts || (self.dirs.len() == 2 && self.dirs[0].dir == self.dirs[1].dir) {
            return Err(FsError::Invalid.into());
        }
        let mut set = Set {
            dirs: self.dirs,
            changes: self.changes,
            files: Files::with_room(self.changes.len() + self.dirs.len()),
            notes: Vec::new(),
            replaced: VecDeque::new(),
            ended: Vec::new(),
            done: HashSet::new(),
            sequence: None,
        };
        for leased in self.dirs {
            let inode = ctx.txn.live_dir(leased.dir)?;
            let place = ctx.txn.place(leased.dir)?.ok_or(FsError::Stale)?;
            set.files.add_dir(leased.dir, place, inode);
        }
        match set.run(ctx) {
            Ok(()) => Ok(set.reply(ctx)),
            Err(Wrong {
                change,
                cause: Failure::Refused(error),
            }) => Ok(Reply::UpdateRefused {
                change: change as u16,
                error,
            }),
            Err(Wrong { cause, .. }) => Err(cause),
        }
    }
}

impl Set<'_> {
    /// Nothing outside of the transaction changes before all of the set is known to be right.
    fn run(&mut self, ctx: &mut Ctx<'_, '_>) -> Checked<()> {
        self.check_names()?;
        self.find_done(ctx)?;
        self.detach(ctx)?;
        self.make(ctx)?;
        self.attach(ctx)?;
        self.date_dirs(ctx);
        self.change_attributes(ctx)?;
        self.change_xattrs(ctx)?;
        self.note_gone(ctx)?;
        self.check_uses(ctx)?;
        self.settle(ctx)?;
        self.register_uses(ctx)
    }

    /// Each name is in one change at most.
    fn check_names(&self) -> Checked<()> {
        let mut names = HashSet::with_capacity(self.changes.len());
        for (change, one) in self.changes.iter().enumerate() {
            let Some((dir, name)) = name_of(one) else {
                continue;
            };
            if usize::from(dir) >= self.dirs.len() || !names.insert((dir, name)) {
                return refuse(change, FsError::Invalid);
            }
        }
        Ok(())
    }

    fn dir(&self, dir: u8) -> Fid {
        self.dirs[usize::from(dir)].dir
    }

    fn note(&mut self, change: usize, told: Told) {
        let change = change as u16;
        self.notes.push(UpdateNote { change, told });
    }

    fn reply(mut self, ctx: &Ctx<'_, '_>) -> Reply {
        self.notes.sort_by_key(|note| note.change);
        Reply::Updated {
            transno: ctx.txn.transno,
            at: ctx.txn.now,
            version: 0,
            notes: self.notes,
        }
    }
}

/// The name that a change is about.
pub fn name_of(change: &Change) -> Option<(u8, &Name)> {
    match change {
        Change::Make { dir, name, .. }
        | Change::Link { dir, name, .. }
        | Change::Remove { dir, name, .. }
        | Change::Replace { dir, name, .. } => Some((*dir, name)),
        _ => None,
    }
}

/// The new file of a change.
pub fn made_by(change: &Change) -> Option<&wire::update::MadeFile> {
    match change {
        Change::Make { made, .. }
        | Change::Replace {
            new: Replacement::Made(made),
            ..
        } => Some(made),
        _ => None,
    }
}

/// The files that a change is about and that were there before: at most two.
pub fn known_to(change: &Change) -> [Option<Fid>; 2] {
    match change {
        Change::Link { fid, .. }
        | Change::Remove { fid, .. }
        | Change::SetAttr { fid, .. }
        | Change::SetXattr { fid, .. }
        | Change::RemoveXattr { fid, .. }
        | Change::Size { fid, .. } => [Some(*fid), None],
        Change::Replace {
            old,
            new: Replacement::Linked { fid, .. },
            ..
        } => [Some(*old), Some(*fid)],
        Change::Replace { old, .. } => [Some(*old), None],
        Change::Make { .. } | Change::Gone { .. } => [None, None],
    }
}

#[cfg(test)]
mod tests;
