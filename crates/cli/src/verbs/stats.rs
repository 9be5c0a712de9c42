//! `glint stats`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::control::{Answer, Question, ask};
use crate::output::say;

/// Counters of a mount: operations, requests sent by kind and in all, cache and prefetch hits.
#[derive(Args)]
pub struct Stats {
    /// Where it is mounted.
    point: PathBuf,
    /// Again each second, until interrupted.
    #[arg(long)]
    watch: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
    /// Set all counters but rpcs_sent to zero.
    #[arg(long)]
    clear: bool,
}

impl Stats {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        if self.clear {
            return ask(&self.point, &Question::Clear).map(|_| ());
        }
        loop {
            let Answer::Stats(stats) = ask(&self.point, &Question::Stats)? else {
                return Err("the mount answered something else".to_owned());
            };
            let value = serde_json::to_value(&*stats).map_err(|error| error.to_string())?;
            match self.json {
                true => say(&value),
                false => print_table(&value),
            }
            if !self.watch {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

fn print_table(value: &serde_json::Value) {
    let Some(fields) = value.as_object() else {
        return;
    };
    for (name, value) in fields {
        match value.as_object() {
            Some(kinds) => {
                for (kind, count) in kinds {
                    say(format!("{:<28} {count:>14}", format!("{name}.{kind}")));
                }
            }
            None => say(format!("{name:<28} {value:>14}")),
        }
    }
}
