//! One process that serves and mounts, with less memory than the bytes written through it.
// SEMANTICS: op.mmap

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use mounted::{Mapping, MemoryLimit, glint, hung};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const MIB: u64 = 1 << 20;
/// What the file system and who uses it have together.
const LIMIT: u64 = 192 * MIB;
/// Stored into a mapping, and written, each.
const BYTES: u64 = 160 * MIB;
const PAGE: usize = 4096;
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where the other process finds the mount.
const PLACE: &str = "MOUNTED_UNDER_A_LIMIT";

/// The number that page `page` holds.
fn mark(page: usize) -> [u8; 8] {
    (page as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .to_le_bytes()
}

/// `glint up` in a group with a limit, in directories of its own.
struct Up {
    limit: MemoryLimit,
    dir: tempfile::TempDir,
    process: Child,
}

impl Up {
    fn start() -> Up {
        // On a disk: what is stored must not count as memory.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        let limit = MemoryLimit::new(LIMIT);
        let log = File::create(dir.path().join("log")).unwrap();
        let mut up = limit.command(glint());
        let process = up
            .args(["up", "--dir", "targets", "--mount", "mnt"])
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut up = Up {
            limit,
            dir,
            process,
        };
        while !up.said().contains("mounted at ") {
            assert!(up.process.try_wait().unwrap().is_none(), "{}", up.said());
        }
        up
    }

    fn said(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    fn mount(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.process.id() as i32), Signal::SIGTERM);
        if !ends_within(&mut self.process, PATIENCE) {
            hung(self.process.id(), &self.mount());
        }
        let _ = self.process.wait();
        let _ = umount2(&self.mount(), MntFlags::MNT_DETACH);
    }
}

fn ends_within(process: &mut Child, limit: Duration) -> bool {
    let start = Instant::now();
    while start.elapsed() < limit {
        if !matches!(process.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn a_process_that_serves_itself_lives_with_more_dirty_pages_than_memory() {
    let mut up = Up::start();
    let myself = std::env::current_exe().unwrap();
    let mut writer = up.limit.command(&myself);
    writer.args(["--ignored", "--exact", "dirties_more_than_there_is"]);
    let mut writer = writer.env(PLACE, up.mount()).spawn().unwrap();
    if !ends_within(&mut writer, PATIENCE) {
        let state = hung(up.process.id(), &up.mount());
        let _ = writer.kill();
        panic!("it hangs:\n{state}\n{}", up.said());
    }
    let wrote = writer.wait().unwrap();
    assert_eq!(up.limit.killed(), 0, "too little memory:\n{}", up.said());
    assert!(wrote.success(), "{wrote}\n{}", up.said());
    assert!(up.process.try_wait().unwrap().is_none(), "{}", up.said());
}

#[test]
#[ignore = "run by another test, in a control group"]
fn dirties_more_than_there_is() {
    let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
    store(&place.join("mapped"));
    write(&place.join("written"));
    let mapped = File::open(place.join("mapped")).unwrap();
    for page in 0..BYTES as usize / PAGE {
        let mut bytes = [0; 8];
        let at = (page * PAGE) as u64;
        mapped.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(bytes, mark(page), "page {page}");
    }
}

fn store(path: &Path) {
    File::create(path).unwrap().set_len(BYTES).unwrap();
    let mapping = Mapping::new(path, BYTES as usize).unwrap();
    for page in 0..BYTES as usize / PAGE {
        mapping.store(page * PAGE, &mark(page));
    }
    // Nothing waits for anything until here but what the kernel must write to go on.
    mapping.sync().unwrap();
}

fn write(path: &Path) {
    let mut file = File::create(path).unwrap();
    let piece = vec![7; MIB as usize];
    (0..BYTES / MIB).for_each(|_| file.write_all(&piece).unwrap());
    file.sync_all().unwrap();
}
