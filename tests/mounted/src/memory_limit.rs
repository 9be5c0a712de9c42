//! Limits of memory for groups of processes.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// A control group that may use so much memory and no more; only root can make one.
pub struct MemoryLimit {
    group: PathBuf,
}

impl MemoryLimit {
    /// For `bytes`: pages of files that its processes were the first to touch count, too.
    pub fn new(bytes: u64) -> MemoryLimit {
        let (parent, file) = hierarchy();
        let group = parent.join(format!("glint-test-{}", std::process::id()));
        fs::create_dir(&group).expect("root can make a control group");
        fs::write(group.join(file), bytes.to_string()).expect("a limit can be set");
        MemoryLimit { group }
    }

    /// `program`, to be run in it.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let enter = "echo $$ > \"$0\"; exec \"$@\"";
        command.args(["-euc", enter]);
        command.arg(self.group.join("cgroup.procs")).arg(program);
        command.process_group(0);
        command
    }

    /// Processes of it that the kernel killed for want of memory.
    pub fn killed(&self) -> u64 {
        let counted = ["memory.events", "memory.oom_control"]
            .iter()
            .find_map(|file| fs::read_to_string(self.group.join(file)).ok());
        let counted = counted.expect("a control group counts whom it kills");
        let line = counted
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok())
            .expect("a number")
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Its last process may still be on its way out.
        for _ in 0..100 {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        eprintln!("{} stays", self.group.display());
    }
}

/// Where groups with memory limits are made, and the file that holds a limit there: in the unified hierarchy,
/// or in that of memory.
fn hierarchy() -> (PathBuf, &'static str) {
    let (unified, memory) = (
        Path::new("/sys/fs/cgroup"),
        Path::new("/sys/fs/cgroup/memory"),
    );
    let controllers = fs::read_to_string(unified.join("cgroup.controllers"));
    if controllers.is_ok_and(|names| names.split_whitespace().any(|name| name == "memory")) {
        let enabled = fs::write(unified.join("cgroup.subtree_control"), "+memory");
        enabled.expect("the root group may pass memory on");
        return (unified.to_owned(), "memory.max");
    }
    assert!(
        memory.join("memory.limit_in_bytes").exists(),
        "control groups for memory are not mounted at {}",
        unified.display()
    );
    (memory.to_owned(), "memory.limit_in_bytes")
}
