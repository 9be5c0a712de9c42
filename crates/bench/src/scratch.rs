//! Directories for what a measurement needs, named after the process, and the removal of those that
//! killed processes have left behind.

use std::fs;
use std::path::Path;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::error::{During, Result};
use crate::leftovers::left_behind;
use crate::mount_point::mounted_below;

const PREFIX: &str = "glint-bench-";
/// How the name of a file ends that holds the process id of a daemon of the directory, which leads a
/// process group.
const PID_FILE: &str = ".pid";

/// A new directory in `base`, removed with its files on drop. What killed processes have left in
/// `base` is removed first.
pub(crate) fn own_directory(base: &Path) -> Result<TempDir> {
    for path in left_behind(base, PREFIX) {
        remove(&path);
    }
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", std::process::id()))
        .tempdir_in(base)
        .during(|| format!("making a directory in {}", base.display()))
}

/// Ends the directory's daemons and its mounts, then removes its files; these only if nothing is
/// mounted there any more, because they would be somebody else's.
fn remove(directory: &Path) {
    end_daemons(directory);
    for mount in mounted_below(directory) {
        // Without permission it stays, and the files with it.
        let _ = umount2(&mount, MntFlags::MNT_DETACH);
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
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

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
