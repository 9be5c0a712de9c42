//! The upgrade of an OST that is not served, from files to extents. docs/disk.md, "From files to extents", is
//! the normative text.

use std::sync::Arc;

use storage::extents::{ExtentObjects, Options};
use storage::upgrade::{Event, FilesToMove, Listener, Pieces, Survey};
use storage::{Kv, KvOptions, ObjectId, ObjectStore, Stage, StorageError, Target, TargetError};

use crate::objects::finish_removals;
use crate::records::{EXTENTS, SEALS, TABLES, TOMBSTONES, object_key};

/// Bytes that must be free besides the space of the largest object: for what moves with it, and for records.
const ROOM_BYTES: u64 = 48 << 20;

/// What there is to say during an upgrade.
#[derive(Debug)]
pub enum Step<'a> {
    /// These objects will move.
    Begins(&'a Survey),
    /// What happens to them.
    Moves(Event<'a>),
}

/// How an upgrade ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There was nothing to do.
    WasDone,
    /// All objects are on extents.
    Done,
    /// Files are left that cannot be read. The target is not served before they are gone, or were moved.
    Left,
}

/// Moves the objects of a target to extents, or goes on with that.
pub fn upgrade(
    target: &mut Target,
    told: &mut dyn FnMut(Step<'_>),
) -> Result<Outcome, TargetError> {
    let stage = target.stage();
    let is_all = match stage {
        Stage::Done => return Ok(Outcome::WasDone),
        Stage::Moved => true,
        Stage::Files | Stage::Moving => move_objects(target, stage, told)?,
    };
    if !is_all {
        return Ok(Outcome::Left);
    }
    target.end_moving()?;
    Ok(Outcome::Done)
}

/// False: some of them are left.
fn move_objects(
    target: &mut Target,
    stage: Stage,
    told: &mut dyn FnMut(Step<'_>),
) -> Result<bool, TargetError> {
    let name = target.superblock().target.to_string();
    let kv = Arc::new(target.kv(&TABLES, KvOptions::new(name))?);
    let files = Arc::new(target.objects()?);
    if let Some(path) = files.first_foreign()? {
        return Err(TargetError::NoObject { path });
    }
    let objects = FilesToMove::new(files, kv.clone(), SEALS, Pieces::default());
    if stage == Stage::Files {
        finish_removals(objects.sealed(), &kv)?;
        let survey = objects.survey(&|id| is_removed(&kv, id))?;
        begin(target, &survey)?;
    }
    target.begin_moving()?;
    let disk = Arc::new(target.extents()?);
    let extents = ExtentObjects::open(disk, kv.clone(), EXTENTS, Options::default())?;
    // The files that go leave more than this takes.
    extents.take_last_bytes();
    let survey = objects.survey(&|id| Ok(is_removed(&kv, id)? || extents.stat(id)?.is_some()))?;
    told(Step::Begins(&survey));
    let hears: Listener<'_> = &mut |event| told(Step::Moves(event));
    Ok(objects.move_to(&extents, survey, hears)?)
}

/// Makes the extents, and sees to it that the largest object has room. Else nothing has changed.
fn begin(target: &Target, survey: &Survey) -> Result<(), TargetError> {
    target.make_extents()?;
    let room = target.check_room(survey.largest_bytes.saturating_add(ROOM_BYTES));
    if room.is_err() {
        target.remove_made_extents()?;
    }
    room
}

/// The object was removed for good. Its sums may be there.
fn is_removed(kv: &Kv, id: ObjectId) -> Result<bool, StorageError> {
    let id = layout::ObjectId {
        fid: id.fid,
        stripe: id.stripe,
    };
    Ok(kv.get(TOMBSTONES, &object_key(id))?.is_some())
}
