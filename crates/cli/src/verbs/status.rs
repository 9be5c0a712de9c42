//! `glint status`

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use storage::{State, TargetDir};

use crate::control::{self, Answer, Endpoint, Question, ServerStatus, TargetStatus, ask_all};
use crate::output::{complain, say, say_json, shown};

/// The state of the mounts of this machine, of the targets they use, and of its servers. After a restart it
/// shows which clients a target waits for and for how long, which are back, and which were evicted.
#[derive(Args)]
pub struct Status {
    /// One mount, or the server of a directory; all mounts of this machine and all servers of this
    /// user if not given.
    #[arg(value_name = "MNT|DIR")]
    point: Option<PathBuf>,
    /// Show the names of evicted clients, not only their number.
    #[arg(long)]
    given_up: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// A mount or a server.
#[derive(Serialize)]
#[serde(untagged)]
enum Seen {
    Mount {
        #[serde(serialize_with = "control::path::serialize")]
        point: PathBuf,
        #[serde(flatten)]
        status: control::Status,
    },
    Server {
        #[serde(serialize_with = "control::path::serialize")]
        server: PathBuf,
        #[serde(flatten)]
        status: ServerStatus,
    },
}

impl Status {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let endpoints = match &self.point {
            Some(point) => vec![named(point)?],
            None => Endpoint::all()?,
        };
        let (mut seen, mut silent, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (endpoint, answer) in endpoints.iter().zip(ask_all(&endpoints, &Question::Status)) {
            let at = endpoint.at.clone();
            match answer {
                Ok(Answer::Status(status)) => seen.push(Seen::Mount { point: at, status }),
                Ok(Answer::Serving(status)) => seen.push(Seen::Server { server: at, status }),
                Ok(_) => silent.push(format!("{} answered something else", endpoint.name)),
                // Named, it is an answer to what was asked; one of all it is none of this user's.
                Err(reason) if endpoint.is_of_others() && self.point.is_none() => {
                    others.push(reason);
                }
                Err(reason) => silent.push(reason),
            }
        }
        if self.json {
            say_json(&seen)?;
        } else {
            seen.iter().for_each(|one| show(one, self.given_up));
            others.iter().for_each(say);
            if endpoints.is_empty() {
                say("there is no Glint mount and no server on this machine");
            }
        }
        if seen.is_empty() && !silent.is_empty() {
            return Err(silent.join("; "));
        }
        // The others have answered for themselves.
        for reason in silent {
            complain(reason);
        }
        Ok(())
    }
}

/// The mount, or the server of the directory, at `point`.
fn named(point: &Path) -> Result<Endpoint, String> {
    Endpoint::of_mount(point).or_else(|no_mount| match TargetDir::inspect(point) {
        Ok(State::Targets { .. }) => Endpoint::of_dir(point),
        _ => Err(no_mount),
    })
}

fn show(seen: &Seen, names_given_up: bool) {
    match seen {
        Seen::Mount { point, status } => show_mount(point, status, names_given_up),
        Seen::Server { server, status } => {
            let ServerStatus { fsname, pid, .. } = status;
            let server = shown(&server.to_string_lossy());
            say(format!("{server}: {fsname}, server, pid {pid}"));
            let targets = status.targets.iter();
            targets.for_each(|target| show_target(target, names_given_up));
        }
    }
}

fn show_mount(point: &Path, status: &control::Status, names_given_up: bool) {
    let control::Status {
        fsname,
        pid,
        uuid,
        serves,
        targets,
        sizes,
        parked,
        replaced,
        forsaken,
        ..
    } = status;
    let point = shown(&point.to_string_lossy());
    say(format!(
        "{point}: {fsname}, served by pid {pid}, client {uuid}"
    ));
    match replaced {
        Some(0) => say("  supervised: another process goes on if this one is killed"),
        Some(times) => say(format!("  supervised: replaced {times} times")),
        None if *forsaken => {
            say(
                "  no longer supervised, as its supervisor has ended: unmount and mount it to change that",
            );
        }
        None => {}
    }
    for (target, state) in targets {
        // It may have words of a peer's in it.
        say(format!("  {target}: {}", shown(state)));
    }
    let [files, open, directories, locks] = sizes;
    say(format!(
        "  {files} files known, {open} open, {directories} directories open, {locks} locks, \
         {parked} calls under way"
    ));
    let served = serves.iter().flat_map(|serves| &serves.targets);
    served.for_each(|target| show_target(target, names_given_up));
}

fn show_target(status: &TargetStatus, names_given_up: bool) {
    let TargetStatus {
        target,
        seconds_left,
        clients,
        back,
        awaited,
        given_up,
        replayed,
        stopped,
        ..
    } = status;
    let state = match (stopped, seconds_left) {
        (Some(reason), _) => format!("stopped: {reason}"),
        (None, Some(left)) => format!("recovering, {left} s left"),
        (None, None) => "serving".to_owned(),
    };
    let replayed = replayed.filter(|count| *count > 0);
    let replayed = replayed.map_or(String::new(), |count| {
        format!(", {count} requests done again")
    });
    say(format!("  {target}: {state}, {clients} clients{replayed}"));
    // They are remembered for as long as they may come back, and may be many.
    let named_given_up = match names_given_up {
        true => given_up.as_slice(),
        false => &[],
    };
    for (what, who) in [
        ("back", back.as_slice()),
        ("waited for", awaited.as_slice()),
        ("given up", named_given_up),
    ] {
        for client in who {
            say(format!("    {what}: {client}"));
        }
    }
    if !names_given_up && !given_up.is_empty() {
        let count = given_up.len();
        say(format!("    given up: {count} (--given-up names them)"));
    }
}
