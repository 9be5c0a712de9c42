//! `glint bench wbc`

use std::time::Duration;

use bench::workload::Effort;
use bench::workload::wbc::{Commands, Contest, Metadata, Pathological, Profiles, RoundTrips};
use bench::{Document, Event, Progress, Report, Result, SourceTree, StopFlag};
use clap::{Args, ValueEnum};

use super::rivals::{Rival, Rivals};
use super::screen::Screen;
use super::walk::{TreeSource, cap, duration};
use super::written::Written;

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// tar, find, du, ls, grep, cp, rsync and rm on a source tree.
    Commands,
    /// Creates, stats and removes, by 1, 4 and 16 tasks.
    Metadata,
    /// filebench's profiles varmail, fileserver and webserver.
    Profiles,
    /// Copies of a source tree unpacked by four mounts into one directory.
    Pathological,
    /// tar, cp and rm by round trip.
    Rtt,
}

/// Measure metadata write-back as the talk on Lustre's did, on and off, beside others.
///
/// The others are ext4, tmpfs and a FUSE file system in memory. Prints Markdown; with --out also writes
/// JSON with every run, and figures as SVG. Takes about half an hour, and some hours with --full. Root only.
/// Nothing stays mounted or running; Ctrl-C at any point cleans up as well, and leaves in --out what was
/// measured so far.
#[derive(Args)]
pub struct Wbc {
    /// Which parts [default: all].
    #[arg(long, value_delimiter = ',')]
    part: Vec<Part>,
    /// The tree, as a number of entries, a tar file, or kernel (Debian's or alike) [default: 3000; with
    /// --full 10900].
    #[arg(long)]
    tree: Option<TreeSource>,
    /// Part metadata: files, and as many directories [default: 5000; with --full 100000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    entries: Option<u64>,
    /// Part metadata: how many tasks.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16",
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    tasks: Vec<u64>,
    /// Part profiles: how long each goes on [default: 10s; with --full 60s].
    #[arg(long, value_parser = duration)]
    time: Option<Duration>,
    /// Part profiles: files of each at most [default: 1000; with --full 10000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(20..=1_000_000))]
    files: Option<u64>,
    /// Part pathological: how many copies of the tree [default: 2; with --full 8].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    copies: Option<u64>,
    /// Part rtt: round trips between mount and server.
    #[arg(long, value_delimiter = ',', default_value = "0ms,5ms,50ms,200ms", value_parser = duration)]
    rtts: Vec<Duration>,
    /// How often each row is measured; medians are shown.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How long a run may take before it is stopped and shown as more than that [default: 60s; with --full
    /// 600s].
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
    tree: u64,
    entries: u64,
    time: Duration,
    files: u64,
    copies: u64,
    cap: Duration,
}

const USUAL: Size = Size {
    tree: 3000,
    entries: 5000,
    time: Duration::from_secs(10),
    files: 1000,
    copies: 2,
    cap: Duration::from_secs(60),
};
const FULL: Size = Size {
    tree: 10_900,
    entries: 100_000,
    time: Duration::from_secs(60),
    files: 10_000,
    copies: 8,
    cap: Duration::from_secs(600),
};
/// At work in the part that write-back is worst at.
const MOUNTS: usize = 4;

/// Those that have a server, which may be far away.
const SERVED: [Rival; 2] = [Rival::GlintWriteBack, Rival::GlintWriteThrough];
/// Those that have none.
const LOCAL: [Rival; 3] = [Rival::FuseFloor, Rival::Ext4, Rival::Tmpfs];

impl Part {
    fn rivals(self) -> Vec<Rival> {
        let local: &[Rival] = match self {
            Part::Commands | Part::Metadata | Part::Profiles => &LOCAL,
            Part::Pathological | Part::Rtt => &[],
        };
        [&SERVED, local].concat()
    }

    fn has_tree(self) -> bool {
        matches!(self, Part::Commands | Part::Pathological | Part::Rtt)
    }
}

impl Wbc {
    /// Does it.
    pub fn run(self) -> std::result::Result<(), String> {
        let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
        let mut screen = Screen::new();
        let document = self.measure(&stop, &mut |event| screen.show(event));
        screen.clear();
        self.written
            .show(&document.map_err(|error| error.to_string())?)
    }

