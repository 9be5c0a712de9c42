//! Direct reads and streamed writes move the same bytes as any others, and do not fill the memory.

#![allow(
    clippy::unwrap_used,
    reason = "in a test, a failed unwrap is a failed test"
)]

use std::fs::File;
use std::path::Path;

use base::Fid;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use storage::{ObjectFiles, ObjectId, ObjectStore};

const MIB: u64 = 1 << 20;

fn id() -> ObjectId {
    ObjectId::new(Fid::new(0x400, 1), 0)
}

/// Nothing of any object stays in memory, where the file system can do without.
fn forget(dir: &Path) {
    for shelf in std::fs::read_dir(dir).unwrap() {
        for object in std::fs::read_dir(shelf.unwrap().path()).unwrap() {
            let file = File::open(object.unwrap().path()).unwrap();
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        }
    }
}

fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|n| (n ^ (n >> 9)) as u8).collect()
}

#[test]
fn cold_reads_give_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectFiles::open(dir.path()).unwrap();
    let whole = pattern(5 * MIB + 777);
    store.write(id(), 0, &whole).unwrap();
    store.sync(id()).unwrap();
    let places = [
        (0, MIB),
        (MIB, MIB),
        (3, 200_000),
        (4096, 65_536),
        (2 * MIB - 1, MIB + 2),
        (MIB + 1, 4 * MIB),
        (5 * MIB - 4096, 100_000),
        (5 * MIB + 700, 65_536),
        (5 * MIB + 777, 65_536),
        (9 * MIB, MIB),
        (17, 5),
        (17, 0),
    ];
    // The second time a place goes another way, the third the first again.
    for round in 0..3 {
        for (offset, len) in places {
            forget(dir.path());
            let end = (offset + len).min(whole.len() as u64).max(offset) as usize;
            let wanted = whole.get(offset as usize..end).unwrap_or_default();
            let read = store.read_shared(id(), offset, len as usize).unwrap();
            assert!(read == wanted, "round {round}: {len} bytes at {offset}");
        }
    }
}

#[test]
fn what_changes_in_memory_only_is_read_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectFiles::open(dir.path()).unwrap();
    let mut whole = pattern(4 * MIB);
    store.write(id(), 0, &whole).unwrap();
    store.sync(id()).unwrap();
    forget(dir.path());
    store.write(id(), MIB + 5, b"news").unwrap();
    whole[MIB as usize + 5..][..4].copy_from_slice(b"news");
    for at in 0..4 {
        let read = store.read_shared(id(), at * MIB, MIB as usize).unwrap();
        assert!(read == whole[(at * MIB) as usize..][..MIB as usize], "{at}");
    }
}

#[test]
fn a_first_read_leaves_nothing_in_memory_and_a_second_does() {
    // Where the system does not say what it has in memory, nothing ever counts as cold.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = ObjectFiles::open(dir.path()).unwrap();
    store.write(id(), 0, &pattern(2 * MIB)).unwrap();
    store.sync(id()).unwrap();
    forget(dir.path());
    let is_cold = || store.is_cold(id(), 0, MIB as usize).unwrap();
    if !is_cold() {
        return;
    }
    store.read_shared(id(), 0, MIB as usize).unwrap();
    assert!(is_cold());
    store.read_shared(id(), 0, MIB as usize).unwrap();
    assert!(!is_cold());
}

#[test]
fn what_is_given_out_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = ObjectFiles::open(dir.path()).unwrap();
    let whole = pattern(40 * MIB);
    store.write(id(), 0, &whole).unwrap();
    store.sync(id()).unwrap();
    forget(dir.path());
    // More than there are buffers.
    let read = |at: u64| store.read_shared(id(), at * MIB, MIB as usize).unwrap();
    let parts: Vec<_> = (0..40).map(read).collect();
    assert!(parts.concat() == whole);
}

#[test]
fn a_long_stream_is_written_whole_and_does_not_stay_in_memory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = ObjectFiles::open(dir.path()).unwrap();
    let (whole, far) = (pattern(9 * MIB), 64 * MIB);
    // Over a border between what is kept and what is not, in uneven pieces, and once again.
    for _ in 0..2 {
        let mut at = 0;
        for len in [MIB + 1, 3 * MIB, 77, MIB - 77, 4 * MIB - 1] {
            let part = &whole[at as usize..(at + len) as usize];
            store.write(id(), far - 2 * MIB + at, part).unwrap();
            at += len;
        }
        assert_eq!(at, whole.len() as u64);
        let read = |at: u64| store.read_shared(id(), far - 2 * MIB + at * MIB, MIB as usize);
        let parts: Vec<_> = (0..9).map(|at| read(at).unwrap()).collect();
        assert!(parts.concat() == whole);
    }
    store.sync(id()).unwrap();
    forget(dir.path());
    store
        .write(id(), 2 * far, &whole[..4 * MIB as usize])
        .unwrap();
    store.sync(id()).unwrap();
    // Where the system keeps it all the same, it says so at once or never.
    let kept = !store.is_cold(id(), 2 * far, 4 * MIB as usize).unwrap();
    store
        .write(id(), 3 * far, &whole[..MIB as usize / 2])
        .unwrap();
    let keeps_small = !store.is_cold(id(), 3 * far, MIB as usize / 2).unwrap();
    assert!(keeps_small);
    assert!(!kept || !has_unkept_writes(), "a stream stayed in memory");
}

/// Linux 6.16 and later, and not a file system in memory.
fn has_unkept_writes() -> bool {
    let release = nix::sys::utsname::uname().unwrap();
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    let system = nix::sys::statfs::statfs(env!("CARGO_TARGET_TMPDIR")).unwrap();
    version >= (6, 16) && system.filesystem_type() == nix::sys::statfs::EXT4_SUPER_MAGIC
}
