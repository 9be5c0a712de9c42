//! `glint bench`: each measurement, and the file systems it is made on.

mod aging;
mod demo;
mod flat;
mod floor;
mod glint;
mod link;
mod named;
mod numbers;
mod rivals;
mod screen;
mod served;
mod walk;
mod wbc;
mod written;
mod xfast;

use std::process::ExitCode;

use clap::Subcommand;

/// Measurements.
#[derive(Subcommand)]
pub enum Bench {
    /// A source tree over a slow link: Glint, the local disk, Glint without prefetch, sshfs.
    Demo(demo::Demo),
    /// The life of a source tree: tar, find, du, ls, grep, cp, rm.
    Walk(walk::Walk),
    /// One directory with very many files: made, listed, removed.
    Flat(flat::Flat),
    /// What the project promises, beside ext4 and tmpfs, and whether it is kept.
    Numbers(numbers::Numbers),
    /// The tables and figures of the talk on Xfast, measured here.
    Xfast(xfast::Xfast),
    /// What metadata write-back is for: the tables of the talk on Lustre's, measured here.
    Wbc(wbc::Wbc),
    /// How the object store's placement ages, on a model disk.
    Aging(aging::Aging),
    /// A file system in memory, which others are compared with.
    #[command(hide = true)]
    Floor(floor::FloorVerb),
    /// Run a command whose only network is an emulated link.
    Link(link::LinkVerb),
}

impl Bench {
    /// Does it.
    pub fn run(self) -> Result<ExitCode, String> {
        let done = match self {
            Bench::Demo(verb) => verb.run(),
            Bench::Walk(verb) => verb.run(),
            Bench::Flat(verb) => verb.run(),
            Bench::Numbers(verb) => verb.run(),
            Bench::Xfast(verb) => verb.run(),
            Bench::Wbc(verb) => verb.run(),
            Bench::Aging(verb) => verb.run(),
            Bench::Floor(verb) => verb.run(),
            Bench::Link(verb) => return verb.run(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}
