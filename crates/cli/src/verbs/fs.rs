//! `glint fs`

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use base::Fid;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::control::{Answer, Question, ask, is_served, mount_of, mount_of_entry};
use crate::output::{say, say_bytes, say_json};
use crate::verbs::filefrag::Filefrag;
use crate::verbs::prefetch::Prefetch;

/// Questions about a mounted file system and its files.
#[derive(Subcommand)]
pub enum Fs {
    /// Space and files: in all, used, available.
    Df(OfPath),
    /// What is known of a file, its FID with it. Of a symbolic link: of the link, here and below.
    Stat(OfPath),
    /// The FID of a file.
    Path2fid(OfPath),
    /// A path of a file, from the mount point; of that itself: `/`.
    Fid2path(Fid2path),
    /// The size that the MDT knows of a file, and whether it is exact. It is, unless somebody has
    /// the file open for writing or closed it within the last second or so.
    Getsom(OfPath),
    /// Where the bytes of files lie on the disks of their OSTs: in how many extents.
    Filefrag(Filefrag),
    /// Make everything that was done through the mount durable.
    Sync(OfPath),
    /// Fetch directories and files that will be needed soon, in few long requests. Of a directory come all
    /// names and attributes below, or those of numbered names in it; of a file up to 16 MiB of bytes.
    Prefetch(Prefetch),
}

/// A file or directory on a mount.
#[derive(Args)]
pub struct OfPath {
    /// On a Glint mount.
    path: PathBuf,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct Fid2path {
    /// The mount.
    point: PathBuf,
    /// As `glint fs path2fid` writes it: `[0xSEQUENCE:0xOBJECT]`.
    fid: Fid,
    /// As JSON; a path that is not text comes as `path_bytes`, an array of numbers.
    #[arg(long)]
    json: bool,
}

impl Fs {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Fs::Df(of) => df(&of),
            Fs::Stat(of) => stat(&of),
            Fs::Path2fid(of) => path2fid(&of),
            Fs::Fid2path(of) => fid2path(&of),
            Fs::Getsom(of) => getsom(&of),
            Fs::Filefrag(what) => what.run(),
            Fs::Sync(of) => sync(&of.path),
            Fs::Prefetch(what) => what.run(),
        }
    }
}

#[derive(Serialize)]
struct Space {
    bytes: u64,
    bytes_used: u64,
    bytes_available: u64,
    files: u64,
    files_used: u64,
}

fn df(of: &OfPath) -> Result<(), String> {
    mount_of(&of.path)?;
    is_served(&of.path)?;
    let found = nix::sys::statvfs::statvfs(&of.path).map_err(|errno| at(&of.path, errno))?;
    let unit = found.fragment_size();
    let space = Space {
        bytes: found.blocks() * unit,
        bytes_used: (found.blocks() - found.blocks_free()) * unit,
        bytes_available: found.blocks_available() * unit,
        files: found.files(),
        files_used: found.files() - found.files_free(),
    };
    if of.json {
        return say_json(&space);
    }
    say(format!(
        "bytes  {:>20}  used {:>20}  available {:>20}",
        space.bytes, space.bytes_used, space.bytes_available
    ));
    say(format!(
        "files  {:>20}  used {:>20}",
        space.files, space.files_used
    ));
    Ok(())
}

#[derive(Serialize)]
struct Facts {
    path: PathBuf,
    fid: String,
    kind: &'static str,
    mode: String,
    uid: u32,
    gid: u32,
    links: u64,
    bytes: u64,
    bytes_stored: u64,
}

fn stat(of: &OfPath) -> Result<(), String> {
    let on = mount_of_entry(&of.path)?;
    let found = metadata(&of.path)?;
    let facts = Facts {
        path: Path::new("/").join(on.inside),
        fid: Fid(found.ino()).to_string(),
        kind: kind(&found.file_type()),
        mode: format!("{:04o}", found.mode() & 0o7777),
        uid: found.uid(),
        gid: found.gid(),
        links: found.nlink(),
        bytes: found.size(),
        bytes_stored: found.blocks() * 512,
    };
    if of.json {
        return say_json(&facts);
    }
    say(format!("path   {}", facts.path.display()));
    say(format!("fid    {}", facts.fid));
    say(format!("kind   {}", facts.kind));
    say(format!("mode   {}", facts.mode));
    say(format!("owner  {}:{}", facts.uid, facts.gid));
    say(format!("links  {}", facts.links));
    say(format!(
        "bytes  {} ({} stored)",
        facts.bytes, facts.bytes_stored
    ));
    Ok(())
}

fn kind(of: &std::fs::FileType) -> &'static str {
    let kinds = [
        (of.is_dir(), "directory"),
        (of.is_symlink(), "symbolic link"),
        (of.is_fifo(), "fifo"),
        (of.is_socket(), "socket"),
        (of.is_char_device(), "character device"),
        (of.is_block_device(), "block device"),
    ];
    kinds
        .iter()
        .find(|(is, _)| *is)
        .map_or("file", |(_, name)| name)
}

fn path2fid(of: &OfPath) -> Result<(), String> {
    mount_of_entry(&of.path)?;
    let fid = Fid(metadata(&of.path)?.ino()).to_string();
    if of.json {
        return say_json(&serde_json::json!({ "fid": fid }));
    }
    say(fid);
    Ok(())
}

#[derive(Serialize)]
struct SizeOnMdt {
    exact: bool,
    bytes: u64,
    bytes_stored: u64,
}

fn getsom(of: &OfPath) -> Result<(), String> {
    let point = mount_of_entry(&of.path)?.point;
    is_served(&point)?;
    let fid = metadata(&of.path)?.ino();
    let answer = ask(&point, &Question::SizeOnMdt { fid })?;
    let Answer::SizeOnMdt {
        exact,
        size,
        blocks,
    } = answer
    else {
        return Err("the mount answered something else".to_owned());
    };
    let known = SizeOnMdt {
        exact,
        bytes: size,
        bytes_stored: blocks * 512,
    };
    if of.json {
        return say_json(&known);
    }
    say(format!(
        "bytes  {} ({} stored)",
        known.bytes, known.bytes_stored
    ));
    say(format!(
        "exact  {}",
        match exact {
            true => "yes",
            false => "no: it is, or was just now, open for writing",
        }
    ));
    Ok(())
}

fn fid2path(of: &Fid2path) -> Result<(), String> {
    is_served(&of.point)?;
    let Answer::Path(mut path) = ask(&of.point, &Question::PathOf { fid: of.fid.0 })? else {
        return Err("the mount answered something else".to_owned());
    };
    // The root is no name below itself.
    if path.is_empty() {
        path.push(b'/');
    }
    if !of.json {
        say_bytes(&path);
        return Ok(());
    }
    match String::from_utf8(path) {
        Ok(path) => say_json(&serde_json::json!({ "path": path })),
        // JSON is text: the bytes come as numbers.
        Err(other) => say_json(&serde_json::json!({ "path_bytes": other.into_bytes() })),
    }
}

/// First what the kernel holds, then what the mount does.
fn sync(path: &Path) -> Result<(), String> {
    is_served(path)?;
    let point = mount_of(path)?.point;
    let root = File::open(&point).map_err(|error| format!("{}: {error}", point.display()))?;
    nix::unistd::syncfs(&root).map_err(|errno| at(&point, errno))?;
    ask(path, &Question::Sync).map(drop)
}

fn metadata(path: &Path) -> Result<std::fs::Metadata, String> {
    std::fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn at(path: &Path, errno: nix::errno::Errno) -> String {
    format!("{}: {}", path.display(), errno.desc())
}
