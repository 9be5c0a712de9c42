//! Changes that the MDT was asked for by a process of a supervised mount. It died before it heard the answer.
//! Each is made once, and its caller is told so.
// SEMANTICS: crash.mount, op.link, op.rename, op.unlink

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::Duration;

use mounted::deaths::{kill_all, kill_process};
use mounted::{Cluster, output};
use rustix::fs::{CWD, RenameFlags, XattrFlags, lremovexattr, lsetxattr, renameat_with};

const MDT: &str = "mdt.glint-MDT0";
/// Requests for changes. At this rate each but the first waits for a second.
const SLOW: &str =
    "start slow opcode={create,link,unlink,rename,setxattr,removexattr} rate=1 burst=1";
/// Until a call is known to wait at the server.
const BEGUN: Duration = Duration::from_millis(400);

type Change = fn(&Path) -> io::Result<()>;

/// Changes that fail where they are made twice.
const CHANGES: [(&str, Change); 9] = [
    ("link", |dir| {
        fs::hard_link(dir.join("file"), dir.join("linked"))
    }),
    ("mkdir", |dir| fs::create_dir(dir.join("made"))),
    ("symlink", |dir| symlink("file", dir.join("symlink"))),
    ("unlink", |dir| fs::remove_file(dir.join("beside"))),
    ("rmdir", |dir| fs::remove_dir(dir.join("empty"))),
    ("rename", |dir| fs::rename(dir.join("old"), dir.join("new"))),
    ("rename without replacing", |dir| {
        let flags = RenameFlags::NOREPLACE;
        Ok(renameat_with(
            CWD,
            dir.join("new"),
            CWD,
            dir.join("newer"),
            flags,
        )?)
    }),
    ("setxattr that creates", |dir| {
        Ok(lsetxattr(
            dir.join("file"),
            "user.one",
            b"x",
            XattrFlags::CREATE,
        )?)
    }),
    ("removexattr", |dir| {
        Ok(lremovexattr(dir.join("file"), "user.one")?)
    }),
];

/// Makes each change, and lets the process die that has asked for it.
fn die_in_each(mut kill: impl FnMut(&mut Cluster)) {
    let mut cluster = Cluster::with_mounts_of(1, &["--supervisor"]);
    cluster.mount();
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
    let local = cluster.local().join("dir");
    for dir in [&here, &local] {
        fs::create_dir(dir).unwrap();
        fs::create_dir(dir.join("empty")).unwrap();
        for name in ["file", "beside", "old"] {
            fs::write(dir.join(name), name).unwrap();
        }
    }
    for (name, change) in CHANGES {
        cluster.rule(MDT, SLOW);
        // Takes the first token.
        fs::write(here.join(format!("before {name}")), "").unwrap();
        fs::write(local.join(format!("before {name}")), "").unwrap();
        let changing = {
            let here = here.clone();
            thread::spawn(move || change(&here))
        };
        thread::sleep(BEGUN);
        assert!(!changing.is_finished(), "{name}");
        kill(&mut cluster);
        let changed = changing.join().unwrap();
        assert!(changed.is_ok(), "{name}: {changed:?}");
        change(&local).unwrap();
    }
    let look = "find . | sort; getfattr -d file; stat -c '%n %h' file linked";
    let expected = output(&local, look);
    assert_eq!(output(&here, look), expected);
    assert_eq!(output(&there, look), expected);
}

#[test]
fn a_change_is_made_once_although_the_process_that_asked_for_it_dies() {
    die_in_each(|cluster| {
        kill_process(cluster);
        cluster.rule(MDT, "stop slow");
    });
}

#[test]
fn so_it_is_where_the_servers_die_as_well() {
    die_in_each(|cluster| {
        // The rule goes with the servers.
        kill_all(cluster, true);
    });
}
