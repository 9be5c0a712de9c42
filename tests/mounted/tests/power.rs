//! A machine whose power fails: its OST loses all unsynced records and bytes, also those that a killed
//! process would leave to its kernel. Live mounts, and the next process of a killed one, bring them back.
// SEMANTICS: crash.server

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use mounted::deaths::{TAKEN_OVER, nothing_is_committed};
use mounted::{Cluster, PATIENCE, Work, run};
use nix::fcntl::{FallocateFlags, fallocate};

const FILES: usize = 12;
const BYTES: usize = 200_000;
const LONG: Duration = Duration::from_secs(120);
/// Of the OST, which has a directory of its own.
const OST: usize = 1;

/// A file that is open, and what is to be in it.
struct Written {
    path: PathBuf,
    file: File,
    bytes: Vec<u8>,
}

impl Written {
    /// Durable, and open for more.
    fn new(path: PathBuf, fill: u8) -> Written {
        let bytes = vec![fill; BYTES];
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        Written { path, file, bytes }
    }

    fn write(&mut self, at: usize, fill: u8, count: usize) {
        let data = vec![fill; count];
        self.file.write_all_at(&data, at as u64).unwrap();
        self.bytes.resize(self.bytes.len().max(at + count), 0);
        self.bytes[at..at + count].copy_from_slice(&data);
    }

    fn cut(&mut self, size: usize) {
        self.file.set_len(size as u64).unwrap();
        self.bytes.resize(size, 0);
    }

    fn punch(&mut self, at: usize, count: usize) {
        let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&self.file, mode, at as i64, count as i64).unwrap();
        self.bytes[at..at + count].fill(0);
    }

    /// Does one kind of thing to it, or several.
    fn change(&mut self, number: usize) {
        match number % 4 {
            0 => self.write(10_001, 0xa0, 70_000),
            1 => self.write(BYTES - 5, 0xa1, 9_000),
            2 => {
                self.cut(50_000);
                self.write(60_000, 0xa2, 4_096);
            }
            _ => {
                self.punch(4_096, 100_000);
                self.write(50_000, 0xa3, 10);
            }
        }
    }
}

/// Writes and changes files of two mounts, the first of which is supervised. It waits for the caller at each
/// `point`.
fn write_and_change(roots: [PathBuf; 2], point: &Barrier) {
    let file = |number: usize| {
        let path = roots[number % 2].join(format!("f{number}"));
        Written::new(path, number as u8 + 1)
    };
    let mut files: Vec<Written> = (0..FILES).map(file).collect();
    point.wait();
    point.wait();
    let numbered = files.iter_mut().enumerate();
    numbered.for_each(|(number, file)| file.change(number));
    point.wait();
    point.wait();
    for Written { path, file, bytes } in &files {
        let mut found = vec![0; bytes.len() + 1];
        let count = file.read_at(&mut found, 0).unwrap();
        assert!(found[..count] == bytes[..], "{}", path.display());
        for root in &roots {
            let found = fs::read(root.join(path.file_name().unwrap())).unwrap();
            assert!(found == *bytes, "{} in {}", path.display(), root.display());
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let line = format!("cp -a {} {}", from.display(), to.display());
    run(Path::new("/"), &line);
}

/// Waits until both mounts have sent what they hold, and hear no more of it.
fn wait_until_sent(cluster: &Cluster) {
    let sent = || [0, 1].map(|mount| cluster.stats(mount)["rpcs_sent"].as_u64().unwrap());
    let (began, mut before) = (Instant::now(), sent());
    loop {
        // Bytes go after 0.1 s.
        thread::sleep(Duration::from_millis(500));
        let now = sent();
        if now == before {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{before:?}, {now:?}");
        before = now;
    }
}

fn power_fails(worker_first: bool) {
    let mut cluster = Cluster::start_at(&[(None, "mgs,mdt"), (None, "ost")]);
    cluster.mount_with(&["--supervisor"]);
    cluster.mount();
    for mount in [0, 1] {
        cluster.set_param(mount, "dirty_age_ms", 100);
    }
    nothing_is_committed(&cluster);
    let (disk, local) = (cluster.target_dirs()[OST].clone(), cluster.local());
    let [durable, lost, twin] = ["durable", "lost", "twin"].map(|name| local.join(name));
    let roots = [0, 1].map(|mount| cluster.root(mount).to_owned());
    let point = Arc::new(Barrier::new(2));
    let _watch = cluster.watch(LONG, "a power cut");
    let writer = Work::start({
        let point = point.clone();
        move |_| write_and_change(roots, &point)
    });
    point.wait();
    cluster.freeze_server();
    copy(&disk, &durable);
    cluster.thaw_server();
    copy(&durable, &twin);
    point.wait();
    point.wait();
    wait_until_sent(&cluster);
    if worker_first {
        assert!(cluster.kill_worker(0), "no process serves the mount");
    }
    cluster.kill_server();
    if !worker_first {
        assert!(cluster.kill_worker(0), "no process serves the mount");
    }
    fs::rename(&disk, &lost).unwrap();
    fs::rename(&durable, &disk).unwrap();
    cluster.restart_server();
    cluster.wait_for_log(0, TAKEN_OVER);
    point.wait();
    writer.end();
    let differ = format!("! diff -rq {} {}", twin.display(), lost.display());
    run(Path::new("/"), &format!("{differ} > /dev/null"));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
    cluster.restart_server();
}

#[test]
fn what_an_ost_loses_with_its_power_is_brought_back_after_a_process() {
    power_fails(true);
}

#[test]
fn what_an_ost_loses_with_its_power_is_brought_back_before_a_process() {
    power_fails(false);
}
