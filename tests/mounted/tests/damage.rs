//! Stored records and bytes that are damaged or missing: never served, reported by name, and older copies of
//! targets.
// SEMANTICS: crash.damage

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use mounted::{Cluster, Layout, StoredBytes, in_own_network, run};

const FILES: usize = 300;
const NAME: &str = "a name to be found on the disk";
/// Calls fail soon after their target has stopped.
const SOFT: &[&str] = &["-o", "soft,timeout=2"];

/// Flips a bit in each place of `file` that holds `what`; done twice it is undone. How many there are.
fn flip(file: &Path, what: &[u8]) -> usize {
    let mut bytes = fs::read(file).unwrap();
    let flipped: Vec<u8> = [&[what[0] ^ 4], &what[1..]].concat();
    let is_it = |at: &usize| {
        let found = &bytes[*at..*at + what.len()];
        found == what || found == flipped
    };
    let places: Vec<usize> = (0..=bytes.len() - what.len()).filter(is_it).collect();
    places.iter().for_each(|at| bytes[*at] ^= 4);
    fs::write(file, bytes).unwrap();
    places.len()
}

/// A directory of many files, stored by a server that has ended, and where its targets are.
fn stored() -> (Cluster, PathBuf) {
    let mut cluster = Cluster::with_mounts(1);
    let dir = cluster.root(0).join("dir");
    cluster.timed("making files", || {
        fs::create_dir(&dir).unwrap();
        for number in 0..FILES {
            File::create(dir.join(format!("file{number:03}"))).unwrap();
        }
        fs::write(dir.join(NAME), NAME).unwrap();
    });
    cluster.unmount(0);
    cluster.stop_server();
    let targets = cluster.target_dirs()[0].clone();
    (cluster, targets)
}

#[test]
fn a_damaged_name_stops_its_target_and_is_never_served() {
    let (mut cluster, targets) = stored();
    let db = targets.join("mdt0/db");
    assert!(flip(&db, NAME.as_bytes()) > 0, "the name is not stored");
    let found = cluster.fsck().unwrap();
    let expected = format!("MDT0: {}: damaged record block ", db.display());
    assert!(found.contains(&expected), "fsck says\n{found}");

    cluster.restart_server();
    let soft = cluster.mount_with(SOFT);
    let dir = cluster.root(soft).join("dir");
    let asked = cluster.timed("asking for the name", || fs::metadata(dir.join(NAME)));
    assert_eq!(asked.unwrap_err().raw_os_error(), Some(libc::EIO));
    let said = cluster.server_gives_up();
    let expected = format!("{}: damaged record block ", db.display());
    assert!(said.contains(&expected), "the server says\n{said}");
    let listed = cluster.timed("listing", || {
        fs::read_dir(&dir)?.collect::<std::io::Result<Vec<_>>>()
    });
    assert_eq!(listed.unwrap_err().raw_os_error(), Some(libc::EIO));
}

#[test]
fn a_listing_is_whole_or_fails() {
    let (mut cluster, targets) = stored();
    flip(&targets.join("mdt0/db"), NAME.as_bytes());
    cluster.restart_server();
    let soft = cluster.mount_with(SOFT);
    let dir = cluster.root(soft).join("dir");
    let listed: std::io::Result<()> = cluster.timed("listing", || {
        for entry in fs::read_dir(&dir)? {
            let name = entry?.file_name().into_string().unwrap();
            let number = name.strip_prefix("file").unwrap();
            assert!(number.parse::<usize>().unwrap() < FILES, "{name}");
        }
        Ok(())
    });
    assert_eq!(listed.unwrap_err().raw_os_error(), Some(libc::EIO));
    cluster.server_gives_up();
}

