//! The columns of a measurement: which systems, over which link, set up one after the other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::local::{Directory, Ext4, Tmpfs};
use bench::peer::Sshfs;
use bench::{
    BenchError, Column, Event, Link, LinkConfig, LinkSettings, Progress, Report, Result, StopFlag,
    System,
};
use clap::ValueEnum;

use super::floor::FloorFs;
use super::glint::{Glint, NO_PREFETCH, PLAIN, UNDURABLE, WRITE_BACK, WRITE_THROUGH};
use super::named::Named;

/// A sparse file's length: room for a tree and its copy.
const DISK_BYTES: u64 = 16 << 30;
const DISK_INODES: u64 = 2_000_000;
/// As much memory as a tree and its copy may take.
const MEMORY_BYTES: u64 = 6 << 30;

/// A system that can be set up here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rival {
    /// Glint, one serving process and one mount.
    Glint,
    /// The same with llite.*.statahead_max=0.
    GlintNoPrefetch,
    /// The same, that keeps and awaits nothing for what a crash might take.
    #[value(skip)]
    GlintUndurable,
    /// The same with llite.*.wbc=1.
    GlintWriteBack,
    /// The same with llite.*.wbc=0.
    GlintWriteThrough,
    /// sshfs over the same link.
    Sshfs,
    /// A new ext4 on a file (root only).
    Ext4,
    /// A new tmpfs (root only).
    Tmpfs,
    /// A new ext4 as root, else a directory of the disk.
    Local,
    /// A directory of the disk on which Glint stores.
    #[value(skip)]
    Disk,
    /// A FUSE file system in memory: what no file system in user space can be faster than.
    FuseFloor,
}

impl Rival {
    /// Its name in reports.
    pub fn label(self) -> &'static str {
        match self {
            Rival::Glint => PLAIN.name,
            Rival::GlintNoPrefetch => NO_PREFETCH.name,
            Rival::GlintUndurable => UNDURABLE.name,
            Rival::GlintWriteBack => WRITE_BACK.name,
            Rival::GlintWriteThrough => WRITE_THROUGH.name,
            Rival::Sshfs => "sshfs",
            Rival::Ext4 => "ext4",
            Rival::Tmpfs => "tmpfs",
            Rival::Local => "local disk",
            Rival::Disk => "the disk",
            Rival::FuseFloor => "FUSE floor",
        }
    }
}

/// What takes part, and where.
#[derive(Clone)]
pub struct Rivals {
    /// Systems to be set up.
    pub systems: Vec<Rival>,
    /// Directories to be measured as they are.
    pub directories: Vec<PathBuf>,
    /// Caches of the machine may be dropped for these, and for ext4.
    pub drop_caches: bool,
    /// Glint's store lies on a file system of its own like the one it is compared with.
    pub like_disks: bool,
    /// The link between a file system's client and its server; one of nothing is none.
    pub settings: LinkSettings,
    /// A directory on the disk to measure; each system gets a new one inside.
    pub work: PathBuf,
    /// Set to end early.
    pub stop: StopFlag,
}

/// How one system is measured.
pub type Measure<'m> = dyn FnMut(&mut dyn System, &mut Progress) -> Result<Column> + 'm;

impl Rivals {
    /// Measures each in turn, and keeps a column for each.
    pub fn run(
        &self,
        report: &mut Report,
        progress: &mut Progress,
        measure: &mut Measure,
    ) -> Result<()> {
        let link = self.link(progress)?;
        if let Some(link) = &link {
            let settings = link.settings();
            progress(Event::Line(format!(
                "link between two network namespaces: {settings}; the server listens there with \
                 --insecure: nothing is encrypted, but nobody else can reach it"
            )));
        }
        for rival in &self.systems {
            self.stop.check()?;
            progress(Event::Live(format!("{}: getting ready", rival.label())));
            let mut labelled = |event| progress(under(rival.label(), event));
            let column = self.with(*rival, link.as_ref(), &mut |system| {
                measure(system, &mut labelled)
            });
            self.keep(report, progress, rival.label(), column)?;
        }
        for path in &self.directories {
            let mut named = Named::new(path, self.drop_caches);
            let column = measure(&mut named, progress);
            self.keep(report, progress, named.name(), column)?;
        }
        Ok(())
    }

