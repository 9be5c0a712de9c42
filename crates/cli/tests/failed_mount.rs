//! A mount that fails leaves nothing at the servers for which they would wait after a restart.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::path::Path;

use support::ports::free_address;
use support::{Staying, glint, needs_root, shell};

/// What the servers say of their clients.
fn clients(at: &Path) -> String {
    let said = glint(at, &["status", "D"]);
    let lines = said
        .worked()
        .lines()
        .filter(|line| line.contains("clients"));
    lines.collect()
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
    let address = free_address();
    let server = Staying::start(at, &["serve", "D", "--listen", &address]);
    let mount = ["mount", &address, "mnt", "--key", "D/key", "--daemon"];
    glint(at, &mount).worked();
    let before = clients(at);
    assert!(before.contains("clients"), "{before}");
    let again = glint(at, &mount);
    assert!(again.code != Some(0), "{again:?}");
    // At once: not when it is given up.
    assert_eq!(clients(at), before);
    glint(at, &["umount", "mnt"]).worked();
    drop(server);
}
