//! How many objects a served OST has, in files or on extents.

use std::fs;
use std::path::Path;

use super::glint;

const BLOCK: u64 = 4096;

/// Objects of the OST below `dir`, which is served. All of them have `bytes`.
#[track_caller]
pub fn stored_objects(dir: &Path, bytes: u64) -> u64 {
    let files = dir.join("ost0/objects");
    match files.exists() {
        true => files_below(&files),
        false => blocks_in_use(dir).div_ceil(bytes.div_ceil(BLOCK)),
    }
}

/// What holds the bytes of objects of the OST below `dir`.
pub fn store_of(dir: &Path) -> &'static str {
    match dir.join("ost0/objects").exists() {
        true => "ost0/objects",
        false => "ost0/extents",
    }
}

fn files_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    let counted = entries.map(
        |entry| match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => files_below(&entry.path()),
            false => 1,
        },
    );
    counted.sum()
}

/// Blocks that objects on extents have.
fn blocks_in_use(dir: &Path) -> u64 {
    let dir = dir.to_str().expect("a path of words");
    let said = glint(
        Path::new("."),
        &["param", "--dir", dir, "get", "ost.glint-OST0.mb_groups"],
    );
    let of_all = said
        .worked()
        .lines()
        .last()
        .expect("it has extents")
        .to_owned();
    let number = |name: &str| -> u64 {
        let found = of_all.split(' ').find_map(|word| word.strip_prefix(name));
        let found = found.and_then(|word| word.parse().ok());
        found.unwrap_or_else(|| panic!("{name} in {of_all}"))
    };
    number("blocks=") - number("free_blocks=")
}
