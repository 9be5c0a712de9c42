//! `glint bench xfast`

use std::time::Duration;

use bench::workload::Effort;
use bench::workload::xfast::{
    Experiment, FILES_MAX, Grid, Harmless, Huge, Listing, RoundTrips, Trees, Writers,
};
use bench::{Column, Document, Event, Progress, Report, Result, SourceTree, StopFlag};
use clap::{Args, ValueEnum};

use super::rivals::{Rival, Rivals};
use super::screen::Screen;
use super::walk::{Bandwidth, TreeSource, bandwidth, cap, duration};
use super::written::Written;

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// `ls -l` of directories of several sizes, cold and warm, prefetch off and on.
    Flat,
    /// The same while programs write in the directory through another mount.
    Writers,
    /// The same for values of statahead_max and batch_max.
    Grid,
    /// `find` over several source trees: prefetch off, FLAT and SAS.
    Trees,
    /// `find` over one of them, by round trip.
    Rtt,
    /// Work that prefetch cannot help, in pairs of runs with it off and on: stats in random order,
    /// tiny directories, walks that stop soon.
    Harmless,
    /// `find` and `ls -U` in one directory of millions of files, and in one with a tenth of them. Not
    /// among the parts that are measured by default.
    Huge,
}

/// Repeat the measurements of the talk on Xfast (Lustre's statahead), on a Glint that is set up for it.
/// Prints Markdown; with --out also writes JSON with every run, and figures as SVG.
///
/// Takes about half an hour, and some hours and 30 GB with --full. Root only for a real link between
/// mount and server; otherwise a transport that delays stands in. Nothing stays mounted or running;
/// Ctrl-C at any point cleans up as well, and leaves in --out what was measured so far.
#[derive(Args)]
pub struct Xfast {
    /// Which parts [default: all but huge].
    #[arg(long, value_delimiter = ',')]
    part: Vec<Part>,
    /// Part flat: files in each directory [default: 1000,10000,100000; with --full 1000000 too].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=FILES_MAX))]
    files: Vec<u64>,
    /// Parts writers and grid: files in the directory [default: 5000; with --full 100000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=FILES_MAX))]
    directory: Option<u64>,
    /// Part writers: how many programs write.
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,5,10",
        value_parser = clap::value_parser!(u64).range(0..=100))]
    writers: Vec<u64>,
    /// Parts trees and rtt: the tree, as a number of entries, a tar file, or kernel (Debian's or alike)
    /// [default: 5000; with --full kernel].
    #[arg(long)]
    tree: Option<TreeSource>,
    /// Part trees: how many of it [default: 4; with --full 16].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    trees: Option<u32>,
    /// Part rtt: round trips between mount and server.
    #[arg(long, value_delimiter = ',', default_value = "0.1ms,1ms,2ms,3ms,4ms,5ms,50ms,200ms",
        value_parser = round_trip)]
    rtts: Vec<Duration>,
    /// Part rtt: bandwidth there, as in 1gbit, or unlimited.
    #[arg(long, default_value = "1gbit", value_parser = bandwidth)]
    bandwidth: Bandwidth,
    /// Part harmless: pairs of runs of each work; medians are shown.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// Part harmless: calls in a run. Its large directory has ten times as many files, and there are
    /// half as many small ones. So many that a run takes about a second.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    calls: u64,
    /// Part huge: files in the directory [default: 2000000; with --full 10000000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=FILES_MAX))]
    huge: Option<u64>,
    /// How often each cell of the other parts is measured; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How long a run may take before it is stopped and shown as more than that [default: 60s; with
    /// --full 600s].
    #[arg(long, value_parser = cap)]
    cap: Option<Duration>,
    /// As large as the talk's.
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    written: Written,
}

/// What the two presets differ in.
struct Size {
    files: &'static [u64],
    directory: u64,
    tree: TreeSource,
    trees: u32,
    huge: u64,
    cap: Duration,
}

const USUAL: Size = Size {
    files: &[1000, 10_000, 100_000],
    directory: 5000,
    tree: TreeSource::Generated(5000),
    trees: 4,
    huge: 2_000_000,
    cap: Duration::from_secs(60),
};
const FULL: Size = Size {
    files: &[1000, 10_000, 100_000, 1_000_000],
    directory: 100_000,
    tree: TreeSource::Kernel,
    trees: 16,
    huge: 10_000_000,
    cap: Duration::from_secs(600),
};

impl Xfast {
    /// Does it.
    pub fn run(self) -> std::result::Result<(), String> {
        let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
        let mut screen = Screen::new();
        let document = self.measure(&stop, &mut |event| screen.show(event));
        screen.clear();
        let document = document.map_err(|error| error.to_string())?;
        self.written.show(&document)
    }