#[test]
fn calls_wait_for_a_target_that_damage_has_stopped() {
    let (mut cluster, targets) = stored();
    let db = targets.join("mdt0/db");
    flip(&db, NAME.as_bytes());
    cluster.restart_server();
    let hard = cluster.mount();
    let dir = cluster.root(hard).join("dir");
    let asked = cluster.timed("asking for the name", || fs::metadata(dir.join(NAME)));
    assert_eq!(asked.unwrap_err().raw_os_error(), Some(libc::EIO));
    cluster.server_gives_up();
    let waiting = {
        let path = dir.join(NAME);
        thread::spawn(move || fs::read_to_string(path))
    };
    thread::sleep(Duration::from_millis(500));
    assert!(!waiting.is_finished(), "it could not know and answered");
    // The process that mends the disk gets everything back.
    flip(&db, NAME.as_bytes());
    assert_eq!(cluster.fsck(), None);
    cluster.restart_server();
    let read = cluster.timed("a call that waited", || waiting.join().unwrap());
    assert_eq!(read.unwrap(), NAME);
    let listed = cluster.timed("listing", || fs::read_dir(&dir).unwrap().count());
    assert_eq!(listed, FILES + 1);
}

#[test]
fn a_damaged_object_is_found_at_the_start() {
    let mut cluster = Cluster::with_mounts(1);
    let path = cluster.root(0).join("file");
    let id = cluster.timed("making a file", || {
        fs::write(&path, NAME).unwrap();
        fs::metadata(&path).unwrap().ino()
    });
    cluster.unmount(0);
    cluster.stop_server();
    let targets = cluster.target_dirs()[0].clone();
    let db = targets.join("ost0/db");
    assert!(flip(&db, &id.to_be_bytes()) > 0, "no object is stored");
    let found = cluster.fsck().unwrap();
    let expected = format!("OST0: {}: damaged record block ", db.display());
    assert!(found.contains(&expected), "fsck says\n{found}");

    let said = cluster.server_refuses_to_start();
    let expected = format!("OST0 in {}: {}", targets.display(), db.display());
    assert!(said.contains(&expected), "the server says\n{said}");
}

/// A bit of a file flips below: that file says so and no other, until it is written anew.
#[test]
fn bytes_that_rot_on_the_disk_are_never_read() {
    const SIZE: u64 = 100_000;
    let mut cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 3) as u8).collect();
    cluster.timed("writing", || {
        fs::write(root.join("rots"), &bytes).unwrap();
        fs::write(root.join("stays"), &bytes[1..]).unwrap();
    });
    cluster.unmount(0);
    cluster.stop_server();
    let targets = cluster.target_dirs()[0].clone();
    StoredBytes::find(&targets, &bytes).flip(50_000);
    let found = cluster.fsck().unwrap();
    let lost = "is damaged: bytes 49152 to 53248 are not what was written";
    let object = found
        .lines()
        .find_map(|line| Some(line.split_once(lost)?.0))
        .unwrap_or_else(|| panic!("fsck says\n{found}"));
    assert!(object.starts_with("OST0: object "), "fsck says\n{found}");
    let expected = format!("{object}{lost}");
    cluster.restart_server();
    let mount = cluster.mount();
    let root = cluster.root(mount).to_owned();
    cluster.timed("reading", || {
        let read = fs::read(root.join("rots"));
        assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(fs::read(root.join("stays")).unwrap() == bytes[1..]);
        let said = cluster.server_said();
        assert!(said.contains(&expected), "the server says\n{said}");
        fs::write(root.join("rots"), &bytes).unwrap();
        assert!(fs::read(root.join("rots")).unwrap() == bytes);
    });
    cluster.unmount(mount);
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

