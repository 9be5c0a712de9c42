//! `glint fsck`

mod checked;
mod history;
mod of_mdt;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Clock, SystemClock, TargetIndex, TargetKind, Timestamp};
use clap::Args;
use mds::fsck::{Issue, Repaired, Severity};
use mds::keys::{STATE, Table};
use mds::records::State;
use mds::store::Store;
use oss::fsck::Whose;
use storage::extents::{ExtentObjects, Options};
use storage::{Disk, Kv, KvOptions, ObjectStore, StorageError, TableId, Target, TargetDir};
use wire::hash::NameHasher;

use self::checked::Checked;
use self::of_mdt::{Mdt, WrongSize, words};
use crate::directories::refuse_twice;
use crate::output::{say, say_json};
use crate::unreadable::unreadable;

/// What a person can do about damage.
const RESTORE: &str = "nothing else was changed in this target; restore it from a copy";

/// Check the targets of directories that are not being served, and mend them with --repair.
///
/// Without --repair nothing is changed but the count of their starts, and nothing at all on a read-only file
/// system. With it, counts and places are made
/// anew, names without a file go, and files without a name are put into /lost+found. Bytes are removed only
/// where no file has them and the client that could have made one is gone for good; that needs the MDT and
/// the OSTs in one call.
///
/// The exit code is 1 if anything is wrong that was not mended; warnings (space or counts, nothing
/// a user would see) do not count.
#[derive(Args)]
pub struct Fsck {
    /// The directories with targets.
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// Mend what is found.
    #[arg(long)]
    repair: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

impl Fsck {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        refuse_twice(&self.dirs)?;
        let mut targets = Vec::new();
        for dir in &self.dirs {
            let opened = match self.repair {
                true => TargetDir::open(dir),
                false => TargetDir::open_to_look_at(dir),
            };
            let opened = opened.map_err(|error| error.where_one_was_looked_for().to_string())?;
            targets.extend(opened.into_targets());
        }
        one_file_system(&targets)?;
        let checked = Checker::new(self.repair).check_all(&targets);
        let errors: usize = checked.iter().map(|target| target.errors.len()).sum();
        if self.json {
            say_json(&checked)?;
        } else {
            checked.iter().for_each(|checked| self.show(checked));
        }
        let dirs: Vec<String> = self.dirs.iter().map(|d| d.display().to_string()).collect();
        let left = if self.repair { " left" } else { "" };
        match errors {
            0 => Ok(()),
            1 => Err(format!("one error{left} in {}", dirs.join(", "))),
            many => Err(format!("{many} errors{left} in {}", dirs.join(", "))),
        }
    }

    fn show(&self, checked: &Checked) {
        let Checked {
            target,
            mended,
            errors,
            warnings,
        } = checked;
        for line in mended.iter().chain(errors).chain(warnings) {
            say(format!("{target}: {line}"));
        }
        let (errors, warnings) = (errors.len(), warnings.len());
        say(match self.repair {
            true => format!("{target}: {} mended, {} left", mended.len(), checked.left()),
            false => format!("{target}: {errors} errors, {warnings} warnings"),
        });
    }
}

/// Whose objects are is asked across targets: those of another file system have other FIDs.
fn one_file_system(targets: &[Target]) -> Result<(), String> {
    let mut uuids = targets.iter().map(|target| target.superblock().fs_uuid);
    let first = uuids.next();
    match uuids.all(|uuid| Some(uuid) == first) {
        true => Ok(()),
        false => Err("the directories are of different file systems; check each by itself".into()),
    }
}

struct Checker {
    repair: bool,
    /// Those that are looked at.
    osts: BTreeSet<TargetIndex>,
    now: Timestamp,
    /// Once it was checked, and could be read.
    mdt: Option<Mdt>,
}

impl Checker {
    fn new(repair: bool) -> Checker {
        Checker {
            repair,
            osts: BTreeSet::new(),
            now: SystemClock::default().now(),
            mdt: None,
        }
    }

    /// The OSTs last: what is there is asked of the MDT.
    fn check_all(&mut self, targets: &[Target]) -> Vec<Checked> {
        let is_ost = |target: &&Target| target.superblock().target.kind == TargetKind::Ost;
        let (osts, others): (Vec<_>, Vec<_>) = targets.iter().partition(is_ost);
        let indexes = osts.iter().map(|ost| ost.superblock().target.index);
        self.osts = indexes.collect();
        let in_order = others.into_iter().chain(osts);
        in_order.map(|target| self.check(target)).collect()
    }

