//! Networks of a test's own: one for all its processes, and in it a link for each mount, which can be
//! cut.

use std::path::Path;
use std::process::{Child, Command};
use std::thread;

use nix::sched::{CloneFlags, unshare};

use crate::holder::{HOLD, hold};
use crate::program::run;

/// Where servers listen that are reached over links.
pub const HUB: &str = "10.77.0.1";

/// Runs `work` in a network of its own, in which only the processes are that it starts. Needs root.
pub fn in_own_network(work: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let inside = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("root can make a network");
            here("ip link set lo up");
            work();
        });
        if let Err(panic) = inside.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Cuts the processes in the network of the calling thread off from the others there, or mends
/// that. Links go on.
pub fn cut_loopback(is_cut: bool) {
    let state = if is_cut { "down" } else { "up" };
    here(&format!("ip link set lo {state}"));
}

/// Makes what links lead to, in the network of the calling thread.
pub fn make_hub() {
    here(&format!(
        "ip link add hub type bridge; ip addr add {HUB}/24 dev hub; ip link set hub up"
    ));
}

/// A network beside that of the calling thread, and the only way from there to the hub. It ends with
/// this, and with the last process in it.
pub struct Link {
    /// Of its end at the hub.
    name: String,
    holder: Child,
}

impl Link {
    /// One of those that lead to the hub; each has a number of its own.
    pub fn new(number: usize) -> Link {
        let link = Link {
            name: format!("link{number}"),
            holder: hold("--net", HOLD),
        };
        let (name, inside) = (&link.name, link.holder.id());
        here(&format!(
            "ip link add {name} type veth peer name way netns {inside}
             ip link set {name} master hub up"
        ));
        let address = format!("10.77.0.{}/24", 2 + number);
        let script =
            format!("ip link set lo up; ip addr add {address} dev way; ip link set way up");
        let mut inside = link.command(Path::new("sh"));
        let status = inside.args(["-euc", &script]).status();
        assert!(status.is_ok_and(|status| status.success()), "{script}");
        link
    }

    /// `program`, to be run behind it.
    pub fn command(&self, program: &Path) -> Command {
        let target = self.holder.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--target", &target, "--net"]).arg(program);
        command
    }

    /// Nothing gets through, and nobody is told.
    pub fn cut(&self) {
        here(&format!("ip link set {} down", self.name));
    }

    /// All gets through again.
    pub fn mend(&self) {
        here(&format!("ip link set {} up", self.name));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn here(script: &str) {
    run(Path::new("/"), script);
}
