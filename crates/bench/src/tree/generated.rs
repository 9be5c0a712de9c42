//! Writes a generated tree as a tar file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use base::{Rng, SeededRng};
use tar::{Builder, EntryType, Header};

use super::shape::{Entry, KERNEL_ENTRIES, generate};
use super::source_tree::SourceTree;
use crate::error::{BenchError, During, Result};
use crate::interrupt::StopFlag;
use crate::progress::{Event, Progress};

/// File contents are pieces of one text of this size.
const TEXT_BYTES: usize = 1 << 20;
/// The time of every file: the tree is the same whenever it is made.
const MODIFIED: u64 = 1_700_000_000;
/// More entries than this are a mistake: the tar file would have 160 GB.
const ENTRIES_MAX: u64 = 10_000_000;

pub(super) fn obtain(
    cache: &Path,
    seed: u64,
    entries: u64,
    stop: &StopFlag,
    progress: &mut Progress,
) -> Result<SourceTree> {
    if !(1..=ENTRIES_MAX).contains(&entries) {
        return Err(BenchError::Invalid(format!(
            "a tree has between 1 and {ENTRIES_MAX} entries, not {entries}"
        )));
    }
    let top = format!("generated-{entries}-{seed}");
    let tar = cache.join(format!("{top}.tar"));
    if !tar.exists() {
        fs::create_dir_all(cache).during(|| format!("making {}", cache.display()))?;
        let part = tempfile::Builder::new().prefix(".part-").tempfile_in(cache);
        let part = part.during(|| format!("writing in {}", cache.display()))?;
        write(
            part.as_file(),
            seed,
            &generate(seed, entries, &top),
            stop,
            progress,
        )?;
        part.persist(&tar)
            .map_err(|error| error.error)
            .during(|| format!("writing {}", tar.display()))?;
    }
    let scale = if entries == KERNEL_ENTRIES {
        ""
    } else {
        " scaled"
    };
    SourceTree::from_tar(
        &tar,
        format!("generated tree of a kernel's shape{scale}, seed {seed}"),
    )
}

fn write(
    file: &File,
    seed: u64,
    entries: &[Entry],
    stop: &StopFlag,
    progress: &mut Progress,
) -> Result<()> {
    let mut rng = SeededRng::new(seed);
    let text = text(&mut rng);
    let mut builder = Builder::new(BufWriter::with_capacity(1 << 20, file));
    for (number, entry) in entries.iter().enumerate() {
        if number % 4096 == 0 {
            stop.check()?;
            progress(Event::Live(format!(
                "generating a tree: {number} of {} entries",
                entries.len()
            )));
        }
        append(&mut builder, entry, &text, &mut rng).during(|| "writing a generated tree")?;
    }
    builder
        .into_inner()
        .and_then(|mut writer| writer.flush())
        .during(|| "writing a generated tree")
}

fn append(
    builder: &mut Builder<impl Write>,
    entry: &Entry,
    text: &[u8],
    rng: &mut SeededRng,
) -> io::Result<()> {
    match entry {
        Entry::Directory { path } => {
            let mut header = header(EntryType::Directory, 0o755, 0);
            builder.append_data(&mut header, format!("{path}/"), io::empty())
        }
        Entry::File {
            path,
            bytes,
            executable,
        } => {
            let mode = if *executable { 0o755 } else { 0o644 };
            let mut header = header(EntryType::Regular, mode, *bytes);
            let at = rng.below(TEXT_BYTES as u64) as usize;
            builder.append_data(&mut header, path, Endless { text, at }.take(*bytes))
        }
        Entry::Symlink { path, target } => {
            let mut header = header(EntryType::Symlink, 0o777, 0);
            builder.append_link(&mut header, path, target)
        }
    }
}

fn header(kind: EntryType, mode: u32, bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(bytes);
    header.set_mtime(MODIFIED);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Lines of made-up words without the letter q, which [`super::source_tree::ABSENT_WORD`] starts with.
fn text(rng: &mut SeededRng) -> Vec<u8> {
    const LETTERS: &[u8] = b"etaoinshrdlucmfwypvbgk_0123=;(){}";
    let mut text = Vec::with_capacity(TEXT_BYTES);
    while text.len() < TEXT_BYTES {
        let length = 2 + rng.below(7);
        // Early letters are frequent, so that the text compresses as source code does.
        let letters = (0..length).map(|_| {
            let bound = 1 + rng.below(LETTERS.len() as u64);
            LETTERS[rng.below(bound) as usize]
        });
        text.extend(letters);
        text.push(if rng.below(8) == 0 { b'\n' } else { b' ' });
    }
    text.truncate(TEXT_BYTES);
    text
}

/// The text over and over.
struct Endless<'a> {
    text: &'a [u8],
    at: usize,
}

impl Read for Endless<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let rest = &self.text[self.at..];
        let bytes = rest.len().min(room.len());
        room[..bytes].copy_from_slice(&rest[..bytes]);
        self.at = (self.at + bytes) % self.text.len();
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::silent;
    use crate::tree::ABSENT_WORD;

    fn tree(cache: &Path, seed: u64, entries: u64) -> Result<SourceTree> {
        obtain(cache, seed, entries, &StopFlag::new(), &mut silent)
    }

    #[test]
    fn is_a_tar_file_that_the_survey_reads_back() {
        let cache = tempfile::tempdir().unwrap();
        let made = tree(cache.path(), 1, 2_000).unwrap();
        assert_eq!(made.count.entries(), 2_000);
        assert_eq!(made.count.directories, 122);
        assert!(made.count.bytes > 10_000_000, "{:?}", made.count);
        assert_eq!(made.top, Path::new("generated-2000-1"));
        let bytes = fs::read(&made.tar).unwrap();
        let word = ABSENT_WORD.as_bytes();
        assert!(!bytes.windows(word.len()).any(|window| window == word));
        assert_eq!(
            fs::read_dir(cache.path()).unwrap().count(),
            1,
            "no partial file"
        );
    }

    #[test]
    fn is_the_same_for_the_same_seed_and_kept() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = tree(one.path(), 9, 300).unwrap();
        let second = tree(two.path(), 9, 300).unwrap();
        assert_eq!(fs::read(&first.tar).unwrap(), fs::read(second.tar).unwrap());
        let made = fs::metadata(&first.tar).unwrap().modified().unwrap();
        let again = tree(one.path(), 9, 300).unwrap();
        assert_eq!(fs::metadata(again.tar).unwrap().modified().unwrap(), made);
    }

    #[test]
    fn an_interrupt_leaves_no_file() {
        let cache = tempfile::tempdir().unwrap();
        let stop = StopFlag::new();
        stop.set();
        let result = obtain(cache.path(), 1, 100, &stop, &mut silent);
        assert!(matches!(result, Err(BenchError::Interrupted)));
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
        assert!(tree(cache.path(), 1, 0).is_err());
    }
}
