//! `glint stats`

use std::path::PathBuf;
use std::time::Duration;

use base::Fid;
use clap::Args;

use crate::control::{Answer, Question, ask};
use crate::output::{is_heard, say, say_json};

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
    /// Walks instead: what was fetched ahead for each that goes on or did half a minute ago, and
    /// what of it was used.
    #[arg(long, conflicts_with = "clear")]
    walks: bool,
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
            match self.walks {
                true => self.print_walks()?,
                false => self.print_counters()?,
            }
            if !self.watch || !is_heard() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn print_counters(&self) -> Result<(), String> {
        let Answer::Stats(stats) = ask(&self.point, &Question::Stats)? else {
            return Err("the mount answered something else".to_owned());
        };
        let value = serde_json::to_value(&*stats).map_err(|error| error.to_string())?;
        match self.json {
            true => return say_json(&value),
            false => print_table(&value),
        }
        Ok(())
    }

    fn print_walks(&self) -> Result<(), String> {
        let Answer::Walks(walks) = ask(&self.point, &Question::Walks)? else {
            return Err("the mount answered something else".to_owned());
        };
        let mut rows = Vec::new();
        for walk in walks {
            let mut row = serde_json::to_value(&walk).map_err(|error| error.to_string())?;
            row["dir"] = self.path_of(walk.dir).into();
            rows.push(row);
        }
        match self.json {
            true => return say_json(&rows),
            false => print_rows(&rows),
        }
        Ok(())
    }

    /// Where the directory is; its FID where that cannot be found out.
    fn path_of(&self, dir: Fid) -> String {
        match ask(&self.point, &Question::PathOf { fid: dir.0 }) {
            Ok(Answer::Path(path)) => format!("/{}", String::from_utf8_lossy(&path)),
            _ => dir.to_string(),
        }
    }
}

/// The columns of a walk, in order, by the names that JSON has for them.
const COLUMNS: [&str; 9] = [
    "pattern",
    "requests",
    "fetched",
    "used",
    "missed",
    "window",
    "bytes",
    "bytes_unused",
    "dir",
];

fn print_rows(rows: &[serde_json::Value]) {
    let line = |cells: [String; 9]| {
        let [pattern, numbers @ .., dir] = cells;
        let numbers: String = numbers.iter().map(|cell| format!("{cell:>13}")).collect();
        say(format!("{pattern:<9}{numbers}  {dir}"));
    };
    line(COLUMNS.map(str::to_owned));
    for row in rows {
        let mut cells = COLUMNS.map(|column| match &row[column] {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        if row["ended"] == true {
            cells[8] += " (ended: guesses were wrong)";
        }
        line(cells);
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
