//! The target directory `D` below a test's directory, served at one address and mounted at `mnt`.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;

use super::ports::free_address;
use super::{Ran, Staying, glint};

/// An address, and the directory of the test.
pub struct Place {
    at: PathBuf,
    pub address: String,
}

impl Place {
    pub fn new(at: &Path) -> Place {
        Place {
            at: at.to_owned(),
            address: free_address(),
        }
    }

    /// Serves `D`.
    #[track_caller]
    pub fn serve(&self) -> Staying {
        Staying::start(&self.at, &["serve", "D", "--listen", &self.address])
    }

    /// Mounts what is served.
    #[track_caller]
    pub fn mount(&self) -> Staying {
        let words = ["mount", &self.address, "mnt", "--key", "D/key"];
        Staying::start(&self.at, &words)
    }

    /// Mounts it as a daemon, with these words besides.
    #[track_caller]
    pub fn mount_daemon(&self, words: &[&str]) -> Ran {
        let mount = ["mount", &self.address, "mnt", "--key", "D/key", "--daemon"];
        glint(&self.at, &[&mount, words].concat())
    }
}

/// A mount and its server, which are killed where a test fails.
pub struct Mounted {
    // The mount goes first: its calls would wait for the server.
    mount: Staying,
    server: Staying,
    place: Place,
}

impl Mounted {
    #[track_caller]
    pub fn start(at: &Path) -> Mounted {
        let place = Place::new(at);
        let server = place.serve();
        Mounted {
            mount: place.mount(),
            server,
            place,
        }
    }

    /// Kills the server and starts it again.
    #[track_caller]
    pub fn restart_killed(&mut self) {
        self.server.signal(Signal::SIGKILL);
        self.server.ended();
        self.server = self.place.serve();
    }

    /// Unmounts, then ends the server as `signal` does. Returns the server's exit code.
    #[track_caller]
    pub fn end_with(mut self, signal: Signal) -> Option<i32> {
        glint(&self.place.at, &["umount", "mnt"]).worked();
        drop(self.mount);
        self.server.signal(signal);
        self.server.ended()
    }

    /// Ends both cleanly.
    #[track_caller]
    pub fn end(self) {
        assert_eq!(self.end_with(Signal::SIGTERM), Some(0));
    }
}
