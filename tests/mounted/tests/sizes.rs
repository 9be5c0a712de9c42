//! Where the size of a file comes from (MDT, writer or OST), and how many requests it costs.
// SEMANTICS: op.stat

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mounted::{Cluster, Mapping, glint};

fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// What the MDT knows of a file's size: exact, bytes.
fn on_mdt(path: &Path) -> (bool, u64) {
    let mut getsom = Command::new(glint());
    let output = getsom.args(["fs", "getsom", "--json"]).arg(path).output();
    let told: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
    let exact = told["exact"].as_bool().unwrap();
    (exact, told["bytes"].as_u64().unwrap())
}

/// Questions to OSTs that mount `number` has sent.
fn asked_of_osts(cluster: &Cluster, number: usize) -> u64 {
    let stats = cluster.stats(number);
    let of_kind = |kind: &str| stats["requests"][kind].as_u64().unwrap_or(0);
    ["ldlm_glimpse_enqueue", "ost_read", "ldlm_extent_enqueue"]
        .map(of_kind)
        .iter()
        .sum()
}

fn wait_until_exact(path: &Path) {
    let begun = Instant::now();
    while !on_mdt(path).0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "never exact");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_size_is_the_writers_unless_the_mount_is_content_with_less() {
    let mut cluster = Cluster::with_mounts(1);
    let [exact, lazy] = [cluster.mount(), cluster.mount_with(&["-o", "lazysize"])];
    let [here, there, content] = [0, exact, lazy].map(|mount| cluster.root(mount).join("file"));
    cluster.timed("sizes", || {
        fs::write(&here, "begun").unwrap();
        wait_until_exact(&here);
        let before = [exact, lazy].map(|mount| asked_of_osts(&cluster, mount));
        assert_eq!(
            (len(&there), len(&content), on_mdt(&there)),
            (5, 5, (true, 5))
        );
        let after = [exact, lazy].map(|mount| asked_of_osts(&cluster, mount));
        assert_eq!(before, after, "an exact size is known");

        let mut writer = OpenOptions::new().append(true).open(&here).unwrap();
        writer.write_all(b", and gone on with").unwrap();
        assert_eq!(len(&there), 23, "not written out, and known all the same");
        assert_eq!(on_mdt(&there), (false, 5));
        assert_eq!(len(&content), 5);
        let questions = asked_of_osts(&cluster, lazy);
        assert_eq!(len(&content), 5);
        assert_eq!(asked_of_osts(&cluster, lazy), questions, "it asks no OST");
        assert!(asked_of_osts(&cluster, exact) > after[0]);

        let read = fs::read_to_string(&content).unwrap();
        assert_eq!(
            read, "begun, and gone on with",
            "who opens it reads it whole"
        );
        drop(writer);
        wait_until_exact(&here);
        assert_eq!((len(&there), len(&content)), (23, 23));
    });
}

/// The kernel says that a file is closed when it has time to, and what it has not said by then it never says.
#[test]
fn a_size_is_exact_after_a_mount_that_did_not_hear_that_the_file_was_closed() {
    let mut cluster = Cluster::with_mounts(1);
    let path = cluster.root(0).join("file");
    cluster.timed("writing", || fs::write(&path, [b'x'; 5000]).unwrap());
    let mut mapping = Mapping::new(&path, 5000).unwrap();
    mapping.close_file();
    cluster.freeze_mount(0);
    drop(mapping);
    nix::mount::umount(cluster.root(0)).unwrap();
    cluster.thaw_mount(0);
    cluster.unmount(0);
    cluster.mount_again(0).unwrap();
    assert_eq!(on_mdt(&path), (true, 5000));
}
