//! Targets that have the bytes of their objects on a block device. Which devices are refused, and that
//! nothing is written then.
#![allow(clippy::unwrap_used, reason = "a failed step of a test says where")]

#[allow(dead_code, reason = "each test uses a part of it")]
mod support;

use std::path::Path;

use support::loops::Loop;
use support::ports::free_address;
use support::served::Mounted;
use support::{glint, needs_root, shell};

#[test]
fn a_target_on_a_block_device_is_served_and_checked_and_a_device_with_something_is_refused() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let device = Loop::new(at, "disk", "200M");
    shell(at, "mkdir mnt && mkfs.ext4 -q disk").worked();
    let format = |more: &[&str]| {
        glint(
            at,
            &[&["format", "D", "--device", &device.path], more].concat(),
        )
    };
    let refused = |more: &[&str], words: &str| {
        let ran = format(more);
        assert!(ran.code != Some(0) && ran.err.contains(words), "{ran:?}");
        assert!(!at.join("D/ost0").exists());
    };
    refused(
        &[],
        "it holds a file system (ext2, ext3 or ext4), which --erase-device",
    );
    shell(at, &format!("mount {} mnt", device.path)).worked();
    refused(&["--erase-device"], "it is mounted");
    shell(at, "umount mnt").worked();
    refused(&["--erase-device", "--size", "201M"], "bytes, not");
    refused(&["--erase-device", "--role", "ost1,ost2"], "is for one OST");
    format(&["--erase-device", "--size", "150M"]).worked();
    let again = glint(at, &["format", "E", "--device", &device.path]);
    assert!(
        again.code != Some(0) && again.err.contains("it holds a store of objects of Glint's"),
        "{again:?}"
    );

    let mut mounted = Mounted::start(at);
    shell(
        at,
        "head -c 20000000 /dev/urandom > mnt/large && seq 100000 > mnt/seq && sync mnt/*",
    )
    .worked();
    let formatted = shell(at, &format!("mkfs.ext4 -qF {}", device.path));
    assert!(
        formatted.code != Some(0),
        "while it is served: {formatted:?}"
    );
    let free = shell(at, "stat -fc %b mnt");
    let bytes = free.worked().trim().parse::<u64>().unwrap() * 4096;
    assert!((130 << 20..150 << 20).contains(&bytes), "{bytes}");
    mounted.restart_killed();
    shell(at, "seq 100000 | cmp - mnt/seq").worked();
    mounted.end();
    let said = glint(at, &["fsck", "D"]);
    assert!(
        said.worked().contains("OST0: 0 errors, 0 warnings"),
        "{}",
        said.worked()
    );
    // Its file is read as the device was written, and no other target takes it for its own.
    shell(at, &format!("blockdev --flushbufs {0} && dd if=/dev/zero of={0} bs=4096 count=2 conv=notrunc status=none", device.path)).worked();
    let said = glint(at, &["fsck", "D"]);
    assert!(said.code != Some(0), "{said:?}");
}

/// A part of what devices hold, and what a person is told of it.
#[test]
fn what_a_device_holds_is_named_and_kept() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let device = Loop::new(at, "disk", "64M");
    let clear = format!(
        "dd if=/dev/zero of={} bs=1M count=1 status=none",
        device.path
    );
    let write = |bytes: &str, offset: u64| {
        let to = format!(
            "of={} bs=1 seek={offset} conv=notrunc status=none",
            device.path
        );
        format!("printf '{bytes}' | dd {to}")
    };
    for (make, words) in [
        (write("\\125\\252", 510), "a partition table (MBR)"),
        (write("EFI PART", 512), "a partition table (GPT)"),
        (write("LABELONE", 512), "a physical volume (LVM)"),
        (write("x", 5000), "something already"),
        (write("x", (64 << 20) - 600), "something already"),
    ] {
        shell(at, &format!("{clear} && {make}")).worked();
        let before = device.sum();
        let ran = glint(at, &["format", "D", "--device", &device.path]);
        ran.failed_saying(&[&device.path, "it holds", words, "--erase-device"]);
        assert_eq!(device.sum(), before, "{words}");
        assert!(!at.join("D/ost0").exists());
    }
    let format = ["format", "D", "--device", &device.path, "--erase-device"];
    let small = glint(at, &[&format[..], &["--size", "2M"]].concat());
    small.failed_saying(&[&device.path, "2097152 bytes are too few"]);
    glint(at, &format).worked();
}

/// Refused by all that open the target, and the device stays as it is.
#[track_caller]
fn is_refused_unwritten(at: &Path, device: &Loop, words: &[&str]) {
    let before = device.sum();
    for verb in [&["fsck", "D"][..], &["fsck", "D", "--repair"]] {
        let ran = glint(at, verb);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        words
            .iter()
            .for_each(|word| assert!(ran.out.contains(word), "{word} in {ran:?}"));
    }
    glint(at, &["serve", "D", "--listen", &free_address()]).failed_saying(words);
    assert_eq!(device.sum(), before);
}

#[test]
fn a_device_that_is_smaller_or_anothers_is_refused_and_nothing_is_written() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let (device, other) = (
        Loop::new(at, "disk", "300M"),
        Loop::new(at, "other", "300M"),
    );
    glint(
        at,
        &["format", "D", "--role", "ost", "--device", &device.path],
    )
    .worked();
    glint(
        at,
        &["format", "E", "--role", "ost", "--device", &other.path],
    )
    .worked();
    let link = |to: &Loop| {
        shell(at, &format!("ln -sfn {} D/ost0/extents", to.path)).worked();
    };
    link(&other);
    is_refused_unwritten(
        at,
        &other,
        &["it holds the objects of target", "D/ost0/extents"],
    );
    link(&device);
    device.resize("200M");
    is_refused_unwritten(at, &device, &["the disk only 209715200"]);
    device.resize("300M");
    let said = glint(at, &["fsck", "D"]);
    assert!(said.worked().contains("OST0: 0 errors"), "{said:?}");
    // A name that leads nowhere.
    shell(at, "ln -sfn /dev/disk/by-id/none D/ost0/extents").worked();
    let said = glint(at, &["fsck", "D"]);
    assert!(said.out.contains("it is missing"), "{said:?}");
}
