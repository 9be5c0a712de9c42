//! `glint bench walk`

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bench::link::{parse_bandwidth, parse_duration};
use bench::{Event, Progress, Report, SourceTree, Step, StopFlag, WalkConfig, walk};
use clap::{Args, ValueEnum};

use super::rivals::{Rival, Rivals, link_settings, remove_stale};
use super::screen::Screen;
use crate::output::say_lines;

/// How a report is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// An aligned table.
    #[default]
    Text,
    /// A table for a document.
    Markdown,
    /// Everything, each run included.
    Json,
}

/// What measurements have in common.
#[derive(Args)]
pub struct Common {
    /// File systems to set up and measure, beside DIR [default: glint,ext4,tmpfs, if no DIR].
    #[arg(long, value_delimiter = ',')]
    system: Vec<Rival>,
    /// Round trip between Glint's (and sshfs's) client and server, as in 5ms.
    #[arg(long, default_value = "0", value_parser = duration)]
    rtt: Duration,
    /// Bandwidth there, as in 1gbit, or unlimited.
    #[arg(long, default_value = "unlimited", value_parser = bandwidth)]
    bandwidth: Bandwidth,
    /// How often; the report shows medians.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How long a step may take before it is stopped and reported as longer than that.
    #[arg(long, default_value = "120s", value_parser = cap)]
    cap: Duration,
    /// Where file systems are set up: a directory on the disk to measure.
    #[arg(long, default_value = "demo-data")]
    work: PathBuf,
    /// Drop the machine's caches before cold steps in DIR and on ext4 (root only).
    #[arg(long)]
    drop_caches: bool,
    /// How the report is shown.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// As --format json.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// Bits a second; none is unlimited.
#[derive(Debug, Clone, Copy)]
pub struct Bandwidth(pub Option<u64>);

pub fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

pub fn bandwidth(text: &str) -> Result<Bandwidth, String> {
    parse_bandwidth(text)
        .map(Bandwidth)
        .map_err(|error| error.to_string())
}

/// A time limit in seconds.
pub fn cap(text: &str) -> Result<Duration, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).parse();
    seconds
        .map(Duration::from_secs)
        .map_err(|_| format!("{text:?} is no time; write 120s"))
}

impl Common {
    /// Who takes part.
    pub fn rivals(&self, directories: &[PathBuf], stop: &StopFlag) -> Result<Rivals, String> {
        let usual = [Rival::Glint, Rival::Ext4, Rival::Tmpfs];
        let systems = match (self.system.is_empty(), directories.is_empty()) {
            (true, true) => usual.to_vec(),
            _ => self.system.clone(),
        };
        let work = std::path::absolute(&self.work).map_err(|error| error.to_string())?;
        remove_stale(&work);
        Ok(Rivals {
            systems,
            directories: directories.to_vec(),
            drop_caches: self.drop_caches,
            like_disks: false,
            settings: link_settings(self.rtt, self.bandwidth.0),
            work,
            stop: stop.clone(),
        })
    }

    pub fn runs(&self) -> u32 {
        self.runs
    }

    pub fn cap(&self) -> Duration {
        self.cap
    }

    /// The link, in a report's title.
    pub fn link(&self) -> String {
        match self.rtt.is_zero() {
            true => String::new(),
            false => format!(", {:?} from the server", self.rtt),
        }
    }

    /// Shows the report.
    pub fn show(&self, report: &mut Report) -> Result<(), String> {
        let is_ext4 = |name: &&str| *name == "ext4" || *name == "local disk";
        report.baseline = report
            .columns
            .iter()
            .map(|column| column.name.as_str())
            .find(is_ext4)
            .map(str::to_owned);
        let format = if self.json { Format::Json } else { self.format };
        show(report, format)
    }
}

/// Prints a report.
pub fn show(report: &Report, format: Format) -> Result<(), String> {
    say_lines(match format {
        Format::Text => report.text(),
        Format::Markdown => report.markdown(),
        Format::Json => report.json().map_err(|error| error.to_string())?,
    });
    Ok(())
}

/// Where a tree comes from.
#[derive(Debug, Clone)]
pub enum TreeSource {
    /// Debian's kernel source, or one of its shape.
    Kernel,
    /// One of that many entries in the shape of the kernel's.
    Generated(u64),
    /// A tar file.
    Tar(PathBuf),
}

impl FromStr for TreeSource {
    type Err = String;

    fn from_str(text: &str) -> Result<TreeSource, String> {
        match text {
            "kernel" => Ok(TreeSource::Kernel),
            _ if text.bytes().all(|byte| byte.is_ascii_digit()) => text
                .parse()
                .map(TreeSource::Generated)
                .map_err(|_| format!("{text:?} is no number of entries")),
            _ => Ok(TreeSource::Tar(text.into())),
        }
    }
}

impl TreeSource {
    /// Gets it; trees that had to be made are kept in `cache`.
    pub fn obtain(
        &self,
        cache: &Path,
        stop: &StopFlag,
        progress: &mut Progress,
    ) -> bench::Result<SourceTree> {
        match self {
            TreeSource::Kernel => SourceTree::kernel(cache, stop, progress),
            TreeSource::Generated(entries) => {
                SourceTree::generated(cache, 1, *entries, stop, progress)
            }
            TreeSource::Tar(path) => SourceTree::from_tar(path, path.display().to_string()),
        }
    }
}

/// Measure the life of a source tree: unpacked, walked, searched, copied, removed, by tar, find, du,
/// ls, grep, cp and rm. Without DIR, on file systems that are set up for it.
#[derive(Args)]
pub struct Walk {
    /// Directories to measure as they are; each gets a subdirectory, which is removed again.
    dirs: Vec<PathBuf>,
    /// The tree: kernel (Debian's, or one of its shape), a number of entries, or a tar file.
    #[arg(long, default_value = "kernel")]
    tree: TreeSource,
    #[command(flatten)]
    common: Common,
}

impl Walk {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
        let mut screen = Screen::new();
        let rivals = self.common.rivals(&self.dirs, &stop)?;
        let mut report = measure(&self.tree, &rivals, &self.common, &mut |e| screen.show(e))
            .map_err(|error| error.to_string())?;
        screen.clear();
        self.common.show(&mut report)
    }
}

fn measure(
    tree: &TreeSource,
    rivals: &Rivals,
    common: &Common,
    progress: &mut Progress,
) -> bench::Result<Report> {
    let cache = rivals.work.join("trees");
    let tree = tree.obtain(&cache, &rivals.stop, progress)?;
    let mut config = WalkConfig::new(tree, rivals.stop.clone());
    (config.runs, config.cap) = (common.runs(), common.cap());
    let mut report = Report::new(title(&config.tree, &common.link()), labels());
    walk_all(rivals, &config, &mut report, progress)?;
    Ok(report)
}

/// Every system in turn.
pub fn walk_all(
    rivals: &Rivals,
    config: &WalkConfig,
    report: &mut Report,
    progress: &mut Progress,
) -> bench::Result<()> {
    progress(Event::Line(report.title.clone()));
    rivals.run(report, progress, &mut |system, progress| {
        walk(system, config, progress)
    })
}

/// What a report is about.
pub fn title(tree: &SourceTree, link: &str) -> String {
    let count = &tree.count;
    format!(
        "{}: {} entries in {} directories, {} MB{link}",
        tree.origin,
        count.entries(),
        count.directories,
        count.bytes / 1_000_000
    )
}

/// The rows.
pub fn labels() -> impl Iterator<Item = &'static str> {
    Step::ALL.into_iter().map(Step::label)
}
