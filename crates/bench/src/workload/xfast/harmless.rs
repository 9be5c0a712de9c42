//! Work that prefetch cannot help, with it off and on: what it costs then.
//!
//! Done by this process itself, call by call: starting programs would be most of the CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{Rng, SeededRng};

use super::experiment::Experiment;
use super::lab::Lab;
use super::mode::Mode;
use super::pairs::{LIMIT, Pairs, order};
use crate::error::{During, Result};
use crate::interrupt::StopFlag;
use crate::process::time;
use crate::report::{Axis, Column, Figure, Point, Sample, Section, Series, Table};
use crate::workload::effort::Effort;
use crate::workload::measured::Turn;
use crate::workload::quiet::quiet;

/// Of the orders that are random: each run of a workload has the same one.
const SEED: u64 = 20_231_108;
/// Calls between two looks at the stop flag and the clock.
const TURN: usize = 64;
/// Directories that `find` looks in, each until it has found something; the first has all others.
const FINDS: usize = 20;
/// How long one of these may take.
const FIND_CAP: Duration = Duration::from_secs(60);

/// Pairs of runs of each workload.
#[derive(Debug, Clone)]
pub struct Harmless {
    /// Files in the large directory.
    pub files: u64,
    /// Small directories, with one to three files each.
    pub directories: u64,
    /// Calls of a run, at most.
    pub calls: u64,
    /// Pairs of each workload; the number of runs is theirs.
    pub effort: Effort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    StatLarge,
    StatTree,
    EnterRandomly,
    EnterInOrder,
    ReadOne,
    FindFirst,
}

impl Work {
    const ALL: [Work; 6] = [
        Work::StatLarge,
        Work::StatTree,
        Work::EnterRandomly,
        Work::EnterInOrder,
        Work::ReadOne,
        Work::FindFirst,
    ];

    fn words(self) -> &'static str {
        match self {
            Work::StatLarge => "random stats, one directory",
            Work::StatTree => "random stats, small directories",
            Work::EnterRandomly => "small directories, randomly",
            Work::EnterInOrder => "small directories, in order",
            Work::ReadOne => "one entry of each directory",
            Work::FindFirst => "find until the first match",
        }
    }

    fn label(self, mode: Mode) -> String {
        format!("{}, {mode}", self.words())
    }
}

/// What is worked on, in the order of the work.
struct Scene {
    small: PathBuf,
    stats_large: Vec<PathBuf>,
    stats_tree: Vec<PathBuf>,
    shuffled: Vec<PathBuf>,
    in_order: Vec<PathBuf>,
}

impl Harmless {
    fn build(&self, lab: &mut Lab, directory: &Path) -> Result<Scene> {
        let name = |number| format!("file{number:08}");
        let large = lab.make_files(directory.join("large"), self.files, &name)?;
        let small = directory.join("small");
        fs::create_dir(&small).during(|| format!("making {}", small.display()))?;
        let mut rng = SeededRng::new(SEED);
        let mut stats_tree = Vec::new();
        lab.building(|measurement| {
            let names: Vec<PathBuf> = (0..self.directories)
                .map(|number| small.join(format!("dir{number:06}")))
                .collect();
            let mut left = names.iter();
            measurement.turns("making small directories", &mut || {
                let Some(path) = left.next() else {
                    return Ok(Turn::Done);
                };
                fs::create_dir(path).during(|| format!("making {}", path.display()))?;
                for file in 0..1 + rng.below(3) {
                    let path = path.join(format!("file{file}"));
                    fs::write(&path, "").during(|| format!("making {}", path.display()))?;
                    stats_tree.push(path);
                }
                Ok(Turn::Again)
            })
        })?;
        let in_order = listed(&small)?;
        let stats_large = (0..self.files).map(|number| large.join(name(number)));
        Ok(Scene {
            stats_large: self.some(stats_large.collect()),
            stats_tree: self.some(stats_tree),
            shuffled: self.some(in_order.clone()),
            in_order,
            small,
        })
    }

    /// No more than there are calls in a run, in random order.
    fn some(&self, mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
        let mut rng = SeededRng::new(SEED);
        for at in (1..paths.len()).rev() {
            paths.swap(at, rng.below(at as u64 + 1) as usize);
        }
        paths.truncate(self.calls as usize);
        paths
    }
}

/// The directories below, in the order of the list.
fn listed(directory: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(directory).and_then(|entries| {
        entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect()
    });
    listed.during(|| format!("listing {}", directory.display()))
}

