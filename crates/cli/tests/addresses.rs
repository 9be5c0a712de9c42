//! Targets that are served now here, now there, while mounts use them.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use support::ports::free_address;
use support::stored::stored_objects;
use support::{Staying, eventually, glint, needs_root, shell};

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("mnt")).unwrap();
    dir
}

/// Objects of a few bytes that the OST in E has.
fn objects(dir: &Path) -> u64 {
    stored_objects(&dir.join("E"), 1)
}

#[test]
fn a_mount_goes_where_everything_went() {
    if needs_root() {
        return;
    }
    let dir = place();
    glint(dir.path(), &["format", "D"]).worked();
    let (a, b) = (free_address(), free_address());
    let serve = |here: &str, there: &str| {
        Staying::start(
            dir.path(),
            &["serve", "D", "--listen", here, "--also", there],
        )
    };
    let mut server = serve(&a, &b);
    // Of the other address it learns from the MGS.
    let mount = ["mount", &a, "mnt", "--key", "D/key"];
    let mut mount = Staying::start(dir.path(), &mount);
    for (round, (here, there)) in [(&b, &a), (&a, &b), (&b, &a)].into_iter().enumerate() {
        let file = format!("mnt/file{round}");
        shell(dir.path(), &format!("echo {round} > {file}")).worked();
        let signal = [Signal::SIGKILL, Signal::SIGTERM][round % 2];
        server.signal(signal);
        server.ended();
        server = serve(here, there);
        let said = shell(dir.path(), &format!("cat {file} && mkdir mnt/dir{round}"));
        assert_eq!(said.worked(), format!("{round}\n"), "{}", mount.said());
    }
    mount.signal(Signal::SIGTERM);
    assert_eq!(mount.ended(), Some(0), "{}", mount.said());
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    glint(dir.path(), &["fsck", "D"]).worked();
}

#[test]
fn an_ost_that_moved_is_found_by_mounts_and_by_the_mdt() {
    if needs_root() {
        return;
    }
    let dir = place();
    // The OST is known when the MDT starts.
    for (name, role) in [("D", "mgs"), ("E", "ost"), ("F", "mdt")] {
        let join = if name == "D" {
            &[][..]
        } else {
            &["--join", "D"]
        };
        glint(
            dir.path(),
            &[&["format", name, "--role", role], join].concat(),
        )
        .worked();
    }
    let (a, mdt) = (free_address(), free_address());
    let (first, second) = (free_address(), free_address());
    let _mgs = Staying::start(dir.path(), &["serve", "D", "--listen", &a]);
    let serve = |name: &str, at: &str| {
        Staying::start(dir.path(), &["serve", name, "--listen", at, "--mgs", &a])
    };
    let mut server = serve("E", &first);
    let _mdt = serve("F", &mdt);
    let mount = Staying::start(dir.path(), &["mount", &a, "mnt", "--key", "D/key"]);
    shell(dir.path(), "echo one > mnt/one && sync -f mnt/one").worked();
    eventually("its bytes are there", || objects(dir.path()) == 1);
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0), "{}", server.said());
    // While it is nowhere, and where somebody else is then.
    shell(dir.path(), "rm mnt/one").worked();
    let _server = serve("E", &second);
    let said = shell(
        dir.path(),
        "echo two > mnt/two && sync -f mnt/two && cat mnt/two",
    );
    assert_eq!(said.worked(), "two\n", "{}", mount.said());
    eventually("the MDT has found it, too", || objects(dir.path()) == 1);
    shell(dir.path(), "rm mnt/two").worked();
    eventually("nothing is left", || objects(dir.path()) == 0);
}
