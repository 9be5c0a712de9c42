//! `glint fsck`

use std::path::PathBuf;
use std::sync::Arc;

use base::TargetKind;
use clap::Args;
use mds::fsck::Severity;
use mds::hash::NameHasher;
use mds::keys::{STATE, Table};
use mds::records::State;
use mds::store::{Failure, Store};
use serde::Serialize;
use storage::{KvOptions, Target, TargetDir};

use crate::output::{say, say_json};

/// Check the targets of a directory that is not being served. Nothing is changed but the count of
/// their starts.
///
/// The exit code is 1 if anything is wrong; warnings (space or counts, nothing a user would see) do
/// not count.
#[derive(Args)]
pub struct Fsck {
    /// The directory with targets.
    dir: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What was found in one target.
#[derive(Serialize)]
struct Checked {
    target: String,
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl Fsck {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let opened = TargetDir::open(&self.dir).map_err(|error| error.to_string())?;
        let checked: Vec<Checked> = opened.into_targets().iter().map(check).collect();
        let errors: usize = checked.iter().map(|target| target.errors.len()).sum();
        if self.json {
            say_json(&checked)?;
        } else {
            checked.iter().for_each(show);
        }
        match errors {
            0 => Ok(()),
            1 => Err(format!("one error in {}", self.dir.display())),
            many => Err(format!("{many} errors in {}", self.dir.display())),
        }
    }
}

fn show(checked: &Checked) {
    let Checked {
        target,
        errors,
        warnings,
    } = checked;
    for line in errors.iter().chain(warnings) {
        say(format!("{target}: {line}"));
    }
    say(format!(
        "{target}: {} errors, {} warnings",
        errors.len(),
        warnings.len()
    ));
}

fn check(target: &Target) -> Checked {
    let name = target.superblock().target;
    let mut checked = Checked {
        target: name.to_string(),
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let result = match name.kind {
        TargetKind::Mgs => check_mgs(target),
        TargetKind::Mdt => check_mdt(target, &mut checked),
        TargetKind::Ost => check_ost(target, &mut checked),
    };
    // The target can't be read as a whole.
    checked.errors.extend(result.err());
    checked
}

fn options(target: &Target) -> KvOptions {
    KvOptions::new(target.superblock().target.to_string())
}

fn check_mgs(target: &Target) -> Result<(), String> {
    let tables = [(crate::mgs::TABLE, "config")];
    let kv = target
        .kv(&tables, options(target))
        .map_err(|error| error.to_string())?;
    let superblock = target.superblock();
    let name = superblock.fs_name.as_str();
    crate::mgs::Mgs::open(kv, name, superblock.fs_uuid.0).map(drop)
}

fn check_mdt(target: &Target, checked: &mut Checked) -> Result<(), String> {
    let words = |failure: Failure| match failure {
        Failure::Refused(error) => error.to_string(),
        Failure::Broken(error) => error.to_string(),
    };
    let kv = target
        .kv(&mds::tables(), options(target))
        .map_err(|error| error.to_string())?;
    let store = Store::new(Arc::new(kv));
    let state: Option<State> = store.get(Table::State, STATE).map_err(words)?;
    let state = state.ok_or("its state record is missing")?;
    let issues = mds::fsck::check(&store, NameHasher::new(state.hash_key)).map_err(words)?;
    for issue in issues {
        match issue.severity {
            Severity::Error => checked.errors.push(issue.to_string()),
            Severity::Warning => checked.warnings.push(issue.to_string()),
        }
    }
    Ok(())
}

fn check_ost(target: &Target, checked: &mut Checked) -> Result<(), String> {
    let words = |error: storage::StorageError| error.to_string();
    let kv = target
        .kv(&oss::records::TABLES, options(target))
        .map_err(words)?;
    let store = target.objects().map_err(words)?;
    let report = oss::fsck::check(&store, &kv).map_err(words)?;
    checked
        .errors
        .extend(report.findings.iter().map(ToString::to_string));
    Ok(())
}
