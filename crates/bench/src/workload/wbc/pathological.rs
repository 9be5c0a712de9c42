//! What a write-back cache is worst at: several mounts unpack a tree into one directory. There are several
//! copies of it, and each mount has its share of the files of each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::contest::{Contest, requests, synced, table};
use crate::error::{BenchError, During, Result};
use crate::process::Running;
use crate::report::{Cell, Column, Sample, Section};
use crate::tree::SourceTree;
use crate::workload::effort::Effort;
use crate::workload::measured::{Measurement, Turn};
use crate::workload::quiet::quiet;

/// The talk's parallel extraction.
#[derive(Debug, Clone)]
pub struct Pathological {
    /// The tree.
    pub tree: SourceTree,
    /// Copies of it.
    pub copies: u64,
    /// Mounts at work.
    pub mounts: usize,
    /// For each row.
    pub effort: Effort,
}

/// Its phases: directories first, then files, then times and modes, as dtar does.
const CREATE: &str = "create directories";
const EXTRACT: &str = "extract files";
const UPDATE: &str = "update attributes, sync";
const TURN: Duration = Duration::from_millis(20);

impl Pathological {
    fn phase(
        &self,
        measurement: &mut Measurement,
        step: &str,
        commands: Vec<Command>,
    ) -> Result<Option<Sample>> {
        let mut running = Vec::new();
        for mut command in commands {
            let command = command.stdin(Stdio::null()).stdout(Stdio::null());
            running.push(Running::start_group(command.stderr(Stdio::null()))?);
        }
        let mut failed = None;
        let sample = measurement.turns(step, &mut || {
            let mut at_work = Vec::new();
            for mut process in running.drain(..) {
                match process.ended_within(TURN)? {
                    true => failed = failed.or(Some(process.reap()?).filter(|end| !end.success())),
                    false => at_work.push(process),
                }
            }
            running = at_work;
            Ok(match running.is_empty() {
                true => Turn::Done,
                false => Turn::Again,
            })
        })?;
        if let Some(status) = failed {
            measurement
                .column
                .skip(step, format!("a program failed ({status})"));
            return Ok(None);
        }
        Ok(Some(sample))
    }

    /// A shell for each mount, with the mount's number, how many there are, and where its copies go.
    fn commands(&self, places: &[PathBuf], script: &str, lists: &Path) -> Vec<Command> {
        let shells = places.iter().enumerate().map(|(number, place)| {
            let mut shell = quiet("sh");
            shell.args(["-ec", script, "mount"]);
            shell.args([number, places.len()].map(|number| number.to_string()));
            shell.arg(self.copies.to_string());
            shell.arg(&self.tree.tar).arg(lists).current_dir(place);
            shell
        });
        shells.collect()
    }
}

/// Lists of the tar file's directories and files.
const LIST: &str = r#"tar -tf "$1" > "$2/all"; grep '/$' "$2/all" > "$2/directories"
grep -v '/$' "$2/all" > "$2/files""#;

const MAKE: &str = r#"
mount=$1 mounts=$2 copies=$3 lists=$5
for copy in $(seq "$copies"); do
    mkdir -p "$copy"
    awk -v mounts="$mounts" -v mount="$mount" 'NR % mounts == mount { print }' "$lists/directories" |
        (cd "$copy" && xargs mkdir -p)
done
"#;

const FILL: &str = r#"
mount=$1 mounts=$2 copies=$3 tar=$4 lists=$5
own=$lists/files.$mount
awk -v mounts="$mounts" -v mount="$mount" 'NR % mounts == mount { print }' "$lists/files" > "$own"
for copy in $(seq "$copies"); do
    tar -x -f "$tar" -C "$copy" --no-recursion -T "$own"
done
"#;

const STAMP: &str = r#"
mount=$1 mounts=$2 copies=$3 lists=$5
own=$lists/files.$mount
for copy in $(seq "$copies"); do
    (cd "$copy" && xargs touch -d @1 < "$own" && xargs chmod u=rw < "$own")
done
"#;

impl Contest for Pathological {
    fn name(&self) -> &'static str {
        "pathological"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, measurement: &mut Measurement<'_, '_>, directory: &Path) -> Result<()> {
        let name = measurement.system.name().to_owned();
        let below = directory.strip_prefix(measurement.system.root());
        let below = below.map_err(|_| BenchError::Invalid(format!("{name} is elsewhere")))?;
        let below = below.to_owned();
        let tunable = measurement.system.tunable().ok_or_else(|| {
            BenchError::unavailable(format!("{name} has one mount"), "measure Glint")
        })?;
        let roots = tunable.mounts(self.mounts)?;
        let places: Vec<PathBuf> = roots.iter().map(|root| root.join(&below)).collect();
        let lists = tempfile::tempdir().during(|| "making a temporary directory")?;
        let mut list = quiet("sh");
        list.args(["-c", LIST, "list"])
            .arg(&self.tree.tar)
            .arg(lists.path());
        crate::process::output(&mut list)?;
        fs::metadata(lists.path().join("files")).during(|| "listing the tar file")?;
        for (step, script) in [(CREATE, MAKE), (EXTRACT, FILL), (UPDATE, STAMP)] {
            let commands = self.commands(&places, script, lists.path());
            let Some(sample) = self.phase(measurement, step, commands)? else {
                return Ok(());
            };
            let sample = match step {
                UPDATE => synced(measurement, step, sample)?,
                _ => Some(sample),
            };
            if let Some(sample) = sample {
                measurement.keep(step, sample);
            }
        }
        Ok(())
    }

    fn section(&self, runs: Vec<Column>) -> Section {
        let steps = [CREATE, EXTRACT, UPDATE].map(str::to_owned);
        Section {
            bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "{} copies of {} unpacked by {} mounts at once, each its share of every copy",
                self.copies, self.tree.origin, self.mounts
            ),
            tables: vec![
                table("Seconds", "s", &steps, &runs, Cell::seconds),
                table(
                    "Request frames of the first mount",
                    "",
                    &steps,
                    &runs,
                    requests,
                ),
            ],
            figures: Vec::new(),
            notes: Vec::new(),
            runs,
        }
    }
}