/// The disk lost the ends of some objects: their files are not just shorter from then on.
#[test]
fn a_file_whose_end_is_lost_is_damaged_until_it_is_written_anew() {
    const SIZE: u64 = 100_000;
    let mut cluster = Cluster::with_mounts(1);
    let root = cluster.root(0).to_owned();
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at / 3) as u8).collect();
    let names = ["cut", "emptied", "gone", "stays"];
    cluster.timed("writing", || {
        for (number, name) in names.iter().enumerate() {
            fs::write(root.join(name), &bytes[number..]).unwrap();
        }
    });
    cluster.unmount(0);
    cluster.stop_server();
    let targets = cluster.target_dirs()[0].clone();
    let stored = |number: usize| StoredBytes::find(&targets, &bytes[number..]);
    stored(0).cut(8_192);
    stored(1).cut(0);
    stored(2).lose();
    let lost = [
        "is damaged: bytes 8192 to 100000 are not what was written",
        "is damaged: bytes 0 to 99999 are not what was written",
        "is damaged: bytes 0 to 99998 are not what was written",
    ];
    let tells_of_all = |found: String| {
        for expected in lost {
            assert_eq!(found.matches(expected).count(), 1, "fsck says\n{found}");
        }
    };
    tells_of_all(cluster.fsck().unwrap());
    cluster.restart_server();
    let mount = cluster.mount();
    let root = cluster.root(mount).to_owned();
    let is_refused = |done: std::io::Result<()>| {
        assert_eq!(done.unwrap_err().raw_os_error(), Some(libc::EIO));
    };
    cluster.timed("reading and adding", || {
        for name in &names[..3] {
            is_refused(fs::read(root.join(name)).map(|_| ()));
            is_refused(add(&root.join(name), b"more"));
        }
        assert!(fs::read(root.join("stays")).unwrap() == bytes[3..]);
    });
    cluster.unmount(mount);
    cluster.stop_server();
    tells_of_all(cluster.fsck().unwrap());
    cluster.restart_server();
    let mount = cluster.mount();
    let root = cluster.root(mount).to_owned();
    cluster.timed("writing anew", || {
        fs::write(root.join("cut"), &bytes).unwrap();
        fs::write(root.join("emptied"), "short").unwrap();
        assert!(fs::read(root.join("cut")).unwrap() == bytes);
        fs::remove_file(root.join("gone")).unwrap();
    });
    cluster.unmount(mount);
    cluster.stop_server();
    // The object of the removed one goes a while after the restart.
    let found = cluster.fsck().unwrap_or_default();
    assert!(
        !found.contains(lost[0]) && !found.contains(lost[1]),
        "fsck says\n{found}"
    );
}

/// Writes behind the end of a file, durably.
fn add(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let file = File::options().append(true).open(path)?;
    (&file).write_all(bytes)?;
    file.sync_all()
}

/// What mounts say of a target's past ends their own sessions, however many machines they seem to be on.
#[test]
fn mounts_of_two_machines_do_not_stop_an_older_copy() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make a network to be cut");
        return;
    }
    in_own_network(|| {
        let mut cluster = Cluster::of(Layout {
            has_links: true,
            ..Layout::default()
        });
        let roots = [cluster.mount(), cluster.mount()].map(|n| cluster.root(n).to_owned());
        let make = |name: &str| {
            for (number, root) in roots.iter().enumerate() {
                fs::create_dir(root.join(format!("{name}{number}"))).unwrap();
                File::open(root).unwrap().sync_all().unwrap();
            }
        };
        let (local, dir) = (cluster.local(), cluster.target_dirs()[0].clone());
        cluster.timed("early", || make("early"));
        cluster.stop_server();
        run(&local, &format!("cp -a {} copy", dir.display()));
        cluster.restart_server();
        cluster.timed("late", || make("late"));
        cluster.stop_server();
        run(&local, &format!("mv {0} newer; mv copy {0}", dir.display()));
        cluster.restart_server();
        let refused = |cluster: &Cluster| {
            let said = cluster.server_said();
            let lost = said
                .lines()
                .filter(|line| line.contains("MDT0 has lost changes"));
            let machines = lost.filter_map(|line| line.split("peer=").nth(1)?.split(':').next());
            machines.collect::<BTreeSet<_>>().len()
        };
        cluster.timed("refusals", || {
            while refused(&cluster) < 2 {
                thread::sleep(Duration::from_millis(20));
            }
        });
        let said = cluster.server_said();
        assert!(!said.contains("has stopped"), "{said}");
        cluster.stop_server();
        run(&local, &format!("rm -r {0}; mv newer {0}", dir.display()));
        cluster.restart_server();
        cluster.timed("what both have made", || {
            for root in &roots {
                assert_eq!(fs::read_dir(root).unwrap().count(), 4);
            }
        });
    });
}
