//! Creates, stats and removes of empty files and directories, as mdtest measures them. Several tasks do it,
//! each in a directory of its own.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::contest::{Contest, rate, synced, table};
use super::workers::{Task, together};
use crate::error::{During, Result};
use crate::report::{Column, Section};
use crate::workload::effort::Effort;
use crate::workload::measured::{Measurement, Turn};

/// What each task does to each of its entries.
#[derive(Debug, Clone, Copy)]
enum Work {
    Mkdir,
    StatDir,
    Rmdir,
    Create,
    StatFile,
    Unlink,
}

impl Work {
    const ALL: [Work; 6] = [
        Work::Mkdir,
        Work::StatDir,
        Work::Rmdir,
        Work::Create,
        Work::StatFile,
        Work::Unlink,
    ];

    fn label(self) -> &'static str {
        match self {
            Work::Mkdir => "directories made, sync",
            Work::StatDir => "directories' stat",
            Work::Rmdir => "directories removed, sync",
            Work::Create => "files made, sync",
            Work::StatFile => "files' stat",
            Work::Unlink => "files removed, sync",
        }
    }

    fn changes(self) -> bool {
        !matches!(self, Work::StatDir | Work::StatFile)
    }

    fn on(self, path: &Path) -> io::Result<()> {
        match self {
            Work::Mkdir => fs::create_dir(path),
            Work::StatDir | Work::StatFile => fs::symlink_metadata(path).map(|_| ()),
            Work::Rmdir => fs::remove_dir(path),
            Work::Create => File::create_new(path).map(|_| ()),
            Work::Unlink => fs::remove_file(path),
        }
    }
}

/// So many tasks, and so many entries in all.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// Side by side.
    pub tasks: Vec<u64>,
    /// Files, and as many directories, of all tasks together.
    pub entries: u64,
    /// For each row.
    pub effort: Effort,
}

fn label(work: Work, tasks: u64) -> String {
    match tasks {
        1 => format!("{}, 1 task", work.label()),
        _ => format!("{}, {tasks} tasks", work.label()),
    }
}

impl Metadata {
    fn steps(&self) -> Vec<String> {
        let all = self.tasks.iter();
        all.flat_map(|tasks| Work::ALL.map(|work| label(work, *tasks)))
            .collect()
    }

    fn take(
        &self,
        measurement: &mut Measurement,
        directories: &[PathBuf],
        work: Work,
    ) -> Result<()> {
        let step = label(work, directories.len() as u64);
        let entries = self.entries / directories.len() as u64;
        let tasks = directories.iter().map(|directory| {
            let mut number = 0;
            let task = move || {
                if number == entries {
                    return Ok(Turn::Done);
                }
                work.on(&directory.join(format!("entry{number:08}")))?;
                number += 1;
                Ok(Turn::Again)
            };
            Box::new(task) as Task
        });
        let cap = measurement.cap;
        let done = together(measurement, &step, tasks.collect(), cap)?;
        let whole = entries * directories.len() as u64;
        let capped = done.entries.is_some_and(|done| done < whole);
        let synced = match work.changes() {
            true => synced(measurement, &step, done)?,
            false => Some(done),
        };
        if let Some(sample) = synced {
            measurement.keep(&step, crate::report::Sample { capped, ..sample });
        }
        Ok(())
    }
}

impl Contest for Metadata {
    fn name(&self) -> &'static str {
        "metadata"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, measurement: &mut Measurement<'_, '_>, directory: &Path) -> Result<()> {
        for tasks in &self.tasks {
            let own = |task| directory.join(format!("{tasks}.{task}"));
            let directories: Vec<PathBuf> = (0..*tasks).map(own).collect();
            for directory in &directories {
                fs::create_dir(directory).during(|| format!("making {}", directory.display()))?;
            }
            for work in Work::ALL {
                self.take(measurement, &directories, work)?;
            }
        }
        Ok(())
    }

    fn section(&self, runs: Vec<Column>) -> Section {
        Section {
            bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!(
                "{} files and as many directories made, looked at and removed, by tasks in \
                 directories of their own",
                self.entries
            ),
            tables: vec![table("A second", "", &self.steps(), &runs, rate)],
            figures: Vec::new(),
            notes: vec!["a task is a thread".to_owned()],
            runs,
        }
    }
}
