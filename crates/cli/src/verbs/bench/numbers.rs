//! `glint bench numbers`

use std::path::PathBuf;
use std::time::Duration;

use bench::workload::{flat as flat_steps, stream as stream_steps};
use bench::{
    Bound, Column, Event, FlatConfig, Line, Progress, Report, Result, Sample, Step, StopFlag,
    StreamConfig, System, Verdict, WalkConfig, flat, stream, upcalls,
};
use clap::{Args, ValueEnum};

use super::rivals::{Rival, Rivals, remove_stale};
use super::screen::Screen;
use super::walk::{Format, TreeSource, cap, title, walk_all};
use crate::output::say_lines;

/// Requests for attributes of one file.
const UPCALLS: u32 = 100_000;
/// The row of their time.
const UPCALL: &str = "getattr upcall";
/// Files made to measure how fast that goes: what they take in memory stays below what makes a
/// store commit early.
const MADE: u64 = 20_000;
/// Rounds of making them, for each run that is asked for: what is compared differs by less than two
/// runs of the same do.
const ROUNDS: u32 = 5;
/// Slower by less is as fast: runs differ by more.
const AS_FAST: f64 = 1.05;
/// Times that a cold walk may stand still, whatever its size.
const STALLS_MAX: f64 = 8.0;

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The life of a source tree.
    Tree,
    /// A cold listing of one large directory.
    Flat,
    /// One large file, written and read.
    Stream,
    /// What a request of the kernel costs.
    Upcall,
    /// What it costs that no change is lost with a server.
    Create,
}

/// Measure what the project promises, beside ext4 and tmpfs in the same run, and say for each
/// promise whether it is kept. Root only: it mounts file systems and drops caches. Servers and mount
/// are separate processes, over TCP. Cold is a fresh mount; for ext4 the machine's caches are dropped
/// as well; for the large file everybody's are.
#[derive(Args)]
pub struct Numbers {
    /// Which parts [default: all].
    #[arg(long, value_delimiter = ',')]
    part: Vec<Part>,
    /// The tree: kernel (Debian's, or one of its shape), a number of entries, or a tar file.
    #[arg(long, default_value = "kernel")]
    tree: TreeSource,
    /// Files in the large directory.
    #[arg(long, default_value_t = 100_000)]
    files: u64,
    /// Size of the large file, in MiB.
    #[arg(long, default_value_t = 4096)]
    mebibytes: u64,
    /// How often; medians count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How long a step may take before it is stopped.
    #[arg(long, default_value = "300s", value_parser = cap)]
    cap: Duration,
    /// Where file systems are set up: a directory on the disk to measure.
    #[arg(long, default_value = "demo-data")]
    work: PathBuf,
    /// How the table is shown.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// As --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl Numbers {
    /// Does it.
    pub fn run(self) -> std::result::Result<(), String> {
        let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
        let mut screen = Screen::new();
        let verdict = self.measure(&stop, &mut |event| screen.show(event));
        screen.clear();
        let verdict = verdict.map_err(|error| error.to_string())?;
        let format = if self.json { Format::Json } else { self.format };
        say_lines(match format {
            Format::Text => verdict.text(),
            Format::Markdown => verdict.markdown(),
            Format::Json => verdict.json().map_err(|error| error.to_string())?,
        });
        Ok(())
    }