    fn check(&mut self, target: &Target) -> Checked {
        let name = target.superblock().target;
        let mut checked = Checked {
            target: name.to_string(),
            mended: Vec::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        };
        let result = match name.kind {
            TargetKind::Mgs => self.check_mgs(target),
            TargetKind::Mdt => self.check_mdt(target, &mut checked),
            TargetKind::Ost => self.check_ost(target, &mut checked),
        };
        if let Err(cause) = result {
            tell_unreadable(target, cause, &mut checked);
        }
        checked
    }

    /// The records of a target; without a repair none of them is written.
    fn kv(&self, target: &Target, tables: &[(TableId, &str)]) -> Result<Kv, String> {
        let opened = match self.repair {
            true => target.kv(tables, options(target)),
            false => target.kv_to_look_at(tables, options(target)),
        };
        opened.map_err(|error| error.to_string())
    }

    fn check_mgs(&self, target: &Target) -> Result<(), String> {
        let kv = self.kv(target, &[(crate::mgs::TABLE, "config")])?;
        let superblock = target.superblock();
        let name = superblock.fs_name.as_str();
        crate::mgs::Mgs::open(kv, name, superblock.fs_uuid.0).map(drop)
    }

    fn check_mdt(&mut self, target: &Target, checked: &mut Checked) -> Result<(), String> {
        let kv = self.kv(target, &mds::tables())?;
        let store = Store::new(Arc::new(kv));
        let state: Option<State> = store.get(Table::State, STATE).map_err(words)?;
        let state = state.ok_or("its state record is missing")?;
        let hasher = NameHasher::new(state.hash_key);
        let boot_epoch = target.superblock().boot_epoch;
        let done = match self.repair {
            true => mds::fsck::repair(&store, hasher, boot_epoch, self.now),
            false => mds::fsck::check(&store, hasher).map(|left| Repaired {
                mended: Vec::new(),
                left,
            }),
        };
        let Repaired { mended, left } = done.map_err(words)?;
        let was_sound = mended.is_empty() && left.is_empty();
        checked.mended = mended.iter().map(Issue::told_as_mended).collect();
        for issue in left {
            checked.tell_left(issue.severity == Severity::Warning, issue.to_string());
        }
        let mdt = Mdt {
            store,
            was_sound,
            last: state.transno,
        };
        mdt.tell_unchecked(&self.osts, checked)?;
        self.mdt = Some(mdt);
        Ok(())
    }

    fn check_ost(&self, target: &Target, checked: &mut Checked) -> Result<(), String> {
        let kv = self.kv(target, &oss::records::TABLES).map(Arc::new);
        let store = self.objects(target, kv.as_ref())?;
        let store = &*store;
        let examined = kv.and_then(|kv| self.check_objects(target, (store, kv), checked));
        // Also where records cannot be read: the bytes are beside them.
        if let Some(mdt) = &self.mdt {
            let index = target.superblock().target.index;
            let wrong = mdt.wrong_sizes(index, store)?;
            let told = examined.as_ref().ok();
            for wrong in wrong {
                if !told.is_some_and(|examined| examined.damaged.contains(&wrong.object)) {
                    self.tell_wrong_size(mdt, &wrong, told, checked)?;
                }
            }
        }
        examined.map(drop)
    }

    /// The bytes of the objects of an OST. Without its records nothing is known of extents.
    fn objects(
        &self,
        target: &Target,
        kv: Result<&Arc<Kv>, &String>,
    ) -> Result<Box<dyn ObjectStore>, String> {
        let words = |error: StorageError| error.to_string();
        if !target.has_extents() {
            return Ok(Box::new(target.objects().map_err(words)?));
        }
        let disk: Arc<dyn Disk> = match self.repair {
            true => Arc::new(target.extents().map_err(words)?),
            false => Arc::new(target.extents_to_look_at().map_err(words)?),
        };
        let (kv, tables) = (kv.map_err(String::clone)?.clone(), oss::records::EXTENTS);
        let store = ExtentObjects::open(disk, kv, tables, Options::default());
        Ok(Box::new(store.map_err(words)?))
    }

