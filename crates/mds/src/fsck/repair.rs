//! Applies the mends of a check, and checks again. A repair is a boot of the target: it notes where the boot
//! before it ended, so that returning clients do not take its changes for theirs. It works in durable
//! batches, so it may end at any time.

use std::collections::BTreeSet;

use base::{BootEpoch, Fid, FsError, Name, Timestamp};
use storage::{Batch, KeyRange};
use wire::FileKind;

use super::issue::{Issue, LOST_FOUND, Mend};
use super::survey::{NameSeen, Seen, Survey};
use crate::format::directory_inode;
use crate::keys::{self, Spot, Table};
use crate::mutation::{Mutation, apply};
use crate::namespace::{attach, names_changed};
use crate::records::{Bytes, Dirent, Inode, NO_CLIENT, Place, SequenceOwner};
use crate::recovery::note_boot;
use crate::store::{Failure, Store, missing};
use crate::txn::{File, Result, Txn};
use wire::hash::NameHasher;

/// How often something is mended and all is checked again. Beyond: what is left is told.
const ROUNDS_MAX: usize = 32;
/// Mends of one batch.
const MENDS_PER_BATCH: usize = 128;
/// Who cannot be asked whose a directory is: its mode until root has looked.
const REMADE_MODE: u16 = 0o700;
/// What a symlink points to whose target is lost.
const LOST_TARGET: &[u8] = b"#target lost";

/// What a repair did.
#[derive(Debug, Clone, Default)]
pub struct Repaired {
    /// What was wrong and is mended.
    pub mended: Vec<Issue>,
    /// What is still wrong.
    pub left: Vec<Issue>,
}

/// Mends the target in `store`, which nobody serves, as its boot `boot_epoch`; `hasher` is the one it runs
/// with. Everything is durable when this returns. A damaged record ends it: what cannot be read
/// might explain what seems to be lost.
pub fn repair(
    store: &Store,
    hasher: NameHasher,
    boot_epoch: BootEpoch,
    now: Timestamp,
) -> Result<Repaired> {
    let (mut done, mut begun, mut before) = (Repaired::default(), false, Vec::new());
    for round in 0.. {
        let survey = Survey::of(store, hasher)?;
        done.left.clone_from(&survey.issues);
        let mends = survey.issues.iter().filter_map(|issue| issue.mend);
        let stage = mends.map(Mend::stage).min();
        let (Some(stage), Some(state)) = (stage, survey.state) else {
            break;
        };
        // What was done before has changed nothing.
        if done.left == before || round == ROUNDS_MAX {
            break;
        }
        before.clone_from(&survey.issues);
        if !begun {
            note_boot(store, boot_epoch, state.transno)?;
            begun = true;
        }
        let is_due = |issue: &&Issue| issue.mend.is_some_and(|mend| mend.stage() == stage);
        let due: Vec<Issue> = survey.issues.iter().filter(is_due).cloned().collect();
        Round {
            survey: &survey,
            store,
            hasher,
            now,
        }
        .apply(&due)?;
        done.mended.extend(due);
    }
    done.mended.retain(|issue| !done.left.contains(issue));
    Ok(done)
}

/// One check and what it leads to.
struct Round<'s> {
    survey: &'s Survey<'s>,
    store: &'s Store,
    hasher: NameHasher,
    now: Timestamp,
}