    fn measure(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Verdict> {
        let mut verdict = Verdict::new(format!("what is promised, medians of {}", self.runs));
        for part in Part::value_variants() {
            if !self.part.is_empty() && !self.part.contains(part) {
                continue;
            }
            let lines = match part {
                Part::Tree => self.tree(stop, progress)?,
                Part::Flat => self.flat(stop, progress)?,
                Part::Stream => self.stream(stop, progress)?,
                Part::Upcall => self.upcall(stop, progress)?,
                Part::Create => self.create(stop, progress)?,
            };
            verdict.lines.extend(lines);
        }
        Ok(verdict)
    }

    fn rivals(&self, systems: &[Rival], stop: &StopFlag) -> Result<Rivals> {
        let work = std::path::absolute(&self.work).map_err(|source| bench::BenchError::Io {
            doing: format!("finding {}", self.work.display()),
            source,
        })?;
        remove_stale(&work);
        Ok(Rivals {
            systems: systems.to_vec(),
            directories: Vec::new(),
            drop_caches: true,
            like_disks: true,
            settings: bench::LinkSettings::default(),
            work,
            stop: stop.clone(),
        })
    }

    fn tree(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Vec<Line>> {
        let rivals = self.rivals(&[Rival::Glint, Rival::Ext4, Rival::Tmpfs], stop)?;
        let tree = self
            .tree
            .obtain(&rivals.work.join("trees"), stop, progress)?;
        let mut config = WalkConfig::new(tree, stop.clone());
        (config.runs, config.cap) = (self.runs, self.cap);
        let left_out = [Step::GrepCold, Step::GrepWarm, Step::Copy, Step::SyncCopied];
        config.steps.retain(|step| !left_out.contains(step));
        let mut report = Report::new(title(&config.tree, ""), super::walk::labels());
        walk_all(&rivals, &config, &mut report, progress)?;
        let alone = self.rivals(&[Rival::GlintNoPrefetch], stop)?;
        (config.runs, config.steps) = (1, vec![Step::FindCold]);
        walk_all(&alone, &config, &mut report, progress)?;
        progress(Event::Line(report.text()));
        let count = &config.tree.count;
        Ok(tree_lines(&report, count.entries()))
    }

    fn flat(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Vec<Line>> {
        let rivals = self.rivals(&[Rival::Glint, Rival::Ext4], stop)?;
        let config = FlatConfig {
            files: self.files,
            only_create: false,
            runs: self.runs,
            cap: self.cap,
            stop: stop.clone(),
        };
        let mut report = Report::new(
            format!("{} files in one directory", self.files),
            flat_steps::STEPS,
        );
        rivals.run(&mut report, progress, &mut |system, progress| {
            flat(system, &config, progress)
        })?;
        progress(Event::Line(report.text()));
        let step = flat_steps::LIST_COLD;
        let grown = result(&report, Rival::Glint, step).and_then(|sample| {
            let files = sample.entries.filter(|files| *files > 0)?;
            Some(sample.memory? as f64 / files as f64)
        });
        Ok(vec![
            ratio(
                "cold ls -l, one directory",
                &report,
                Rival::Ext4,
                &[step],
                1.0,
            ),
            value("  memory of the mount, each file", grown, "bytes", 600.0),
        ])
    }

    fn stream(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Vec<Line>> {
        // Both on the same disk as it is: what a loop device adds depends on what it has cached.
        let rivals = Rivals {
            like_disks: false,
            ..self.rivals(&[Rival::Glint, Rival::Disk], stop)?
        };
        let config = StreamConfig {
            mebibytes: self.mebibytes,
            runs: self.runs,
            cap: self.cap,
            drop_caches: Some(rivals.work.clone()),
            stop: stop.clone(),
        };
        let title = format!("one file of {} MiB", self.mebibytes);
        let mut report = Report::new(title, stream_steps::STEPS);
        rivals.run(&mut report, progress, &mut |system, progress| {
            stream(system, &config, progress)
        })?;
        progress(Event::Line(report.text()));
        // 70 % of the speed.
        let slower = 1.0 / 0.7;
        let line = |work, step| ratio(work, &report, Rival::Disk, &[step], slower);
        Ok(vec![
            line("large file: write + fsync", stream_steps::WRITE),
            line("large file: cold read", stream_steps::READ_COLD),
        ])
    }

    fn upcall(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Vec<Line>> {
        let rivals = self.rivals(&[Rival::Glint, Rival::FuseFloor], stop)?;
        let mut report = Report::new("one request of the kernel", [UPCALL]);
        rivals.run(&mut report, progress, &mut |system, _| {
            ask_often(system, self.runs)
        })?;
        progress(Event::Line(report.text()));
        let work = "getattr upcall, cached";
        let mut line = ratio(work, &report, Rival::FuseFloor, &[UPCALL], 1.2);
        // For one of them.
        let each = |seconds: &mut Option<f64>| {
            *seconds = seconds.map(|all| all * 1e6 / f64::from(UPCALLS))
        };
        each(&mut line.value);
        if let Some((_, reference)) = &mut line.reference {
            each(reference);
        }
        line.unit = "us".to_owned();
        Ok(vec![line])
    }

    /// In rounds, each with new servers, so that both have made as much before. Who comes first
    /// changes, so that what else the machine does weighs on both.
    fn create(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Vec<Line>> {
        let mut rivals = self.rivals(&[Rival::Glint, Rival::GlintUndurable], stop)?;
        let files = self.files.min(MADE);
        let config = FlatConfig {
            files,
            only_create: true,
            runs: 1,
            cap: self.cap,
            stop: stop.clone(),
        };
        let step = flat_steps::CREATE;
        let rounds = self.runs * ROUNDS;
        let title = format!("making {files} files, {rounds} times");
        let mut report = Report::new(title, [step]);
        for _ in 0..rounds {
            rivals.run(&mut report, progress, &mut |system, progress| {
                flat(system, &config, progress)
            })?;
            rivals.systems.reverse();
        }
        progress(Event::Line(report.text()));
        let work = "create, nothing is ever lost";
        // 90 % of the rate.
        let slower = 1.0 / 0.9;
        Ok(vec![ratio(
            work,
            &report,
            Rival::GlintUndurable,
            &[step],
            slower,
        )])
    }
}

/// A column with the time of [`UPCALLS`] requests for the attributes of one file.
fn ask_often(system: &mut dyn System, runs: u32) -> Result<Column> {
    let file = system.root().join("file");
    if !file.exists() {
        std::fs::write(&file, "").map_err(|source| bench::BenchError::Io {
            doing: format!("making {}", file.display()),
            source,
        })?;
        bench::process::output(&mut system.sync_command())?;
    }
    let mut column = Column::new(system.name());
    for _ in 0..runs {
        let sample = Sample {
            seconds: upcalls(&file, UPCALLS)? * f64::from(UPCALLS),
            entries: Some(u64::from(UPCALLS)),
            ..Sample::default()
        };
        column.add(UPCALL, sample);
    }
    Ok(column)
}

fn tree_lines(report: &Report, entries: u64) -> Vec<Line> {
    let requests = |step: Step| {
        let sample = result(report, Rival::Glint, step.label());
        sample
            .and_then(|sample| sample.rpcs)
            .map(|rpcs| rpcs as f64)
    };
    let stalls = result(report, Rival::Glint, Step::FindCold.label())
        .and_then(|sample| sample.statahead)
        .map(|statahead| statahead.walk_stalls as f64);
    let line = |work, rival, steps: &[Step], most| {
        let steps: Vec<&str> = steps.iter().map(|step| step.label()).collect();
        ratio(work, report, rival, &steps, most)
    };
    let few = (entries as f64 / 4000.0 + 5.0).floor();
    let (ext4, tmpfs, plain) = (Rival::Ext4, Rival::Tmpfs, Rival::GlintNoPrefetch);
    vec![
        value(
            "cold find -uid 0: requests",
            requests(Step::FindCold),
            "RPCs",
            few,
        ),
        value("  times it waited", stalls, "", STALLS_MAX),
        line(
            "cold find -uid 0, prefetch",
            plain,
            &[Step::FindCold],
            AS_FAST,
        ),
        line("cold find -uid 0", ext4, &[Step::FindCold], 1.3),
        line("cold du -s", ext4, &[Step::DuCold], 1.3),
        line("cold ls -lR", ext4, &[Step::ListCold], 1.3),
        value(
            "warm find -uid 0: requests",
            requests(Step::FindWarm),
            "RPCs",
            0.0,
        ),
        value("warm du -s: requests", requests(Step::DuWarm), "RPCs", 0.0),
        value(
            "warm ls -lR: requests",
            requests(Step::ListWarm),
            "RPCs",
            0.0,
        ),
        line("warm find -uid 0", tmpfs, &[Step::FindWarm], 1.6),
        line("warm du -s", tmpfs, &[Step::DuWarm], 1.6),
        line("warm ls -lR", tmpfs, &[Step::ListWarm], 1.6),
        line(
            "tar -x, then sync",
            ext4,
            &[Step::Unpack, Step::SyncUnpacked],
            8.0,
        ),
        line("rm -r", ext4, &[Step::Remove], 5.0),
    ]
}

fn value(work: &str, value: Option<f64>, unit: &str, most: f64) -> Line {
    Line {
        work: work.to_owned(),
        value,
        unit: unit.to_owned(),
        reference: None,
        bound: Bound::Value(most),
    }
}

/// The seconds that Glint needs for all these steps, beside those of `rival`.
fn ratio(work: &str, report: &Report, rival: Rival, steps: &[&str], most: f64) -> Line {
    let seconds = |rival| {
        let all = steps.iter().map(|step| result(report, rival, step));
        all.map(|sample| sample.map(|sample| sample.seconds)).sum()
    };
    Line {
        work: work.to_owned(),
        value: seconds(Rival::Glint),
        unit: "s".to_owned(),
        reference: Some((rival.label().to_owned(), seconds(rival))),
        bound: Bound::Ratio(most),
    }
}

/// The median of a step that was not stopped before its end.
fn result(report: &Report, rival: Rival, step: &str) -> Option<Sample> {
    let mut columns = report.columns.iter();
    let column = columns.find(|column| column.name == rival.label())?;
    column
        .result(step)
        .filter(|sample| !sample.capped && sample.part.is_none())
}
