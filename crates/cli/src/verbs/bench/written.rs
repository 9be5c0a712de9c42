//! Where a document of several measurements goes.

use std::path::PathBuf;

use bench::{BenchError, Document, Figures, Result, StopFlag};
use clap::Args;

use super::rivals::{Rival, Rivals, remove_stale};
use crate::output::say_lines;

/// What all of these have in common.
#[derive(Args)]
pub struct Written {
    /// Where the file systems are set up meanwhile: a directory on the disk to measure.
    #[arg(long, default_value = "demo-data")]
    work: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// The form of a document.
#[derive(Args)]
pub struct Output {
    /// A directory for the document as Markdown and JSON, and for its figures; files of these names are
    /// replaced.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print JSON instead of Markdown.
    #[arg(long)]
    json: bool,
}

impl Output {
    /// A directory that cannot be written is better known before anything is measured.
    pub fn prepare(&self) -> Result<()> {
        let Some(out) = &self.out else { return Ok(()) };
        let made = std::fs::create_dir_all(out).and_then(|()| tempfile::tempfile_in(out));
        made.map(|_| ()).map_err(|source| BenchError::Io {
            doing: format!("writing in {}", out.display()),
            source,
        })
    }

    /// As far as it is.
    pub fn write(&self, document: &Document) -> Result<()> {
        self.out.iter().try_for_each(|out| document.write(out))
    }

    /// Shows it.
    pub fn show(&self, document: &Document) -> std::result::Result<(), String> {
        say_lines(match self.json {
            true => document.json().map_err(|error| error.to_string())?,
            false => document.markdown(Figures::LeftOut),
        });
        Ok(())
    }
}

impl Written {
    /// See [`Output::prepare`].
    pub fn prepare(&self) -> Result<()> {
        self.output.prepare()
    }

    /// See [`Output::write`].
    pub fn write(&self, document: &Document) -> Result<()> {
        self.output.write(document)
    }

    /// See [`Output::show`].
    pub fn show(&self, document: &Document) -> std::result::Result<(), String> {
        self.output.show(document)
    }

    /// These systems, set up where it was asked for.
    pub fn rivals(&self, systems: &[Rival], stop: &StopFlag) -> Result<Rivals> {
        let work = std::path::absolute(&self.work).map_err(|source| BenchError::Io {
            doing: format!("finding {}", self.work.display()),
            source,
        })?;
        remove_stale(&work);
        Ok(Rivals {
            systems: systems.to_vec(),
            directories: Vec::new(),
            drop_caches: false,
            like_disks: false,
            settings: bench::LinkSettings::default(),
            work,
            stop: stop.clone(),
        })
    }
}