impl Round<'_> {
    fn apply(&self, due: &[Issue]) -> Result<()> {
        let mends: BTreeSet<Mend> = due.iter().filter_map(|issue| issue.mend).collect();
        let mends: Vec<Mend> = mends.into_iter().collect();
        for some in mends.chunks(MENDS_PER_BATCH) {
            let state = self.store.get(Table::State, keys::STATE)?;
            let state = state.ok_or_else(|| missing("state", "the target"))?;
            let mut txn = Txn::new(self.store, self.hasher, state, self.now);
            for mend in some {
                self.mend(&mut txn, *mend)?;
            }
            commit(self.store, txn)?;
        }
        Ok(())
    }

    fn mend(&self, txn: &mut Txn<'_>, mend: Mend) -> Result<()> {
        match mend {
            Mend::RaiseSequence(next) => txn.state.next_sequence = next,
            Mend::RemakeDirectory(fid) => remake_directory(txn, fid),
            Mend::RemoveRemains(fid) => remove_remains(txn, fid, self.seen(fid))?,
            Mend::RemoveName(spot) => remove_name(txn, spot)?,
            Mend::MoveName(spot) => move_name(txn, spot)?,
            Mend::NameInLostFound(fid) => name_in_lost_found(txn, fid, self.seen(fid))?,
            Mend::Settle(fid) => settle(txn, fid, self.seen(fid))?,
            Mend::KeepObject(ost, fid, stripe) => {
                txn.change(Mutation::RemoveDestroy(ost, fid, stripe));
            }
            Mend::CountFiles(files) => txn.state.files = files,
        }
        Ok(())
    }

    fn seen(&self, fid: Fid) -> &Seen {
        &self.survey.files[&fid]
    }
}

pub(super) fn commit(store: &Store, txn: Txn<'_>) -> Result<()> {
    let transno = txn.transno;
    let (mut mutations, mut state) = txn.finish();
    state.transno = transno;
    mutations.push(Mutation::PutState(state));
    let mut batch = Batch::new();
    apply(mutations, &mut batch);
    let ticket = store.commit(batch)?;
    Ok(store.kv().wait_durable(ticket)?)
}

/// A directory whose record is lost: its names lead to it, and those in it are there.
fn remake_directory(txn: &mut Txn<'_>, fid: Fid) {
    let mut inode = directory_inode(txn.now, (0, 0), REMADE_MODE);
    inode.version = txn.transno.0;
    txn.change(Mutation::PutInode(fid, inode));
}

fn remove_remains(txn: &mut Txn<'_>, fid: Fid, seen: &Seen) -> Result<()> {
    for name in &seen.names {
        remove_name(txn, name.spot)?;
    }
    for link in links(txn.store(), fid)? {
        txn.change(Mutation::RemoveLink(fid, link));
    }
    txn.change(Mutation::RemovePlace(fid));
    txn.change(Mutation::RemoveXattrs(fid));
    txn.change(Mutation::RemoveTarget(fid));
    txn.change(Mutation::RemoveOrphan(fid));
    doubt_objects(txn, fid.sequence())
}

/// Objects may be all that is left of a file. Where the sequence is nobody's, so that they would be
/// too, it gets an owner that never comes; so it does when it is somebody's, and that one goes.
fn doubt_objects(txn: &mut Txn<'_>, sequence: u64) -> Result<()> {
    let granted = Fid::SEQUENCE_FIRST..txn.state.next_sequence;
    let key = keys::sequence(sequence);
    let owner = SequenceOwner { client: NO_CLIENT };
    if granted.contains(&sequence) {
        txn.change(match txn.store().contains(Table::Sequences, &key)? {
            true => Mutation::PutLeakSearch(sequence, owner),
            false => Mutation::PutSequence(sequence, owner),
        });
    }
    Ok(())
}

/// Takes a name out of its directory. The file's record stays, if need be as one of its own.
fn remove_name(txn: &mut Txn<'_>, spot: Spot) -> Result<()> {
    let Some(dirent) = txn.dirent(spot)? else {
        return Ok(());
    };
    txn.change(Mutation::RemoveDirent(spot));
    count_names(txn, spot.dir, -1, dirent.kind)?;
    let own = txn.own_inode(dirent.fid)?;
    if let Some(inode) = newer(dirent.inode, own.as_ref()) {
        txn.change(Mutation::PutInode(dirent.fid, inode));
    }
    Ok(())
}