    fn size(&self) -> &'static Size {
        match self.full {
            true => &FULL,
            false => &USUAL,
        }
    }

    fn measure(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Document> {
        let title = format!(
            "Xfast: the talk's tables and figures (times: medians of {}; requests: the most of any run)",
            self.runs
        );
        let mut document = Document::new("xfast", title);
        self.written.prepare()?;
        let rivals = self.written.rivals(&[Rival::Glint], stop)?;
        let tree = self.source_tree(&rivals, progress)?;
        for experiment in self.experiments(tree.as_ref(), stop) {
            let runs = measure(experiment.as_ref(), &rivals, progress)?;
            document.sections.push(experiment.section(runs));
            self.written.write(&document)?;
        }
        Ok(document)
    }

    fn parts(&self) -> Vec<Part> {
        let all = Part::value_variants().iter().copied();
        all.filter(|part| match self.part.is_empty() {
            true => *part != Part::Huge,
            false => self.part.contains(part),
        })
        .collect()
    }

    /// The tree, if a part needs one.
    fn source_tree(&self, rivals: &Rivals, progress: &mut Progress) -> Result<Option<SourceTree>> {
        let parts = self.parts();
        if !parts.contains(&Part::Trees) && !parts.contains(&Part::Rtt) {
            return Ok(None);
        }
        let source = self.tree.as_ref().unwrap_or(&self.size().tree);
        let cache = rivals.work.join("trees");
        source.obtain(&cache, &rivals.stop, progress).map(Some)
    }

    fn experiments(&self, tree: Option<&SourceTree>, stop: &StopFlag) -> Vec<Box<dyn Experiment>> {
        let parts = self.parts().into_iter();
        parts
            .filter_map(|part| self.experiment(part, tree, stop))
            .collect()
    }

    /// None without a tree for it.
    fn experiment(
        &self,
        part: Part,
        tree: Option<&SourceTree>,
        stop: &StopFlag,
    ) -> Option<Box<dyn Experiment>> {
        let size = self.size();
        let files = self.directory.unwrap_or(size.directory);
        let effort = Effort {
            runs: self.runs,
            cap: self.cap.unwrap_or(size.cap),
            stop: stop.clone(),
        };
        Some(match part {
            Part::Flat => Box::new(Listing {
                files: sorted(if self.files.is_empty() {
                    size.files
                } else {
                    &self.files
                }),
                effort,
            }),
            Part::Writers => Box::new(Writers {
                files,
                writers: sorted(&self.writers),
                effort,
            }),
            Part::Grid => Box::new(Grid { files, effort }),
            Part::Trees => Box::new(Trees {
                tree: tree?.clone(),
                copies: self.trees.unwrap_or(size.trees),
                effort,
            }),
            Part::Rtt => Box::new(RoundTrips {
                tree: tree?.clone(),
                rtts: sorted(&self.rtts),
                bandwidth: self.bandwidth.0,
                effort,
            }),
            Part::Harmless => Box::new(Harmless {
                files: 10 * self.calls,
                directories: self.calls / 2,
                calls: self.calls,
                effort: Effort {
                    runs: self.pairs,
                    ..effort
                },
            }),
            Part::Huge => Box::new(Huge {
                files: self.huge.unwrap_or(size.huge),
                effort,
            }),
        })
    }
}

/// One that has a place on a logarithmic axis.
fn round_trip(text: &str) -> std::result::Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("{text:?} is no round trip; write 0.1ms")),
        rtt => Ok(rtt),
    }
}

/// As they are on an axis, each once.
fn sorted<T: Ord + Copy>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.dedup();
    values
}

/// Every run of one experiment, on a new Glint behind the link that it wants.
fn measure(
    experiment: &dyn Experiment,
    rivals: &Rivals,
    progress: &mut Progress,
) -> Result<Column> {
    let name = experiment.name();
    progress(Event::Line(format!("part {name}")));
    let rivals = Rivals {
        settings: experiment.link(),
        systems: rivals.systems.clone(),
        directories: Vec::new(),
        work: rivals.work.clone(),
        stop: rivals.stop.clone(),
        ..*rivals
    };
    let mut report = Report::new(name, [name]);
    rivals.run(&mut report, progress, &mut |system, progress| {
        experiment.measure(system, progress)
    })?;
    let absent = || Column::absent(Rival::Glint.label(), "there was nothing to measure");
    Ok(report.columns.pop().unwrap_or_else(absent))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        xfast: Xfast,
    }

    fn parsed(words: &str) -> std::result::Result<Xfast, String> {
        let words = ["xfast"].into_iter().chain(words.split_whitespace());
        let line = Line::try_parse_from(words);
        line.map(|line| line.xfast)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn parts_come_in_the_talks_order_and_all_by_default() {
        let all = parsed("").unwrap();
        let by_default = Part::value_variants().split_last().unwrap().1;
        assert_eq!(all.parts(), by_default);
        assert_eq!(all.size().trees, 4);
        let huge = parsed("--part huge,harmless --pairs 7").unwrap();
        assert_eq!(huge.parts(), [Part::Harmless, Part::Huge]);
        assert_eq!((huge.pairs, huge.size().huge), (7, 2_000_000));
        let some = parsed("--part rtt,flat --full").unwrap();
        assert_eq!(some.parts(), [Part::Flat, Part::Rtt]);
        assert_eq!(some.size().files.last(), Some(&1_000_000));
        assert_eq!(some.experiments(None, &StopFlag::new()).len(), 1);
    }

    #[test]
    fn lists_are_read_and_nonsense_is_refused() {
        let xfast = parsed("--files 10,5,10 --rtts 1ms,0.1ms --cap 5 --bandwidth unlimited");
        let xfast = xfast.unwrap();
        assert_eq!(sorted(&xfast.files), [5, 10]);
        let milliseconds = |rtt: &Duration| rtt.as_secs_f64() * 1e3;
        assert!(xfast.rtts.iter().map(milliseconds).eq([1.0, 0.1]));
        assert_eq!(xfast.cap, Some(Duration::from_secs(5)));
        for (words, part) in [
            ("--part nonsense", "nonsense"),
            ("--files 0", "0"),
            ("--files 10,x", "x"),
            ("--rtts 5", "5"),
            ("--rtts 0ms", "0ms"),
            ("--runs 0", "0"),
            ("--trees 0", "0"),
            ("--pairs 0", "0"),
            ("--huge 5", "5"),
            ("--cap x", "x"),
            ("--writers 1000", "1000"),
        ] {
            let error = parsed(words).err().unwrap();
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
