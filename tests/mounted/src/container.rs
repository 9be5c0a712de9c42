//! User namespaces, as containers have them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use crate::holder::{HOLD, hold};

/// Ids inside of one.
const IDS: u32 = 65_536;

/// A user and a mount namespace of their own, in which /dev/fuse is open to all; only root can make
/// them. They end with this.
pub struct Container {
    holder: Child,
}

impl Container {
    /// Its ids 0 to 65,535 are `first` and following outside.
    pub fn new(first: u32) -> Container {
        let scratch = tempfile::tempdir().expect("a directory can be made");
        let device = scratch.path().join("fuse").display().to_string();
        let script = format!(
            "mknod -m 666 {device} c 10 229 && mount --bind {device} /dev/fuse && \
             exec unshare --user --mount sh -c '{HOLD}'"
        );
        let holder = hold("--mount", &script);
        let container = Container { holder };
        for map in ["uid_map", "gid_map"] {
            let ids = format!("0 {first} {IDS}\n");
            fs::write(container.proc(map), ids).expect("root can map ids");
        }
        container
    }

    /// Runs `script` with `sh -eu` inside, as its root.
    pub fn shell(&self, script: &str) -> Command {
        let target = self.holder.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &target, "--user", "--mount"]);
        command.args(["--setuid", "0", "--setgid", "0", "sh", "-euc", script]);
        command
    }

    /// What `script` says inside, errors too.
    pub fn says(&self, script: &str) -> String {
        let output = self.shell(script).output().expect("nsenter runs");
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).trim_end().to_owned()
    }

    /// The path by which processes outside see what it has at `/`.
    pub fn root(&self) -> PathBuf {
        self.proc("root")
    }

    fn proc(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.holder.id()).into()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
