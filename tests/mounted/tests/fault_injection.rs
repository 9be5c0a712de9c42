//! Programs that people use, at work on two mounts under faults: servers die, processes freeze, the network
//! fails and the disk is full. Their results are compared with those of a local run.
// SEMANTICS: crash.server, crash.mount, crash.full

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use base::SeededRng;
use mounted::{
    Cluster, FaultInjection, FaultKind, Layout, SmallDisk, Work, count, git_repository,
    in_own_network, run, seed, tool,
};

/// What the servers have, so that it can be filled.
const DISK: u64 = 2 << 30;
/// How long the programs may take to end after the last trouble.
const LONG: Duration = Duration::from_secs(300);
const MOUNTS: usize = 2;
/// Of each kind one.
const ALL_KINDS: u64 = FaultKind::ALL.len() as u64;

/// Unpacks, compares, removes half of it.
const TAR: &str = "
tar xf $LOCAL/tree.tar
diff -r --no-dereference $LOCAL/tree tree
rm -r tree/d1 tree/d3
cp -r tree copy
diff -r --no-dereference tree copy
";

/// A repository, and its commits as the result. They have the same names wherever and whenever they are made.
fn git() -> String {
    let made = git_repository(40, 4);
    format!(
        "
export GIT_AUTHOR_DATE='@1700000000 +0000' GIT_COMMITTER_DATE='@1700000000 +0000'
{made}
git -C copy log --format='%H %T' > result
"
    )
}

const SQLITE: &str = "
sqlite3 db 'create table t (number integer, text text);'
for i in $(seq 1 20); do
  echo \".timeout 60000\nbegin; insert into t values ($i, hex(zeroblob(2000)) || $i); insert into t values (-$i, 'x'); commit;\" | sqlite3 db
done
test \"$(sqlite3 db 'select count(*), sum(number) from t')\" = '40|0'
test \"$(sqlite3 db 'pragma integrity_check')\" = ok
sqlite3 db .dump > result
";

const FSX: &str = "
FSX -f $LOCAL/fsx.toml -P . -S SEED -N 1500 file
";

/// What all programs go by.
struct Place {
    local: PathBuf,
    /// How often the disk was, or is no longer, full.
    full: Arc<AtomicU64>,
}

/// What a script says came of it, if it does.
fn result(dir: &Path) -> Option<String> {
    fs::read_to_string(dir.join("result")).ok()
}

/// What comes of `script` on the local disk.
fn expected(local: &Path, name: &str, script: &str) -> Option<String> {
    let dir = local.join(name);
    fs::create_dir(&dir).unwrap();
    run(&dir, script);
    result(&dir)
}

