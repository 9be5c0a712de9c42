//! One file per verb.

mod bench;
mod filefrag;
mod format;
mod fs;
mod fsck;
mod mount;
mod numbered;
mod param;
mod prefetch;
mod serve;
mod stats;
mod status;
mod target;
mod umount;
mod up;
mod upgrade;

pub use mount::system_mount::Helper;

use std::process::ExitCode;

use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub enum Verb {
    /// Format DIR if it is empty, serve it, and mount it at MNT: one process, nothing to set up.
    Up(up::Up),
    /// End what `glint up` started.
    Down(umount::Umount),
    /// Make new targets in a directory.
    Format(format::Format),
    /// Serve the targets of directories.
    Serve(serve::Serve),
    /// Mount a file system that is served elsewhere.
    Mount(mount::MountVerb),
    /// Unmount; a mount that is in use stays, and the users are listed.
    Umount(umount::Umount),
    /// Show the state of mounts, targets and servers.
    Status(status::Status),
    /// The targets of a file system: list them, remove one that is gone.
    Target(target::TargetVerb),
    /// Counters of a mount.
    Stats(stats::Stats),
    /// Tunables of mounts and servers.
    Param(param::Param),
    /// Questions about a mounted file system and its files.
    #[command(subcommand)]
    Fs(fs::Fs),
    /// Check the targets of a directory that is not being served.
    Fsck(fsck::Fsck),
    /// Move the objects of targets from files to extents.
    Upgrade(upgrade::Upgrade),
    /// Measurements.
    #[command(subcommand)]
    Bench(bench::Bench),
}

impl Verb {
    /// How much is logged unless GLINT_LOG says otherwise.
    pub fn log_level(&self) -> &'static str {
        match self {
            Verb::Serve(_) => "info",
            _ => "warn",
        }
    }

    /// Does it.
    pub fn run(self) -> Result<ExitCode, String> {
        let done = match self {
            Verb::Up(verb) => verb.run(),
            Verb::Format(verb) => verb.run(),
            Verb::Serve(verb) => verb.run(),
            Verb::Mount(verb) => verb.run(),
            Verb::Umount(verb) | Verb::Down(verb) => verb.run(),
            Verb::Status(verb) => verb.run(),
            Verb::Target(verb) => verb.run(),
            Verb::Stats(verb) => verb.run(),
            Verb::Param(verb) => verb.run(),
            Verb::Fs(verb) => verb.run(),
            Verb::Fsck(verb) => verb.run(),
            Verb::Upgrade(verb) => verb.run(),
            Verb::Bench(verb) => return verb.run(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
