//! Programs that go through trees, each in its own way, on a mount that knows nothing of the tree:
//! they find what they find on the local disk, for few requests.
// SEMANTICS: op.walk, op.readdir, op.lookup

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use ignore::{WalkBuilder, WalkState};
use mounted::{Cluster, run};

const DIRS: u64 = 1 + 6 + 6 * 20;
const FILES: u64 = 6 * 20 * 25;

const MAKE: &str = "
mkdir tree && cd tree
for top in 1 2 3 4 5 6; do for dir in $(seq 20); do
  mkdir -p top$top/dir$dir
  for file in $(seq 25); do echo $top $dir $file > top$top/dir$dir/file$file.txt; done
done; done
";

/// A cluster with the tree, durable, and with a local copy of it.
fn with_tree(more: &str) -> Cluster {
    let mut cluster = Cluster::with_mounts(1);
    let local = cluster.local();
    run(&local, &format!("{MAKE}{more}"));
    let root = cluster.root(0).to_owned();
    cluster.timed("a copy", || {
        run(&local, &format!("cp -a tree {}", root.display()))
    });
    cluster.unmount(0);
    cluster
}

fn said(dir: &Path, script: &str) -> String {
    let mut shell = Command::new("bash");
    shell.args(["-e", "-o", "pipefail", "-c", script]);
    let output = shell.current_dir(dir).output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {complaints}");
    String::from_utf8(output.stdout).unwrap()
}

/// What the script says on the local copy it says on a cold mount, for at most `most` requests.
fn as_on_the_local_disk(cluster: &mut Cluster, script: &str, most: u64) {
    let expected = said(&cluster.local().join("tree"), script);
    assert!(!expected.is_empty());
    let mount = cluster.mount();
    let root = cluster.root(mount).join("tree");
    let sent = cluster.requests(mount, script, || {
        assert_eq!(said(&root, script), expected, "{script}");
    });
    assert!(sent <= most, "{script}: {sent} requests, at most {most}");
    cluster.unmount(mount);
}

#[test]
fn who_reads_names_and_attributes_asks_for_long_stretches() {
    let mut cluster = with_tree("");
    let walkers = [
        "find . -type f -size -2 | sort",
        "du -a --apparent-size --block-size=1 . | sort | grep txt",
        "LC_ALL=C ls -lR --time-style=+%s",
        "tar -cf - --exclude='*.txt' . | tar -tf - | sort",
        "python3 -c 'import os
for at, dirs, files in os.walk(\".\"): print(at, sorted(dirs), sorted(files))' | sort",
        "python3 -c 'import os
def walk(at):
    for entry in os.scandir(at):
        print(entry.path, entry.stat(follow_symlinks=False).st_mtime_ns)
        if entry.is_dir(): walk(entry.path)
walk(\".\")' | sort",
        "rsync -a --list-only . | sed 's/^d.* /d /' | sort",
    ];
    for walker in walkers {
        as_on_the_local_disk(&mut cluster, walker, DIRS / 8);
    }
}

#[test]
fn who_reads_the_files_too_asks_for_many_at_a_time() {
    let mut cluster = with_tree("");
    let walkers = [
        ("grep -rc . . | sort", FILES / 40),
        ("grep -r '3 7 .*' . | sort", FILES / 40),
        (
            "tar -cf - . | tar -tvf - --sort=name | awk '{print $3, $6}' | sort | grep txt",
            FILES / 40,
        ),
        ("find . -type f | xargs cat | sort | md5sum", FILES / 40),
    ];
    for (walker, most) in walkers {
        as_on_the_local_disk(&mut cluster, walker, most);
    }
}

/// It asks for the files of its index by name, and reads directories afterwards.
#[test]
fn git_sees_that_nothing_has_changed_for_less_than_a_request_a_file() {
    let commit = "
git init -q . && git config user.name me && git config user.email me@example.org
git add . && git commit -q -m all && cd ..";
    let mut cluster = with_tree(commit);
    // Its index has the inode numbers of the local disk: the first time it reads the files.
    let mount = cluster.mount();
    let root = cluster.root(mount).join("tree");
    cluster.timed("git", || run(&root, "git status --porcelain"));
    cluster.unmount(mount);
    let status = "git status --porcelain; echo done";
    as_on_the_local_disk(&mut cluster, status, DIRS + FILES * 2 / 3);
}

#[test]
fn walkers_of_many_threads_find_all_of_it() {
    let mut cluster = with_tree("");
    let local = cluster.local().join("tree");
    let mount = cluster.mount();
    let root = cluster.root(mount).join("tree");
    let walk = |root: &Path| -> BTreeSet<String> {
        let found = Mutex::new(BTreeSet::new());
        let mut walker = WalkBuilder::new(root);
        walker.standard_filters(false).threads(8);
        walker.build_parallel().run(|| {
            Box::new(|entry| {
                let entry = entry.unwrap();
                let len = fs::symlink_metadata(entry.path()).unwrap().len();
                let path = entry.path().strip_prefix(root).unwrap().display();
                let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
                let line = format!("{path} {}", if is_dir { 0 } else { len });
                found.lock().unwrap().insert(line);
                WalkState::Continue
            })
        });
        found.into_inner().unwrap()
    };
    let expected = walk(&local);
    assert_eq!(expected.len() as u64, DIRS + FILES);
    let sent = cluster.requests(mount, "eight threads", || {
        assert!(walk(&root) == expected);
    });
    assert!(sent <= DIRS + DIRS / 4, "{sent} requests");
}

#[test]
fn stats_in_no_order_cost_no_more_than_without_prefetch() {
    let mut cluster = with_tree("");
    let list = cluster.local().join("list");
    let make = format!(
        "find . -type f | sort -R --random-source=/bin/true > {}",
        list.display()
    );
    run(&cluster.local().join("tree"), &make);
    let stat = format!(
        "xargs -a {} -P 4 -n 50 stat -c '%n %s' | sort",
        list.display()
    );
    let expected = said(&cluster.local().join("tree"), &stat);
    let counts = [true, false].map(|prefetch| {
        let mount = cluster.mount();
        if !prefetch {
            cluster.set_param(mount, "statahead_max", 0);
        }
        let root = cluster.root(mount).join("tree");
        cluster.requests(mount, "stats", || assert_eq!(said(&root, &stat), expected))
    });
    assert!(
        counts[0] <= counts[1] + counts[1] / 20,
        "{} requests, {} without prefetch",
        counts[0],
        counts[1]
    );
}
