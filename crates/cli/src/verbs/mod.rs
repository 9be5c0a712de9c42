//! One file per verb.

mod format;
mod mount;
mod param;
mod serve;
mod stats;
mod umount;
mod up;
mod wait;

use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub enum Verb {
    /// Format DIR if it is empty, serve it, and mount it at MNT: one process, nothing to set up.
    Up(up::Up),
    /// Make new targets in a directory.
    Format(format::Format),
    /// Serve the targets of directories.
    Serve(serve::Serve),
    /// Mount a file system that others serve.
    Mount(mount::MountVerb),
    /// Unmount; a mount that is in use stays, and the users are listed.
    Umount(umount::Umount),
    /// End what `glint up` started.
    Down(umount::Umount),
    /// Counters of a mount.
    Stats(stats::Stats),
    /// Tunables of a mount.
    Param(param::Param),
}

impl Verb {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        match self {
            Verb::Up(verb) => verb.run(),
            Verb::Format(verb) => verb.run(),
            Verb::Serve(verb) => verb.run(),
            Verb::Mount(verb) => verb.run(),
            Verb::Umount(verb) | Verb::Down(verb) => verb.run(),
            Verb::Stats(verb) => verb.run(),
            Verb::Param(verb) => verb.run(),
        }
    }
}
