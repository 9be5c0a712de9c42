//! What is there before programs begin.

use base::{Fid, FsError, Name};
use client::{Client, Place};
use wire::FileKind;

use super::attributes::make_attributes;
use super::bounds::{DIRS, FILES};
use super::names::{ROOT_USER, make};

/// Makes the directories through one mount.
pub fn make_directories(client: &Client) -> Result<Vec<Fid>, FsError> {
    (0..DIRS)
        .map(|dir| {
            let place = Place {
                dir: Fid::ROOT,
                name: Name::new(format!("d{dir}")).map_err(|_| FsError::Invalid)?,
                caller: ROOT_USER,
            };
            make(client, place, FileKind::Directory)
        })
        .collect()
}

/// Makes the files through one mount, and those whose attributes are of interest.
pub fn make_files(client: &Client) -> Result<Vec<Fid>, FsError> {
    make_attributes(client)?;
    (0..FILES)
        .map(|file| {
            let place = Place {
                dir: Fid::ROOT,
                name: Name::new(format!("f{file}")).map_err(|_| FsError::Invalid)?,
                caller: ROOT_USER,
            };
            make(client, place, FileKind::Regular)
        })
        .collect()
}
