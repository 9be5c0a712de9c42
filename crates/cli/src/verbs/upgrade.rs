//! `glint upgrade`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base::TargetKind;
use clap::Args;
use oss::upgrade::{Outcome, Step};
use storage::upgrade::Event;
use storage::{Target, TargetDir};

use crate::output::{complain, say};

/// How often a person is told how far it is.
const TOLD: Duration = Duration::from_secs(5);

/// Move the objects of targets from files to extents, as targets are made today.
///
/// For directories that are not being served. Objects move one by one, and the file of each is removed when
/// its bytes are durable: the file system needs room for the largest object. What is interrupted, also by
/// kill -9 or a power cut, goes on with the next call. Until it is done the target is not served, and
/// versions of glint before this one refuse it.
#[derive(Args)]
pub struct Upgrade {
    /// The directory with targets.
    dir: PathBuf,
}

impl Upgrade {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let opened = TargetDir::open_to_upgrade(&self.dir)
            .map_err(|error| error.where_one_was_looked_for().to_string())?;
        let mut left = Vec::new();
        for mut target in opened.into_targets() {
            left.extend(self.upgrade(&mut target)?);
        }
        match left.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "{}: the system cannot read {}; mend the disk and run glint upgrade again, or remove these \
                 files, whose bytes are damaged ones from then on",
                self.dir.display(),
                left.join(", ")
            )),
        }
    }

    /// Upgrades one target. The objects that are left.
    fn upgrade(&self, target: &mut Target) -> Result<Vec<String>, String> {
        let name = target.superblock().target;
        let mut progress = Progress::default();
        let done =
            oss::upgrade::upgrade(target, &mut |step| progress.hear(&name.to_string(), step));
        let dir = self.dir.display();
        match done.map_err(|error| format!("{name} in {dir}: {error}"))? {
            Outcome::WasDone if name.kind == TargetKind::Ost => {
                say(format!(
                    "{name} in {dir} has its objects on extents already"
                ));
            }
            Outcome::WasDone => {}
            Outcome::Left => say(format!("{name} in {dir} is not done")),
            Outcome::Done => say(format!(
                "{name} in {dir} upgraded: {} objects moved to extents",
                progress.moved
            )),
        }
        Ok(progress.left)
    }
}

/// How far the objects of a target have moved.
#[derive(Default)]
struct Progress {
    objects: usize,
    bytes: u64,
    moved: usize,
    moved_bytes: u64,
    last_told: Option<Instant>,
    left: Vec<String>,
}

impl Progress {
    fn hear(&mut self, name: &str, step: Step<'_>) {
        match step {
            Step::Begins(survey) => {
                self.objects = survey.objects.len() + survey.lost.len();
                self.bytes = survey.bytes;
                let (objects, mebibytes) = (self.objects, self.bytes >> 20);
                say(format!(
                    "{name}: {objects} objects to move, {mebibytes} MiB"
                ));
                self.last_told = Some(Instant::now());
            }
            Step::Moves(Event::Moved { objects, bytes }) => {
                self.moved += objects;
                self.moved_bytes += bytes;
                if self.last_told.is_none_or(|last| last.elapsed() > TOLD) {
                    let (moved, all) = (self.moved_bytes >> 20, self.bytes >> 20);
                    say(format!(
                        "{name}: {} of {} objects moved, {moved} of {all} MiB",
                        self.moved, self.objects
                    ));
                    self.last_told = Some(Instant::now());
                }
            }
            Step::Moves(Event::Damaged(id, range)) => complain(format!(
                "{name}: object {id} is damaged: bytes {} to {} are not what was written; \
                 reads of them fail as before, restore the file from a copy",
                range.start, range.end
            )),
            Step::Moves(Event::Unread(id, error)) => {
                complain(format!("{name}: object {id} stays a file: {error}"));
                self.left.push(id.to_string());
            }
        }
    }
}
