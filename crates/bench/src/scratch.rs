//! Scratch directories of a measurement, named after the process. Those of killed processes are removed, with
//! their daemons, mounts and loop devices.

use std::fs;
use std::path::Path;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::error::{During, Result};
use crate::leftovers::left_behind;
use crate::loop_device::{attached_below, detach};
use crate::mount_point::mounted_below;

const PREFIX: &str = "glint-bench-";
/// How the name of a file ends that holds the process id of a daemon of the directory, which leads a
/// process group.
const PID_FILE: &str = ".pid";

/// A new directory in `base`, removed with its files on drop. What killed processes have left in
/// `base` is removed first.
pub(crate) fn own_directory(base: &Path) -> Result<TempDir> {
    remove_left_behind(base, PREFIX);
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", std::process::id()))
        .tempdir_in(base)
        .during(|| format!("making a directory in {}", base.display()))
}

/// Removes the directories in `base` named `<prefix><pid>-…` whose process is gone, and what was
/// made here inside such a directory. Daemons are ended, file systems unmounted, loop devices
/// detached. Nothing outside is touched.
pub fn remove_left_behind(base: &Path, prefix: &str) {
    // As the kernel names mounts and the files of loop devices.
    let Ok(base) = base.canonicalize() else {
        return;
    };
    for path in left_behind(&base, prefix)
        .iter()
        .filter(|path| is_real(path))
    {
        for inner in left_behind(path, PREFIX)
            .iter()
            .filter(|path| is_real(path))
        {
            end_daemons(inner);
        }
        remove(path);
    }
}

/// A directory, and not by way of a link that leads elsewhere.
fn is_real(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// Ends the directory's daemons, its mounts and loop devices, then removes its files. These only if
/// nothing is mounted there any more, because they would be somebody else's.
fn remove(directory: &Path) {
    end_daemons(directory);
    for mount in mounted_below(directory) {
        // Without permission it stays, and the files with it.
        let _ = umount2(&mount, MntFlags::MNT_DETACH);
    }
    // Most go with their mounts.
    for device in attached_below(directory) {
        detach(&device);
    }
    if mounted_below(directory).is_empty() {
        // The next one to come tries again.
        let _ = fs::remove_dir_all(directory);
    }
}

fn end_daemons(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().ends_with(PID_FILE) {
            end_daemon(directory, &entry.path());
        }
    }
}

/// The id may have been given to another process since: only one that was started with a path in the
/// directory is ours.
fn end_daemon(directory: &Path, pid_file: &Path) {
    let text = fs::read_to_string(pid_file).unwrap_or_default();
    let Ok(pid) = text.trim().parse::<i32>() else {
        return;
    };
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    if pid > 1 && words.contains(&*directory.to_string_lossy()) {
        // Not asked: sshfs waits for a server that may be gone. It may have ended just now.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::process::output;

    fn ended_process() -> u32 {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

    #[test]
    fn only_directories_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let stale = base.path().join(format!("{PREFIX}{}-x", ended_process()));
        let living = base
            .path()
            .join(format!("{PREFIX}{}-x", std::process::id()));
        let other = base.path().join("glint-bench-notes");
        for path in [&stale, &living, &other] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), "").unwrap();
        }
        let own = own_directory(base.path()).unwrap();
        assert!(own.path().exists() && living.exists() && other.exists());
        assert!(!stale.exists());
    }

    #[test]
    fn a_daemon_left_behind_is_ended_and_no_other_process() {
        let base = tempfile::tempdir().unwrap();
        let stale = base.path().join(format!("{PREFIX}{}-x", ended_process()));
        fs::create_dir(&stale).unwrap();
        let script = format!(": {}; while :; do sleep 0.05; done", stale.display());
        let spawn = |command: &mut Command| command.process_group(0).spawn().unwrap();
        let mut daemon = spawn(Command::new("sh").args(["-c", &script]));
        let mut bystander = spawn(Command::new("sleep").arg("600"));
        // The kernel lets us go on before the words of the new program are in place.
        let words = format!("/proc/{}/cmdline", daemon.id());
        while fs::read(&words).unwrap().is_empty() {
            std::thread::yield_now();
        }
        fs::write(stale.join("a.pid"), bystander.id().to_string()).unwrap();
        fs::write(stale.join("b.pid"), daemon.id().to_string()).unwrap();
        fs::write(stale.join("c.pid"), "nonsense").unwrap();
        drop(own_directory(base.path()).unwrap());
        daemon.wait().unwrap();
        assert!(bystander.try_wait().unwrap().is_none(), "still there");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
        assert!(!stale.exists());
    }

    #[test]
    fn a_link_in_place_of_a_directory_is_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("file"), "precious").unwrap();
        let stale = base.path().join(format!("run-{}-x", ended_process()));
        std::os::unix::fs::symlink(elsewhere.path(), &stale).unwrap();
        remove_left_behind(base.path(), "run-");
        assert!(elsewhere.path().join("file").exists());
    }

    /// A loop device on a new file there. None without permission.
    fn attached(file: &Path) -> Option<PathBuf> {
        File::create(file).unwrap().set_len(1 << 20).unwrap();
        let mut losetup = Command::new("losetup");
        let device = output(losetup.args(["--find", "--show"]).arg(file)).ok()?;
        Some(device.trim().into())
    }

    #[test]
    fn loop_devices_are_detached_and_no_others() {
        let base = tempfile::tempdir().unwrap();
        let stale = base.path().join(format!("run-{}-x", ended_process()));
        fs::create_dir(&stale).unwrap();
        let Some(other) = attached(&base.path().join("image")) else {
            return eprintln!("not tested: no permission to make a loop device");
        };
        assert!(attached(&stale.join("image")).is_some());
        remove_left_behind(base.path(), "run-");
        assert!(!stale.exists());
        let left = attached_below(base.path());
        detach(&other);
        assert_eq!(left, [other]);
    }

    #[test]
    fn a_mount_left_behind_is_detached_first() {
        let base = tempfile::tempdir().unwrap();
        let stale = base.path().join(format!("{PREFIX}{}-x", ended_process()));
        fs::create_dir_all(stale.join("mnt")).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "none"]).arg(stale.join("mnt"));
        if !mount.status().is_ok_and(|status| status.success()) {
            return eprintln!("not tested: no permission to mount");
        }
        assert_eq!(mounted_below(&stale), [stale.join("mnt")]);
        drop(own_directory(base.path()).unwrap());
        assert!(!stale.exists());
        assert!(mounted_below(&stale).is_empty());
    }
}
