//! `glint bench flat`

use std::path::PathBuf;

use bench::{FlatConfig, Progress, Report, StopFlag, flat};
use clap::Args;

use super::rivals::Rivals;
use super::screen::Screen;
use super::walk::Common;

/// Measure one directory with very many empty files: made, listed cold and warm, removed. Without
/// DIR, on file systems that are set up for it.
#[derive(Args)]
pub struct Flat {
    /// How many files.
    files: u64,
    /// Directories to measure as they are; each gets a subdirectory, which is removed again.
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Flat {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let stop = StopFlag::on_signals().map_err(|error| error.to_string())?;
        let rivals = self.common.rivals(&self.dirs, &stop)?;
        let mut screen = Screen::new();
        let report = self.measure(&rivals, &mut |event| screen.show(event));
        drop(screen);
        self.common
            .show(&mut report.map_err(|error| error.to_string())?)
    }

    fn measure(&self, rivals: &Rivals, progress: &mut Progress) -> bench::Result<Report> {
        let config = FlatConfig {
            files: self.files,
            only_create: false,
            runs: self.common.runs(),
            cap: self.common.cap(),
            stop: rivals.stop.clone(),
        };
        let title = format!(
            "one directory of {} files{}",
            self.files,
            self.common.link()
        );
        let mut report = Report::new(title, bench::workload::flat::STEPS);
        rivals.run(&mut report, progress, &mut |system, progress| {
            flat(system, &config, progress)
        })?;
        Ok(report)
    }
}