    fn size(&self) -> &'static Size {
        match self.full {
            true => &FULL,
            false => &USUAL,
        }
    }

    fn parts(&self) -> Vec<Part> {
        let all = Part::value_variants().iter().copied();
        all.filter(|part| self.part.is_empty() || self.part.contains(part))
            .collect()
    }

    fn measure(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Document> {
        let title = format!(
            "Metadata write-back: the talk's tables (medians of {}; requests: the most of any run; times \
             with all that makes changes durable)",
            self.runs
        );
        let mut document = Document::new("wbc", title);
        self.written.prepare()?;
        let rivals = self.written.rivals(&[], stop)?;
        let tree = self.source_tree(&rivals, progress)?;
        for part in self.parts() {
            let Some(contest) = self.contest(part, tree.as_ref(), stop) else {
                continue;
            };
            let contest = contest.as_ref();
            let systems = part.rivals();
            let report = measured(
                contest,
                Rivals {
                    systems,
                    ..rivals.clone()
                },
                progress,
            )?;
            document.sections.push(contest.section(report.columns));
            self.written.write(&document)?;
        }
        Ok(document)
    }

    /// The tree, if a part needs one.
    fn source_tree(&self, rivals: &Rivals, progress: &mut Progress) -> Result<Option<SourceTree>> {
        if !self.parts().into_iter().any(Part::has_tree) {
            return Ok(None);
        }
        let usual = TreeSource::Generated(self.size().tree);
        let source = self.tree.as_ref().unwrap_or(&usual);
        let cache = rivals.work.join("trees");
        source.obtain(&cache, &rivals.stop, progress).map(Some)
    }

    /// None without a tree for it.
    fn contest(
        &self,
        part: Part,
        tree: Option<&SourceTree>,
        stop: &StopFlag,
    ) -> Option<Box<dyn Contest>> {
        let size = self.size();
        let effort = Effort {
            runs: self.runs,
            cap: self.cap.unwrap_or(size.cap),
            stop: stop.clone(),
        };
        Some(match part {
            Part::Commands => Box::new(Commands {
                tree: tree?.clone(),
                effort,
            }),
            Part::Metadata => Box::new(Metadata {
                tasks: self.tasks.clone(),
                entries: self.entries.unwrap_or(size.entries),
                effort,
            }),
            Part::Profiles => Box::new(Profiles {
                time: self.time.unwrap_or(size.time),
                files: self.files.unwrap_or(size.files),
                effort,
            }),
            Part::Pathological => Box::new(Pathological {
                tree: tree?.clone(),
                copies: self.copies.unwrap_or(size.copies),
                mounts: MOUNTS,
                effort,
            }),
            Part::Rtt => Box::new(RoundTrips {
                tree: tree?.clone(),
                rtts: self.rtts.clone(),
                effort,
            }),
        })
    }
}

/// One part on each of its systems.
fn measured(contest: &dyn Contest, rivals: Rivals, progress: &mut Progress) -> Result<Report> {
    let name = contest.name();
    progress(Event::Line(format!("part {name}")));
    let rivals = Rivals {
        settings: contest.link(),
        ..rivals
    };
    let mut report = Report::new(name, [name]);
    rivals.run(&mut report, progress, &mut |system, progress| {
        contest.measure(system, progress)
    })?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        wbc: Wbc,
    }

    fn parsed(words: &str) -> std::result::Result<Wbc, String> {
        let words = ["wbc"].into_iter().chain(words.split_whitespace());
        let line = Line::try_parse_from(words);
        line.map(|line| line.wbc).map_err(|error| error.to_string())
    }

    #[test]
    fn parts_come_in_order_and_all_by_default() {
        assert_eq!(parsed("").unwrap().parts(), Part::value_variants());
        let some = parsed("--part rtt,metadata --full").unwrap();
        assert_eq!(some.parts(), [Part::Metadata, Part::Rtt]);
        assert_eq!(some.size().entries, 100_000);
        assert!(some.contest(Part::Rtt, None, &StopFlag::new()).is_none());
        assert_eq!(Part::Rtt.rivals(), SERVED);
    }

    #[test]
    fn nonsense_is_refused() {
        for (words, part) in [
            ("--part nonsense", "nonsense"),
            ("--entries 0", "0"),
            ("--tasks 0", "0"),
            ("--rtts 5", "5"),
            ("--runs 0", "0"),
            ("--copies 0", "0"),
            ("--time x", "x"),
        ] {
            let error = parsed(words).err().unwrap();
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
