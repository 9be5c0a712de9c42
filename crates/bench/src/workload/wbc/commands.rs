//! Command-line programs on a source tree that the mount has unpacked itself.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use super::contest::{Contest, requests, table, take_synced};
use crate::error::{BenchError, During, Result};
use crate::report::{Cell, Column, Section};
use crate::tree::{ABSENT_WORD, SourceTree};
use crate::workload::effort::Effort;
use crate::workload::measured::Measurement;
use crate::workload::quiet::quiet;
use crate::workload::system::Cold;

/// The talk's table, with what else makes and removes trees.
#[derive(Debug, Clone)]
pub struct Commands {
    /// The tree.
    pub tree: SourceTree,
    /// For each row.
    pub effort: Effort,
}

/// Its rows, in the order in which they are done.
const UNTAR: &str = "tar -x, sync";
const FIND: &str = "find -uid 0";
const DU: &str = "du -s";
const LIST: &str = "ls -lRU";
const GREP: &str = "grep -r";
const GREP_AGAIN: &str = "grep -r, again";
const COPY: &str = "cp -rf, sync";
const LINK: &str = "cp -al, sync";
const RSYNC: &str = "rsync -a --link-dest, sync";
const REMOVE: &str = "rm -r, sync";
const STEPS: [&str; 10] = [
    UNTAR, FIND, DU, LIST, GREP, GREP_AGAIN, COPY, LINK, RSYNC, REMOVE,
];

/// tar that unpacks `tar` in `directory`.
pub(super) fn untar(tar: &Path, directory: &Path) -> Result<Command> {
    let file = File::open(tar).during(|| format!("reading {}", tar.display()))?;
    let mut command = quiet("tar");
    command.args(["-x", "-f", "-", "-C"]).arg(directory);
    command.stdin(Stdio::from(file));
    Ok(command)
}

/// A program with its arguments and then these paths.
pub(super) fn program(name: &str, arguments: &[&str], paths: &[&Path]) -> Command {
    let mut command = quiet(name);
    command.args(arguments).args(paths);
    command
}

impl Contest for Commands {
    fn name(&self) -> &'static str {
        "commands"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, measurement: &mut Measurement<'_, '_>, directory: &Path) -> Result<()> {
        let tree = directory.join(&self.tree.top);
        let place = |name: &str| directory.join(name);
        let (copy, links, mirror) = (place("copy"), place("links"), place("mirror"));
        let mut untar = untar(&self.tree.tar, directory)?;
        if !take_synced(measurement, UNTAR, &mut untar)? {
            return skip_rest(measurement);
        }
        // grep finds nothing, which it says with 1.
        let walks = [
            (
                FIND,
                program("find", &[], &[&tree]),
                ["-uid", "0"].as_slice(),
                0,
            ),
            (DU, program("du", &["-s"], &[&tree]), &[], 0),
            (LIST, program("ls", &["-lRU"], &[&tree]), &[], 0),
            (
                GREP,
                program("grep", &["-r", ABSENT_WORD], &[&tree]),
                &[],
                1,
            ),
            (
                GREP_AGAIN,
                program("grep", &["-r", ABSENT_WORD], &[&tree]),
                &[],
                1,
            ),
        ];
        for (step, mut command, more, code) in walks {
            let sample = measurement.command(step, command.args(more), &[code], &|| None)?;
            if let Some(sample) = sample {
                measurement.keep(step, sample);
            }
        }
        take_synced(
            measurement,
            COPY,
            &mut program("cp", &["-rf"], &[&tree, &copy]),
        )?;
        take_synced(
            measurement,
            LINK,
            &mut program("cp", &["-al"], &[&tree, &links]),
        )?;
        let mut rsync = quiet("rsync");
        rsync.arg("-a").arg("--link-dest").arg(&tree);
        rsync.arg(tree.join("")).arg(mirror.join(""));
        take_synced(measurement, RSYNC, &mut rsync)?;
        // A tree with names elsewhere, too, goes without its bytes: the copy has none.
        match measurement.system.make_cold() {
            // What is in memory alone has no cold state.
            Ok(Cold::Done | Cold::Impossible(_)) => {
                take_synced(measurement, REMOVE, &mut program("rm", &["-r"], &[&copy]))?;
            }
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => measurement.column.skip(REMOVE, error.to_string()),
        }
        Ok(())
    }

    fn section(&self, runs: Vec<Column>) -> Section {
        let count = &self.tree.count;
        let steps = STEPS.map(str::to_owned);
        Section {
bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "{}: {} entries in {} directories, {} MB",
                self.tree.origin,
                count.entries(),
                count.directories,
                count.bytes / 1_000_000
            ),
            tables: vec![
                table("Seconds", "s", &steps, &runs, Cell::seconds),
                table("Request frames", "", &steps, &runs, requests),
            ],
            figures: Vec::new(),
            notes: vec![
                "find, du, ls and grep follow the mount's own tar -x, with whatever it remembers; rm \
                 -r is of the copy, after a new mount where there can be one"
                    .to_owned(),
            ],
            runs,
        }
    }
}

/// The other rows need the tree.
fn skip_rest(measurement: &mut Measurement) -> Result<()> {
    for step in &STEPS[1..] {
        measurement
            .column
            .skip(step, "there was no tree".to_owned());
    }
    Ok(())
}
