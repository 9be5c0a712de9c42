//! A mode that is set on one mount is in force on another. A thread there may have yet to hear of a mode that
//! it has set itself before.
// SEMANTICS: op.setattr

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mounted::{Cluster, count};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

const OTHER: u32 = 61_002;
/// Sets the mode once for each line that it reads, when others leave it the processor.
const SETS: &str = "import os,sys
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print(flush=True)
for line in sys.stdin:
    os.chmod(sys.argv[1], 0o644)
    print(flush=True)";

/// Leaves the processor to others for a moment in each two seconds: what waits for who waits for it goes on.
const BUSY: &str = "import time
while True:
    end=time.monotonic()+2
    while time.monotonic()<end: pass
    time.sleep(0.1)";

/// A program on one processor, which it has to itself and others.
struct Running(Child);

impl Running {
    fn on_last_processor(words: &[&str]) -> Running {
        let last = std::thread::available_parallelism().unwrap().get() - 1;
        let mut program = Command::new("taskset");
        program.args(["--cpu-list", &last.to_string()]).args(words);
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        Running(program.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another user opens the file again and again while `since` says a round; those that succeed are counted.
fn look(path: &Path, (since, granted): (&AtomicU64, &AtomicU64)) {
    set_thread_groups(&[]).unwrap();
    let (uid, gid) = (Uid::from_raw(OTHER), Gid::from_raw(OTHER));
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
    loop {
        match since.load(Ordering::SeqCst) {
            0 => sleep(Duration::from_micros(200)),
            u64::MAX => return,
            round => {
                let opened = File::open(path).map_err(|error| error.kind());
                let is_of_round = since.load(Ordering::SeqCst) == round;
                match opened {
                    Ok(_) if is_of_round => drop(granted.fetch_add(1, Ordering::SeqCst)),
                    Err(kind) => assert_eq!(kind, ErrorKind::PermissionDenied),
                    Ok(_) => {}
                }
            }
        }
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_mode_set_elsewhere_outlasts_one_that_was_set_here_before() {
    let cluster = Cluster::with_mounts(2);
    fs::set_permissions(cluster.root(0), Permissions::from_mode(0o755)).unwrap();
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("file"));
    fs::write(&here, "").unwrap();
    fs::set_permissions(&here, Permissions::from_mode(0o600)).unwrap();
    let setting = ["python3", "-c", SETS, here.to_str().unwrap()];
    let mut setting = Running::on_last_processor(&setting);
    let mut asks = setting.0.stdin.take().unwrap();
    let mut answers = BufReader::new(setting.0.stdout.take().unwrap());
    answers.read_line(&mut String::new()).unwrap();
    let _busy = Running::on_last_processor(&["python3", "-c", BUSY]);
    let (since, granted) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| look(&here, (&since, &granted)));
        cluster.timed("setting modes", || {
            for round in 1..=count("GLINT_ROUNDS", 4) {
                asks.write_all(b"\n").unwrap();
                let began = Instant::now();
                while mode(&there) != 0o644 {
                    assert!(
                        began.elapsed() < Duration::from_secs(60),
                        "nobody sets the mode"
                    );
                    sleep(Duration::from_micros(300));
                }
                fs::set_permissions(&there, Permissions::from_mode(0o600)).unwrap();
                since.store(round, Ordering::SeqCst);
                answers.read_line(&mut String::new()).unwrap();
                sleep(Duration::from_millis(30));
                since.store(0, Ordering::SeqCst);
                // Nobody looks any more.
                sleep(Duration::from_millis(5));
            }
        });
        since.store(u64::MAX, Ordering::SeqCst);
    });
    assert_eq!(granted.into_inner(), 0, "looks that were granted");
}