/// Both halves of a pair, each with nothing cached. False if the workload is done with.
fn take_pair(lab: &mut Lab, scene: &Scene, work: Work, pair: u32) -> Result<bool> {
    for mode in order(pair) {
        let label = work.label(mode);
        if !lab.start(mode, &label)? {
            return Ok(false);
        }
        let sample = scene.measure(lab, work, &label)?;
        lab.measurement.keep(&label, sample);
        if sample.capped {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Scene {
    fn paths(&self, work: Work) -> Vec<&Path> {
        let paths = match work {
            Work::StatLarge => &self.stats_large,
            Work::StatTree => &self.stats_tree,
            Work::EnterRandomly => &self.shuffled,
            Work::EnterInOrder | Work::ReadOne => &self.in_order,
            Work::FindFirst => {
                let above = std::iter::once(&self.small);
                let paths = above.chain(&self.shuffled).take(FINDS);
                return paths.map(PathBuf::as_path).collect();
            }
        };
        paths.iter().map(PathBuf::as_path).collect()
    }

    fn measure(&self, lab: &mut Lab, work: Work, label: &str) -> Result<Sample> {
        let stop = lab.measurement.stop.clone();
        let paths = self.paths(work);
        let mut left = paths.chunks(TURN);
        let mut is_first = work.enters();
        lab.measurement.turns(label, &mut || {
            // A program that enters directories has their names from a list.
            if std::mem::take(&mut is_first) {
                return listed(&self.small).map(|_| Turn::Again);
            }
            let Some(paths) = left.next() else {
                return Ok(Turn::Done);
            };
            paths.iter().try_for_each(|path| work.does(path, &stop))?;
            Ok(Turn::Again)
        })
    }
}

impl Work {
    fn enters(self) -> bool {
        matches!(
            self,
            Work::EnterRandomly | Work::EnterInOrder | Work::ReadOne
        )
    }

    fn does(self, path: &Path, stop: &StopFlag) -> Result<()> {
        let done = match self {
            Work::StatLarge | Work::StatTree => path.symlink_metadata().map(drop),
            Work::EnterRandomly | Work::EnterInOrder => stat_all(path),
            Work::ReadOne => fs::read_dir(path)
                .and_then(|mut entries| entries.next().transpose())
                .map(drop),
            Work::FindFirst => {
                let mut find = quiet("find");
                find.arg(path).args(["-type", "f", "-print", "-quit"]);
                let found = time(&mut find, FIND_CAP, stop, &mut |_| {})?;
                return found.expect("find", &[0]).map(drop);
            }
        };
        done.during(|| format!("reading {}", path.display()))
    }
}

fn stat_all(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        entry?.path().symlink_metadata()?;
    }
    Ok(())
}

impl Experiment for Harmless {
    fn name(&self) -> &'static str {
        "harmless"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, lab: &mut Lab, directory: &Path) -> Result<()> {
        let scene = self.build(lab, directory)?;
        for work in Work::ALL {
            for pair in 0..lab.runs {
                if !take_pair(lab, &scene, work, pair)? {
                    break;
                }
            }
        }
        Ok(())
    }

    fn section(&self, runs: Column) -> Section {
        Section {
            bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "what prefetch cannot help: {} pairs of runs, off and on in turns",
                self.effort.runs
            ),
            tables: vec![table(&runs)],
            figures: vec![
                figure(
                    "harmless-cpu",
                    "CPU of mount and servers",
                    &runs,
                    Sample::all_cpu,
                ),
                figure("harmless-time", "time", &runs, |sample| {
                    Some(sample.seconds)
                }),
            ],
            notes: self.notes(),
            runs: vec![runs],
        }
    }
}

impl Harmless {
    fn notes(&self) -> Vec<String> {
        vec![
            format!(
                "at most {} calls a run: stats of {} files in one directory, and of files in {} \
                 directories with one to three files each; those directories entered after a list \
                 of them, each file stat'ed; of each the first entry read and no more; {FINDS} \
                 times find -quit",
                self.calls, self.files, self.directories
            ),
            "each run on a fresh mount; off: statahead_max is 0; CPU: user and system time of the \
             processes of mount and servers"
                .to_owned(),
            format!(
                "medians; the ratio is the median of the pairs' ratios; \"!\": CPU or requests \
                 more than {LIMIT} times those of prefetch off"
            ),
        ]
    }
}

fn table(runs: &Column) -> Table {
    let heads = ["CPU s", "RPCs", "s"];
    let heads = heads
        .iter()
        .flat_map(|what| ["off", "on", "ratio"].map(|column| format!("{what} {column}")));
    let head = std::iter::once("work".to_owned()).chain(heads);
    let mut table = Table::new("Medians of pairs", head);
    for work in Work::ALL {
        let pairs =
            |what: &dyn Fn(&Sample) -> Option<f64>| Pairs::of(runs, |mode| work.label(mode), what);
        let cpu = pairs(&Sample::all_cpu).cells(true);
        let rpcs = pairs(&|sample| sample.rpcs.map(|rpcs| rpcs as f64)).cells(true);
        let time = pairs(&|sample| Some(sample.seconds)).cells(false);
        let first = std::iter::once(work.words().into());
        let cells = cpu.into_iter().chain(rpcs).chain(time);
        table.rows.push(first.chain(cells).collect());
    }
    table
}

/// The ratio of each pair, so that one sees what runs differ by.
fn figure(name: &str, what: &str, runs: &Column, of: impl Fn(&Sample) -> Option<f64>) -> Figure {
    let works = Work::ALL.into_iter();
    let series = works.map(|work| {
        let ratios = Pairs::of(runs, |mode| work.label(mode), &of).ratios();
        let points = ratios.into_iter().enumerate();
        Series {
            name: work.words().to_owned(),
            points: points
                .map(|(pair, y)| Point {
                    x: (pair + 1) as f64,
                    y,
                    at_least: false,
                })
                .collect(),
        }
    });
    Figure {
        name: name.to_owned(),
        title: format!("{what} with prefetch on, divided by that with it off"),
        x: Axis::linear("pair", ""),
        y: Axis::linear("on / off", ""),
        series: series.collect(),
    }
}
