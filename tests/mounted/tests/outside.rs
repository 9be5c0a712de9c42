//! Requests of a cold walk, counted on the link between client and server and not by the client.
// SEMANTICS: op.walk, op.readdir

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mounted::{Cluster, Sent, Tap, in_own_network, run};

const TOPS: u64 = 6;
const DIRS: u64 = 20;
const FILES: u64 = 67;
const ENTRIES: u64 = 1 + TOPS * (1 + DIRS * (1 + FILES));

/// How long what is on its way may take to be counted at both ends.
const SETTLING: Duration = Duration::from_secs(10);

fn make_tree(cluster: &Cluster) {
    for top in 0..TOPS {
        for dir in 0..DIRS {
            let dir = cluster.root(0).join(format!("tree/top{top}/dir{dir}"));
            fs::create_dir_all(&dir).unwrap();
            (0..FILES).for_each(|file| drop(File::create(dir.join(file.to_string())).unwrap()));
        }
    }
}

fn counted_inside(cluster: &Cluster, mount: usize) -> u64 {
    cluster.stats(mount)["rpcs_sent"].as_u64().unwrap()
}

/// Both ends have counted the same since `begin` and go on doing so.
fn settled(cluster: &Cluster, mount: usize, tap: &mut Tap, begin: (u64, u64)) -> (u64, Sent) {
    let start = Instant::now();
    loop {
        let inside = counted_inside(cluster, mount) - begin.0;
        let outside = tap.sent();
        let counted = outside.request_frames() - begin.1;
        if inside == counted {
            return (counted, outside);
        }
        let waited = start.elapsed();
        assert!(
            waited < SETTLING,
            "{inside} requests by the mount's count, {counted} on the link: {outside:?}"
        );
        sleep(Duration::from_millis(50));
    }
}

fn a_cold_walk_costs_on_the_link(walk: &str) {
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed("making a tree", || make_tree(&cluster));
    cluster.unmount(0);
    let mut tap = Tap::new(cluster.address());
    let cold = cluster.mount();
    let root = cluster.root(cold).join("tree");
    // The mount's own first questions, and how much space there is, which `find` asks by the way.
    cluster.timed("a first look", || run(&root, "stat -f ."));
    let inside = counted_inside(&cluster, cold);
    let outside = tap.sent();
    let begin = (inside, outside.request_frames());
    assert!(begin.1 > 0, "the link is seen");
    cluster.timed(walk, || run(&root, walk));
    let (cost, sent) = settled(&cluster, cold, &mut tap, begin);
    println!("{walk}: {cost} request frames for {ENTRIES} entries; in all {sent:?}");
    let most = ENTRIES / 4000 + 5;
    assert!(
        cost <= most,
        "{walk}: {cost} request frames, at most {most}"
    );
    let segments = sent.segments - outside.segments;
    let frames = |sent: &Sent| sent.frames.values().sum::<u64>();
    let sent = frames(&sent) - frames(&outside);
    // A frame of some hundred bytes is one packet, or two where header and body were sent apart.
    assert!(
        segments <= 2 * sent,
        "{walk}: {segments} packets for {sent} frames"
    );
    cluster.timed("again", || run(&root, walk));
    let (again, _) = settled(&cluster, cold, &mut tap, begin);
    assert_eq!(again, cost, "the second time it costs nothing");
}

#[test]
fn a_cold_walk_costs_few_requests_on_the_link() {
    for walk in ["find . -uid 1", "LC_ALL=C ls -lR > /dev/null"] {
        in_own_network(|| a_cold_walk_costs_on_the_link(walk));
    }
}
