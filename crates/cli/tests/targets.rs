//! The targets that a management service knows, and how it forgets one.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::path::Path;

use nix::sys::signal::Signal;
use support::{Ran, Staying, eventually, glint};

/// `glint target` with these words, as somebody who has that key.
fn target(dir: &Path, address: &str, key: &str, words: &[&str]) -> Ran {
    let reached = ["--mgs", address, "--server-key", key];
    glint(dir, &[&["target"], words, &reached].concat())
}

fn stop(mut server: Staying) {
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
}

#[test]
fn a_target_that_is_gone_is_forgotten_and_no_other_takes_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let (at, address) = (dir.path(), support::ports::free_address());
    glint(at, &["format", "D"]).worked();
    for other in ["E", "F"] {
        glint(at, &["format", other, "--role", "ost1", "--join", "D"]).worked();
    }
    let serve_mgs = || Staying::start(at, &["serve", "D", "--listen", &address]);
    let serve = ["serve", "E", "--listen", "unix:E.sock", "--mgs", &address];
    let ask = |words: &[&str]| target(at, &address, "D/server-key", words);
    let mgs = serve_mgs();
    let first = Staying::start(at, &serve);
    let listed = ask(&["list"]);
    for name in ["MGS ", "MDT0 ", "OST0 ", "OST1 "] {
        assert!(listed.worked().contains(name), "no {name:?} in {listed:?}");
    }
    target(at, &address, "D/key", &["list"]).failed_saying(&["DIR/server-key"]);
    ask(&["remove", "ost1"]).failed_saying(&["OST1 is being served at", "E.sock"]);
    ask(&["remove", "ost7"]).failed_saying(&["OST7 is no target of this file system"]);
    stop(first);
    // In its next life it has heard nothing of the target.
    stop(mgs);
    let _mgs = serve_mgs();
    ask(&["remove", "ost1"]).worked();
    let listed = ask(&["list", "--json"]);
    assert!(
        !listed.worked().contains("\"Ost\",\"index\":1"),
        "{listed:?}"
    );
    let other = ["serve", "F", "--listen", "unix:F.sock", "--mgs", &address];
    glint(at, &other).failed_saying(&["would read as empty"]);
    let _back = Staying::start(at, &serve);
    eventually("it is known again", || {
        ask(&["list"]).worked().contains("OST1 ")
    });
}
