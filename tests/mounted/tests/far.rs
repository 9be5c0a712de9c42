//! Servers far away: work on many files must not cost a round trip for each.
// SEMANTICS: crash.mount, op.sync

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bench::{Link, LinkConfig, LinkSettings};
use mounted::deaths::kill_process;
use mounted::{Cluster, Layout, glint, output};

const FILES: usize = 400;
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// A fraction of what it takes with a round trip for each file and what is to be told of it: 16 s.
const LIMIT: Duration = Duration::from_secs(3);

/// A supervised mount beside its servers, as long as nobody sends them away. None: not root.
fn cluster() -> Option<(Cluster, Arc<Link>)> {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make a link");
        return None;
    }
    let link = Arc::new(
        Link::create(LinkConfig {
            far_end: bench::link::FarEnd::Here,
            ..LinkConfig::default()
        })
        .unwrap(),
    );
    let mut cluster = Cluster::of(Layout {
        far: Some(&link),
        ..Layout::default()
    });
    cluster.mount_with(&["--supervisor"]);
    cluster.set_param(0, "dirty_age_ms", 60_000);
    Some((cluster, link))
}

/// Files with bytes and modes that only their mount knows of.
fn make_files(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for number in 0..FILES {
        let mut file = File::create(dir.join(format!("n{number}"))).unwrap();
        write!(file, "bytes of {number}").unwrap();
        file.set_permissions(Permissions::from_mode(0o640)).unwrap();
    }
}

fn send_servers_away(link: &Link) {
    link.set(LinkSettings {
        rtt: ROUND_TRIP,
        ..LinkSettings::default()
    })
    .unwrap();
}

#[test]
fn a_process_takes_over_in_few_round_trips() {
    let Some((cluster, link)) = cluster() else {
        return;
    };
    let dir = cluster.root(0).join("dir");
    cluster.timed("making files", || make_files(&dir));
    send_servers_away(&link);
    let begun = kill_process(&cluster);
    let read = cluster.timed("reading", || fs::read(dir.join("n7")).unwrap());
    let took = begun.elapsed();
    assert_eq!(read, b"bytes of 7");
    assert!(
        took < LIMIT,
        "took over after {took:?}: {}",
        cluster.said(0)
    );
}

#[test]
fn all_is_made_durable_in_few_round_trips() {
    let Some((cluster, link)) = cluster() else {
        return;
    };
    let root = cluster.root(0);
    cluster.timed("making files", || make_files(&root.join("dir")));
    send_servers_away(&link);
    let begun = Instant::now();
    output(root, &format!("{} fs sync .", glint().display()));
    let took = begun.elapsed();
    assert!(took < LIMIT, "all was durable after {took:?}");
}
