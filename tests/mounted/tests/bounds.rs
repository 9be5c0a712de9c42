//! Values that are too long, too big or too many: each is refused with its own error, and breaks nothing.
// SEMANTICS: op.lookup, op.symlink, op.xattr, op.write, op.truncate, op.open, op.link

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use base::limits::{FILE_BYTES_MAX, LINKS_MAX};
use mounted::{Cluster, run};
use rustix::fs::XattrFlags;

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn names_are_255_bytes_of_any_kind() {
    let cluster = Cluster::with_mounts(2);
    let [a, b] = [0, 1].map(|mount| cluster.root(mount));
    cluster.timed("long names", || {
        let strange: Vec<u8> = (1..=255).filter(|byte| *byte != b'/').collect();
        for name in [&[b'n'; 255][..], &strange, b" ", b"\n", &[0xff, 0xfe]] {
            let name = OsStr::from_bytes(name);
            fs::write(a.join(name), "text").unwrap();
            assert_eq!(fs::read(b.join(name)).unwrap(), b"text");
            fs::rename(b.join(name), b.join("other")).unwrap();
            fs::rename(a.join("other"), a.join(name)).unwrap();
            let listed = fs::read_dir(b).unwrap().next().unwrap().unwrap();
            assert_eq!(listed.file_name(), name);
            fs::remove_file(a.join(name)).unwrap();
        }
        let long = "n".repeat(256);
        fs::write(a.join("file"), "").unwrap();
        let too_long = Some(libc::ENAMETOOLONG);
        assert_eq!(errno(File::create(a.join(&long))), too_long);
        assert_eq!(errno(fs::create_dir(a.join(&long))), too_long);
        assert_eq!(errno(fs::metadata(a.join(&long))), too_long);
        assert_eq!(errno(symlink("target", a.join(&long))), too_long);
        assert_eq!(errno(fs::rename(a.join("file"), a.join(&long))), too_long);
        assert_eq!(
            errno(fs::hard_link(a.join("file"), a.join(&long))),
            too_long
        );
    });
}

#[test]
fn a_symlinks_target_is_4095_bytes() {
    let cluster = Cluster::with_mounts(2);
    let [a, b] = [0, 1].map(|mount| cluster.root(mount));
    cluster.timed("long targets", || {
        let target = "t".repeat(4095);
        symlink(&target, a.join("link")).unwrap();
        assert_eq!(fs::read_link(b.join("link")).unwrap(), Path::new(&target));
        let longer = symlink("t".repeat(4096), a.join("longer"));
        assert_eq!(errno(longer), Some(libc::ENAMETOOLONG));
    });
}

#[test]
fn a_file_ends_below_its_greatest_size() {
    let cluster = Cluster::with_mounts(2);
    let [a, b] = [0, 1].map(|mount| cluster.root(mount).join("file"));
    cluster.timed("a great size", || {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&a)
            .unwrap();
        // What the OST's own file system takes may be less than we do: 16 TiB on ext4.
        let most = 1 << 40;
        file.set_len(most).unwrap();
        file.write_all_at(b"end", most - 3).unwrap();
        let mut end = [0; 3];
        File::open(&b)
            .unwrap()
            .read_exact_at(&mut end, most - 3)
            .unwrap();
        assert_eq!((&end, fs::metadata(&b).unwrap().len()), (b"end", most));
        let beyond = file.write_at(b"beyond", FILE_BYTES_MAX);
        assert_eq!(errno(beyond), Some(libc::EFBIG));
        assert_eq!(errno(file.set_len(FILE_BYTES_MAX + 1)), Some(libc::EFBIG));
        file.sync_all().unwrap();
        assert_eq!(fs::metadata(&b).unwrap().len(), most);
        file.set_len(0).unwrap();
        assert_eq!(fs::metadata(&b).unwrap().len(), 0);
    });
}

