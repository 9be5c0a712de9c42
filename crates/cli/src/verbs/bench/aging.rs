//! `glint bench aging`

use std::path::PathBuf;

use bench::aging::parameters::Parameters;
use bench::aging::{Disk, Erase, Lab};
use bench::{Document, Progress, Result, Section, StopFlag};
use clap::{Args, ValueEnum};

use super::screen::Screen;
use super::written::Output;

/// Usual sizes of the tested area, in groups.
const MODEL_GROUPS: u32 = 1500;
const REAL_GROUPS: u32 = 40;

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The paper's experiment on each preallocation table: its ten figures and its statements.
    Tables,
    /// Files of known and of open length with the default table.
    Known,
    /// The paper's open questions: small holes under large tables, requests of 4 MiB.
    Open,
    /// The statements with each number of the model off.
    Scale,
    /// A source tree after many commits, read back against a fresh copy.
    Git,
    /// A target that stays 90 % full of small files, read back against a fresh copy.
    Churn,
}

/// Measure how the object store's placement ages, as the paper on a Sonexion's life-long performance did.
///
/// The disk is a model in virtual time: an array of drives that seek and turn. The allocator is the object
/// store's own. Twenty files fill a target together; then one is deleted at a time, and optimal write and
/// read jobs are measured at each step. Prints Markdown; with --out also writes JSON, and figures as SVG.
/// Needs no root.
#[derive(Args)]
pub struct Aging {
    /// Which parts [default: all; with --on tables, known and open].
    #[arg(long, value_delimiter = ',')]
    part: Vec<Part>,
    /// Groups of 128 MiB of the tested area; the paper's had 15000 [default: 1500; with --on 40].
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=60_000))]
    groups: Option<u32>,
    /// A real disk in place of the model: a directory, in which a file without a name is made, or a block
    /// device.
    #[arg(long, value_name = "PATH")]
    on: Option<PathBuf>,
    /// The block device of --on may be overwritten.
    #[arg(long, requires = "on")]
    erase: bool,
    /// Part git: entries of the tree.
    #[arg(long, default_value_t = bench::tree::KERNEL_ENTRIES,
        value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    entries: u64,
    /// Part git: how many commits.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    commits: u64,
    /// Preallocation tables of part tables, in MiB.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,64",
        value_parser = clap::value_parser!(u64).range(1..=128))]
    tables: Vec<u64>,
    /// Part scale: by how many per cent each number of the model is changed.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=90))]
    scale: u32,
    /// Of the order in which streams send.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

impl Aging {
    /// Does it.
    pub fn run(self) -> std::result::Result<(), String> {
        let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
        let mut screen = Screen::new();
        let document = self.measure(&stop, &mut |event| screen.show(event));
        screen.clear();
        self.output
            .show(&document.map_err(|error| error.to_string())?)
    }

    fn parts(&self) -> Vec<Part> {
        let is_usual = |part: &Part| {
            let on_any_disk = matches!(part, Part::Tables | Part::Known | Part::Open);
            self.part.is_empty() && (self.on.is_none() || on_any_disk)
        };
        let all = Part::value_variants().iter().copied();
        all.filter(|part| is_usual(part) || self.part.contains(part))
            .collect()
    }

    fn measure(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Document> {
        let (disk, title, groups) = match &self.on {
            None => {
                let title = "Ageing of placement on a model disk: an 8+2 array of 3 TB drives";
                let disk = Disk::Model(Parameters::default());
                (disk, title.to_owned(), MODEL_GROUPS)
            }
            Some(path) => {
                let title = format!("Ageing of placement on {}", path.display());
                let erase = match self.erase {
                    true => Erase::Device,
                    false => Erase::Nothing,
                };
                (Disk::Real(path.clone(), erase), title, REAL_GROUPS)
            }
        };
        let mut document = Document::new("aging", title);
        self.output.prepare()?;
        let lab = Lab {
            disk,
            groups: self.groups.unwrap_or(groups),
            entries: self.entries,
            commits: self.commits,
            tables_mib: self.tables.clone(),
            scale: self.scale,
            seed: self.seed,
            stop: stop.clone(),
        };
        for part in self.parts() {
            document.sections.push(section(&lab, part, progress)?);
            self.output.write(&document)?;
        }
        Ok(document)
    }
}

fn section(lab: &Lab, part: Part, progress: &mut Progress) -> Result<Section> {
    match part {
        Part::Tables => lab.tables(progress),
        Part::Known => lab.known(progress),
        Part::Open => lab.open(progress),
        Part::Scale => lab.scale(progress),
        Part::Git => lab.git(progress),
        Part::Churn => lab.churn(progress),
    }
}
