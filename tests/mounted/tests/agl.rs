//! Sizes that only OSTs know, fetched ahead of a process that stats in listing order: exact, in few requests,
//! and without disturbing a writer.
// SEMANTICS: op.stat

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use mounted::{Cluster, run};
use serde_json::Value;

const FILES: u64 = 1000;
/// Bytes of a file before it is opened for writing, of which its MDT knows.
const BEFORE: &[u8] = b"old";
/// For what costs a write to disk for each file.
const LONG: Duration = Duration::from_secs(150);
const TIMEOUT: Duration = Duration::from_secs(3);
const MDT: &str = "mdt.glint-MDT0";
const OST: &str = "ost.glint-OST0";

fn name(number: u64) -> String {
    format!("file{number:04}")
}

/// What the file `number` has in it once it is written.
fn bytes(number: u64) -> Vec<u8> {
    vec![b'x'; number as usize % 97 + 10]
}

/// Files in a new directory `dir` of mount 0 that were closed, opened again for writing, and written to.
/// Mount 0 no longer holds them exclusively, and the MDT does not know their sizes.
fn open_and_written(cluster: &Cluster) -> Vec<File> {
    let resource = nix::sys::resource::Resource::RLIMIT_NOFILE;
    let (_, most) = nix::sys::resource::getrlimit(resource).unwrap();
    nix::sys::resource::setrlimit(resource, most, most).unwrap();
    let dir = cluster.root(0).join("dir");
    let open = |number| {
        let path = dir.join(name(number));
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&bytes(number), 0).unwrap();
        file
    };
    cluster.timed_for(LONG, "writing", || {
        fs::create_dir(&dir).unwrap();
        (0..FILES).for_each(|number| fs::write(dir.join(name(number)), BEFORE).unwrap());
        run(&dir, "sync *");
        // Closed for the MDT too: their maker has them to itself no longer.
        while counted(cluster, 0, "close") < FILES {
            thread::sleep(Duration::from_millis(20));
        }
        // Each open waits until the MDT has it on disk: many at once share that.
        let many = (0..FILES).step_by(50).map(|first| first..first + 50);
        thread::scope(|scope| {
            let threads: Vec<_> = many
                .map(|some| scope.spawn(|| some.map(open).collect::<Vec<_>>()))
                .collect();
            let opened = threads.into_iter().map(|thread| thread.join().unwrap());
            opened.flatten().collect()
        })
    })
}

/// Reads all of them by mount 1, which takes from their writer the locks to write.
fn read_all(cluster: &Cluster) {
    let dir = cluster.root(1).join("dir");
    cluster.timed_for(LONG, "reading", || {
        for number in 0..FILES {
            assert_eq!(fs::read(dir.join(name(number))).unwrap(), bytes(number));
        }
    });
}

/// What `ls -l` does: each file is stat'ed as soon as its name is read.
fn list(dir: &Path, size: impl Fn(u64) -> u64) {
    let mut count = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let number = name.trim_start_matches("file").parse().unwrap();
        assert_eq!(entry.metadata().unwrap().len(), size(number), "{name}");
        count += 1;
    }
    assert_eq!(count, FILES);
}

fn written(number: u64) -> u64 {
    bytes(number).len() as u64
}

/// One counter of a mount.
fn counted(cluster: &Cluster, mount: usize, name: &str) -> u64 {
    let stats = cluster.stats(mount);
    let named = stats.get(name).unwrap_or(&stats["requests"][name]);
    named.as_u64().unwrap_or(0)
}

/// Requests that a mount has sent to OSTs for sizes.
fn asked_for_sizes(cluster: &Cluster, mount: usize) -> u64 {
    let walks = cluster.walks(mount);
    let of_sizes = |walk: &&Value| walk["pattern"] == "sizes";
    let batches = walks.iter().filter(of_sizes);
    let batches: u64 = batches.map(|walk| walk["requests"].as_u64().unwrap()).sum();
    batches + counted(cluster, mount, "ldlm_glimpse_enqueue")
}