    fn keep(
        &self,
        report: &mut Report,
        progress: &mut Progress,
        name: &str,
        column: Result<Column>,
    ) -> Result<()> {
        self.stop.check()?;
        report.keep(match column {
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                progress(Event::Line(format!("{name}: not measured: {error}")));
                Column::absent(name, error.to_string())
            }
            Ok(column) => Column {
                name: name.to_owned(),
                ..column
            },
        });
        Ok(())
    }

    /// None where none is wanted or can be had.
    fn link(&self, progress: &mut Progress) -> Result<Option<Link>> {
        let remote = [
            Rival::Glint,
            Rival::GlintNoPrefetch,
            Rival::GlintWriteBack,
            Rival::GlintWriteThrough,
            Rival::Sshfs,
        ];
        let wanted = self.settings != LinkSettings::default();
        if !wanted || !self.systems.iter().any(|system| remote.contains(system)) {
            return Ok(None);
        }
        match Link::create(LinkConfig {
            settings: self.settings,
            ..LinkConfig::default()
        }) {
            Ok(link) => Ok(Some(link)),
            Err(BenchError::Interrupted) => Err(BenchError::Interrupted),
            Err(error) => {
                progress(Event::Line(format!(
                    "no link between network namespaces ({error}): for Glint a transport that \
                     delays stands in"
                )));
                Ok(None)
            }
        }
    }

    fn with(
        &self,
        rival: Rival,
        link: Option<&Link>,
        measure: &mut dyn FnMut(&mut dyn System) -> Result<Column>,
    ) -> Result<Column> {
        let place = Place::create(&self.work)?;
        let (stop, rtt) = (&self.stop, self.settings.rtt);
        let glint = |flavour, measure: &mut dyn FnMut(&mut dyn System) -> Result<Column>| {
            let disk = Disk::create(&place, self.like_disks)?;
            measure(&mut Glint::create(flavour, disk.path(), link, rtt, stop)?)
        };
        match rival {
            Rival::Glint => glint(&PLAIN, measure),
            Rival::GlintNoPrefetch => glint(&NO_PREFETCH, measure),
            Rival::GlintWriteBack => glint(&WRITE_BACK, measure),
            Rival::GlintWriteThrough => glint(&WRITE_THROUGH, measure),
            Rival::GlintUndurable => glint(&UNDURABLE, measure),
            Rival::Sshfs => match link {
                Some(link) => measure(&mut Sshfs::create(link, place.path(), stop)?),
                None => Err(BenchError::unavailable(
                    "there is no link",
                    "run as root with --rtt",
                )),
            },
            Rival::Ext4 => {
                let ext4 = Ext4::create(place.path(), DISK_BYTES, DISK_INODES)?;
                match self.drop_caches {
                    true => measure(&mut ext4.dropping_caches()),
                    false => measure(&mut { ext4 }),
                }
            }
            Rival::Disk => measure(&mut Named::new(place.path(), self.drop_caches)),
            Rival::FuseFloor => measure(&mut FloorFs::create(place.path(), stop)?),
            Rival::Tmpfs => measure(&mut Tmpfs::create(place.path(), MEMORY_BYTES)?),
            Rival::Local => match Ext4::create(place.path(), DISK_BYTES, DISK_INODES) {
                Ok(mut ext4) => measure(&mut ext4),
                Err(_) => measure(&mut Directory::new("local disk", place.path()).throwaway()),
            },
        }
    }
}

/// The event with its column named as in the report.
fn under(label: &str, event: Event) -> Event {
    match event {
        Event::Measured { line, column } => Event::Measured {
            line,
            column: Column {
                name: label.to_owned(),
                ..column
            },
        },
        other => other,
    }
}

/// Where Glint keeps what it stores. On a file system like the one it is compared with, the options
/// of the disk's own (`discard`, say, which makes removals wait) weigh on neither.
enum Disk<'p> {
    Own(Ext4),
    Shared(&'p Path),
}

impl Disk<'_> {
    fn create(place: &Place, own: bool) -> Result<Disk<'_>> {
        Ok(match own {
            true => Disk::Own(Ext4::create(place.path(), DISK_BYTES, DISK_INODES)?),
            false => Disk::Shared(place.path()),
        })
    }

    fn path(&self) -> &Path {
        match self {
            Disk::Own(ext4) => ext4.root(),
            Disk::Shared(path) => path,
        }
    }
}

/// A directory for one system, removed with all that is in it.
struct Place(tempfile::TempDir);

impl Place {
    /// In `work`, after what killed measurements have left there.
    fn create(work: &Path) -> Result<Place> {
        let failed = |source| BenchError::Io {
            doing: format!("writing in {}", work.display()),
            source,
        };
        std::fs::create_dir_all(work).map_err(failed)?;
        let prefix = format!("{PREFIX}{}-", std::process::id());
        tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(work)
            .map(Place)
            .map_err(failed)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

const PREFIX: &str = "run-";

/// Removes what killed measurements have left in `work`: files, mounts, loop devices.
pub fn remove_stale(work: &Path) {
    bench::remove_left_behind(work, PREFIX);
}

/// Settings of a link from flags.
pub fn link_settings(rtt: Duration, bandwidth: Option<u64>) -> LinkSettings {
    LinkSettings {
        rtt,
        bandwidth,
        ..LinkSettings::default()
    }
}
