//! Programs that people use, at work on two mounts while servers die, everybody freezes now and then,
//! the network fails and the disk is full; what they made is compared with what they make elsewhere.
// SEMANTICS: crash.server, crash.full

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::{Cluster, SmallDisk, count, in_own_network, run, seed, tool};
use rustix::fs::{FallocateFlags, fallocate};

/// What the servers have, so that it can be filled.
const DISK: u64 = 2 << 30;
/// How long the programs may take to end after the last trouble.
const LONG: Duration = Duration::from_secs(300);

/// How long until freed space is given out again.
const SPACE_IS_SEEN: Duration = Duration::from_secs(2);

/// Unpacks, compares, removes half of it.
const TAR: &str = "
tar xf $LOCAL/tree.tar
diff -r --no-dereference $LOCAL/tree tree
rm -r tree/d1 tree/d3
cp -r tree copy
diff -r --no-dereference tree copy
";

/// Commits have the same names wherever and whenever they are made.
const GIT: &str = "
export GIT_AUTHOR_DATE='@1700000000 +0000' GIT_COMMITTER_DATE='@1700000000 +0000'
git init -q -b main repo
cd repo
git config user.name me
git config user.email me@example.org
for i in $(seq 1 40); do mkdir -p dir$((i % 7)); echo content $i > dir$((i % 7))/file$i; done
git add .
git commit -q -m first
for i in $(seq 1 4); do echo more $i >> dir1/file1; git commit -q -am \"change $i\"; done
git gc -q
git fsck --full
test -z \"$(git status --porcelain)\"
cd ..
git clone -q repo copy
diff -r -x .git repo copy
git -C copy log --format='%H %T' > result
";

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
struct Work {
    local: PathBuf,
    /// There was trouble enough.
    enough: AtomicBool,
    /// How often the disk was full.
    full: AtomicU64,
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

impl Work {
    /// Runs `script` again and again, each time in a new directory of `root`; how often.
    fn repeat(&self, root: &Path, name: &str, script: &str) -> u64 {
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
            if rounds > 0 && self.enough.load(Ordering::SeqCst) {
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

/// Takes all space of the servers' disk, for a moment.
fn fill(disk: &Path, work: &Work, rng: &mut SeededRng) {
    work.full.fetch_add(1, Ordering::SeqCst);
    let path = disk.join("ballast");
    let ballast = File::create(&path).unwrap();
    let mut piece = DISK;
    let mut at = 0;
    while piece >= 4096 {
        match fallocate(&ballast, FallocateFlags::empty(), at, piece) {
            Ok(()) => at += piece,
            Err(_) => piece /= 2,
        }
    }
    sleep(Duration::from_millis(rng.below(700)));
    fs::remove_file(path).unwrap();
    drop(ballast);
    // The servers look again before long.
    sleep(SPACE_IS_SEEN);
    work.full.fetch_add(1, Ordering::SeqCst);
}

/// One thing that goes wrong for up to a second or two.
fn trouble(cluster: &mut Cluster, disk: &Path, work: &Work, rng: &mut SeededRng) -> &'static str {
    let a_moment = Duration::from_millis(rng.below(1000));
    match rng.below(10) {
        0..=3 => {
            cluster.kill_server();
            cluster.restart_server();
            "a killed server"
        }
        4 => {
            cluster.freeze_server();
            sleep(a_moment);
            cluster.thaw_server();
            "a frozen server"
        }
        5 => {
            let number = rng.below(2) as usize;
            cluster.freeze_mount(number);
            sleep(a_moment);
            cluster.thaw_mount(number);
            "a frozen mount"
        }
        6..=7 => {
            run(Path::new("/"), "ip link set lo down");
            sleep(a_moment * 2);
            run(Path::new("/"), "ip link set lo up");
            "a cut link"
        }
        8 => {
            // Both at once: who was sent what comes to nobody.
            run(Path::new("/"), "ip link set lo down");
            cluster.kill_server();
            run(Path::new("/"), "ip link set lo up");
            cluster.restart_server();
            "a server killed behind a cut link"
        }
        _ => {
            fill(disk, work, rng);
            "a full disk"
        }
    }
}

fn programs_outlive(troubles: u64) {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make a network to be cut");
        return;
    }
    in_own_network(|| {
        let disk = SmallDisk::in_memory(DISK);
        let mut cluster = Cluster::start_at(&[(Some(disk.path()), "mgs,mdt,ost")]);
        let roots = [cluster.mount(), cluster.mount()].map(|n| cluster.root(n).to_owned());
        let mut rng = SeededRng::new(seed());
        let work = Arc::new(Work {
            local: cluster.local(),
            enough: AtomicBool::new(false),
            full: AtomicU64::new(0),
        });
        make_tree(&work.local);
        let fsx = FSX.replace("FSX", &tool("fsx").display().to_string());
        let programs = [
            ("tar", TAR),
            ("git", GIT),
            ("sqlite", SQLITE),
            ("fsx", &*fsx),
        ];
        let running: Vec<(&str, JoinHandle<u64>)> = programs
            .into_iter()
            .enumerate()
            .map(|(number, (name, script))| {
                let (work, root, script) =
                    (work.clone(), roots[number % 2].clone(), script.to_owned());
                let run = move || work.repeat(&root, name, &script);
                (name, thread::spawn(run))
            })
            .collect();
        let watch = cluster.watch(
            LONG + Duration::from_secs(10 * troubles),
            "all the programs",
        );
        for number in 0..troubles {
            sleep(Duration::from_millis(rng.below(1000)));
            let dead: Vec<&str> = running
                .iter()
                .filter(|(_, run)| run.is_finished())
                .map(|(name, _)| *name)
                .collect();
            if !dead.is_empty() {
                break;
            }
            let what = trouble(&mut cluster, disk.path(), &work, &mut rng);
            println!("{number}: {what}");
        }
        work.enough.store(true, Ordering::SeqCst);
        for (name, run) in running {
            match run.join() {
                Ok(rounds) => println!("{name}: {rounds} rounds"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        drop(watch);
        for root in &roots {
            let left: Vec<_> = fs::read_dir(root)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
        (0..2).for_each(|mount| cluster.unmount(mount));
        cluster.stop_server();
        assert_eq!(cluster.fsck(), None);
    });
}

#[test]
fn programs_outlive_troubles() {
    programs_outlive(count("GLINT_TROUBLES", 12));
}

#[test]
#[ignore = "soak: half an hour"]
fn soak_programs_outlive_hundreds_of_troubles() {
    programs_outlive(600);
}
