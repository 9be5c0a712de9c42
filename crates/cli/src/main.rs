//! `glint`: the whole file system in one program.

mod control;
mod mgs;
mod mounting;
mod registration;
mod server;
mod verbs;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// A POSIX file system for clusters in which metadata travels ahead of the reader and behind the
/// writer.
///
/// Start with `glint up --dir DIR --mount MNT`: it formats DIR if it is empty, serves it and
/// mounts it at MNT, all in one process. `glint down MNT` ends it; nothing is lost.
///
/// Exit codes: 0 it worked, 1 it failed, 2 the call was wrong.
#[derive(Parser)]
#[command(name = "glint", version, max_term_width = 100)]
struct Glint {
    #[command(subcommand)]
    verb: verbs::Verb,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("GLINT_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match Glint::parse().verb.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("glint: {reason}");
            ExitCode::from(1)
        }
    }
}
