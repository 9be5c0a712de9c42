//! Programs that walk trees, each in its own way, on a mount without caches. They find the same as on the
//! local disk, in few requests.
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

/// Four levels of directories.
const MAKE_DEEP: &str = "
mkdir tree && cd tree
for a in $(seq 6); do for b in $(seq 6); do for c in $(seq 6); do for d in $(seq 5); do
  mkdir -p a$a/b$b/c$c/d$d
  for file in 1 2 3 4; do : > a$a/b$b/c$c/d$d/file$file; done
done; done; : > a$a/b$b/file; done; done
";
const DEEP_DIRS: u64 = 1 + 6 + 6 * 6 + 6 * 6 * 6 * (1 + 5);

/// A cluster with the tree, durable, and with a local copy of it.
fn with_tree(more: &str) -> Cluster {
    with_made(&format!("{MAKE}{more}"))
}

fn with_made(make: &str) -> Cluster {
    let mut cluster = Cluster::with_mounts(1);
    let local = cluster.local();
    run(&local, make);
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
    let readers = [
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
    for reader in readers {
        as_on_the_local_disk(&mut cluster, reader, DIRS / 8);
    }
}

#[test]
fn who_goes_level_by_level_asks_for_long_stretches_too() {
    let mut cluster = with_made(MAKE_DEEP);
    let reader = "python3 -c 'import collections, os
queue, found = collections.deque([\".\"]), []
while queue:
    for entry in os.scandir(queue.popleft()):
        if entry.is_dir(): queue.append(entry.path)
        found.append((entry.path, entry.stat(follow_symlinks=False).st_mtime_ns))
print(*sorted(found), sep=\"\\n\")'";
    as_on_the_local_disk(&mut cluster, reader, DEEP_DIRS / 60);
    let mount = cluster.mount();
    let root = cluster.root(mount).join("tree");
    cluster.timed("a walk", || said(&root, reader));
    let walks = cluster.walks(mount);
    println!("{walks:?}");
    let by_level = walks.iter().find(|walk| walk["pattern"] == "bfs");
    let walk = by_level.expect("it was seen how it goes");
    let number = |key: &str| walk[key].as_u64().unwrap();
    assert!(number("used") >= DEEP_DIRS * 9 / 10, "{walk}");
    assert_eq!(walk["ended"], false);
    // Who goes down first is followed as ever.
    as_on_the_local_disk(&mut cluster, "find . | sort", DEEP_DIRS / 60);
}

#[test]
fn who_reads_the_files_too_asks_for_many_at_a_time() {
    let mut cluster = with_tree("");
    let readers = [
        ("grep -rc . . | sort", FILES / 40),
        ("grep -r '3 7 .*' . | sort", FILES / 40),
        (
            "tar -cf - . | tar -tvf - --sort=name | awk '{print $3, $6}' | sort | grep txt",
            FILES / 40,
        ),
        ("find . -type f | xargs cat | sort | md5sum", FILES / 40),
    ];
    for (reader, most) in readers {
        as_on_the_local_disk(&mut cluster, reader, most);
    }
}

/// Files between the directories, too, and in all of them some kilobytes.
const FILL: &str = "
python3 -c 'import os, random
rng = random.Random(1)
for at, dirs, files in os.walk(\".\"):
    if dirs: files += [f\"{kind}{n}\" for n in range(9) for kind in (\"Cargo\", \"e\", \"zoo\")]
    for name in files:
        with open(os.path.join(at, name), \"wb\") as file: file.write(rng.randbytes(rng.randrange(1000, 8000)))'
";

/// A program in Python that reads the files of a tree in some way.
fn python(walk: &str) -> String {
    let read = "
def read(at, names):
    for name in names: print(os.path.join(at, name), hashlib.md5(open(os.path.join(at, name), \"rb\").read()).hexdigest())";
    format!("python3 -c 'import os, hashlib{read}\n{walk}' | sort")
}

/// What is in the files of a copy that `copy` makes in `$to`.
fn copied(copy: &str) -> String {
    format!("to=$(mktemp -d); {copy}; cd $to; find . -type f | sort | xargs md5sum; cd; rm -r $to")
}

#[test]
fn who_reads_the_files_in_another_order_gets_many_at_a_time_too() {
    let mut cluster = with_tree(FILL);
    let readers = [
        "grep -rc . . | sort".to_owned(),
        "find . -type f | LC_ALL=C sort | xargs cat | md5sum".to_owned(),
        python("for at, dirs, files in os.walk(\".\"): read(at, files)"),
        python("for at, dirs, files in sorted(os.walk(\".\")): read(at, sorted(files))"),
        python(
            "def walk(at):
    for entry in sorted(os.scandir(at), key=lambda entry: entry.name):
        if entry.is_dir(): walk(entry.path)
        else: read(at, [entry.name])
walk(\".\")",
        ),
        copied("rsync -a ./ $to"),
    ];
    for reader in readers {
        as_on_the_local_disk(&mut cluster, &reader, FILES / 40);
    }
    // Directories by inode number are in no order in which the MDT walks.
    let copy = copied("cp -r . $to");
    as_on_the_local_disk(&mut cluster, &copy, 2 * DIRS + FILES / 40);
}

/// As `rg --threads 1 --sort path` does.
#[test]
fn who_reads_one_file_after_another_by_path_gets_many_at_a_time() {
    let mut cluster = with_tree(FILL);
    let local = cluster.local().join("tree");
    let mount = cluster.mount();
    let root = cluster.root(mount).join("tree");
    let read = |root: &Path| -> Vec<Vec<u8>> {
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false);
        walk.sort_by_file_path(|one, other| one.cmp(other));
        let paths = walk.build().map(|entry| entry.unwrap().into_path());
        paths
            .filter(|path| path.is_file())
            .map(|path| fs::read(path).unwrap())
            .collect()
    };
    let expected = read(&local);
    let sent = cluster.requests(mount, "by path", || assert!(read(&root) == expected));
    assert!(sent <= FILES / 40, "{sent} requests");
}

/// It asks for the files of its index by name, and reads directories afterwards.
#[test]
fn git_sees_that_nothing_has_changed_for_about_a_request_a_directory() {
    let commit = "
git init -q . && git config user.name me && git config user.email me@example.org
git add . && git commit -q -m all && cd ..";
    let mut cluster = with_tree(commit);
    // Its index has the inode numbers of the local disk: the first time it reads the files.
    let mount = cluster.mount();
    let root = cluster.root(mount).join("tree");
    let first = cluster.requests(mount, "git", || run(&root, "git status --porcelain"));
    assert!(first <= DIRS * 2 + FILES / 40, "{first} requests");
    cluster.unmount(mount);
    let status = "git status --porcelain; echo done";
    as_on_the_local_disk(&mut cluster, status, DIRS / 2 + FILES / 20);
}

#[test]
fn readers_of_many_threads_find_all_of_it() {
    let mut cluster = with_tree("");
    let local = cluster.local().join("tree");
    let mount = cluster.mount();
    let root = cluster.root(mount).join("tree");
    let walk = |root: &Path| -> BTreeSet<String> {
        let found = Mutex::new(BTreeSet::new());
        let mut walk = WalkBuilder::new(root);
        walk.standard_filters(false).threads(8);
        walk.build_parallel().run(|| {
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