impl Place {
    /// Runs `script` again and again, each time in a new directory of `root`; how often.
    fn repeat(&self, root: &Path, name: &str, script: &str, goes_on: &dyn Fn() -> bool) -> u64 {
        let mut rounds = 0;
        let in_place = |number: u64| {
            script
                .replace("$LOCAL", &self.local.display().to_string())
                .replace("SEED", &number.to_string())
        };
        let expected = expected(&self.local, name, &in_place(1));
        loop {
            let full = self.full.load(Ordering::SeqCst);
            let dir = root.join(format!("{name}{rounds}"));
            let done = catch_unwind(AssertUnwindSafe(|| {
                fs::create_dir(&dir).unwrap();
                run(&dir, &in_place(rounds + 1));
                assert!(
                    result(&dir) == expected,
                    "{name}: not what comes of it locally"
                );
            }));
            let was_full = full % 2 == 1 || self.full.load(Ordering::SeqCst) != full;
            match done {
                Ok(()) => rounds += 1,
                // Programs may fail while the disk is full. What they leave can be removed.
                Err(_) if was_full => {
                    while self.full.load(Ordering::SeqCst) % 2 == 1 {
                        sleep(Duration::from_millis(10));
                    }
                    println!("{name}: once more, as the disk was full");
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
            if dir.exists() {
                run(root, &format!("rm -rf {}", dir.display()));
            }
            if rounds > 0 && !goes_on() {
                return rounds;
            }
        }
    }
}

fn make_tree(local: &Path) {
    let script = "
mkdir tree
for d in 1 2 3 4 5; do
  mkdir -p tree/d$d/e
  for i in $(seq 1 60); do head -c $((i * i * d)) /dev/urandom > tree/d$d/e/f$i; done
  ln -s e/f1 tree/d$d/link
  ln tree/d$d/e/f2 tree/d$d/hard
done
tar cf tree.tar tree
";
    run(local, script);
    let config = "[opsize]\nmin = 1\n[weights]\nclose_open = 1.0\nmapread = 10.0\nmapwrite = 10.0\n\
        read = 10.0\nwrite = 10.0\ntruncate = 5.0\nfsync = 0.1\n";
    fs::write(local.join("fsx.toml"), config).unwrap();
}

/// Programs by their names.
type Running = Vec<(&'static str, Work<u64>)>;

/// Starts all of them, on one mount or the other.
fn start_programs(cluster: &Cluster, place: &Arc<Place>) -> Running {
    make_tree(&place.local);
    let git = git();
    let fsx = FSX.replace("FSX", &tool("fsx").display().to_string());
    let programs = [
        ("tar", TAR),
        ("git", &*git),
        ("sqlite", SQLITE),
        ("fsx", &*fsx),
    ];
    let numbered = programs.into_iter().enumerate();
    let started = numbered.map(|(number, (name, script))| {
        let root = cluster.root(number % MOUNTS).to_owned();
        let (place, script) = (place.clone(), script.to_owned());
        let run = move |goes_on: &dyn Fn() -> bool| place.repeat(&root, name, &script, goes_on);
        (name, Work::start(run))
    });
    started.collect()
}

fn programs_outlive(count: u64, places: &[&str]) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make a network to be cut");
        return;
    }
    in_own_network(|| {
        let disk = SmallDisk::in_memory(DISK);
        let places: Vec<_> = places
            .iter()
            .map(|roles| (Some(disk.path()), *roles))
            .collect();
        let mut cluster = Cluster::of(Layout {
            places: &places,
            is_apart: true,
            has_links: true,
            ..Layout::default()
        });
        for _ in 0..MOUNTS {
            cluster.mount_with(&["--supervisor"]);
        }
        let place = Arc::new(Place {
            local: cluster.local(),
            full: Arc::default(),
        });
        let running = start_programs(&cluster, &place);
        let limit = LONG + Duration::from_secs(10 * count);
        let watch = cluster.watch(limit, "all the programs");
        let rng = SeededRng::new(seed());
        let mut faults = FaultInjection::new(cluster, rng).with_disk(disk.path(), &place.full);
        for number in 0..count {
            faults.pass_a_moment();
            if running.iter().any(|(_, run)| run.has_ended()) {
                break;
            }
            println!("{number}: {}", faults.inject_any());
        }
        running.iter().for_each(|(_, run)| run.is_enough());
        for (name, run) in running {
            println!("{name}: {} rounds", run.end());
        }
        drop(watch);
        nothing_is_left(faults.end());
    });
}

/// All is removed, and what is stored is sound.
fn nothing_is_left(mut cluster: Cluster) {
    for mount in 0..MOUNTS {
        let names = fs::read_dir(cluster.root(mount)).unwrap();
        let left: Vec<_> = names.map(|entry| entry.unwrap().path()).collect();
        assert!(left.is_empty(), "{left:?}");
        cluster.unmount(mount);
    }
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// One process has all targets, or each has one of its own.
const TOGETHER: &[&str] = &["mgs,mdt,ost"];
const APART: &[&str] = &["mgs,mdt", "ost0", "ost1"];

#[test]
fn programs_outlive_faults() {
    programs_outlive(count("GLINT_FAULTS", ALL_KINDS), TOGETHER);
}

#[test]
fn programs_outlive_faults_of_servers_apart() {
    programs_outlive(count("GLINT_FAULTS", ALL_KINDS), APART);
}

#[test]
#[ignore = "soak: a quarter of an hour"]
fn soak_programs_outlive_hundreds_of_faults() {
    programs_outlive(300, TOGETHER);
}

#[test]
#[ignore = "soak: a quarter of an hour"]
fn soak_programs_outlive_hundreds_of_faults_of_servers_apart() {
    programs_outlive(300, APART);
}
