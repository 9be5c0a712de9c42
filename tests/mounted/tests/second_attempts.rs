//! Calls by path that another mount leads astray twice. The kernel looks the names of a path up a second time
//! and no third, so that attempt must do.
// SEMANTICS: op.link, op.rename, cache.side_effects

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use mounted::Cluster;

const MDT: &str = "mdt.glint-MDT0";
/// Until a call is known to wait at the server, where it waits for a second.
const BEGUN: Duration = Duration::from_millis(400);

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// While a `link` looks up its new name it holds the lock without which this kernel cannot forget the old
/// one. Another mount moves the file meanwhile, in both attempts.
#[test]
fn a_file_that_is_moved_in_both_attempts_of_a_link_is_linked() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("dir"));
    cluster.timed("preparing", || {
        fs::create_dir(&there).unwrap();
        File::create(there.join("file")).unwrap();
        inode(&here.join("file"));
    });
    let number = inode(&there.join("file"));
    let moves = |from: &str, to: &str| fs::rename(there.join(from), there.join(to)).unwrap();
    cluster.rule(MDT, "start slow opcode={lookup} each=client rate=1 burst=1");
    thread::scope(|scope| {
        // Takes the first token.
        assert!(!here.join("none").exists());
        let linking = scope.spawn(|| fs::hard_link(here.join("file"), here.join("new")));
        thread::sleep(BEGUN);
        // Under its name again, and this mount must ask for the new one anew.
        moves("file", "new");
        moves("new", "file");
        // The second attempt asks for the old name and then, a second later, for the new one.
        thread::sleep(2 * Duration::from_secs(1));
        assert!(!linking.is_finished());
        moves("file", "moved");
        linking.join().unwrap().unwrap();
    });
    cluster.rule(MDT, "stop slow");
    cluster.timed("looking", || {
        assert_eq!(inode(&there.join("new")), number);
        assert_eq!(inode(&here.join("moved")), number);
    });
}

/// Another mount moves the working directory of a process. A call in the directory above keeps this kernel
/// from forgetting the old name.
#[test]
fn a_process_in_a_moved_directory_uses_names_there_beside_a_call_in_the_directory_above() {
    let cluster = Cluster::with_mounts(2);
    let [here, there] = [0, 1].map(|mount| cluster.root(mount).join("above"));
    cluster.timed("preparing", || {
        fs::create_dir_all(there.join("dir")).unwrap();
        fs::write(there.join("dir/file"), "text").unwrap();
        inode(&here.join("dir/file"));
    });
    let mut shell = Command::new("sh");
    shell.args(["-c", "read line; exec cat file"]);
    let shell = shell.current_dir(here.join("dir"));
    let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.stderr(Stdio::piped()).spawn().unwrap();
    cluster.rule(MDT, "start slow opcode={create} rate=1 burst=1");
    let said = thread::scope(|scope| {
        let making = scope.spawn(|| {
            (0..3).for_each(|name| drop(File::create(here.join(name.to_string())).unwrap()));
        });
        thread::sleep(BEGUN);
        fs::rename(there.join("dir"), there.join("moved")).unwrap();
        shell.stdin.take().unwrap().write_all(b"\n").unwrap();
        let said = shell.wait_with_output().unwrap();
        assert!(!making.is_finished(), "nothing holds the kernel's lock");
        making.join().unwrap();
        said
    });
    cluster.rule(MDT, "stop slow");
    let wrong = String::from_utf8_lossy(&said.stderr);
    assert_eq!((&*said.stdout, &*wrong), (&b"text"[..], ""));
}
