//! `glint format`

use std::path::{Path, PathBuf};

use base::{Clock, Rng, SystemClock, TargetIndex, TargetKind, TargetName};
use clap::Args;
use storage::{
    FileDisk, FormatRequest, FsName, Kv, KvOptions, ObjectBytes, StorageError, SystemRandom,
    TargetDir,
};

use crate::output::say;

/// Make new targets in a directory.
///
/// The directory must be empty or hold only Glint targets. Nothing is ever formatted again unless
/// it is named with --erase.
#[derive(Args)]
pub struct Format {
    /// Where.
    dir: PathBuf,
    /// Which targets: mgs, mdt, ost, with a number for more than one (ost0,ost1).
    #[arg(long, value_delimiter = ',', default_value = "mgs,mdt,ost", value_parser = parse_new)]
    role: Vec<TargetName>,
    /// The file system's name.
    #[arg(long, default_value = "glint", value_parser = parse_name)]
    name: String,
    /// Erase these targets first (mgs, mdt0, ost0 …): all they hold is lost.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', value_parser = parse_role)]
    erase: Vec<TargetName>,
    /// The directory whose file system to join, and whose keys to use.
    #[arg(long, value_name = "DIR")]
    join: Option<PathBuf>,
    /// What holds the bytes of objects: extents of one sparse file, or files.
    ///
    /// The file has the space of its file system, or a size (extents:64G). Without this option it is
    /// extents, but files where the file system takes no space beforehand.
    #[arg(long, value_name = "extents[:SIZE]|files", value_parser = parse_store)]
    store: Option<ObjectBytes>,
    /// The block device that holds the bytes of objects, as extents; for one OST.
    ///
    /// The directory keeps the records, and the name of the device: give one that stays, as in
    /// /dev/disk/by-id. A device that holds something is refused.
    #[arg(long, value_name = "DEVICE", conflicts_with = "store")]
    device: Option<PathBuf>,
    /// Bytes of the device that are used, with K, M, G or T; all where this is not given.
    #[arg(long, value_name = "SIZE", requires = "device", value_parser = parse_size)]
    size: Option<u64>,
    /// The device may hold something, which is lost.
    #[arg(long, requires = "device")]
    erase_device: bool,
}

impl Format {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        if !self.erase.is_empty() {
            TargetDir::erase(&self.dir, &self.erase).map_err(|error| error.to_string())?;
        }
        for target in &self.erase {
            say(format!("{target} in {} erased", self.dir.display()));
        }
        let bytes = self.bytes()?;
        let join = self.join.as_deref();
        format_with(&self.dir, &self.role, &self.name, (join, bytes))?;
        for target in &self.role {
            say(format!("{target} made in {}", self.dir.display()));
        }
        Ok(())
    }

    /// What is to hold the bytes of objects.
    fn bytes(&self) -> Result<ObjectBytes, String> {
        let Some(device) = &self.device else {
            return Ok(self.store.clone().unwrap_or_default());
        };
        let osts = self
            .role
            .iter()
            .filter(|target| target.kind == TargetKind::Ost);
        match osts.count() {
            1 => Ok(ObjectBytes::Device {
                path: device.clone(),
                bytes: self.size,
                erases: self.erase_device,
            }),
            osts => Err(format!(
                "{} is for one OST, and --role names {osts}",
                device.display()
            )),
        }
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    text.parse::<FsName>().map(|name| name.as_str().to_owned())
}

/// `mdt` is MDT0, `ost3` is OST3.
pub(super) fn parse_role(text: &str) -> Result<TargetName, String> {
    let wrong = || format!("{text:?} is no target; expected mgs, mdt, ost or ostN");
    let digits = text
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(text.len());
    let (kind, number) = text.split_at(digits);
    let kind = match kind.to_lowercase().as_str() {
        "mgs" => TargetKind::Mgs,
        "mdt" => TargetKind::Mdt,
        "ost" => TargetKind::Ost,
        _ => return Err(wrong()),
    };
    let index = match number {
        "" => 0,
        number => number.parse().map_err(|_| wrong())?,
    };
    Ok(TargetName {
        kind,
        index: TargetIndex(index),
    })
}

/// A target that a file system can have.
fn parse_new(text: &str) -> Result<TargetName, String> {
    let target = parse_role(text)?;
    match target.kind {
        TargetKind::Mgs | TargetKind::Mdt if target.index.0 > 0 => Err(format!(
            "a file system has one MGS and one MDT, and {text:?} would be another; only ost has numbers"
        )),
        _ => Ok(target),
    }
}

/// `files`, `extents`, or `extents:` and a size.
fn parse_store(text: &str) -> Result<ObjectBytes, String> {
    match text.split_once(':') {
        None if text == "files" => Ok(ObjectBytes::Files),
        None if text == "extents" => Ok(ObjectBytes::Extents { bytes: None }),
        Some(("extents", size)) => Ok(ObjectBytes::Extents {
            bytes: Some(parse_size(size)?),
        }),
        _ => Err(format!(
            "{text:?} is no store; expected files, extents or extents:SIZE"
        )),
    }
}

/// Bytes; with K, M, G or T so many times 1024 of them.
fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size; expected a number, with K, M, G or T behind it");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Makes `targets` in `dir`.
pub fn format(
    dir: &Path,
    targets: &[TargetName],
    name: &str,
    join: Option<&Path>,
) -> Result<(), String> {
    format_with(dir, targets, name, (join, ObjectBytes::Usual))
}

fn format_with(
    dir: &Path,
    targets: &[TargetName],
    name: &str,
    (join, bytes): (Option<&Path>, ObjectBytes),
) -> Result<(), String> {
    let no_randomness = |error| format!("no source of randomness: {error}");
    let mut random = SystemRandom::open().map_err(no_randomness)?;
    let joined = join.map(TargetDir::file_system).transpose();
    let (fs_uuid, key, server_key) = match joined.map_err(|error| error.to_string())? {
        Some((uuid, key, server_key)) => (Some(uuid), Some(key), Some(server_key)),
        None => (None, None, None),
    };
    let request = FormatRequest {
        fs_name: name.parse::<FsName>()?,
        fs_uuid,
        key,
        server_key,
        targets: targets.to_vec(),
        created: SystemClock::default().now(),
        bytes,
    };
    let mut hash_keys = SystemRandom::open().map_err(no_randomness)?;
    let first_records = &mut |target: TargetName, disk| match target.kind {
        TargetKind::Mdt => begin_mdt(target, disk, hash_keys.next_u64()),
        TargetKind::Mgs | TargetKind::Ost => Ok(()),
    };
    let made = TargetDir::format(dir, &request, first_records, &mut random);
    made.map(drop).map_err(|error| error.to_string())
}

/// An MDT begins with a root directory.
fn begin_mdt(target: TargetName, disk: FileDisk, hash_key: u64) -> Result<(), StorageError> {
    let kv = Kv::open(disk, &mds::tables(), KvOptions::new(target.to_string()))?;
    // An ordinary user's file system is that user's.
    let owner = (
        nix::unistd::geteuid().as_raw(),
        nix::unistd::getegid().as_raw(),
    );
    mds::format::format_for(&kv, hash_key, SystemClock::default().now(), owner)?;
    kv.close()
}
