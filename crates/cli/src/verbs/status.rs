//! `glint status`

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::control::{self, Answer, Question, ask, mount_points};
use crate::output::{say, say_json};

/// How things stand with the mounts of this machine and the targets they use.
#[derive(Args)]
pub struct Status {
    /// One mount; all of this machine if not given.
    point: Option<PathBuf>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// One mount, or why it does not say.
#[derive(Serialize)]
struct Mount {
    point: PathBuf,
    #[serde(flatten)]
    status: Option<control::Status>,
    trouble: Option<String>,
}

impl Status {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let points = match &self.point {
            Some(point) => vec![point.clone()],
            None => mount_points()?,
        };
        let mounts: Vec<Mount> = points.iter().map(|point| look_at(point)).collect();
        if self.json {
            say_json(&mounts)?;
        } else {
            mounts.iter().for_each(show);
        }
        if mounts.is_empty() && !self.json {
            say("there is no Glint mount on this machine");
        }
        let silent = mounts.iter().find_map(|mount| mount.trouble.clone());
        silent.map_or(Ok(()), Err)
    }
}

fn look_at(point: &Path) -> Mount {
    let point = point.to_owned();
    match ask(&point, &Question::Status) {
        Ok(Answer::Status(status)) => Mount {
            point,
            status: Some(status),
            trouble: None,
        },
        Ok(_) => {
            let trouble = Some("the mount answered something else".to_owned());
            Mount {
                point,
                status: None,
                trouble,
            }
        }
        Err(trouble) => Mount {
            point,
            status: None,
            trouble: Some(trouble),
        },
    }
}

fn show(mount: &Mount) {
    let Some(status) = &mount.status else { return };
    let control::Status {
        fsname,
        pid,
        targets,
        sizes,
        parked,
        replaced,
    } = status;
    say(format!(
        "{}: {fsname}, served by pid {pid}",
        mount.point.display()
    ));
    match replaced {
        Some(0) => say("  supervised: another process goes on if this one is killed"),
        Some(times) => say(format!("  supervised: replaced {times} times")),
        None => {}
    }
    for (target, state) in targets {
        say(format!("  {target}: {state}"));
    }
    let [files, open, directories, locks] = sizes;
    say(format!(
        "  {files} files known, {open} open, {directories} directories open, {locks} locks, \
         {parked} calls under way"
    ));
}