/// The record, if it is newer than the other one.
fn newer(inode: Option<Inode>, than: Option<&Inode>) -> Option<Inode> {
    inode.filter(|inode| than.is_none_or(|than| inode.version > than.version))
}

/// Moves a name to where it is looked for. What has the same name there stays: then the name goes.
fn move_name(txn: &mut Txn<'_>, spot: Spot) -> Result<()> {
    let Some(dirent) = txn.dirent(spot)? else {
        return Ok(());
    };
    match txn.free_spot(spot.dir, &dirent.name) {
        Ok(right) => {
            txn.change(Mutation::RemoveDirent(spot));
            txn.change(Mutation::PutDirent(right, dirent));
            Ok(())
        }
        Err(Failure::Refused(_)) => remove_name(txn, spot),
        Err(broken) => Err(broken),
    }
}

/// A name came into the directory or went. Counts that were wrong stay as wrong as they were, for
/// the check to tell of.
fn count_names(txn: &mut Txn<'_>, dir: Fid, entries: i64, kind: FileKind) -> Result<()> {
    let Some(mut inode) = txn.own_inode(dir)?.filter(Inode::is_dir) else {
        return Ok(());
    };
    let subdirs = match kind {
        FileKind::Directory => entries as i32,
        _ => 0,
    };
    names_changed(txn, &mut inode, entries, subdirs);
    txn.save_dir(dir, &mut inode);
    Ok(())
}

fn name_in_lost_found(txn: &mut Txn<'_>, fid: Fid, seen: &Seen) -> Result<()> {
    for name in &seen.names {
        remove_name(txn, name.spot)?;
    }
    let dir = lost_found(txn)?;
    let (spot, name) = free_name(txn, dir, &format!("#{fid}"))?;
    let kind = seen.kind.ok_or_else(|| missing("record", fid))?;
    let inode = None;
    txn.change(Mutation::PutDirent(
        spot,
        Dirent {
            name,
            fid,
            kind,
            inode,
        },
    ));
    count_names(txn, dir, 1, kind)?;
    let names = vec![NameSeen {
        spot,
        kind,
        inline: false,
    }];
    settle(
        txn,
        fid,
        &Seen {
            names,
            ..seen.clone()
        },
    )
}

/// `wanted` in `dir`, or the next that is free.
fn free_name(txn: &Txn<'_>, dir: Fid, wanted: &str) -> Result<(Spot, Name)> {
    for number in 0_u32.. {
        let name = numbered(wanted, number)?;
        match txn.free_spot(dir, &name) {
            Ok(spot) => return Ok((spot, name)),
            Err(Failure::Refused(FsError::Exists)) => {}
            Err(other) => return Err(other),
        }
    }
    Err(FsError::NoSpace.into())
}

fn numbered(text: &str, number: u32) -> Result<Name> {
    let name = match number {
        0 => Name::new(text),
        _ => Name::new(format!("{text}.{number}")),
    };
    Ok(name.map_err(|_| FsError::Invalid)?)
}

/// The directory for what no name leads to; made where it is missing. A file of that name is left
/// alone, and the directory has a number behind its name.
fn lost_found(txn: &mut Txn<'_>) -> Result<Fid> {
    for number in 0_u32.. {
        let name = numbered(LOST_FOUND, number)?;
        let Some((_, dirent)) = txn.find(Fid::ROOT, &name)? else {
            return make_lost_found(txn, name);
        };
        if txn
            .own_inode(dirent.fid)?
            .is_some_and(|inode| inode.is_dir())
        {
            return Ok(dirent.fid);
        }
    }
    Err(FsError::NoSpace.into())
}

fn make_lost_found(txn: &mut Txn<'_>, name: Name) -> Result<Fid> {
    // Of a sequence that nobody is granted: FIDs are never used twice.
    let fid = Fid::new(txn.state.next_sequence, 1);
    txn.state.next_sequence += 1;
    txn.state.files += 1;
    let spot = txn.free_spot(Fid::ROOT, &name)?;
    let inode = directory_inode(txn.now, (0, 0), REMADE_MODE);
    let mut file = File {
        fid,
        place: Place::Own,
        inode,
    };
    attach(txn, spot, name, &mut file);
    count_names(txn, Fid::ROOT, 1, FileKind::Directory)?;
    Ok(fid)
}

