//! Calls by path that other mounts lead astray on a supervised mount whose process dies. The kernel makes a
//! second attempt and no third, so the next process must know which one a call is in.
// SEMANTICS: crash.mount, op.rename

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use mounted::deaths::{kill_process, taken_over, wait_for_another};
use mounted::{Cluster, Work, count};

const MDT: &str = "mdt.glint-MDT0";
/// Until a call is known to wait at the server, where each waits for a second.
const BEGUN: Duration = Duration::from_millis(400);

/// A supervised mount, and another one that gives the name `dir/file` to one file after the other.
struct Astray {
    cluster: Cluster,
    here: PathBuf,
    there: PathBuf,
    replaced: u32,
}

impl Astray {
    const FILES: u32 = 100;

    fn prepare() -> Astray {
        let mut cluster = Cluster::start();
        cluster.mount_with(&["--supervisor"]);
        cluster.mount();
        let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
        cluster.timed("preparing", || {
            let store = cluster.root(1).join("store");
            fs::create_dir(&there).unwrap();
            fs::create_dir(&store).unwrap();
            (0..Astray::FILES)
                .for_each(|file| fs::write(store.join(file.to_string()), "").unwrap());
            for name in ["file", "beside"] {
                fs::write(there.join(name), "").unwrap();
                fs::metadata(here.join(name)).unwrap();
            }
        });
        Astray {
            cluster,
            here,
            there,
            replaced: 0,
        }
    }

    fn replace(&mut self) {
        assert!(self.replaced < Astray::FILES, "the call has no end");
        let fresh = self.there.join(format!("../store/{}", self.replaced));
        self.replaced += 1;
        self.cluster.timed("replacing", || {
            fs::rename(&fresh, self.there.join("file")).unwrap();
        });
    }

    /// A file is opened for writing while each request for that takes a second, as does one about a name. Its
    /// name leads elsewhere when the MDT hears of it. The process dies `later` in the second attempt.
    fn open_and_kill(&mut self, later: Duration) {
        let rule = "start slow opcode={open,lookup} rate=1 burst=1";
        self.cluster.rule(MDT, rule);
        let writes = |name: &str| OpenOptions::new().write(true).open(self.here.join(name));
        // Takes the first token.
        drop(writes("beside").unwrap());
        let path = self.here.join("file");
        thread::scope(|scope| {
            let opening = scope.spawn(|| OpenOptions::new().write(true).open(&path));
            thread::sleep(BEGUN);
            self.replace();
            thread::sleep(Duration::from_secs(1) + later);
            assert!(!opening.is_finished());
            kill_process(&self.cluster);
            while !opening.is_finished() {
                self.replace();
                thread::sleep(BEGUN / 4);
            }
            let mut opened = opening.join().unwrap().unwrap();
            opened.write_all(b"x").unwrap();
        });
        self.cluster.rule(MDT, "stop slow");
    }
}

#[test]
fn a_second_attempt_goes_on_with_the_next_process() {
    Astray::prepare().open_and_kill(Duration::ZERO);
}

#[test]
fn what_a_second_attempt_has_found_stays_for_the_next_process() {
    Astray::prepare().open_and_kill(Duration::from_secs(1));
}

/// Reads two names of which each leads to another file all the time.
fn read(dir: PathBuf) -> Work<u64> {
    Work::start(move |goes_on: &dyn Fn() -> bool| {
        let mut calls = 0;
        while goes_on() {
            let read = fs::read(dir.join((calls % 2).to_string()));
            read.unwrap_or_else(|error| panic!("call {calls}: {error}"));
            calls += 1;
        }
        calls
    })
}

fn replace(dir: PathBuf) -> Work<u64> {
    Work::start(move |goes_on: &dyn Fn() -> bool| {
        let mut calls = 0;
        while goes_on() {
            fs::write(dir.join("fresh"), "text").unwrap();
            fs::rename(dir.join("fresh"), dir.join((calls % 2).to_string())).unwrap();
            calls += 1;
        }
        calls
    })
}

/// Two processes die within some milliseconds.
fn kill_twice(cluster: &Cluster) {
    let lives = taken_over(cluster);
    let mut killed = 0;
    while killed < 2 {
        killed += u64::from(cluster.kill_worker(0));
        thread::sleep(Duration::from_millis(20));
    }
    wait_for_another(cluster, lives);
}

#[test]
fn files_that_are_replaced_all_the_time_are_read_while_processes_die() {
    let mut cluster = Cluster::start();
    cluster.mount_with(&["--supervisor"]);
    cluster.mount();
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
    cluster.timed("preparing", || {
        fs::create_dir(&there).unwrap();
        for name in ["0", "1"] {
            fs::write(there.join(name), "text").unwrap();
        }
    });
    let replacing = replace(there);
    let reading: Vec<_> = (0..4).map(|_| read(here.clone())).collect();
    for _ in 0..count("GLINT_ROUNDS", 12) {
        thread::sleep(Duration::from_millis(200));
        kill_twice(&cluster);
    }
    let read: u64 = reading.into_iter().map(Work::end).sum();
    println!("{read} reads, {} files", replacing.end());
}
