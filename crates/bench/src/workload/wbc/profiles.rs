//! Three profiles of filebench as workloads: a mail server, a file server, a web server. Numbers are those of
//! filebench's profiles of these names; sizes of files are even here, not gamma distributed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::{Rng, SeededRng};

use super::contest::{Contest, rate, table};
use super::workers::{Task, together};
use crate::error::{During, Result};
use crate::report::{Column, Sample, Section};
use crate::workload::effort::Effort;
use crate::workload::measured::{Measurement, Turn};

/// Bytes that are appended at once.
const APPENDED: usize = 16 << 10;

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// 16 tasks in one directory: remove; create, append, fsync; read, append, fsync; read.
    Varmail,
    /// 50 tasks in a tree: create and write whole; append; read whole; remove; stat.
    Fileserver,
    /// 100 tasks in a tree: ten files read whole, then a line in a log.
    Webserver,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 3] = [Profile::Varmail, Profile::Fileserver, Profile::Webserver];

    fn name(self) -> &'static str {
        match self {
            Profile::Varmail => "varmail",
            Profile::Fileserver => "fileserver",
            Profile::Webserver => "webserver",
        }
    }

    fn tasks(self) -> u64 {
        match self {
            Profile::Varmail => 16,
            Profile::Fileserver => 50,
            Profile::Webserver => 100,
        }
    }

    /// As filebench has it; less where the measurement is to be short.
    fn files(self) -> u64 {
        match self {
            Profile::Varmail | Profile::Webserver => 1000,
            Profile::Fileserver => 10_000,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Profile::Varmail | Profile::Webserver => 16 << 10,
            Profile::Fileserver => 128 << 10,
        }
    }

    /// Files in a directory.
    fn width(self) -> u64 {
        match self {
            Profile::Varmail => u64::MAX,
            Profile::Fileserver | Profile::Webserver => 20,
        }
    }
}

/// Each for a while.
#[derive(Debug, Clone)]
pub struct Profiles {
    /// How long.
    pub time: Duration,
    /// Files of a profile at most.
    pub files: u64,
    /// For each row.
    pub effort: Effort,
}

/// The files of one profile.
struct Files {
    directory: PathBuf,
    profile: Profile,
    count: u64,
    /// New ones get numbers from here.
    next: AtomicU64,
}

impl Files {
    fn path(&self, number: u64) -> PathBuf {
        let place = match self.profile.width() {
            u64::MAX => self.directory.clone(),
            // New files go where there is a directory.
            width => self
                .directory
                .join(format!("d{}", number % self.count / width)),
        };
        place.join(format!("f{number}"))
    }

    fn make(&self) -> io::Result<()> {
        fs::create_dir(&self.directory)?;
        let bytes = vec![7; self.profile.bytes()];
        for number in 0..self.count {
            let path = self.path(number);
            if number.is_multiple_of(self.profile.width()) && self.profile.width() != u64::MAX {
                fs::create_dir(path.parent().unwrap_or(&self.directory))?;
            }
            fs::write(path, &bytes)?;
        }
        Ok(())
    }

    /// Any that was there at the beginning, or has been made since.
    fn any(&self, random: &mut SeededRng) -> PathBuf {
        self.path(random.below(self.next.load(Ordering::Relaxed)))
    }

    fn new_one(&self) -> PathBuf {
        self.path(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Each call takes the next operation of the profile's turn.
    fn task(&self, seed: u64) -> Task<'_> {
        let mut random = SeededRng::new(seed);
        let mut step = 0;
        let mut bytes = vec![0; 1 << 20];
        Box::new(move || {
            match self.profile {
                Profile::Varmail => self.mail(step % 4, &mut random, &mut bytes)?,
                Profile::Fileserver => self.serve(step % 5, &mut random, &mut bytes)?,
                Profile::Webserver => self.publish(step % 11, &mut random, &mut bytes)?,
            }
            step += 1;
            Ok(Turn::Again)
        })
    }

    fn mail(&self, step: u32, random: &mut SeededRng, bytes: &mut [u8]) -> io::Result<()> {
        match step {
            0 => there(fs::remove_file(self.any(random))),
            1 => {
                let mut file = File::create_new(self.new_one())?;
                file.write_all(&bytes[..APPENDED])?;
                file.sync_all()
            }
            2 => {
                let path = self.any(random);
                there(read(&path, bytes))?;
                there(append(&path, bytes).and_then(|file| file.sync_all()))
            }
            _ => there(read(&self.any(random), bytes)),
        }
    }

    fn serve(&self, step: u32, random: &mut SeededRng, bytes: &mut [u8]) -> io::Result<()> {
        match step {
            0 => File::create_new(self.new_one())?.write_all(&bytes[..self.profile.bytes()]),
            1 => there(append(&self.any(random), bytes).map(|_| ())),
            2 => there(read(&self.any(random), bytes)),
            3 => there(fs::remove_file(self.any(random))),
            _ => there(fs::metadata(self.any(random)).map(|_| ())),
        }
    }

    fn publish(&self, step: u32, random: &mut SeededRng, bytes: &mut [u8]) -> io::Result<()> {
        match step {
            10 => append(&self.directory.join("log"), bytes).map(|_| ()),
            _ => there(read(&self.any(random), bytes)),
        }
    }
}

/// Another task may have removed it.
fn there(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn read(path: &Path, bytes: &mut [u8]) -> io::Result<()> {
    let mut file = File::open(path)?;
    while file.read(bytes)? > 0 {}
    Ok(())
}

fn append(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let create = path.ends_with("log");
    let mut file = options.append(true).create(create).open(path)?;
    file.write_all(&bytes[..APPENDED])?;
    Ok(file)
}

impl Contest for Profiles {
    fn name(&self) -> &'static str {
        "profiles"
    }

    fn effort(&self) -> &Effort {
        &self.effort
    }

    fn run(&self, measurement: &mut Measurement<'_, '_>, directory: &Path) -> Result<()> {
        for profile in Profile::ALL {
            let count = profile.files().min(self.files);
            let files = Files {
                directory: directory.join(profile.name()),
                profile,
                count,
                next: AtomicU64::new(count),
            };
            files
                .make()
                .during(|| format!("making the files of {}", profile.name()))?;
            let tasks = (0..profile.tasks()).map(|task| files.task(task)).collect();
            let sample = together(measurement, profile.name(), tasks, self.time)?;
            // It was to go on for so long.
            let capped = false;
            measurement.keep(profile.name(), Sample { capped, ..sample });
        }
        Ok(())
    }

    fn section(&self, runs: Vec<Column>) -> Section {
        let steps = Profile::ALL.map(|profile| profile.name().to_owned());
        Section {
            bitmaps: Vec::new(),
            name: self.name().to_owned(),
            title: format!("profiles of filebench, {:?} each", self.time),
            tables: vec![table("Operations a second", "", &steps, &runs, rate)],
            figures: Vec::new(),
            notes: vec![format!(
                "files: {} at most of each profile; a turn's create, write and fsync are one operation",
                self.files
            )],
            runs,
        }
    }
}
