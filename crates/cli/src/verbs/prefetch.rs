//! `glint fs prefetch`

use std::ffi::OsString;
use std::fs::symlink_metadata;
use std::io::{BufRead, IsTerminal, Write, stderr, stdin};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::Fid;
use clap::Args;
use client::{FETCHED_BYTES_MAX, NameRange, RANGE_PART_MAX};
use serde::Serialize;
use wire::mdt::WalkLevel;

use crate::control::{Answer, Question, ask};
use crate::output::{complain, say, say_json};
use crate::verbs::numbered;

/// Files of one question.
const FILES_MAX: usize = 1024;

/// What to fetch.
#[derive(Args)]
pub struct Prefetch {
    /// Files and directories of one Glint mount; `-`: read from standard input, one a line.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Of each PATH, which is a directory, only the names and attributes of these files: PATTERN
    /// with the numbers FIRST to LAST. PATTERN has one %d, or one like %04d for numbers with zeros
    /// in front; %% is a percent sign. For example --range 'shot%04d.exr' 1 240
    #[arg(long, num_args = 3, value_names = ["PATTERN", "FIRST", "LAST"])]
    range: Option<Vec<OsString>>,
    /// Of the range only each N-th name.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "range")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    step: u64,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What came that was not at hand before.
#[derive(Debug, Default, Serialize)]
struct Came {
    directories: u64,
    entries: u64,
    files: u64,
}

impl Prefetch {
    /// Does it. What cannot be fetched is said, and does not end it.
    pub fn run(self) -> Result<(), String> {
        let range = match &self.range {
            Some(words) => Some(numbered::range(words, self.step)?),
            None => None,
        };
        let (mut came, mut all) = (Came::default(), true);
        let mut files: Vec<(PathBuf, u64)> = Vec::new();
        for path in self.paths()? {
            let done = match symlink_metadata(&path) {
                Err(error) => Err(format!("{}: {error}", path.display())),
                Ok(found) if found.is_dir() => match &range {
                    Some(range) => came.range(&path, found.ino(), range),
                    None => came.tree(&path, Fid(found.ino())),
                },
                Ok(_) if range.is_some() => Err(format!(
                    "{}: not a directory; --range is of the names in one",
                    path.display()
                )),
                Ok(found) if !found.is_file() => Err(format!(
                    "{}: neither a file nor a directory",
                    path.display()
                )),
                Ok(found) if found.size() > FETCHED_BYTES_MAX => Err(format!(
                    "{}: {} bytes, and only files of up to {} MiB are fetched",
                    path.display(),
                    found.size(),
                    FETCHED_BYTES_MAX >> 20
                )),
                Ok(found) => {
                    files.push((path, found.ino()));
                    match files.len() < FILES_MAX {
                        true => Ok(()),
                        false => came.files(&std::mem::take(&mut files)),
                    }
                }
            };
            all &= done.map_err(complain).is_ok();
        }
        all &= came.files(&files).map_err(complain).is_ok();
        came.tell(self.json, all)?;
        match all {
            true => Ok(()),
            false => Err("not everything was fetched".to_owned()),
        }
    }

    /// Those given, and those on standard input.
    fn paths(&self) -> Result<Vec<PathBuf>, String> {
        let mut paths = Vec::new();
        for path in &self.paths {
            if path.as_os_str() != "-" {
                paths.push(path.clone());
                continue;
            }
            for line in stdin().lock().split(b'\n') {
                let line = line.map_err(|error| format!("standard input: {error}"))?;
                paths.push(PathBuf::from(OsString::from_vec(line)));
            }
        }
        Ok(paths)
    }
}

impl Came {
    /// All names and attributes below `dir`.
    fn tree(&mut self, path: &Path, dir: Fid) -> Result<(), String> {
        let mut levels = vec![WalkLevel {
            dir,
            cookie: 0,
            listed: false,
        }];
        while !levels.is_empty() {
            match ask(path, &Question::PrefetchTree { levels })? {
                Answer::Tree {
                    directories,
                    entries,
                    next,
                } => {
                    self.directories += directories;
                    self.entries += entries;
                    levels = next;
                }
                other => return Err(format!("the mount answered something else: {other:?}")),
            }
            if stderr().is_terminal() {
                let (directories, entries) = (self.directories, self.entries);
                let _ = write!(stderr(), "\r{directories} directories, {entries} entries ");
            }
        }
        if stderr().is_terminal() {
            let _ = writeln!(stderr());
        }
        Ok(())
    }

    /// The names of a range, part by part: a mount answers one question at a time.
    fn range(&mut self, path: &Path, dir: u64, range: &NameRange) -> Result<(), String> {
        let span = RANGE_PART_MAX.saturating_mul(range.step);
        for first in (range.first..=range.last).step_by(span as usize) {
            let end = first.saturating_add(span - range.step);
            let part = NameRange {
                first,
                last: range.last.min(end),
                ..range.clone()
            };
            match ask(path, &Question::PrefetchRange { dir, range: part })? {
                Answer::Files(count) => self.entries += count,
                other => return Err(format!("the mount answered something else: {other:?}")),
            }
        }
        Ok(())
    }

    /// The bytes of files, all on the mount of the first.
    fn files(&mut self, files: &[(PathBuf, u64)]) -> Result<(), String> {
        let Some((path, _)) = files.first() else {
            return Ok(());
        };
        let fids = files.iter().map(|(_, fid)| *fid).collect();
        match ask(path, &Question::PrefetchFiles { fids })? {
            Answer::Files(count) => self.files += count,
            other => return Err(format!("the mount answered something else: {other:?}")),
        }
        Ok(())
    }

    /// Where `all` could be fetched, what did not come was here.
    fn tell(&self, json: bool, all: bool) -> Result<(), String> {
        if json {
            return say_json(self);
        }
        match (self.directories, self.entries, self.files) {
            (0, 0, 0) if all => say("fetched nothing: all of it is here already"),
            (0, 0, 0) => say("fetched nothing"),
            (directories, entries, files) => say(format!(
                "fetched {directories} directories with {entries} entries, and {files} files"
            )),
        }
        Ok(())
    }
}
