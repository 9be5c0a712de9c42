//! Programs on a supervised mount whose process dies while a server is away. Whatever a call waits for, its
//! program can be killed, and a close waits for nothing.
// SEMANTICS: wait.interrupt, op.close

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use mounted::deaths::{TAKEN_OVER, taken_over, wait_for_another};
use mounted::{Cluster, Layout, PATIENCE, Signalled, Work, count, seed};

const SUPERVISED: &[&str] = &["--supervisor"];
/// What ends a call does so within a second; a busy machine needs longer.
const SOON: Duration = Duration::from_secs(10);
/// Where a program that this test starts is to work.
const PLACE: &str = "GLINT_TEST_PLACE";

/// A program that never rests.
struct Program(Child);

impl Program {
    fn start(dir: &Path) -> Program {
        fs::create_dir(dir).unwrap();
        let myself = std::env::current_exe().unwrap();
        let mut command = Command::new(myself);
        command.args(["--exact", "works_until_it_is_killed", "--ignored"]);
        command.env(PLACE, dir).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        Program(child)
    }

    fn kill(&mut self) {
        let ended = self.0.try_wait().unwrap();
        assert_eq!(ended, None, "it has failed");
        self.0.kill().unwrap();
    }

    /// Waits until it is gone. False: it is there still.
    fn is_gone_soon(&mut self) -> bool {
        let began = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            if began.elapsed() > SOON {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// Not a test: what such a program does.
#[test]
#[ignore = "a program that others start"]
fn works_until_it_is_killed() {
    let Some(dir) = std::env::var_os(PLACE).map(PathBuf::from) else {
        return;
    };
    // Its end closes this one, too.
    let mut open = File::create(dir.join("open")).unwrap();
    for number in 0.. {
        let [file, moved] = ["file", "moved"].map(|name| dir.join(format!("{name}{}", number % 7)));
        open.write_all(b"more").unwrap();
        match number % 3 {
            0 => fs::write(&file, "closed").unwrap(),
            1 => {
                let mut synced = File::create(&file).unwrap();
                synced.write_all(b"synced").unwrap();
                synced.sync_all().unwrap();
            }
            _ => drop(fs::metadata(&dir).unwrap()),
        }
        if file.exists() {
            fs::rename(&file, &moved).unwrap();
            fs::read(&moved).unwrap();
        }
    }
}

/// Which server is away, and how.
#[derive(Debug, Clone, Copy)]
enum Away {
    AllDead,
    AllFrozen,
    OstDead,
    OstFrozen,
}

impl Away {
    const ALL: [Away; 4] = [
        Away::AllDead,
        Away::AllFrozen,
        Away::OstDead,
        Away::OstFrozen,
    ];

    fn begin(self, cluster: &mut Cluster) {
        match self {
            Away::AllDead => cluster.kill_server(),
            Away::AllFrozen => cluster.freeze_server(),
            Away::OstDead => cluster.server(1).kill(),
            Away::OstFrozen => cluster.server(1).freeze(),
        }
    }

    fn end(self, cluster: &mut Cluster) {
        match self {
            Away::AllDead => cluster.restart_server(),
            Away::AllFrozen => cluster.thaw_server(),
            Away::OstDead => cluster.server(1).restart(),
            Away::OstFrozen => cluster.server(1).thaw(),
        }
    }
}

fn with_an_ost_apart() -> Cluster {
    let mut cluster = Cluster::of(Layout {
        places: &[(None, "mgs,mdt"), (None, "ost")],
        is_apart: true,
        ..Layout::default()
    });
    cluster.mount_with(SUPERVISED);
    cluster
}

/// Some programs on the mount, of which none rests until its end.
fn start_programs(cluster: &Cluster, round: u64) -> Vec<Program> {
    let place = |number| cluster.root(0).join(format!("round{round}of{number}"));
    (0..4)
        .map(|number| Program::start(&place(number)))
        .collect()
}

/// The process that serves the mount is killed up to `kills` times while a server is away.
fn end_programs(cluster: &mut Cluster, away: Away, rng: &mut SeededRng, round: u64) {
    let mut programs = cluster.timed("starting", || start_programs(cluster, round));
    let mut rest = |most| thread::sleep(Duration::from_millis(rng.below(most)));
    rest(400);
    let (lives, mut kills) = (taken_over(cluster), 0);
    away.begin(cluster);
    while kills < 3 {
        rest(400);
        kills += u64::from(cluster.kill_worker(0));
    }
    rest(1500);
    programs.iter_mut().for_each(Program::kill);
    let stay = programs.iter_mut().map(Program::is_gone_soon);
    let stay: Vec<usize> = (0..)
        .zip(stay)
        .filter(|(_, gone)| !gone)
        .map(|(one, _)| one)
        .collect();
    away.end(cluster);
    assert!(
        stay.is_empty(),
        "{away:?}: programs {stay:?} cannot be killed"
    );
    wait_for_another(cluster, lives);
    let dir = cluster.root(0).join(format!("round{round}of0"));
    cluster.timed("going on", || {
        let mut file = File::create(dir.join("after")).unwrap();
        file.write_all(b"after").unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(dir.join("after")).unwrap(), b"after");
        fs::remove_dir_all(&dir).unwrap();
    });
}

#[test]
fn programs_can_be_killed_while_nobody_serves_them() {
    let mut rng = SeededRng::new(seed());
    let mut cluster = with_an_ost_apart();
    for round in 0..count("GLINT_ROUNDS", 4) {
        let away = Away::ALL[round as usize % Away::ALL.len()];
        end_programs(&mut cluster, away, &mut rng, round);
    }
}

/// Waits for nothing, and calls that do are ended by a signal.
#[test]
fn a_close_waits_for_no_server_while_a_process_takes_over() {
    let mut cluster = Cluster::start();
    cluster.mount_with(SUPERVISED);
    let root = cluster.root(0).to_owned();
    let writing = Work::start({
        let file = root.join("file");
        move |goes_on| {
            let mut file = File::create(file).unwrap();
            file.write_all(b"written").unwrap();
            while goes_on() {
                thread::sleep(Duration::from_millis(5));
            }
            let began = Instant::now();
            nix::unistd::close(file).unwrap();
            began.elapsed()
        }
    });
    cluster.timed("writing", || {
        while !root.join("file").exists() {
            thread::sleep(Duration::from_millis(5));
        }
    });
    cluster.kill_server();
    assert!(cluster.kill_worker(0), "no process serves the mount");
    let made = root.join("made");
    let making =
        Signalled::start(move || fs::create_dir(made).map_err(|error| error.raw_os_error()));
    let took = cluster.timed("closing", || writing.end());
    assert!(took < SOON, "it took {took:?}");
    // Whenever the next process has heard of the call, a signal ends it a second later.
    let began = Instant::now();
    while !making.has_ended() {
        assert!(began.elapsed() < PATIENCE, "no signal ends it");
        making.interrupt();
        thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(making.end(), Err(Some(libc::EINTR)));
    assert!(!cluster.said(0).contains(TAKEN_OVER), "its server was away");
    let status = cluster.status(0);
    assert!(status.contains("OST0: waiting"), "{status}");
    cluster.restart_server();
    cluster.wait_for_log(0, TAKEN_OVER);
    cluster.timed("going on", || {
        assert_eq!(fs::read(root.join("file")).unwrap(), b"written");
        // Nobody had begun what was interrupted.
        assert!(!root.join("made").exists());
    });
}