/// Writes anew what follows from the names and the content of a file.
fn settle(txn: &mut Txn<'_>, fid: Fid, seen: &Seen) -> Result<()> {
    let mut inode = newest(txn, fid, seen)?;
    let before = inode.clone();
    inode.nlink = seen.links_by_names(fid);
    inode.has_xattrs = seen.xattrs;
    if inode.is_dir() {
        inode.entries = seen.children;
    }
    if inode != before {
        inode.version = txn.transno.0;
    }
    let kind = inode.kind;
    let own = put_record(txn, fid, seen, inode)?;
    let place = seen.place_by_names(fid);
    txn.change(Mutation::PutPlace(fid, place));
    settle_links(txn, fid, seen, own && kind != FileKind::Directory)?;
    if !seen.is_nameless(fid) {
        txn.change(Mutation::RemoveOrphan(fid));
    }
    match (kind == FileKind::Symlink, seen.target) {
        (true, false) => txn.change(Mutation::PutTarget(fid, LOST_TARGET.to_vec())),
        (false, true) => txn.change(Mutation::RemoveTarget(fid)),
        _ => {}
    }
    Ok(())
}

/// Of all records of the file the newest.
fn newest(txn: &Txn<'_>, fid: Fid, seen: &Seen) -> Result<Inode> {
    let mut newest: Option<Inode> = None;
    for name in &seen.names {
        let inline = txn.dirent(name.spot)?.and_then(|dirent| dirent.inode);
        newest = newer(inline, newest.as_ref()).or(newest);
    }
    newest = newer(txn.own_inode(fid)?, newest.as_ref()).or(newest);
    newest.ok_or_else(|| missing("record", fid))
}

/// Puts the file's record where it belongs, and nowhere else; true: that is by itself.
fn put_record(txn: &mut Txn<'_>, fid: Fid, seen: &Seen, inode: Inode) -> Result<bool> {
    let is_inline = seen.has_inline_record(fid);
    for name in &seen.names {
        let Some(found) = txn.dirent(name.spot)? else {
            continue;
        };
        let dirent = Dirent {
            kind: inode.kind,
            inode: is_inline.then(|| inode.clone()),
            ..found.clone()
        };
        if dirent != found {
            txn.change(Mutation::PutDirent(name.spot, dirent));
        }
    }
    txn.change(match is_inline {
        true => Mutation::RemoveInode(fid),
        false => Mutation::PutInode(fid, inode),
    });
    Ok(!is_inline)
}

/// One link record for each of several names.
fn settle_links(txn: &mut Txn<'_>, fid: Fid, seen: &Seen, own: bool) -> Result<()> {
    let names: BTreeSet<Spot> = match own && seen.names.len() > 1 {
        true => seen.names.iter().map(|name| name.spot).collect(),
        false => BTreeSet::new(),
    };
    let there: BTreeSet<Spot> = links(txn.store(), fid)?.into_iter().collect();
    for spot in there.difference(&names) {
        txn.change(Mutation::RemoveLink(fid, *spot));
    }
    for spot in names.difference(&there) {
        txn.change(Mutation::PutLink(fid, *spot));
    }
    Ok(())
}

fn links(store: &Store, fid: Fid) -> Result<Vec<Spot>> {
    let mut found = Vec::new();
    let range = KeyRange::prefix(&keys::fid(fid));
    store.scan(Table::Links, &range, |key, _: Bytes| {
        let (_, spot) = keys::parse_link(key).ok_or_else(|| missing("spot of a link", fid))?;
        found.push(spot);
        Ok(std::ops::ControlFlow::Continue(()))
    })?;
    Ok(found)
}
