//! Logs: records are appended, and read to the end.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::blocks::read_whole;
use super::files::{Files, Way, open};
use super::{Worker, epoch, outcome};
use crate::event::{Call, Outcome};
use crate::object::{Kind, Object};
use crate::record::{parse, record};

pub const DIR: &str = "logs";
/// At a time.
const LOGS: u32 = 2;
/// What one call reads.
const PIECE: usize = 16 * 1024;

fn path(worker: &Worker, number: u32) -> PathBuf {
    worker.dir.join(DIR).join(number.to_string())
}

pub fn step(worker: &mut Worker, files: &mut Files) {
    let number = epoch() * LOGS + worker.pick(LOGS);
    match worker.pick(8) {
        0..=4 => append(worker, files, number),
        5 => stat(worker, files, number),
        _ => read(worker, files, number),
    }
}

fn append(worker: &mut Worker, files: &mut Files, number: u32) {
    let path = path(worker, number);
    let id = worker.unique();
    let bytes = record(id);
    let syncs = worker.syncs();
    let is_kept = !worker.chance(6);
    let how = match (syncs, is_kept) {
        (true, _) => "append+fsync",
        (false, true) => "append",
        (false, false) => "open+append",
    };
    let object = Object::whole(Kind::Log, number);
    worker
        .recorder
        .call_through(how, object, Call::Append(id), || {
            let mut number = 0;
            let mut write = || {
                let mut fresh;
                let file = match is_kept {
                    true => files.numbered(&path, Way::Append, &mut number)?,
                    false => {
                        fresh = open(&path, Way::Append)?;
                        &mut fresh
                    }
                };
                let written = file.write(&bytes)?;
                if syncs {
                    file.sync_data()?;
                }
                Ok(written)
            };
            let written = outcome(write(), |written| match written == bytes.len() {
                true => Outcome::Done,
                false => Outcome::Flawed(format!("{written} of {} bytes are written", bytes.len())),
            });
            (written, number)
        });
}

fn seen(bytes: &[u8]) -> Outcome {
    let parsed = parse(bytes);
    match parsed.flaw {
        None => Outcome::Records(parsed.records),
        Some(flaw) => Outcome::Gapped(parsed.records, flaw),
    }
}

fn read(worker: &mut Worker, files: &mut Files, number: u32) {
    let path = path(worker, number);
    let way = worker.pick(4);
    let how = ["open+read", "pread", "read", "sendfile"][way as usize];
    let local = tempfile_for(worker);
    let object = Object::whole(Kind::Log, number);
    worker.recorder.call(how, object, Call::ReadAll, || {
        let bytes = match way {
            0 => read_whole(&path),
            1 => files
                .get(&path, Way::Append)
                .and_then(|file| pread_all(file)),
            2 => files.get(&path, Way::Append).and_then(read_all),
            _ => files
                .get(&path, Way::Append)
                .and_then(|file| send_all(file, &local)),
        };
        match bytes {
            // Nobody has appended yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Records(Vec::new()),
            bytes => outcome(bytes, |bytes| seen(&bytes)),
        }
    });
}

fn tempfile_for(worker: &Worker) -> PathBuf {
    std::env::temp_dir().join(format!("sent{}-{}", std::process::id(), worker.process))
}

fn pread_all(file: &fs::File) -> io::Result<Vec<u8>> {
    let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        match file.read_at(&mut piece, bytes.len() as u64)? {
            0 => return Ok(bytes),
            count => bytes.extend(&piece[..count]),
        }
    }
}

fn read_all(file: &mut fs::File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// By a call that asks the kernel for the size, and not the file system.
fn send_all(file: &mut fs::File, local: &Path) -> io::Result<Vec<u8>> {
    let mut copy = fs::File::create(local)?;
    file.seek(SeekFrom::Start(0))?;
    io::copy(file, &mut copy)?;
    let bytes = fs::read(local)?;
    fs::remove_file(local)?;
    Ok(bytes)
}

fn stat(worker: &mut Worker, files: &mut Files, number: u32) {
    let path = path(worker, number);
    let is_open = worker.chance(2);
    let how = if is_open { "fstat" } else { "stat" };
    let object = Object::whole(Kind::Log, number);
    worker.recorder.call(how, object, Call::Stat, || {
        let stat = match is_open {
            true => files
                .get(&path, Way::Append)
                .and_then(|file| file.metadata()),
            false => fs::metadata(&path),
        };
        match stat {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Sizes(0, 0),
            stat => outcome(stat, |stat| Outcome::Sizes(stat.len(), stat.blocks())),
        }
    });
}

pub fn look(worker: &mut Worker) -> io::Result<()> {
    let mut files = Files::default();
    for entry in fs::read_dir(worker.dir.join(DIR))? {
        let name = entry?.file_name();
        let number = name.to_string_lossy().parse();
        let number = number.map_err(|_| io::Error::other(format!("no log: {name:?}")))?;
        read(worker, &mut files, number);
        stat(worker, &mut files, number);
    }
    Ok(())
}