#[test]
fn sizes_that_nobody_holds_come_many_in_one_request() {
    let mut cluster = Cluster::with_mounts(2);
    let mut files = open_and_written(&cluster);
    read_all(&cluster);
    let cold = cluster.mount();
    let dir = cluster.root(cold).join("dir");

    cluster.timed("names only", || {
        assert_eq!(fs::read_dir(&dir).unwrap().count() as u64, FILES);
        run(&dir, "find . -name nothing");
    });
    assert_eq!(counted(&cluster, cold, "statahead_agl_total"), 0);
    assert_eq!(asked_for_sizes(&cluster, cold), 0, "sizes nobody wanted");

    cluster.requests(cold, "ls -l", || list(&dir, written));
    let asked = asked_for_sizes(&cluster, cold);
    assert!(asked <= FILES / 50, "{asked} requests to OSTs");
    assert_eq!(counted(&cluster, cold, "statahead_agl_refused"), 0);
    let hits = counted(&cluster, cold, "statahead_agl_hit");
    assert!(hits >= FILES - 4, "{hits} hits");

    // What is written now is seen: the locks that came with the sizes go back first.
    cluster.timed("writing on", || {
        for (number, file) in (0..).zip(&files) {
            file.write_all_at(b"and more", written(number)).unwrap();
        }
        list(&dir, |number| written(number) + 8);
        files.clear();
        list(&dir, |number| written(number) + 8);
    });
}

#[test]
fn writers_are_not_disturbed_and_their_sizes_are_exact() {
    let mut cluster = Cluster::with_mounts(1);
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let files = open_and_written(&cluster);
    let sent = |cluster: &Cluster| {
        ["ost_write", "blocking_callbacks"].map(|what| counted(cluster, 0, what))
    };
    let before = sent(&cluster);
    let mut costs = Vec::new();
    for agl in [0, 1] {
        let cold = cluster.mount();
        cluster.set_param(cold, "statahead_agl", agl);
        let dir = cluster.root(cold).join("dir");
        costs.push(cluster.requests(cold, "ls -l beside writers", || list(&dir, written)));
        assert_eq!(counted(&cluster, cold, "statahead_agl_hit"), 0);
        let refused = counted(&cluster, cold, "statahead_agl_refused");
        assert_eq!(refused > 0, agl == 1);
    }
    assert_eq!(sent(&cluster), before, "the writer was disturbed");
    assert!(costs[1] <= costs[0] + costs[0] / 20, "{costs:?}");
    drop(files);
}

#[test]
fn who_wants_no_sizes_ahead_gets_none() {
    let mut cluster = Cluster::with_mounts(2);
    let files = open_and_written(&cluster);
    read_all(&cluster);
    let lazy = cluster.mount_with(&["-o", "lazysize"]);
    let dir = cluster.root(lazy).join("dir");
    cluster.timed("lazy sizes", || list(&dir, |_| BEFORE.len() as u64));
    assert_eq!(asked_for_sizes(&cluster, lazy), 0);
    assert_eq!(counted(&cluster, lazy, "statahead_agl_total"), 0);
    for param in ["statahead_agl", "statahead_max"] {
        let cold = cluster.mount();
        cluster.set_param(cold, param, 0);
        let dir = cluster.root(cold).join("dir");
        cluster.timed(param, || list(&dir, written));
        assert_eq!(counted(&cluster, cold, "statahead_agl_total"), 0, "{param}");
    }
    drop(files);
    // With every size exact there is nothing to ask for.
    cluster.unmount(0);
    let said = cluster.said(0);
    assert!(!said.contains("did not take the close"), "{said}");
    let cold = cluster.mount();
    let dir = cluster.root(cold).join("dir");
    cluster.timed("exact sizes", || list(&dir, written));
    assert_eq!(counted(&cluster, cold, "statahead_agl_total"), 0);
    assert_eq!(asked_for_sizes(&cluster, cold), 0);
}

#[test]
fn sizes_that_are_late_hold_up_neither_a_listing_nor_a_removal() {
    let mut cluster = Cluster::with_mounts(2);
    let files = open_and_written(&cluster);
    read_all(&cluster);
    cluster.rule(OST, "start slow opcode={ost_read} rate=200");
    let [lists, removes] = [0, 1].map(|_| cluster.mount());
    let dir = cluster.root(lists).join("dir");
    cluster.timed("ls -l, delayed", || list(&dir, written));
    assert!(counted(&cluster, lists, "statahead_agl_hit") > 0);
    let root = cluster.root(removes).to_owned();
    cluster.timed("rm -r, delayed", || {
        let listed = fs::read_dir(root.join("dir")).unwrap();
        // Enough to have sizes on their way when the files go.
        let few = listed
            .take(3)
            .map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(few.sum::<u64>() > 0);
        run(&root, "rm -r dir");
    });
    assert!(!dir.exists());
    drop(files);
}