    /// Tells of a file whose object has another size. Where nothing is lost of the object, as the OST's
    /// records say, a client changed it without an open, and a repair makes the file as long as the object.
    fn tell_wrong_size(
        &self,
        mdt: &Mdt,
        wrong: &WrongSize,
        examined: Option<&Examined>,
        checked: &mut Checked,
    ) -> Result<(), String> {
        let recorded = examined.map(|examined| match examined.has_extents {
            // The store has it from the records.
            true => Ok(wrong.found),
            false => oss::fsck::recorded_size(&examined.kv, wrong.object)
                .map_err(|error| error.to_string()),
        });
        let recorded = recorded.transpose()?.flatten();
        let is_newest = examined.is_some_and(|examined| examined.is_newest);
        if recorded.is_none() || recorded != wrong.found {
            checked
                .errors
                .push(format!("{wrong}; restore it from a copy"));
        } else if self.repair && is_newest {
            mds::fsck::ask_size(&mdt.store, wrong.object.fid).map_err(words)?;
            checked
                .mended
                .push(format!("mended: {wrong}; it is as long as these"));
        } else {
            let line = format!("{wrong}; --repair makes it as long as these");
            checked.errors.push(line);
        }
        Ok(())
    }

    /// What is wrong with the objects, all told of.
    fn check_objects(
        &self,
        target: &Target,
        (store, kv): (&dyn ObjectStore, Arc<Kv>),
        checked: &mut Checked,
    ) -> Result<Examined, String> {
        let words = |error: storage::StorageError| error.to_string();
        let ost = target.superblock().target.index;
        let newest = self
            .mdt
            .as_ref()
            .map(|mdt| history::check(mdt, (ost, store, &kv), self.repair, checked));
        let newest = newest.transpose()?;
        let knows_all = newest.is_some_and(|newest| newest.mdt);
        let mut whose = |object| match &self.mdt {
            None => Whose::Unasked,
            Some(mdt) => match mdt.whose(ost, object) {
                Whose::Nobodys if !knows_all => Whose::InDoubt,
                whose => whose,
            },
        };
        let done = match self.repair {
            true => oss::fsck::repair(store, &kv, &mut whose, self.now),
            false => oss::fsck::check(store, &kv, &mut whose).map(|left| oss::fsck::Repaired {
                mended: Vec::new(),
                left,
            }),
        };
        let oss::fsck::Repaired { mended, left } = done.map_err(words)?;
        let told = mended.iter().map(|finding| match finding.is_leak() {
            true => format!("mended: {finding}; they are free"),
            false => format!("mended: {finding}; removed"),
        });
        checked.mended.extend(told);
        let mut damaged = BTreeSet::new();
        for finding in left.findings {
            checked.tell_left(finding.is_warning(), finding.to_string());
            damaged.extend(finding.damaged());
        }
        let is_newest = newest.is_some_and(|newest| newest.mdt && newest.ost);
        Ok(Examined {
            damaged,
            kv,
            has_extents: target.has_extents(),
            is_newest,
        })
    }
}

/// An OST whose records can be read.
struct Examined {
    /// Objects of which bytes are damaged.
    damaged: BTreeSet<oss::fsck::ObjectId>,
    kv: Arc<Kv>,
    /// The records say where the bytes of objects are, and how many there are.
    has_extents: bool,
    /// Neither it nor the MDT was an older copy, until this call made do with it.
    is_newest: bool,
}

/// The target can't be read as a whole, for this `cause`: which of its records are damaged, as far
/// as that can be found out.
fn tell_unreadable(target: &Target, cause: String, checked: &mut Checked) {
    let mut lines = match unreadable(target) {
        // Nothing is wrong with it: another program reads it.
        Err(foreign @ StorageError::ForeignVersion { .. }) => {
            return checked.errors.push(foreign.to_string());
        }
        lines => lines.unwrap_or_default(),
    };
    if lines.is_empty() {
        lines.push(cause);
    }
    if let Some(last) = lines.last_mut() {
        *last = format!("{last}; {RESTORE}");
    }
    checked.errors.extend(lines);
}

fn options(target: &Target) -> KvOptions {
    KvOptions::new(target.superblock().target.to_string())
}
