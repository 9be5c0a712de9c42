//! The kernel's source, as Debian packages it, unpacked while servers and mount processes are killed, stand
//! still, or cannot reach each other.
// SEMANTICS: crash.server, crash.mount

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base::{Rng, SeededRng};
use bench::{Event, SourceTree, StopFlag};
use mounted::deaths::kill_process;
use mounted::{Cluster, Layout, Work, in_own_network, run_for, seed, unpack};

/// How long it may take to unpack, or to compare.
const LONG: Duration = Duration::from_secs(900);
/// The longest that everybody lives, in milliseconds.
const LIFE_MAX: u64 = 5_000;
/// The longest that somebody stands still, or is cut off, in milliseconds.
const FROZEN_MAX: u64 = 3_000;

/// Where `glint bench demo` has it, too.
fn archive() -> PathBuf {
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo-data/trees");
    let mut tell = |event| {
        if let Event::Line(line) = event {
            println!("{line}");
        }
    };
    SourceTree::debian(&cache, &StopFlag::new(), &mut tell)
        .unwrap()
        .tar
}

/// Unpacks it on one mount while somebody dies again and again, and looks at it on another.
fn unpack_while(
    (archive, mut cluster): (PathBuf, Cluster),
    options: &[&str],
    die: impl Fn(&mut Cluster, &mut SeededRng),
) {
    let unpacked = cluster.mount_with(options);
    let other = cluster.mount();
    let mut rng = SeededRng::new(seed());
    let (root, began) = (cluster.root(unpacked).join("linux"), Instant::now());
    let packed = archive.clone();
    let unpacking = Work::start(move |_| unpack(&packed, &root));
    let watch = cluster.watch(LONG, "unpacking");
    let mut deaths = 0;
    while !unpacking.has_ended() {
        sleep(Duration::from_millis(rng.below(LIFE_MAX)));
        die(&mut cluster, &mut rng);
        deaths += 1;
    }
    unpacking.end();
    drop(watch);
    println!("unpacked in {:?}, {deaths} deaths", began.elapsed());
    let local = cluster.local();
    unpack(&archive, &local.join("linux"));
    cluster.timed_for(LONG, "comparing", || {
        let there = cluster.root(other).join("linux");
        let diff = format!("diff -r --no-dereference linux {}", there.display());
        run_for(LONG, &local, &diff);
    });
    println!("compared after {:?}", began.elapsed());
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// Its server dies or stands still, its process dies, or the link between them is cut.
fn trouble(cluster: &mut Cluster, rng: &mut SeededRng) {
    match rng.below(4) {
        0 => die(cluster),
        1 => drop(kill_process(cluster)),
        2 => {
            cluster.freeze_server();
            sleep(Duration::from_millis(rng.below(FROZEN_MAX)));
            cluster.thaw_server();
        }
        _ => {
            cluster.cut_off(0);
            sleep(Duration::from_millis(rng.below(FROZEN_MAX)));
            cluster.mend(0);
        }
    }
}

fn die(cluster: &mut Cluster) {
    cluster.kill_server();
    cluster.restart_server();
}

#[test]
#[ignore = "soak: three minutes"]
fn soak_the_kernels_source_is_unpacked_whole_although_its_server_dies() {
    unpack_while((archive(), Cluster::start()), &[], |cluster, _| {
        die(cluster)
    });
}

#[test]
#[ignore = "soak: three minutes"]
fn soak_the_kernels_source_is_unpacked_whole_although_its_process_dies() {
    let cluster = Cluster::start();
    unpack_while((archive(), cluster), &["--supervisor"], |cluster, _| {
        kill_process(cluster);
    });
}

#[test]
#[ignore = "soak: three minutes"]
fn soak_the_kernels_source_is_unpacked_whole_whatever_happens() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make a network to be cut");
        return;
    }
    let archive = archive();
    in_own_network(|| {
        let cluster = Cluster::of(Layout {
            has_links: true,
            ..Layout::default()
        });
        unpack_while((archive, cluster), &["--supervisor"], trouble);
    });
}
