//! The life of a source tree: unpacked, walked, searched, copied, removed, by the programs that people
//! use for it.

use std::cell::RefCell;
use std::fs::File;
use std::io::Seek;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::measured::{Measurement, Plan, measure};
use super::quiet::quiet;
use super::system::{Cold, System};
use crate::error::{During, Result};
use crate::interrupt::StopFlag;
use crate::process::{Ending, time};
use crate::progress::{Event, Progress};
use crate::report::{Column, Sample};
use crate::tree::{ABSENT_WORD, SourceTree};

/// How long completing a tree beside the measured way may take.
const COMPLETE_CAP: Duration = Duration::from_secs(600);

/// How often a warm walk is measured in each run. The first still asks for what only a walk of a
/// file system in user space leaves stale, the access times of directories.
const WARM_WALKS: usize = 3;

/// What is done to the tree, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// `tar -x`. Every other step needs it, so it is always done.
    Unpack,
    /// Makes it durable.
    SyncUnpacked,
    /// `find -uid 0` with nothing cached.
    FindCold,
    /// Again at once, three times.
    FindWarm,
    /// `du -s` with nothing cached.
    DuCold,
    /// Again at once, as often.
    DuWarm,
    /// `ls -lR` with nothing cached.
    ListCold,
    /// Again at once, as often.
    ListWarm,
    /// `grep -r` for a word that is nowhere, with nothing cached.
    GrepCold,
    /// Again at once, as often.
    GrepWarm,
    /// `cp -r`.
    Copy,
    /// Makes the copy durable.
    SyncCopied,
    /// `rm -r` of the first tree.
    Remove,
}

impl Step {
    /// All of them.
    pub const ALL: [Step; 13] = [
        Step::Unpack,
        Step::SyncUnpacked,
        Step::FindCold,
        Step::FindWarm,
        Step::DuCold,
        Step::DuWarm,
        Step::ListCold,
        Step::ListWarm,
        Step::GrepCold,
        Step::GrepWarm,
        Step::Copy,
        Step::SyncCopied,
        Step::Remove,
    ];

