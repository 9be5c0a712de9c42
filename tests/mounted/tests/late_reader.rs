//! An answer that is digested late, as its thread gets no processor. Alone in its program, for it takes one
//! from all others.
// SEMANTICS: op.rename, cache.names

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use mounted::Cluster;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

const MDT: &str = "mdt.glint-MDT0";
/// Until a call is known to wait in the kernel or at the server.
const BEGUN: Duration = Duration::from_millis(300);

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).map(|stat| stat.ino()).ok()
}

/// The processor on which answers are digested late: the others do all the rest.
const SLOW: usize = 1;
/// Less than the share of a second that the kernel lets real-time threads have.
const HELD_UP: Duration = Duration::from_millis(700);

/// The calling thread runs there only.
fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor).unwrap();
    sched_setaffinity(Pid::from_raw(0), &set).expect("the machine has two processors");
}

/// Nobody else runs there meanwhile.
fn hold_up(processor: usize) {
    let time = format!("{}", HELD_UP.as_secs_f64());
    let processor = processor.to_string();
    let mut busy = Command::new("chrt");
    busy.args(["--fifo", "1", "timeout", &time, "taskset", "--cpu-list"]);
    busy.args([&processor, "sh", "-c", "while :; do :; done"]);
    busy.status().unwrap();
}

/// Rounds in which a move takes longer than an answer is held up, at most. On a busy machine some do.
const ROUNDS: usize = 20;

/// Another mount moves a directory whose name a reader was just told. Whether the reader digested that after
/// the move only.
fn is_digested_late(cluster: &Cluster, [here, there]: &[PathBuf; 2]) -> bool {
    cluster.timed("preparing", || {
        fs::create_dir(there).unwrap();
        fs::create_dir(there.join("moved")).unwrap();
        assert!(inode(&here.join("moved")).is_some());
        // The kernel keeps the name, and asks before it uses it.
        fs::rename(there.join("moved"), there.join("away")).unwrap();
        fs::rename(there.join("away"), there.join("moved")).unwrap();
    });
    cluster.rule(MDT, "start slow opcode={lookup} rate=1 burst=1");
    thread::scope(|scope| {
        scope.spawn(|| (0..3).all(|n| inode(&here.join(format!("none{n}"))).is_none()));
        thread::sleep(BEGUN);
        let late = scope.spawn(|| {
            stay_on(SLOW);
            inode(&here.join("moved"))
        });
        thread::sleep(BEGUN);
        scope.spawn(|| hold_up(SLOW));
        thread::sleep(BEGUN / 3);
        cluster.rule(MDT, "stop slow");
        thread::sleep(BEGUN / 3);
        fs::rename(there.join("moved"), there.join("elsewhere")).unwrap();
        let is_late = !late.is_finished();
        late.join().unwrap();
        is_late
    })
}

/// Who was told where a name leads may digest that long after another mount has moved it.
#[test]
fn a_directory_is_not_believed_to_be_where_a_late_reader_was_told() {
    let cluster = Cluster::with_mounts(2);
    let is_met = (0..ROUNDS).any(|round| {
        let name = format!("dir{round}");
        let dirs = [0, 1].map(|mount| cluster.root(mount).join(&name));
        let is_late = is_digested_late(&cluster, &dirs);
        let [here, there] = &dirs;
        cluster.timed("looking", || {
            assert_eq!(inode(&here.join("moved")), None);
            assert_eq!(
                inode(&here.join("elsewhere")),
                inode(&there.join("elsewhere"))
            );
        });
        is_late
    });
    assert!(is_met, "each move took too long");
}
