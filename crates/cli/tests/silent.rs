//! Questions to many processes, some of which do not answer; and what servers tell of their clients.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;

use nix::sys::signal::Signal;
use support::ports::free_address;
use support::{Staying, eventually, glint, needs_root, shell};

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["mnt", "mnt2"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    glint(dir.path(), &["format", "D"]).worked();
    dir
}

#[test]
fn who_stands_still_is_named_and_the_others_answer() {
    if needs_root() {
        return;
    }
    let dir = place();
    let address = free_address();
    let _server = Staying::start(dir.path(), &["serve", "D", "--listen", &address]);
    let mount = |point| ["mount", &address, point, "--key", "D/key"].map(str::to_owned);
    let start = |point| {
        let words = mount(point);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Staying::start(dir.path(), &words)
    };
    let (frozen, _lively) = (start("mnt"), start("mnt2"));
    frozen.signal(Signal::SIGSTOP);
    let point = dir.path().join("mnt").display().to_string();
    let silent = format!("glint: the mount at {point} has not answered for 5 s");
    for words in [&["param", "get", "llite.*.statahead_max"][..], &["status"]] {
        let ran = glint(dir.path(), words);
        ran.worked();
        assert_eq!(ran.err.matches(&silent).count(), 1, "{ran:?}");
    }
    let ran = glint(dir.path(), &["status"]);
    let lively = dir.path().join("mnt2").display().to_string();
    assert!(
        ran.worked().contains(&format!("{lively}: glint")),
        "{ran:?}"
    );
    assert!(ran.worked().contains("glint, server, pid"), "{ran:?}");
    // Who asks for it by name is told, too.
    let ran = glint(dir.path(), &["status", &point]);
    ran.failed_saying(&["has not answered for 5 s", "stands still"]);
    // A mount whose process is gone.
    frozen.signal(Signal::SIGKILL);
    eventually("it is gone", || {
        let ran = glint(dir.path(), &["status"]);
        ran.worked();
        ran.err
            .contains(&format!("the mount at {point} does not answer"))
    });
}

#[test]
fn a_server_tells_whom_it_waits_for_and_gives_up_by_hand() {
    if needs_root() {
        return;
    }
    let dir = place();
    let address = free_address();
    let serve = ["serve", "D", "--listen", &address];
    let mut server = Staying::start(dir.path(), &serve);
    let mut mount = Staying::start(dir.path(), &["mount", &address, "mnt", "--key", "D/key"]);
    shell(dir.path(), "echo words > mnt/file && sync -f mnt/file").worked();
    let told = |point: &str| {
        let ran = glint(dir.path(), &["status", point, "--json"]);
        serde_json::from_str::<serde_json::Value>(ran.worked()).unwrap()[0].clone()
    };
    let uuid = told("mnt")["uuid"].as_str().unwrap().to_owned();
    let mdt = || told("D")["targets"][0].clone();
    assert_eq!(
        (&mdt()["target"], &mdt()["recovering"]),
        (&"MDT0".into(), &false.into())
    );
    mount.signal(Signal::SIGSTOP);
    server.signal(Signal::SIGKILL);
    server.ended();
    let server = Staying::start(dir.path(), &serve);
    let waiting = mdt();
    assert_eq!(waiting["awaited"][0], uuid, "{waiting}");
    assert!(waiting["seconds_left"].as_u64().unwrap() <= 60);
    let shown = glint(dir.path(), &["status", "D"]);
    assert!(
        shown.worked().contains(&format!("waited for: {uuid}")),
        "{shown:?}"
    );
    assert!(shown.worked().contains("MDT0: recovering, "), "{shown:?}");
    mount.signal(Signal::SIGCONT);
    eventually("it is back", || mdt()["recovering"] == false);
    let back = mdt()["back"][0].as_str().unwrap().to_owned();
    assert!(back.starts_with(&uuid), "{back}");

    let set = |value: &str| {
        let assignment = format!("mdt.*.evict_client={value}");
        glint(dir.path(), &["param", "set", &assignment, "--dir", "D"])
    };
    set("nobody").failed_saying(&["expected a client's UUID"]);
    set(&"0".repeat(32)).failed_saying(&["no client 0000", "exports"]);
    set(&uuid).worked();
    eventually("it hears of it", || {
        mount.said().contains("evicted this mount")
    });
    eventually("it works again", || {
        shell(dir.path(), "echo more > mnt/again").code == Some(0)
    });
    assert!(
        server.said().contains("evicted by hand"),
        "{}",
        server.said()
    );
    mount.signal(Signal::SIGTERM);
    assert_eq!(mount.ended(), Some(0), "{}", mount.said());
}