#[test]
fn what_a_killed_writer_leaves_is_listed_in_few_requests() {
    let mut cluster = Cluster::that_evicts_after(TIMEOUT, 2);
    let other = cluster.root(1).to_owned();
    let files = open_and_written(&cluster);
    cluster.timed("writing out", || {
        run(&cluster.root(0).join("dir"), "sync *")
    });
    let clients = |cluster: &Cluster| cluster.server_param(&format!("{MDT}.exports")).len();
    let before = clients(&cluster);
    cluster.kill_mount(0);
    // Waits for the locks of the dead one. The OST may give it up before the MDT does, and as long as
    // that keeps its locks, a listing shows names alone.
    let open = cluster.timed("evicting", || {
        while clients(&cluster) == before {
            thread::sleep(Duration::from_millis(20));
        }
        let mut file = OpenOptions::new()
            .append(true)
            .open(other.join("dir").join(name(0)))
            .unwrap();
        file.write_all(b"").unwrap();
        assert_eq!(fs::read(other.join("dir").join(name(1))).unwrap(), bytes(1));
        file
    });
    drop(files);
    let cold = cluster.mount();
    let dir = cluster.root(cold).join("dir");
    let sent = cluster.requests(cold, "ls -l of what is left", || {
        thread::scope(|scope| {
            // Its close crosses the listing.
            scope.spawn(move || drop(open));
            list(&dir, written);
        });
    });
    let stats = cluster.stats(cold);
    assert!(sent <= FILES / 20, "{sent} requests: {stats}");
    let again = cluster.requests(cold, "again", || list(&dir, written));
    assert!(
        again <= 5,
        "{again} for those that began it, which nothing covers"
    );
}

/// Processes that have files of `dir` open, each those of seven numbers from one of `firsts` on, and
/// have written to them.
fn writers(dir: &Path, firsts: impl Iterator<Item = u64>) -> Vec<Child> {
    let begun = firsts.map(|first| {
        let line = |n: u64| {
            let (name, text) = (
                name(first + n),
                String::from_utf8(bytes(first + n)).unwrap(),
            );
            format!("exec {0}<>{name}; printf {text} >&{0}; ", n + 3)
        };
        let script: String = (0..7).map(line).collect();
        Command::new("sh")
            .args(["-ec", &format!("{script} echo ready; read end")])
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut begun: Vec<Child> = begun.collect();
    for writer in &mut begun {
        let mut ready = [0; 5];
        let said = writer.stdout.as_mut().unwrap();
        said.read_exact(&mut ready).unwrap();
    }
    begun
}

/// After a restart a writer sends undurable bytes without a lock, which is refused where another client has
/// one. A process that lists the files at that moment takes no lock.
#[test]
fn a_listing_after_a_restart_takes_no_writers_bytes() {
    const FILES: u64 = 56;
    let mut cluster = Cluster::with_mounts(2);
    cluster.set_param(0, "dirty_age_ms", 60_000);
    let (own, dir) = (cluster.root(0).join("dir"), cluster.root(1).join("dir"));
    let open = cluster.timed_for(LONG, "writing", || {
        fs::create_dir(&own).unwrap();
        (0..FILES).for_each(|number| fs::write(own.join(name(number)), BEFORE).unwrap());
        run(&own, "sync *");
        writers(&own, (0..FILES).step_by(7))
    });
    cluster.freeze_mount(0);
    cluster.kill_server();
    cluster.restart_server();
    let listing = {
        let dir = dir.clone();
        thread::spawn(move || {
            for entry in fs::read_dir(&dir).unwrap() {
                assert!(entry.unwrap().metadata().unwrap().len() > 0);
            }
        })
    };
    thread::sleep(Duration::from_secs(1));
    assert!(!listing.is_finished(), "the writer is waited for");
    cluster.thaw_mount(0);
    cluster.timed("ls -l while the writer comes back", || {
        listing.join().unwrap()
    });
    // Told of whatever was lost.
    cluster.timed_for(LONG, "writing out", || run(&own, "sync *"));
    cluster.timed("what is there", || {
        for number in 0..FILES {
            assert_eq!(fs::read(dir.join(name(number))).unwrap(), bytes(number));
        }
    });
    for mut writer in open {
        drop(writer.stdin.take());
        writer.wait().unwrap();
    }
}