#[test]
fn attributes_by_name_are_64_kib_and_256_kib_in_all() {
    let cluster = Cluster::with_mounts(2);
    let [a, b] = [0, 1].map(|mount| cluster.root(mount).join("file"));
    cluster.timed("large attributes", || {
        fs::write(&a, "").unwrap();
        let set = |name: &str, len: usize| {
            let set = rustix::fs::setxattr(&a, name, &vec![b'v'; len], XattrFlags::empty());
            set.map_err(io::Error::from)
        };
        (0..3).for_each(|number| set(&format!("user.{number}"), 65_536).unwrap());
        let mut value = vec![0; 65_536];
        let len = rustix::fs::getxattr(&b, "user.1", &mut value[..]).unwrap();
        assert!(len == value.len() && value.iter().all(|byte| *byte == b'v'));
        let small = rustix::fs::getxattr(&b, "user.1", &mut [0; 10][..]);
        assert_eq!(small.err(), Some(rustix::io::Errno::RANGE));
        assert_eq!(errno(set("user.big", 65_537)), Some(libc::E2BIG));
        assert_eq!(errno(set("user.3", 65_536)), Some(libc::ENOSPC));
        let name = format!("user.{}", "n".repeat(251));
        assert_eq!(errno(set(&name, 1)), Some(libc::ERANGE));
        (0..3).for_each(|number| {
            rustix::fs::removexattr(&b, format!("user.{number}")).unwrap();
        });
        set("user.3", 65_536).unwrap();
    });
}

/// As many as a mount's own daemon could never hold, had it a descriptor for each.
#[test]
fn thousands_of_files_are_open_at_once() {
    let cluster = Cluster::with_mounts(1);
    let root = cluster.root(0);
    let (_, most) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, most).unwrap();
    let count = (most.min(6000) - 500) as usize;
    cluster.timed_for(Duration::from_secs(60), "thousands of files", || {
        let open = |number: usize| {
            let path = root.join(format!("file{number}"));
            File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(path)
                .unwrap()
        };
        let files: Vec<File> = (0..count).map(open).collect();
        for (number, file) in files.iter().enumerate() {
            fs::remove_file(root.join(format!("file{number}"))).unwrap();
            file.write_all_at(&number.to_le_bytes(), 0).unwrap();
        }
        for (number, file) in files.iter().enumerate() {
            let mut bytes = [0; size_of::<usize>()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(usize::from_le_bytes(bytes), number);
        }
        drop(files);
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    });
}

#[test]
#[ignore = "soak: 500,000 files take a while"]
fn soak_a_directory_may_be_longer_than_the_cache() {
    const FILES: u64 = 500_000;
    const KEPT: u64 = 20_000;
    // Around each reader more is kept, so that programs find what they read just before.
    const MOST: u64 = FILES * 3 / 5 + KEPT;
    let mut cluster = Cluster::with_mounts(1);
    cluster.timed_for(Duration::from_secs(600), "files", || {
        let dir = cluster.root(0).join("dir");
        fs::create_dir(&dir).unwrap();
        for number in 0..FILES {
            let path = dir.join(format!("file{number}"));
            let kind = rustix::fs::FileType::RegularFile;
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o644.into(), 0).unwrap();
        }
    });
    cluster.unmount(0);
    let cold = cluster.mount();
    cluster.set_param(cold, "cache_entries_max", KEPT);
    let root = cluster.root(cold);
    for walk in [
        "find dir -type f -uid 0 | wc -l",
        "ls -fl dir | grep -c file",
    ] {
        let script = format!("test $({walk}) = {FILES}");
        let watch = cluster.watch(Duration::from_secs(300), walk);
        let count = cluster.requests(cold, walk, || run(root, &script));
        drop(watch);
        assert!(count <= FILES / 2000, "{walk}: {count} requests");
        let known = cluster.files_known(cold);
        println!("{walk}: {known} files known");
        assert!(known <= MOST, "{walk}: {known} files known");
    }
}

#[test]
#[ignore = "soak: 65,000 links take a while"]
fn soak_a_file_has_65_000_links() {
    let cluster = Cluster::with_mounts(1);
    let root = cluster.root(0);
    cluster.timed_for(Duration::from_secs(300), "links", || {
        fs::write(root.join("file"), "").unwrap();
        for number in 1..LINKS_MAX {
            fs::hard_link(root.join("file"), root.join(format!("link{number}"))).unwrap();
        }
        let one_more = fs::hard_link(root.join("file"), root.join("more"));
        assert_eq!(errno(one_more), Some(libc::EMLINK));
        let links = fs::metadata(root.join("file")).unwrap().nlink();
        assert_eq!(links, u64::from(LINKS_MAX));
    });
}