    /// Its row in the report.
    pub fn label(self) -> &'static str {
        match self {
            Step::Unpack => "tar -x",
            Step::SyncUnpacked => "sync after tar",
            Step::FindCold => "find -uid 0, cold",
            Step::FindWarm => "find -uid 0, warm",
            Step::DuCold => "du -s, cold",
            Step::DuWarm => "du -s, warm",
            Step::ListCold => "ls -lR, cold",
            Step::ListWarm => "ls -lR, warm",
            Step::GrepCold => "grep -r, cold",
            Step::GrepWarm => "grep -r, warm",
            Step::Copy => "cp -r",
            Step::SyncCopied => "sync after cp",
            Step::Remove => "rm -r",
        }
    }

    fn is_cold(self) -> bool {
        use Step::{DuCold, FindCold, GrepCold, ListCold};
        matches!(self, FindCold | DuCold | ListCold | GrepCold)
    }

    /// The step that must have ended before this one means anything.
    fn follows(self) -> Option<Step> {
        match self {
            Step::FindWarm => Some(Step::FindCold),
            Step::DuWarm => Some(Step::DuCold),
            Step::ListWarm => Some(Step::ListCold),
            Step::GrepWarm => Some(Step::GrepCold),
            Step::SyncCopied => Some(Step::Copy),
            _ => None,
        }
    }

    /// How often it is measured in a run.
    pub fn times(self) -> usize {
        use Step::{DuWarm, FindWarm, GrepWarm, ListWarm};
        match self {
            FindWarm | DuWarm | ListWarm | GrepWarm => WARM_WALKS,
            _ => 1,
        }
    }

    /// Exit codes that mean success: grep's answer is that it found nothing.
    fn success(self) -> &'static [i32] {
        match self {
            Step::GrepCold | Step::GrepWarm => &[1],
            _ => &[0],
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct WalkConfig {
    /// The tree to unpack.
    pub tree: SourceTree,
    /// How often; the report shows medians.
    pub runs: u32,
    /// How long a step may take before it is killed and reported as longer than that.
    pub cap: Duration,
    /// Which steps; unpacking is always one of them.
    pub steps: Vec<Step>,
    /// Set to end early.
    pub stop: StopFlag,
}

impl WalkConfig {
    /// Every step once, two minutes each at most.
    pub fn new(tree: SourceTree, stop: StopFlag) -> WalkConfig {
        WalkConfig {
            tree,
            runs: 1,
            cap: Duration::from_secs(120),
            steps: Step::ALL.to_vec(),
            stop,
        }
    }
}

/// Measures one system. A step that fails is noted in the column; only an interrupt and a directory
/// that cannot be written end the measurement.
pub fn walk(
    system: &mut dyn System,
    config: &WalkConfig,
    progress: &mut Progress,
) -> Result<Column> {
    let plan = Plan {
        runs: config.runs,
        cap: config.cap,
        stop: &config.stop,
    };
    measure(system, &plan, progress, &|measurement, directory| {
        let run = Run {
            tree: directory.join(&config.tree.top),
            copy: directory.join("copy"),
            directory: directory.to_path_buf(),
        };
        run.all(measurement, config)
    })
}

/// The places of one run.
struct Run {
    directory: PathBuf,
    tree: PathBuf,
    copy: PathBuf,
}

impl Run {
    fn all(&self, measurement: &mut Measurement, config: &WalkConfig) -> Result<()> {
        let Some(part) = unpack(measurement, &config.tree.tar, &self.directory)? else {
            for step in config.steps.iter().filter(|step| **step != Step::Unpack) {
                measurement
                    .column
                    .skip(step.label(), "there was no tree".into());
            }
            return Ok(());
        };
        let mut stopped = Vec::new();
        for step in Step::ALL {
            let label = step.label();
            if step == Step::Unpack || !config.steps.contains(&step) {
                continue;
            }
            if let Some(first) = step.follows().filter(|first| stopped.contains(first)) {
                let why = format!("{} did not end", first.label());
                measurement.column.skip(label, why);
                continue;
            }
            if step.is_cold() && !measurement.make_cold(label)? {
                continue;
            }
            if !self.measure(step, part, measurement)? {
                stopped.push(step);
            }
        }
        Ok(())
    }

    /// Whether the step came to its end.
    fn measure(
        &self,
        step: Step,
        part: Option<f64>,
        measurement: &mut Measurement,
    ) -> Result<bool> {
        for _ in 0..step.times() {
            let mut command = self.command(step, measurement.system);
            let (label, codes) = (step.label(), step.success());
            let Some(sample) = measurement.command(label, &mut command, codes, &|| None)? else {
                return Ok(false);
            };
            measurement.keep(label, Sample { part, ..sample });
            if sample.capped {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn command(&self, step: Step, system: &dyn System) -> Command {
        let on_tree = |program: &str, arguments: &[&str]| {
            let mut command = quiet(program);
            command.args(arguments).arg(&self.tree);
            command
        };
        match step {
            Step::Unpack | Step::SyncUnpacked | Step::SyncCopied => {
                let mut command = system.sync_command();
                command.stdin(Stdio::null()).stdout(Stdio::null());
                command
            }
            Step::FindCold | Step::FindWarm => find(&self.tree),
            Step::DuCold | Step::DuWarm => on_tree("du", &["-s"]),
            Step::ListCold | Step::ListWarm => on_tree("ls", &["-lR"]),
            Step::GrepCold | Step::GrepWarm => on_tree("grep", &["-r", ABSENT_WORD]),
            Step::Copy => {
                let mut command = on_tree("cp", &["-r"]);
                command.arg(&self.copy);
                command
            }
            Step::Remove => on_tree("rm", &["-r"]),
        }
    }
}

/// `find -uid 0`, which needs the attributes of everything, for nobody to read.
pub(super) fn find(tree: &Path) -> Command {
    let mut command = quiet("find");
    command.arg(tree).args(["-uid", "0"]);
    command
}

/// Unpacks a tar file into a directory. None when it failed; else the part of the tree that is
/// there, if it is not the whole.
pub(super) fn unpack(
    measurement: &mut Measurement,
    tar: &Path,
    directory: &Path,
) -> Result<Option<Option<f64>>> {
    let doing = || format!("reading {}", tar.display());
    let file = File::open(tar).during(doing)?;
    let bytes = file.metadata().during(doing)?.len().max(1);
    // tar reads the same open file, so that its position says how far tar has come.
    let shared = RefCell::new(file.try_clone().during(doing)?);
    let done = || {
        let position = shared.borrow_mut().stream_position().ok()?;
        Some((position as f64 / bytes as f64).min(1.0))
    };
    let mut command = quiet("tar");
    command.args(["-x", "-f", "-", "-C"]).arg(directory);
    command.stdin(Stdio::from(file));
    let label = Step::Unpack.label();
    let sample = measurement.command(label, &mut command, &[0], &done)?;
    let Some(mut sample) = sample else {
        return Ok(None);
    };
    sample.part = sample.capped.then(done).flatten();
    measurement.keep(label, sample);
    if sample.capped && complete(measurement, tar, directory)? {
        return Ok(Some(None));
    }
    Ok(Some(sample.part))
}

/// Unpacks the tree again, beside the measured way. False where there is no other.
fn complete(measurement: &mut Measurement, tar: &Path, directory: &Path) -> Result<bool> {
    let below = directory.strip_prefix(measurement.system.root());
    let (Some(door), Ok(name)) = (measurement.system.back_door(), below) else {
        return Ok(false);
    };
    let system = measurement.system.name().to_owned();
    let mut command = quiet("tar");
    command
        .args(["-x", "-f"])
        .arg(tar)
        .arg("-C")
        .arg(door.join(name));
    let progress = &mut *measurement.progress;
    let ran = time(
        &mut command,
        COMPLETE_CAP,
        measurement.stop,
        &mut |elapsed| {
            let seconds = elapsed.as_secs();
            progress(Event::Live(format!(
                "{system}: putting the rest of the tree there, not over the link: {seconds} s"
            )));
        },
    )?;
    let whole = ran.expect("tar", &[0])?.ending != Ending::Capped;
    // What the client knew of the directories is no longer so.
    Ok(whole && measurement.system.make_cold()? == Cold::Done)
}
