//! A mount that fails leaves nothing at the servers for which they would wait after a restart.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::path::Path;

use support::served::Place;
use support::{glint, needs_root, shell};

/// What the servers say of their clients.
fn clients(at: &Path) -> String {
    let said = glint(at, &["status", "D"]);
    let lines = said
        .worked()
        .lines()
        .filter(|line| line.contains("clients"));
    lines.collect()
}

/// Its calls fail sooner than the mount does; that is no answer of the MDT.
#[test]
fn a_soft_mount_without_its_mdt_fails_as_a_hard_one_does() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(at, "mkdir mnt").worked();
    glint(at, &["format", "D"]).worked();
    shell(at, "mv D/mdt0/db db && : > D/mdt0/db").worked();
    let place = Place::new(at);
    let _server = place.serve();
    for policy in ["hard", "soft,timeout=9", "soft,timeout=1"] {
        let mount = place.mount_daemon(&["--timeout", "3", "-o", policy]);
        mount.failed_saying(&["mdt0 has not answered for 3 s"]);
    }
}

#[test]
fn a_mount_that_fails_is_no_client() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    shell(at, "mkdir mnt").worked();
    glint(at, &["format", "D"]).worked();
    let place = Place::new(at);
    let server = place.serve();
    place.mount_daemon(&[]).worked();
    let before = clients(at);
    assert!(before.contains("clients"), "{before}");
    let again = place.mount_daemon(&[]);
    assert!(again.code != Some(0), "{again:?}");
    // At once: not when it is given up.
    assert_eq!(clients(at), before);
    glint(at, &["umount", "mnt"]).worked();
    drop(server);
}
