//! `glint format`

use std::path::{Path, PathBuf};

use base::{Clock, SeededRng, SystemClock, TargetIndex, TargetKind, TargetName};
use clap::Args;
use storage::{FormatRequest, FsName, KvOptions, SystemRandom, TargetDir, TargetKey, Uuid};

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
    #[arg(long, value_delimiter = ',', default_value = "mgs,mdt,ost", value_parser = parse_role)]
    role: Vec<TargetName>,
    /// The file system's name.
    #[arg(long, default_value = "glint", value_parser = parse_name)]
    name: String,
    /// Erase this target first (mgs, mdt0, ost0 …): all it holds is lost.
    #[arg(long, value_name = "TARGET", value_parser = parse_role)]
    erase: Option<TargetName>,
    /// The directory whose file system to join, and whose key to use.
    #[arg(long, value_name = "DIR")]
    join: Option<PathBuf>,
}

impl Format {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        if let Some(target) = self.erase {
            TargetDir::erase(&self.dir, target).map_err(|error| error.to_string())?;
            say(format!("{target} in {} erased", self.dir.display()));
        }
        format(&self.dir, &self.role, &self.name, self.join.as_deref())?;
        for target in &self.role {
            say(format!("{target} made in {}", self.dir.display()));
        }
        Ok(())
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    text.parse::<FsName>().map(|name| name.as_str().to_owned())
}

/// `mdt` is MDT0, `ost3` is OST3.
fn parse_role(text: &str) -> Result<TargetName, String> {
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

/// Makes `targets` in `dir`.
pub fn format(
    dir: &Path,
    targets: &[TargetName],
    name: &str,
    join: Option<&Path>,
) -> Result<(), String> {
    let mut random =
        SystemRandom::open().map_err(|error| format!("no source of randomness: {error}"))?;
    let fs_uuid = join.map(uuid_of).transpose()?;
    let request = FormatRequest {
        fs_name: name.parse::<FsName>()?,
        fs_uuid,
        targets: targets.to_vec(),
        created: SystemClock::default().now(),
    };
    TargetDir::format(dir, &request, &mut random).map_err(|error| error.to_string())?;
    if let Some(join) = join {
        let key = TargetKey::load(&TargetKey::path_in(join));
        key.and_then(|key| key.install(dir))
            .map_err(|error| error.to_string())?;
    }
    fill(dir, targets, &mut random)
}

fn uuid_of(dir: &Path) -> Result<Uuid, String> {
    match TargetDir::inspect(dir).map_err(|error| error.to_string())? {
        storage::State::Targets { superblocks, .. } if !superblocks.is_empty() => {
            Ok(superblocks[0].fs_uuid)
        }
        _ => Err(format!("{} holds no Glint target to join", dir.display())),
    }
}

/// An MDT begins with a root directory.
fn fill(dir: &Path, targets: &[TargetName], random: &mut SystemRandom) -> Result<(), String> {
    if !targets.iter().any(|target| target.kind == TargetKind::Mdt) {
        return Ok(());
    }
    let opened = TargetDir::open(dir).map_err(|error| error.to_string())?;
    for target in opened.into_targets() {
        let name = target.superblock().target;
        if name.kind != TargetKind::Mdt || !targets.contains(&name) {
            continue;
        }
        let options = KvOptions::new(name.to_string());
        let kv = target
            .kv(&mds::tables(), options)
            .map_err(|error| error.to_string())?;
        let seed = u64::from_le_bytes(random.bytes().map_err(|error| error.to_string())?);
        let key = base::Rng::next_u64(&mut SeededRng::new(seed));
        // An ordinary user's file system is that user's.
        let owner = (
            nix::unistd::geteuid().as_raw(),
            nix::unistd::getegid().as_raw(),
        );
        let now = SystemClock::default().now();
        mds::format::format_for(&kv, key, now, owner).map_err(|error| error.to_string())?;
        kv.close().map_err(|error| error.to_string())?;
    }
    Ok(())
}
