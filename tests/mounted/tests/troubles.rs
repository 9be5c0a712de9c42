//! Programs that people use, at work on two mounts while servers die, everybody freezes now and then,
//! the network fails and the disk is full; what they made is compared with what they make elsewhere.
// SEMANTICS: crash.server, crash.mount, crash.full

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use base::{Rng, SeededRng};
use mounted::{
    Cluster, Layout, SmallDisk, Work, count, cut_loopback, in_own_network, run, seed, tool,
};
use nix::sys::signal::Signal;
use rustix::fs::{FallocateFlags, fallocate};

/// What the servers have, so that it can be filled.
const DISK: u64 = 2 << 30;
/// How long the programs may take to end after the last trouble.
const LONG: Duration = Duration::from_secs(300);
const MOUNTS: usize = 2;
/// Kinds of troubles.
const KINDS: u64 = 8;
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
struct Place {
    local: PathBuf,
    /// How often the disk was, or is no longer, full.
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

/// Takes all space of the servers' disk, for a moment.
fn fill(disk: &Path, place: &Place, rng: &mut SeededRng) {
    place.full.fetch_add(1, Ordering::SeqCst);
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
    place.full.fetch_add(1, Ordering::SeqCst);
}

/// What goes wrong, for up to a second or two each.
struct Troubles<'a> {
    cluster: Cluster,
    disk: &'a SmallDisk,
    place: Arc<Place>,
    rng: SeededRng,
    /// Kinds that have not come yet, by their numbers.
    to_come: Vec<u64>,
}

impl Troubles<'_> {
    /// One of them: first each kind once, in any order.
    fn meet(&mut self) -> String {
        let kind = match self.to_come.len() {
            0 => self.rng.below(KINDS),
            left => {
                let one = self.rng.below(left as u64) as usize;
                self.to_come.swap_remove(one)
            }
        };
        match kind {
            0 => self.kill_servers(),
            1 => self.freeze_servers(),
            2 => self.freeze_mount(),
            3 => self.kill_mount(),
            4 => self.kill_mount_and_servers(),
            5 => self.cut(),
            6 => self.kill_servers_behind_a_cut(),
            _ => self.fill(),
        }
    }

    fn fill(&mut self) -> String {
        fill(self.disk.path(), &self.place, &mut self.rng);
        "a full disk".to_owned()
    }

    fn a_moment(&mut self) {
        sleep(Duration::from_millis(self.rng.below(1000)));
    }

    /// One of the servers, or all of them.
    fn some_servers(&mut self) -> Vec<usize> {
        let count = self.cluster.server_count();
        match self.rng.below(count as u64 + 1) as usize {
            one if one < count => vec![one],
            _ => (0..count).collect(),
        }
    }

    fn a_mount(&mut self) -> usize {
        self.rng.below(MOUNTS as u64) as usize
    }

    fn kill_servers(&mut self) -> String {
        let servers = self.some_servers();
        self.kill(&servers);
        self.restart(&servers);
        format!("killed servers {servers:?}")
    }

    fn kill(&mut self, servers: &[usize]) {
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).kill());
    }

    /// Who is not the MGS waits for it.
    fn restart(&mut self, servers: &[usize]) {
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).begin());
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).wait_until_ready());
    }

    fn freeze_servers(&mut self) -> String {
        let servers = self.some_servers();
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).freeze());
        self.a_moment();
        servers
            .iter()
            .for_each(|one| self.cluster.server(*one).thaw());
        format!("frozen servers {servers:?}")
    }

    fn freeze_mount(&mut self) -> String {
        let mount = self.a_mount();
        self.cluster.signal_worker(mount, Signal::SIGSTOP);
        self.a_moment();
        self.cluster.signal_worker(mount, Signal::SIGCONT);
        format!("frozen mount {mount}")
    }

    /// Where the next process has just begun, it dies as well.
    fn kill_mount(&mut self) -> String {
        let mount = self.a_mount();
        self.cluster.kill_worker(mount);
        format!("killed mount {mount}")
    }

    fn kill_mount_and_servers(&mut self) -> String {
        let (mount, servers) = (self.a_mount(), self.some_servers());
        let mount_first = self.rng.below(2) == 0;
        if mount_first {
            self.cluster.kill_worker(mount);
        }
        self.kill(&servers);
        if !mount_first {
            self.cluster.kill_worker(mount);
        }
        self.restart(&servers);
        format!("killed mount {mount} and servers {servers:?}")
    }

    /// Cuts a mount off, or all of them, or servers off from each other, and mends that.
    fn cut(&mut self) -> String {
        let is_apart = self.cluster.server_count() > 1;
        let choices = MOUNTS as u64 + 1 + u64::from(is_apart);
        let mounts = match self.rng.below(choices) as usize {
            one if one < MOUNTS => vec![one],
            MOUNTS => (0..MOUNTS).collect(),
            _ => Vec::new(),
        };
        let servers = is_apart && (mounts.is_empty() || self.rng.below(4) == 0);
        mounts.iter().for_each(|one| self.cluster.cut_off(*one));
        cut_loopback(servers);
        self.a_moment();
        self.a_moment();
        cut_loopback(false);
        mounts.iter().for_each(|one| self.cluster.mend(*one));
        format!("cut links of mounts {mounts:?}, between servers: {servers}")
    }

    /// Both at once: who was sent what comes to nobody.
    fn kill_servers_behind_a_cut(&mut self) -> String {
        let servers = self.some_servers();
        (0..MOUNTS).for_each(|one| self.cluster.cut_off(one));
        cut_loopback(true);
        self.kill(&servers);
        cut_loopback(false);
        (0..MOUNTS).for_each(|one| self.cluster.mend(one));
        self.restart(&servers);
        format!("killed servers {servers:?} behind a cut")
    }
}

/// Programs by their names.
type Running = Vec<(&'static str, Work<u64>)>;

/// Starts all of them, on one mount or the other.
fn start_programs(cluster: &Cluster, place: &Arc<Place>) -> Running {
    make_tree(&place.local);
    let fsx = FSX.replace("FSX", &tool("fsx").display().to_string());
    let programs = [
        ("tar", TAR),
        ("git", GIT),
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
            full: AtomicU64::new(0),
        });
        let running = start_programs(&cluster, &place);
        let limit = LONG + Duration::from_secs(10 * count);
        let watch = cluster.watch(limit, "all the programs");
        let mut troubles = Troubles {
            cluster,
            disk: &disk,
            place,
            rng: SeededRng::new(seed()),
            to_come: (0..KINDS).collect(),
        };
        for number in 0..count {
            troubles.a_moment();
            if running.iter().any(|(_, run)| run.has_ended()) {
                break;
            }
            println!("{number}: {}", troubles.meet());
        }
        running.iter().for_each(|(_, run)| run.is_enough());
        for (name, run) in running {
            println!("{name}: {} rounds", run.end());
        }
        drop(watch);
        nothing_is_left(troubles.cluster);
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
fn programs_outlive_troubles() {
    programs_outlive(count("GLINT_TROUBLES", KINDS), TOGETHER);
}

#[test]
fn programs_outlive_troubles_of_servers_apart() {
    programs_outlive(count("GLINT_TROUBLES", KINDS), APART);
}

#[test]
#[ignore = "soak: a quarter of an hour"]
fn soak_programs_outlive_hundreds_of_troubles() {
    programs_outlive(300, TOGETHER);
}

#[test]
#[ignore = "soak: a quarter of an hour"]
fn soak_programs_outlive_hundreds_of_troubles_of_servers_apart() {
    programs_outlive(300, APART);
}
