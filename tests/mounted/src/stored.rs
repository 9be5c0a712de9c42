//! Bytes of objects as a target has them, in files or in extents: how many objects there are, and what harms
//! them on the disk.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Whence, lseek};

use crate::Cluster;

const BLOCK: u64 = 4096;

impl Cluster {
    /// Objects of the first target directory, while it is served. All of them have `bytes`.
    pub fn stored_objects(&self, bytes: u64) -> u64 {
        let target = self.target_dirs()[0].join("ost0");
        match has_files(&target) {
            true => files_below(&target.join("objects")).len() as u64,
            false => self.blocks_in_use().div_ceil(bytes.div_ceil(BLOCK)),
        }
    }

    /// Blocks that objects on extents have.
    fn blocks_in_use(&self) -> u64 {
        let lines = self.server_param("ost.glint-OST0.mb_groups");
        let of_all = lines.last().expect("it has extents");
        let number = |name: &str| -> u64 {
            let found = of_all.split(' ').find_map(|word| word.strip_prefix(name));
            let found = found.and_then(|word| word.parse().ok());
            found.unwrap_or_else(|| panic!("{name} in {of_all}"))
        };
        number("blocks=") - number("free_blocks=")
    }
}

/// The bytes of an object on the disk of a target that is not served.
pub struct StoredBytes {
    file: PathBuf,
    /// Where they begin in `file`.
    at: u64,
    len: u64,
    /// The file is the object.
    is_file: bool,
}

impl StoredBytes {
    /// The object below the target directory `dir` that holds these bytes and no others.
    pub fn find(dir: &Path, bytes: &[u8]) -> StoredBytes {
        let target = dir.join("ost0");
        let is_file = has_files(&target);
        let mut found = match is_file {
            true => files_with(&target.join("objects"), bytes),
            false => places_with(&target.join("extents"), bytes),
        };
        assert_eq!(found.len(), 1, "{found:?}");
        let (file, at) = found.remove(0);
        StoredBytes {
            file,
            at,
            len: bytes.len() as u64,
            is_file,
        }
    }

    fn open(&self) -> File {
        let file = File::options().read(true).write(true).open(&self.file);
        file.expect("the disk of objects")
    }

    /// Changes a bit of byte `at`.
    pub fn flip(&self, at: u64) {
        let (file, at, mut byte) = (self.open(), self.at + at, [0]);
        file.read_exact_at(&mut byte, at).expect("it is there");
        file.write_all_at(&[byte[0] ^ 4], at)
            .expect("it can be written");
    }

    /// Loses all bytes from `kept` on.
    pub fn cut(&self, kept: u64) {
        let file = self.open();
        match self.is_file {
            true => file.set_len(kept).expect("it can be cut"),
            false => {
                let zeros = vec![0; (self.len - kept) as usize];
                let lost = file.write_all_at(&zeros, self.at + kept);
                lost.expect("it can be written");
            }
        }
    }

    /// Loses all that there is.
    pub fn lose(&self) {
        match self.is_file {
            true => fs::remove_file(&self.file).expect("it can be removed"),
            false => self.cut(0),
        }
    }
}

fn has_files(target: &Path) -> bool {
    target.join("objects").exists()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a directory") {
            let entry = entry.expect("an entry");
            match entry.file_type().expect("its type").is_dir() {
                true => dirs.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files
}

fn files_with(dir: &Path, bytes: &[u8]) -> Vec<(PathBuf, u64)> {
    let mut files = files_below(dir);
    files.retain(|file| fs::read(file).is_ok_and(|found| found == bytes));
    files.into_iter().map(|file| (file, 0)).collect()
}

/// Where `path`, which is sparse, has these bytes from the beginning of a block on.
fn places_with(path: &Path, bytes: &[u8]) -> Vec<(PathBuf, u64)> {
    let file = File::open(path).expect("the disk of objects");
    let end = file.metadata().expect("its length").len();
    let (mut places, mut at) = (Vec::new(), 0);
    while let Ok(data) = lseek(&file, at, Whence::SeekData) {
        at = lseek(&file, data, Whence::SeekHole).unwrap_or(end as i64);
        let blocks = (data as u64..at as u64).step_by(BLOCK as usize);
        let is_here = |place: &u64| {
            let mut found = vec![0; bytes.len()];
            let read = file.read_exact_at(&mut found, *place);
            read.is_ok() && found == bytes
        };
        places.extend(blocks.filter(is_here).map(|place| (path.to_owned(), place)));
    }
    places
}
