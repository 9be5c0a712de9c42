//! `glint fs filefrag`

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use allocator::Block;
use clap::Args;
use serde::Serialize;
use wire::ost::StoredExtent;

use crate::control::{Answer, Question, ask, is_served, mount_of_entry};
use crate::output::{complain, say, say_json};

/// Bytes of a block.
const BLOCK_BYTES: u64 = 4096;

/// Of which files.
#[derive(Args)]
pub struct Filefrag {
    /// Files on Glint mounts.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Each extent besides: where it begins in the file, its bytes, and its first block on the OST.
    #[arg(long, short)]
    verbose: bool,
    /// As JSON, one line a file.
    #[arg(long)]
    json: bool,
}

/// What is said of a file.
#[derive(Serialize)]
struct Frags {
    path: PathBuf,
    ost: Option<u16>,
    extents: Vec<Frag>,
}

/// Bytes that lie in a row.
#[derive(Serialize)]
struct Frag {
    offset: u64,
    bytes: u64,
    group: u32,
    block_in_group: u32,
    written: bool,
    #[serde(skip)]
    place: Block,
}

impl Frag {
    fn of(extent: &StoredExtent) -> Frag {
        let place = Block(extent.block);
        Frag {
            offset: extent.offset,
            bytes: extent.bytes,
            group: place.group().0,
            block_in_group: place.in_group(),
            written: extent.written,
            place,
        }
    }

    /// `next` follows it, in the file and on the disk.
    fn goes_on_as(&self, next: &Frag) -> bool {
        self.written == next.written
            && self.offset + self.bytes == next.offset
            && self.place.0 + self.bytes / BLOCK_BYTES == next.place.0
    }
}

impl Filefrag {
    /// Does it. What cannot be said is told, and does not end it.
    pub fn run(self) -> Result<(), String> {
        let mut all = true;
        for path in &self.paths {
            let found = frags_of(path).and_then(|frags| self.say(&frags));
            all &= found.map_err(complain).is_ok();
        }
        match all {
            true => Ok(()),
            false => Err("not every file could be looked at".to_owned()),
        }
    }

    fn say(&self, frags: &Frags) -> Result<(), String> {
        if self.json {
            return say_json(frags);
        }
        let count = frags.extents.len();
        let plural = if count == 1 { "" } else { "s" };
        let ost = frags
            .ost
            .map_or(String::new(), |ost| format!(" on OST{ost}"));
        say(format!(
            "{}: {count} extent{plural}{ost}",
            frags.path.display()
        ));
        if self.verbose && count > 0 {
            say(format!(
                "{:>16} {:>14} {:>8} {:>8}",
                "offset", "bytes", "group", "block"
            ));
            frags.extents.iter().for_each(say_frag);
        }
        Ok(())
    }
}

fn say_frag(frag: &Frag) {
    let reserved = if frag.written { "" } else { "  reserved" };
    say(format!(
        "{:>16} {:>14} {:>8} {:>8}{reserved}",
        frag.offset, frag.bytes, frag.group, frag.block_in_group
    ));
}

fn frags_of(path: &Path) -> Result<Frags, String> {
    let point = mount_of_entry(path)?.point;
    is_served(&point)?;
    let at = |what: &str| format!("{}: {what}", path.display());
    let found = std::fs::symlink_metadata(path).map_err(|error| at(&error.to_string()))?;
    if !found.is_file() {
        return Err(at("only files have bytes on an OST"));
    }
    let fid = found.ino();
    let mut frags = Frags {
        path: path.to_owned(),
        ost: None,
        extents: Vec::new(),
    };
    let mut from = Some(0);
    while let Some(offset) = from {
        let answer = ask(&point, &Question::Map { fid, offset }).map_err(|error| at(&error))?;
        let Answer::Map { ost, extents, next } = answer else {
            return Err("the mount answered something else".to_owned());
        };
        frags.ost = Some(ost);
        extents
            .iter()
            .map(Frag::of)
            .for_each(|frag| frags.add(frag));
        // Whatever the mount says, this comes to an end.
        from = next.filter(|next| *next > offset);
    }
    Ok(frags)
}

impl Frags {
    fn add(&mut self, frag: Frag) {
        match self.extents.last_mut() {
            Some(last) if last.goes_on_as(&frag) => last.bytes += frag.bytes,
            _ => self.extents.push(frag),
        }
    }
}
