//! `glint bench aging`

use bench::aging::parameters::Parameters;
use bench::aging::{Disk, Lab};
use bench::{Document, Progress, Result, Section, StopFlag};
use clap::{Args, ValueEnum};

use super::screen::Screen;
use super::written::Output;

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
}

/// Measure how the object store's placement ages, as the paper on a Sonexion's life-long performance did.
///
/// The disk is a model in virtual time: an array of drives that seek and turn. The allocator is the object
/// store's own. Twenty files fill a target together; then one is deleted at a time, and optimal write and
/// read jobs are measured at each step. Prints Markdown; with --out also writes JSON, and figures as SVG.
/// Needs no root.
#[derive(Args)]
pub struct Aging {
    /// Which parts [default: all].
    #[arg(long, value_delimiter = ',')]
    part: Vec<Part>,
    /// Groups of 128 MiB of the tested area. The paper's had 15000.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(40..=60_000))]
    groups: u32,
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
        let all = Part::value_variants().iter().copied();
        all.filter(|part| self.part.is_empty() || self.part.contains(part))
            .collect()
    }

    fn measure(&self, stop: &StopFlag, progress: &mut Progress) -> Result<Document> {
        let title = "Ageing of placement on a model disk: an 8+2 array of 3 TB drives";
        let mut document = Document::new("aging", title);
        self.output.prepare()?;
        let lab = Lab {
            disk: Disk::Model(Parameters::default()),
            groups: self.groups,
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
    }
}
