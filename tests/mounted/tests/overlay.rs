//! overlayfs with its upper layer on a mount: the same as with one on a local disk.
// SEMANTICS: op.rename, op.tmpfile, op.xattr, op.mknod

#![allow(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use mounted::{Cluster, SmallDisk, output, run};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// What a container does to its image, and more.
const WORK: &str = "
    echo changed >> etc/conf
    chmod 600 etc/mode
    rm etc/gone
    rm -r var/lib
    mkdir var/lib && echo new > var/lib/new
    mv etc/moved etc/elsewhere
    mv etc/over etc/replaced
    mv usr opt
    mkdir fresh && mv fresh fresher
    ln etc/linked etc/second
    ln -s etc/conf symlink
    rm -r var/all && touch var/all
    cp -a etc etc.copy
    for i in $(seq 50); do echo $i > etc/many$i; done
    for i in $(seq 1 2 50); do rm etc/many$i; done
    truncate -s 3 etc/cut
    mknod device c 1 3
    setfattr -n user.mark -v here etc/conf
    exec 9>etc/unlinked && rm etc/unlinked && echo open >&9
";

/// All that there is: kinds, modes, owners, links, sizes, targets, attributes and bytes.
const LOOK: &str = "
    find . -printf '%P %y %m %U %G %l ' \\( -type f -printf '%n %s' -o -true \\) -printf '\\n' | sort
    find . -type f | sort | xargs md5sum
    getfattr -R -d . 2>/dev/null
";

/// An image: what is below.
fn make_lower(dir: &Path) {
    run(
        dir,
        "mkdir -p etc var/lib/deep var/all usr/bin
        for f in conf mode gone moved over replaced linked cut unlinked; do echo $f of old > etc/$f; done
        echo data > var/lib/deep/data; echo x > var/all/x; echo program > usr/bin/program",
    );
}

/// A mounted overlay.
struct Overlay(PathBuf);

impl Overlay {
    fn mount(point: &Path, lower: &Path, layers: &Path, options: &str) -> Overlay {
        let [upper, work] = ["upper", "work"].map(|name| layers.join(name));
        for dir in [point, &upper, &work] {
            fs::create_dir_all(dir).unwrap();
        }
        let data = format!(
            "lowerdir={},upperdir={},workdir={}{options}",
            lower.display(),
            upper.display(),
            work.display(),
        );
        let (name, none) = (Some("overlay"), MsFlags::empty());
        mount(name, point, name, none, Some(data.as_str())).unwrap();
        Overlay(point.to_owned())
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn compare(options: &str) {
    assert!(
        nix::unistd::geteuid().is_root(),
        "needs root: mounts overlays"
    );
    let mut cluster = Cluster::with_mounts(2);
    let local = tempfile::tempdir().unwrap();
    // Of another file system than either upper layer.
    let disk = SmallDisk::in_memory(16 << 20);
    let lower = disk.path().to_owned();
    make_lower(&lower);
    let upper = cluster.root(0).join("layers");
    let point = |name: &str| local.path().join(name);
    let layers = [
        ("on-disk", local.path().join("layers")),
        ("on-glint", upper),
    ];
    cluster.timed("overlays", || {
        let mut seen = Vec::new();
        for (name, layers) in &layers {
            let overlay = Overlay::mount(&point(name), &lower, layers, options);
            run(&overlay.0, WORK);
            let first = output(&overlay.0, LOOK);
            drop(overlay);
            // What the layers hold says the same to who mounts them again.
            let overlay = Overlay::mount(&point(name), &lower, layers, options);
            assert_eq!(first, output(&overlay.0, LOOK), "{name}");
            run(&overlay.0, "rm -r opt && mv etc.copy usr");
            seen.push((first, output(&overlay.0, LOOK)));
        }
        assert_eq!(seen[0], seen[1]);
        for root in [0, 1] {
            let upper = cluster.root(root).join("layers/upper");
            let whiteout = fs::symlink_metadata(upper.join("etc/gone")).unwrap();
            assert!(whiteout.file_type().is_char_device() && whiteout.rdev() == 0);
            assert_eq!(fs::read(upper.join("var/lib/new")).unwrap(), b"new\n");
        }
    });
    (0..2).for_each(|mount| cluster.unmount(mount));
    cluster.stop_server();
    assert_eq!(cluster.fsck(), None);
}

#[test]
fn an_upper_layer_is_as_on_a_local_disk() {
    compare("");
}

#[test]
fn an_upper_layer_with_redirected_directories_is_as_on_a_local_disk() {
    compare(",redirect_dir=on,metacopy=on,index=off");
}

#[test]
fn an_upper_layer_with_attributes_of_users_is_as_on_a_local_disk() {
    compare(",userxattr");
}
